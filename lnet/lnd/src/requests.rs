//! The queue of requests to a shard's driver, from any thread.

use parking_lot::Mutex;

/// Capacity of the two request lists, which each poll swaps. Without it a list that is first used
/// after a long time would allocate memory then. Lists of busier shards grow once.
pub const LIST_ROOM: usize = 64;

/// The requests that the driver has not taken yet. The queue needs no limit: there are a few for
/// each connection, peer and NI, because a pending request to connect is not repeated.
#[derive(Debug)]
pub struct Requests<R>(Mutex<Vec<R>>);

impl<R> Default for Requests<R> {
    fn default() -> Requests<R> {
        Requests(Mutex::new(Vec::with_capacity(LIST_ROOM)))
    }
}

impl<R> Requests<R> {
    /// Queues a request. Returns `true` for the first of a batch, for which the caller must wake
    /// the driver: it takes all of them at once.
    pub fn push(&self, request: R) -> bool {
        let mut requests = self.0.lock();
        requests.push(request);
        requests.len() == 1
    }

    /// Moves all requests into an empty list; returns whether there were any.
    pub fn take(&self, into: &mut Vec<R>) -> bool {
        debug_assert!(into.is_empty(), "requests are taken before the last ones are served");
        std::mem::swap(&mut *self.0.lock(), into);
        !into.is_empty()
    }

    /// Returns whether no request is queued.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
