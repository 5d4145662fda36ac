//! Messages that wait for a connection to their peer.

use std::collections::VecDeque;

use lnet_api::{Errno, Tx, TxToken, Upcalls};

/// The most messages that wait for one peer. An NI has 256 credits by default and seldom more than ten times that; a program that
/// queues more does not look at its results.
const WAITING_MAX: usize = 4096;

/// The messages that wait for one peer, oldest first, in its lock; [`Withdrawn`] ends them outside of it.
#[derive(Debug, Default)]
pub struct Waiting(VecDeque<Tx>);

impl Waiting {
    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The one that has waited longest.
    #[must_use]
    pub fn first(&self) -> Option<&Tx> {
        self.0.front()
    }

    /// The same, taken out.
    pub fn take_first(&mut self) -> Option<Tx> {
        self.0.pop_front()
    }

    /// It waits again, before all others.
    pub fn put_back(&mut self, tx: Tx) {
        self.0.push_front(tx);
    }

    /// Whether so many wait that no more are taken: ENOBUFS.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.len() >= WAITING_MAX
    }

    /// One more waits, behind all others.
    pub fn push(&mut self, tx: Tx) {
        self.0.push_back(tx);
    }

    /// Takes out the message of this token.
    pub fn take(&mut self, token: TxToken) -> Option<Tx> {
        let place = self.0.iter().position(|tx| tx.token == token)?;
        self.0.remove(place)
    }

    /// Takes out those that have waited for too long.
    pub fn take_overdue(&mut self, now_ns: u64) -> Withdrawn {
        let mut overdue = VecDeque::new();
        while self.0.front().is_some_and(|tx| tx.deadline_ns <= now_ns) {
            overdue.extend(self.0.pop_front());
        }
        Withdrawn(overdue)
    }

    /// Takes out all.
    pub fn take_all(&mut self) -> Withdrawn {
        Withdrawn(std::mem::take(&mut self.0))
    }
}

/// Messages that wait no more, and are to fail.
#[derive(Debug)]
#[must_use = "each of them is to be finalised"]
pub struct Withdrawn(VecDeque<Tx>);

impl Withdrawn {
    /// Fails them, under no lock of their peer, and gives how many there were.
    pub fn fail(self, upcalls: &dyn Upcalls, errno: Errno) -> usize {
        let count = self.0.len();
        for Tx { token, payload, .. } in self.0 {
            drop(payload);
            upcalls.finalize_tx(token, Err(errno));
        }
        count
    }
}
