//! A request as its handler sees it, and the handler's decision about it.

use lnet_region::IoVec;
use nix::errno::Errno;

use crate::{Class, Service, Transport};

/// A request, lent to its handler.
pub struct Request<'a, T: Transport, S> {
    /// The sender, as the transport names it.
    pub from: &'a T::Peer,
    /// Index of the endpoint at which it arrived; over LNet, of its match bits.
    pub endpoint: usize,
    /// The partition whose buffer it arrived in, and in which it is served.
    pub partition: usize,
    /// The bytes that arrived, in the request buffer.
    pub bytes: &'a [u8],
    /// The number of bytes that its sender sent; larger than `bytes` if it was cut off.
    pub sent_length: usize,
    /// The time of its arrival, in nanoseconds of the pool's clock.
    pub arrived_ns: u64,
    /// The time of this step.
    pub now_ns: u64,
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
        /// The number by which the peer recognises the reply.
        tag: u64,
        /// The length in bytes.
        length: usize,
    },
    /// Send the first `length` bytes of this memory into memory that the peer offers, then call [`Handler::moved`].
    Push {
        /// The peer's memory.
        offer: O,
        /// The bytes to send.
        memory: M,
        /// Their number, from the start of the memory.
        length: usize,
    },
    /// Fetch memory that the peer offers into this memory, then call [`Handler::moved`].
    Pull {
        /// The peer's memory.
        offer: O,
        /// The memory that receives the bytes.
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

    /// Set if [`Handler::arrived`] is called for each request.
    const HANDLES_ARRIVALS: bool = false;

    /// Takes note of a request that has arrived and will wait for a worker, and returns its class;
    /// without this method the transport decides. Called under locks of the network, so it returns
    /// soon, does not block, and calls neither the service nor its transport.
    fn arrived(&self, request: Request<'_, T, Self::State>) -> Class {
        let _ = request;
        Class::Normal
    }

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

    /// Runs the handler's timers, on the thread that drives, even while all workers are busy.
    /// Returns the time of the next call, at the latest; another call may come earlier.
    fn tick(&self, service: &Service<T, Self>, partition: usize, now_ns: u64) -> u64
    where
        Self: Sized,
    {
        let _ = (service, partition, now_ns);
        u64::MAX
    }

    /// Returns the time at which [`Handler::tick`] must be called because of earlier calls for this
    /// partition, once; `u64::MAX` for none.
    fn take_due_ns(&self, partition: usize) -> u64 {
        let _ = partition;
        u64::MAX
    }
}
