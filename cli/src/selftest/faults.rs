//! Messages that are dropped and delayed on purpose, by rules in the node's engine.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lnet_node::{FaultAction, FaultId, FaultRule, MessageKinds};
use nlx::{Domain, Errno};

use super::command::{Refusal, RuleStatus};
use super::{COMMAND_PORTAL, PORTAL};

/// The rules of one node; all parts of the test on it share them.
pub(super) struct Faults {
    domain: Domain,
    applied: Mutex<Vec<FaultId>>,
}

/// Number of consecutive messages of one operation: request, GET, REPLY, answer. Each may be
/// delayed.
const DELAYS: u32 = 4;

impl Faults {
    pub(super) fn new(domain: &Domain) -> Faults {
        Faults { domain: domain.clone(), applied: Mutex::default() }
    }

    /// Replaces the rules, with counters at 0.
    pub(super) fn apply(&self, rules: &[FaultRule]) -> Result<(), Refusal> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(node) = self.domain.node() else {
            let refusal = Refusal::new(Errno::EOPNOTSUPP, "faults need a node in this process");
            return if rules.is_empty() { Ok(()) } else { Err(refusal) };
        };
        for id in applied.drain(..) {
            // Only this object has the rule's id; an error means that the rule is gone already.
            let _ = node.remove_fault(id);
        }
        for rule in rules {
            let added = node.add_fault(*rule);
            applied.push(added.map_err(|error| Refusal::new(error.errno(), error.to_string()))?);
        }
        Ok(())
    }

    /// Returns the counters of each rule.
    pub(super) fn counts(&self) -> Vec<RuleStatus> {
        let applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.domain.node().map_or_else(Vec::new, |node| node.faults());
        let own = found.into_iter().filter(|found| applied.contains(&found.id));
        own.map(|found| RuleStatus {
            rule: found.rule.to_string(),
            matched: found.matched,
            dropped: found.dropped,
            delayed: found.delayed,
        })
        .collect()
    }
}

/// Returns the rules of a test, from those requested: with its seed, and for its data alone. A rule
/// that names no portal becomes two where necessary: one for the PUTs and GETs of the data, one for
/// messages that have no portal. No ACK is dropped: the data has arrived by then, and the operation
/// of the client has succeeded.
pub(super) fn rules(text: &str, seed: u64, timeout: Duration) -> Result<Vec<FaultRule>, Refusal> {
    let invalid = |text: String| Refusal::new(Errno::EINVAL, text);
    let asked = FaultRule::parse_all(text).map_err(|error| invalid(error.to_string()))?;
    let data = PORTAL.try_into().map_err(|_| invalid(format!("portal {PORTAL}")))?;
    let mut rules = Vec::new();
    for rule in asked {
        if let FaultAction::Delay { at_most, .. } = rule.action
            && at_most * DELAYS >= timeout
        {
            let text = format!("'{rule}': an operation of {DELAYS} messages would not end in {timeout:?}");
            return Err(invalid(text));
        }
        if rule.portal.is_some_and(|portal| portal.get() == COMMAND_PORTAL) {
            return Err(invalid(format!("'{rule}': portal {COMMAND_PORTAL} is that of the commands")));
        }
        let rule = FaultRule { seed: rule.seed.wrapping_add(seed), ..rule };
        let named = MessageKinds::PUT | MessageKinds::GET;
        if rule.portal.is_some() {
            rules.push(rule);
            continue;
        }
        let spared = match rule.action {
            FaultAction::Drop => MessageKinds::ACK,
            FaultAction::Delay { .. } => MessageKinds::empty(),
        };
        let parts = [
            FaultRule { kinds: rule.kinds & named, portal: Some(data), ..rule },
            FaultRule { kinds: rule.kinds - named - spared, ..rule },
        ];
        rules.extend(parts.into_iter().filter(|part| !part.kinds.is_empty()));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Result<Vec<String>, Errno> {
        let rules = rules(text, 5, Duration::from_secs(2)).map_err(|refusal| refusal.errno())?;
        Ok(rules.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rules_are_for_the_data_alone() {
        let expected = [
            ("", vec![]),
            ("drop 1/100 put", vec!["drop 1/100 put portal 42 seed 5"]),
            ("drop 1/100 put portal 7 seed 3", vec!["drop 1/100 put portal 7 seed 8"]),
            (
                "drop every 9 get,reply",
                vec!["drop every 9 get portal 42 seed 5", "drop every 9 reply seed 5"],
            ),
            ("drop 1/9", vec!["drop 1/9 put,get portal 42 seed 5", "drop 1/9 reply seed 5"]),
        ];
        for (text, rules) in expected {
            assert_eq!(texts(text).unwrap(), rules, "{text}");
        }
        assert_eq!(texts("delay 1ms..20ms 1/3").unwrap().len(), 2);
        for invalid in ["lose 1/2", "drop 1/0", "drop put portal 43", "delay 500ms put"] {
            assert_eq!(texts(invalid), Err(Errno::EINVAL), "{invalid}");
        }
    }
}
