//! Counters of each client, kept by the helper.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::Totals;
use super::signals::ClientSignals;

/// The counters of a client. Written by its session and, for operations and events, by LNet's
/// threads; read by any thread for the status.
#[derive(Debug, Default)]
pub(super) struct ClientCounters {
    pub(super) buffers: RelaxedCounter,
    pub(super) arenas: RelaxedCounter,
    pub(super) bytes: RelaxedCounter,
    /// Operations in flight.
    pub(super) operations: RelaxedCounter,
    pub(super) violations: RelaxedCounter,
    pub(super) requests: RelaxedCounter,
    pub(super) submissions: RelaxedCounter,
    pub(super) started: RelaxedCounter,
    pub(super) events: RelaxedCounter,
    pub(super) refused_by_policy: RelaxedCounter,
    pub(super) refused_by_quota: RelaxedCounter,
    pub(super) refused: RelaxedCounter,
    pub(super) signals: ClientSignals,
    /// Set once an event queue of the client was full or corrupt.
    pub(super) broken: AtomicBool,
}

/// A relaxed counter: it orders no other access.
#[derive(Debug, Default)]
pub(super) struct RelaxedCounter(AtomicU64);

impl RelaxedCounter {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(super) fn sub(&self, less: u64) {
        let before = self.0.fetch_sub(less, Relaxed);
        debug_assert!(before >= less, "{before} less {less}");
    }
}

impl ClientCounters {
    pub(super) fn totals(&self) -> Totals {
        Totals {
            clients: 1,
            violations: self.violations.get(),
            requests: self.requests.get(),
            submissions: self.submissions.get(),
            operations: self.started.get(),
            events: self.events.get(),
            refused_by_policy: self.refused_by_policy.get(),
            refused_by_quota: self.refused_by_quota.get(),
            refused: self.refused.get(),
        }
    }
}
