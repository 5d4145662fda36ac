//! The end of a session, in slices.
//!
//! A client with full quotas has 65,536 operations, as many buffers and hundreds of transfer machines and arenas: to let go of
//! all of them at once takes more than a second, in which a thread serves nobody. So a session is closed by a bounded number of
//! *units of work* at a time ([`Session::close_some`]):
//!
//! | in this order | a unit |
//! | --- | --- |
//! | the operations of each transfer machine are cancelled | an operation, or 16 places without one |
//! | the places of those that are over are freed | 4 places |
//! | the transfer machine is dropped | a transfer machine |
//! | the buffers are dropped | a buffer, or 16 places without one |
//! | the arenas are dropped | an arena |
//!
//! Memory is unmapped by another thread ([`lnet_region::closer`]).

use nlx_fallible::TryArc;

use super::tms::Tm;
use super::{Departure, Session};
use crate::departed::Estate;

/// How far closing a session has come.
pub(super) struct Closing {
    /// There is room in it for all that the client has.
    estate: TryArc<Estate>,
    /// The transfer machine whose operations are being cancelled, with its handle.
    tm: Option<(u64, Tm)>,
    /// All is done.
    over: bool,
}

impl Closing {
    pub(super) fn new(estate: TryArc<Estate>) -> Closing {
        Closing { estate, tm: None, over: false }
    }

    /// What the client leaves when it goes.
    pub(super) fn estate(&self) -> &Estate {
        &self.estate
    }
}

impl Session {
    /// The client is gone, or is cut off. Cancels all that is in flight, and lets everything go; what LNet still holds then
    /// is counted as left over. Dropping a session does the same.
    pub fn close(mut self) -> Departure {
        loop {
            if let (_, Some(departure)) = self.close_some(usize::MAX) {
                return departure;
            }
        }
    }

    /// The same in parts: does up to `budget` units of work, and gives how many. Fewer than that once all is done; then it also
    /// gives what the client has left. From the first part on, nothing else is to be asked of the session but its end.
    pub fn close_some(&mut self, budget: usize) -> (usize, Option<Departure>) {
        let (mut units, mut departure) = (0, None);
        while units < budget && !self.closing.over {
            let (done, left) = self.close_one_kind(budget - units);
            (units, departure) = (units + done, left);
        }
        (units, departure)
    }

    /// Some units of one kind of work, one at least; and what the client has left once all is done.
    fn close_one_kind(&mut self, budget: usize) -> (usize, Option<Departure>) {
        let Closing { estate, tm, over } = &mut self.closing;
        if let Some((_, current)) = tm {
            let units = current.cancel_some(budget);
            if units == budget {
                return (units, None);
            }
            if let Some((handle, current)) = tm.take() {
                current.let_go(estate);
                self.record.tms.lock().remove(&handle);
            }
            return (units + 1, None);
        }
        *tm = self.tms.pop();
        if tm.is_some() {
            return (1, None);
        }
        let units = self.buffers.let_go(budget);
        if units > 0 {
            return (units, None);
        }
        if self.arenas.let_go_of_one(estate) {
            return (1, None);
        }
        *over = true;
        if let Some(charges) = self.charges.take() {
            *estate.operations.lock() = Some((self.record.tally.clone(), charges.operations));
        }
        (1, Some(self.host.leave(&self.record, estate.clone())))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        while !self.closing.over {
            self.close_some(usize::MAX);
        }
    }
}
