//! A request as its handler sees it, and the handler's decision about it.

use lnet_region::IoVec;
use nix::errno::Errno;

use crate::Transport;

/// A request, lent to its handler.
pub struct Request<'a, T: Transport, S> {
    /// Its sender.
    pub from: &'a T::Peer,
    /// Index of the endpoint at which it arrived; over LNet, of its match bits.
    pub endpoint: usize,
    /// The partition whose buffer it arrived in, and in which it is served.
    pub partition: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The number of bytes that its sender sent; larger than `bytes` if it was cut off.
    pub sent_length: usize,
    /// The time of its arrival, in nanoseconds of the pool's clock.
    pub arrived_ns: u64,
    /// Memory for the reply. It holds the bytes of an earlier reply.
    pub reply: &'a mut [u8],
    /// Data that the handler keeps from one step of the request to the next.
    pub state: &'a mut S,
}

/// The decision of a handler about a request: its next step, or its end.
#[derive(Debug)]
pub enum Next<O, M = IoVec> {
    /// Send the first `length` bytes of the reply memory, and end. `tag` is the number by which
    /// the peer recognises the reply, where the transport carries one.
    Reply {
        /// The number.
        tag: u64,
        /// The length in bytes.
        length: usize,
    },
    /// Send the first `length` bytes of this memory into memory that the peer offers, then call [`Handler::moved`].
    Push {
        /// The peer's memory.
        offer: O,
        /// The bytes.
        memory: M,
        /// Their number, from the start of the memory.
        length: usize,
    },
    /// Fetch memory that the peer offers into this memory, then call [`Handler::moved`].
    Pull {
        /// The peer's memory.
        offer: O,
        /// The destination.
        memory: M,
    },
    /// End without a reply.
    Drop,
}

/// The work of a service. Called on worker threads, several at a time.
pub trait Handler<T: Transport>: Send + Sync + 'static {
    /// Data that a request keeps between its steps. The service reuses the values for later requests,
    /// so memory in them stays allocated.
    type State: Default + Send + 'static;

    /// Handles a request that has arrived.
    fn request(&self, request: Request<'_, T, Self::State>) -> Next<T::Offer, T::Memory>;

    /// Continues after bulk: the number of bytes that were moved, or the error.
    fn moved(
        &self,
        request: Request<'_, T, Self::State>,
        outcome: Result<usize, Errno>,
    ) -> Next<T::Offer, T::Memory> {
        let _ = (request, outcome);
        Next::Drop
    }

    /// Called when a request has ended: with its reply, which has left or failed, or without one.
    /// The place to release what the state holds.
    fn ended(&self, state: &mut Self::State, replied: Result<(), Errno>) {
        let _ = (state, replied);
    }
}
