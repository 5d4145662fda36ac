//! The fault rules of a node, with their statistics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lnet_api::LNetError;
use lnet_proto::Header;
use parking_lot::RwLock;

use super::{FaultRule, FaultRuleError};

/// Maximum number of rules of a node: while there are any, each arriving message is compared with
/// all.
pub const FAULT_RULES_MAX: usize = 64;

/// Identifier of a rule of a node; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(u64);

/// A rule with its statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultStatistics {
    /// The rule's identifier.
    pub id: FaultId,
    /// The rule as it was added.
    pub rule: FaultRule,
    /// Matching messages on which no earlier rule has acted.
    pub matched: u64,
    /// Messages of these that were lost.
    pub dropped: u64,
    /// Messages of these that were delayed.
    pub delayed: u64,
    /// Messages of these whose delay was impossible ([`crate::Limits::held`]).
    pub passed: u64,
}

/// The rules of a node.
#[derive(Default)]
pub(crate) struct FaultRules {
    /// True if there are rules. A thread that reads an old value behaves as if they had been added
    /// later.
    armed: AtomicBool,
    rules: RwLock<Rules>,
}

#[derive(Default)]
struct Rules {
    /// The active rules, in the order in which they apply.
    active: Vec<Arc<ActiveRule>>,
    named: u64,
}

/// An active rule and its counters.
pub(crate) struct ActiveRule {
    id: FaultId,
    rule: FaultRule,
    matched: AtomicU64,
    dropped: AtomicU64,
    delayed: AtomicU64,
    passed: AtomicU64,
}

/// The effect of a rule on a message.
pub(crate) enum FaultEffect {
    Drop,
    /// Delay in nanoseconds.
    Delay(u64),
}

impl FaultRules {
    /// Returns whether there are rules.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Returns the first rule that acts on this message, and its effect. Later rules do not see the
    /// message.
    pub(crate) fn apply(&self, header: &Header) -> Option<(Arc<ActiveRule>, FaultEffect)> {
        let rules = self.rules.read();
        rules.active.iter().find_map(|rule| Some((rule.clone(), rule.apply(header)?)))
    }

    pub(crate) fn add(&self, rule: FaultRule) -> Result<FaultId, LNetError> {
        rule.check().map_err(invalid)?;
        let mut rules = self.rules.write();
        if rules.active.len() == FAULT_RULES_MAX {
            return Err(LNetError::TooMany { objects: "fault rules", limit: FAULT_RULES_MAX });
        }
        rules.named += 1;
        let id = FaultId(rules.named);
        rules.active.push(Arc::new(ActiveRule::new(id, rule)));
        self.armed.store(true, Ordering::Relaxed);
        Ok(id)
    }

    pub(crate) fn remove(&self, id: FaultId) -> Option<FaultStatistics> {
        let mut rules = self.rules.write();
        let index = rules.active.iter().position(|rule| rule.id == id)?;
        let removed = rules.active.remove(index);
        self.armed.store(!rules.active.is_empty(), Ordering::Relaxed);
        Some(removed.statistics())
    }

    pub(crate) fn statistics(&self) -> Vec<FaultStatistics> {
        self.rules.read().active.iter().map(|rule| rule.statistics()).collect()
    }
}

impl ActiveRule {
    fn new(id: FaultId, rule: FaultRule) -> ActiveRule {
        let zero = AtomicU64::default;
        ActiveRule { id, rule, matched: zero(), dropped: zero(), delayed: zero(), passed: zero() }
    }

    fn apply(&self, header: &Header) -> Option<FaultEffect> {
        if !self.rule.is_for(header) {
            return None;
        }
        let number = self.matched.fetch_add(1, Ordering::Relaxed);
        if !self.rule.happens_to(number) {
            return None;
        }
        match self.rule.delay_ns(number) {
            Some(delay_ns) => Some(FaultEffect::Delay(delay_ns)),
            None => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                Some(FaultEffect::Drop)
            }
        }
    }

    /// Counts a message that was to be delayed, by whether it was.
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
