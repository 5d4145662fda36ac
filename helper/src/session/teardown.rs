//! The end of a session, in slices.
//!
//! A client with full quotas has 65,536 operations, the same number of buffers, and hundreds of
//! transfer machines and arenas. Releasing all of them at once takes more than a second, in which a
//! thread serves no client. So a session is closed by a bounded number of *units of work* at a time
//! ([`Session::close_some`]):
//!
//! | in this order | a unit |
//! | --- | --- |
//! | the operations of each transfer machine are cancelled | an operation, or 16 unused slots |
//! | the slots of finished operations are freed | 4 slots |
//! | the transfer machine is dropped | a transfer machine |
//! | the buffers are dropped | a buffer, or 16 unused slots |
//! | the arenas are dropped | an arena |
//!
//! Another thread unmaps memory ([`lnet_region::closer`]).

use nlx_fallible::TryArc;

use super::tms::Tm;
use super::{Departure, Session};
use crate::departed::SessionTeardown;

/// Progress of closing a session.
pub(super) struct CloseProgress {
    /// Has room reserved for everything that the client has.
    teardown: TryArc<SessionTeardown>,
    /// The transfer machine whose operations are being cancelled, with its handle.
    tm: Option<(u64, Tm)>,
    /// Set once closing is complete.
    over: bool,
}

impl CloseProgress {
    pub(super) fn new(teardown: TryArc<SessionTeardown>) -> CloseProgress {
        CloseProgress { teardown, tm: None, over: false }
    }

    /// Returns the list of the client's leftovers.
    pub(super) fn teardown(&self) -> &SessionTeardown {
        &self.teardown
    }
}

impl Session {
    /// Closes the session of a client that is gone or cut off: cancels all operations in flight,
    /// and releases everything. Resources that LNet still holds are counted as left over. Dropping
    /// a session does the same.
    pub fn close(mut self) -> Departure {
        loop {
            if let (_, Some(departure)) = self.close_some(usize::MAX) {
                return departure;
            }
        }
    }

    /// Closes the session in parts: does up to `budget` units of work and returns their number.
    /// Fewer than `budget` once all is done; then it also returns the client's leftovers. From the
    /// first part on, no other method of the session may be called.
    pub fn close_some(&mut self, budget: usize) -> (usize, Option<Departure>) {
        let (mut units, mut departure) = (0, None);
        while units < budget && !self.closing.over {
            let (done, left) = self.close_one_kind(budget - units);
            (units, departure) = (units + done, left);
        }
        (units, departure)
    }

    /// Does one kind of work, at least one unit. Returns the client's leftovers once all is done.
    fn close_one_kind(&mut self, budget: usize) -> (usize, Option<Departure>) {
        let CloseProgress { teardown, tm, over } = &mut self.closing;
        if let Some((_, current)) = tm {
            let units = current.cancel_some(budget);
            if units == budget {
                return (units, None);
            }
            if let Some((handle, current)) = tm.take() {
                current.release(teardown);
                self.record.tms.lock().remove(&handle);
            }
            return (units + 1, None);
        }
        *tm = self.tms.pop();
        if tm.is_some() {
            return (1, None);
        }
        let units = self.buffers.drop_some(budget);
        if units > 0 {
            return (units, None);
        }
        if self.arenas.release_one(teardown) {
            return (1, None);
        }
        *over = true;
        if let Some(charges) = self.charges.take() {
            *teardown.operations.lock() = Some((self.record.counters.clone(), charges.operations));
        }
        (1, Some(self.host.leave(&self.record, teardown.clone())))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        while !self.closing.over {
            self.close_some(usize::MAX);
        }
    }
}
