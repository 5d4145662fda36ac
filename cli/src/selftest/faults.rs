//! Messages that are dropped and delayed on purpose, by rules in the node's engine.

use std::sync::Mutex;

use nlx::{Domain, Errno};

use super::command::{Refusal, RuleStatus};

/// The rules of one node; everything that runs on it shares them.
pub(super) struct Faults {
    _domain: Domain,
    applied: Mutex<Option<(String, u64)>>,
}

impl Faults {
    pub(super) fn new(domain: &Domain) -> Faults {
        Faults { _domain: domain.clone(), applied: Mutex::new(None) }
    }

    /// Puts these rules to work, unless they are at work already.
    pub(super) fn apply(&self, text: &str, _seed: u64) -> Result<(), Refusal> {
        let _applied = self.applied.lock();
        if text.is_empty() { Ok(()) } else { Err(Refusal::new(Errno::ENOSYS, "no rules yet")) }
    }

    /// What each rule has done so far.
    pub(super) fn counts(&self) -> Vec<RuleStatus> {
        Vec::new()
    }
}
