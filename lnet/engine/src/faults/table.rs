use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lnet_api::LNetError;
use lnet_proto::Header;
use parking_lot::RwLock;

use super::{FaultRule, FaultRuleError};

/// The most rules of a node: each message that arrives is asked of all of them, while there are any.
pub const FAULT_RULES_MAX: usize = 64;

/// Names a rule of a node; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(u64);

/// A rule, and what has come of it so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultStatistics {
    /// Its name.
    pub id: FaultId,
    /// The rule.
    pub rule: FaultRule,
    /// Messages that it is for and that no rule before it has taken.
    pub matched: u64,
    /// Those of them that were lost.
    pub dropped: u64,
    /// Those that were delayed.
    pub delayed: u64,
    /// Those that were to be delayed, but could not be ([`crate::Limits::held`]).
    pub passed: u64,
}

/// The rules of a node.
#[derive(Default)]
pub(crate) struct Faults {
    /// Whether there are rules. A thread that does not see yet that there are is one to which they come a moment later.
    armed: AtomicBool,
    rules: RwLock<Rules>,
}

#[derive(Default)]
struct Rules {
    /// In the order in which they are asked.
    armed: Vec<Arc<Armed>>,
    named: u64,
}

/// A rule that is in force.
pub(crate) struct Armed {
    id: FaultId,
    rule: FaultRule,
    matched: AtomicU64,
    dropped: AtomicU64,
    delayed: AtomicU64,
    passed: AtomicU64,
}

/// What a rule does to a message.
pub(crate) enum Fault {
    Drop,
    /// So many nanoseconds.
    Delay(u64),
}

impl Faults {
    /// Whether there are rules.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// The first rule that does something to this message. Those behind it do not see it.
    pub(crate) fn strike(&self, header: &Header) -> Option<(Arc<Armed>, Fault)> {
        let rules = self.rules.read();
        rules.armed.iter().find_map(|armed| Some((armed.clone(), armed.strike(header)?)))
    }

    pub(crate) fn add(&self, rule: FaultRule) -> Result<FaultId, LNetError> {
        rule.check().map_err(invalid)?;
        let mut rules = self.rules.write();
        if rules.armed.len() == FAULT_RULES_MAX {
            return Err(LNetError::TooMany { objects: "fault rules", limit: FAULT_RULES_MAX });
        }
        rules.named += 1;
        let id = FaultId(rules.named);
        rules.armed.push(Arc::new(Armed::new(id, rule)));
        self.armed.store(true, Ordering::Relaxed);
        Ok(id)
    }

    pub(crate) fn remove(&self, id: FaultId) -> Option<FaultStatistics> {
        let mut rules = self.rules.write();
        let place = rules.armed.iter().position(|armed| armed.id == id)?;
        let removed = rules.armed.remove(place);
        self.armed.store(!rules.armed.is_empty(), Ordering::Relaxed);
        Some(removed.statistics())
    }

    pub(crate) fn statistics(&self) -> Vec<FaultStatistics> {
        self.rules.read().armed.iter().map(|armed| armed.statistics()).collect()
    }
}

impl Armed {
    fn new(id: FaultId, rule: FaultRule) -> Armed {
        let zero = AtomicU64::default;
        Armed { id, rule, matched: zero(), dropped: zero(), delayed: zero(), passed: zero() }
    }

    fn strike(&self, header: &Header) -> Option<Fault> {
        if !self.rule.is_for(header) {
            return None;
        }
        let number = self.matched.fetch_add(1, Ordering::Relaxed);
        if !self.rule.happens_to(number) {
            return None;
        }
        match self.rule.delay_ns(number) {
            Some(delay_ns) => Some(Fault::Delay(delay_ns)),
            None => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Some(Fault::Drop)
            }
        }
    }

    /// Whether a message that was to be delayed was.
    pub(crate) fn count_delay(&self, delayed: bool) {
        let counter = if delayed { &self.delayed } else { &self.passed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn statistics(&self) -> FaultStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FaultStatistics {
            id: self.id,
            rule: self.rule,
            matched: read(&self.matched),
            dropped: read(&self.dropped),
            delayed: read(&self.delayed),
            passed: read(&self.passed),
        }
    }
}

fn invalid(error: FaultRuleError) -> LNetError {
    match error {
        FaultRuleError::Delay { at_most, .. } => LNetError::Invalid {
            field: "delay",
            value: u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX),
            rule: "it is 0 to 60 seconds, the shortest first",
        },
        _ => LNetError::Invalid {
            field: "kinds",
            value: 0,
            rule: "a fault rule names at least one kind of message",
        },
    }
}
