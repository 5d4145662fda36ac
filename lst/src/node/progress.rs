//! Starting and stopping of the units of a test.

use nlx_sync::{AtomicU8, AtomicU32, Ordering, Rule};

/// SYNC lst.ended: all that a unit did happens before its end is counted. So a QUERY that finds no
/// unit running, and the next start, come after all errors and times of the run.
const ENDED: Rule = Rule::new("lst.ended");

/// How far a test's units may go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Demand {
    Run,
    /// Units begin no RPC.
    Stop,
    /// RPCs in flight are aborted, too.
    Abort,
}

/// Number of running units of a test, and what is demanded of them.
///
/// The framework's lock serializes [`Progress::start`] and [`Progress::stop`]; units call the rest on
/// any thread.
#[derive(Debug)]
pub(super) struct Progress {
    demand: AtomicU8,
    running: AtomicU32,
}

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { demand: AtomicU8::new(Demand::Stop as u8), running: AtomicU32::new(0) }
    }

    /// Counts `units` as running. All units of an earlier run have ended: a unit that was stopped
    /// never sees that others start.
    pub(super) fn start(&self, units: u32) {
        debug_assert_eq!(self.running(), 0, "a test that runs is not started");
        self.demand.store(Demand::Run as u8, Ordering::Relaxed);
        self.running.store(units, Ordering::Relaxed);
    }

    /// Stops the units, if they have not been stopped harder.
    pub(super) fn stop(&self, abort: bool) {
        let demand = if abort { Demand::Abort } else { Demand::Stop };
        self.demand.fetch_max(demand as u8, Ordering::Relaxed);
    }

    /// Called once for each unit, when it does nothing any more.
    pub(super) fn unit_ended(&self) {
        // SYNC lst.ended
        self.running.fetch_sub(1, ENDED.release());
    }

    /// Number of units that have not ended. If it is 0, all they did has happened before.
    pub(super) fn running(&self) -> u32 {
        // SYNC lst.ended
        self.running.load(ENDED.acquire())
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.demand.load(Ordering::Relaxed) != Demand::Run as u8
    }

    pub(super) fn is_aborting(&self) -> bool {
        self.demand.load(Ordering::Relaxed) == Demand::Abort as u8
    }
}

#[cfg(all(test, loom))]
mod model;
