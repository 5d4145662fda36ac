//! A request as its handler sees it, and what the handler does next.

use lnet_region::IoVec;
use nix::errno::Errno;

use crate::Transport;

/// A request, lent to its handler.
pub struct Request<'a, T: Transport, S> {
    /// Its sender.
    pub from: &'a T::Peer,
    /// The endpoint at which it arrived: of match bits, over LNet.
    pub endpoint: usize,
    /// The partition to which it belongs.
    pub partition: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The number of bytes that its sender sent; larger than `bytes` if it was cut off.
    pub sent_length: usize,
    /// The time of its arrival, in nanoseconds of the pool's clock.
    pub arrived_ns: u64,
    /// Memory for the reply, with the bytes of an earlier one.
    pub reply: &'a mut [u8],
    /// What the handler stores between the steps of the request.
    pub state: &'a mut S,
}

/// What a handler does next with a request.
#[derive(Debug)]
pub enum Next<O> {
    /// Send the first `length` bytes of the reply memory, and end. `tag` is the number by which
    /// the peer recognises the reply.
    Reply {
        /// The number.
        tag: u64,
        /// The length in bytes.
        length: usize,
    },
    /// Send this memory into memory that the peer offers, then call [`Handler::moved`].
    Push {
        /// The peer's memory.
        offer: O,
        /// The bytes.
        memory: IoVec,
    },
    /// Fetch memory that the peer offers into this memory, then call [`Handler::moved`].
    Pull {
        /// The peer's memory.
        offer: O,
        /// The destination.
        memory: IoVec,
    },
    /// End without a reply.
    Drop,
}

/// The work of a service. Called on worker threads, several at a time.
pub trait Handler<T: Transport>: Send + Sync + 'static {
    /// What a request stores between its steps. The service keeps and reuses the values: memory in
    /// it stays allocated.
    type State: Default + Send + 'static;

    /// Handles a request that has arrived.
    fn request(&self, request: Request<'_, T, Self::State>) -> Next<T::Offer>;

    /// Continues after bulk: the number of bytes that were moved, or the error.
    fn moved(&self, request: Request<'_, T, Self::State>, outcome: Result<usize, Errno>) -> Next<T::Offer> {
        let _ = (request, outcome);
        Next::Drop
    }

    /// Called when a request has ended: with its reply, which has left or failed, or without one.
    /// The place to release what the state holds.
    fn ended(&self, state: &mut Self::State, replied: Result<(), Errno>) {
        let _ = (state, replied);
    }
}
