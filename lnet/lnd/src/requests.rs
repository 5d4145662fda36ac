//! What any thread asks of a shard's driver.

use parking_lot::Mutex;

/// Requests for which there is room from the start, in each of the two lists that change places with every poll: else one that is
/// used for the first time after long still takes memory. Busier shards grow theirs once.
pub const LIST_ROOM: usize = 64;

/// The requests that the driver has not taken yet. Their number has no limit of its own: there are a few for each connection, peer and
/// NI, for who has asked to be connected does not ask again.
#[derive(Debug)]
pub struct Requests<R>(Mutex<Vec<R>>);

impl<R> Default for Requests<R> {
    fn default() -> Requests<R> {
        Requests(Mutex::new(Vec::with_capacity(LIST_ROOM)))
    }
}

impl<R> Requests<R> {
    /// Asks for something. `true` for the first of a batch, with which the driver is to be woken: it takes all of them at once.
    pub fn push(&self, request: R) -> bool {
        let mut requests = self.0.lock();
        requests.push(request);
        requests.len() == 1
    }

    /// Takes all into an empty list; gives whether there were any.
    pub fn take(&self, into: &mut Vec<R>) -> bool {
        debug_assert!(into.is_empty(), "requests are taken before the last ones are served");
        std::mem::swap(&mut *self.0.lock(), into);
        !into.is_empty()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
