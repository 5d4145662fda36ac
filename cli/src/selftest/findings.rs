//! The results of all nodes, merged phase by phase.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::command::{Plan, RuleStatus, Status};
use super::console::Finding;
use super::counters::{self, latencies};
use super::result::{Ending, Outcome, Phase, RuleCount, Sample, Served, Settings, total};
use super::run;

/// The results of the phases that have run so far.
pub(super) struct Findings {
    /// Set if rules drop messages: operations may then be lost.
    faults: bool,
    phases: Vec<Phase>,
    served: Served,
    /// Counters of the rules of each node, by its NID.
    rules: BTreeMap<String, Vec<RuleStatus>>,
    clients: Vec<String>,
    servers: Vec<String>,
}

impl Findings {
    pub(super) fn new(faults: bool) -> Findings {
        Findings {
            faults,
            phases: Vec::new(),
            served: Served::default(),
            rules: BTreeMap::new(),
            clients: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Adds the results of a phase: merges the clients' numbers, and checks that they agree with
    /// each other and with the servers'.
    pub(super) fn add(
        &mut self,
        phase: &run::Phase,
        plan: &Plan,
        clients: u32,
        finding: Finding,
        samples: Vec<Sample>,
    ) {
        let Finding { clients: told, servers, complete, client_addresses, server_addresses } = finding;
        (self.clients, self.servers) = (client_addresses, server_addresses);
        let (dropped, delayed) = self.count_rules(told.iter().chain(&servers));
        let sum = |field: fn(&Status) -> u64| total(told.iter().map(field));
        let mut found = Phase {
            name: phase.name,
            size: plan.size.into(),
            in_flight: plan.in_flight,
            clients,
            elapsed: told.iter().map(|status| status.elapsed).max().unwrap_or_default(),
            operations: sum(|status| status.operations),
            bytes: sum(|status| status.bytes),
            latencies_ns: latencies(),
            samples,
            errors: sum(|status| status.errors),
            first_error: told.iter().chain(&servers).find_map(first_error),
            lost: sum(|status| status.lost),
            dropped,
            delayed,
            verified_bytes: sum(|status| status.verified_bytes),
        };
        if !self.faults {
            // No rule drops messages, so a lost operation is an error.
            found.errors = found.errors.saturating_add(std::mem::take(&mut found.lost));
            found.first_error = found.first_error.or_else(|| {
                (found.errors > 0).then(|| "operations have not ended within their timeout".to_string())
            });
        }
        told.iter().for_each(|status| counters::add(&mut found.latencies_ns, &status.latencies));
        let problem = if complete { contradiction(&found, &servers) } else { None };
        if let Some(problem) = problem {
            found.errors = found.errors.saturating_add(1);
            found.first_error.get_or_insert(problem);
        }
        let so_far = &mut self.served;
        let bytes = servers.iter().map(|status| status.verified_bytes);
        so_far.verified_bytes = total(bytes.chain([so_far.verified_bytes]));
        so_far.errors = total(servers.iter().map(|status| status.errors).chain([so_far.errors]));
        self.phases.push(found);
    }

    /// Adds the counters of a phase to those of all rules, and returns the numbers of messages
    /// dropped and delayed in this phase. The counters of a node are 0 at the start of a phase. The
    /// nodes of one process share their rules and their NID, so each NID is counted once.
    fn count_rules<'a>(&mut self, nodes: impl Iterator<Item = &'a Status>) -> (u64, u64) {
        let mut now = BTreeMap::new();
        for status in nodes {
            now.insert(&status.nid, &status.rules);
        }
        let sum = |field: fn(&RuleStatus) -> u64| total(now.values().copied().flatten().map(field));
        let counts = (sum(|rule| rule.dropped), sum(|rule| rule.delayed));
        for (nid, rules) in now {
            let so_far = self.rules.entry(nid.clone()).or_default();
            for rule in rules {
                match so_far.iter_mut().find(|known| known.rule == rule.rule) {
                    None => so_far.push(rule.clone()),
                    Some(known) => {
                        known.matched = known.matched.saturating_add(rule.matched);
                        known.dropped = known.dropped.saturating_add(rule.dropped);
                        known.delayed = known.delayed.saturating_add(rule.delayed);
                    }
                }
            }
        }
        counts
    }

    pub(super) fn outcome(self, settings: Settings, started: SystemTime, ending: Ending) -> Outcome {
        let rules = self.rules.into_iter().flat_map(|(node, rules)| {
            rules.into_iter().map(move |RuleStatus { rule, matched, dropped, delayed }| RuleCount {
                node: node.clone(),
                rule,
                matched,
                dropped,
                delayed,
            })
        });
        Outcome {
            settings,
            started,
            clients: self.clients,
            servers: self.servers,
            phases: self.phases,
            served: self.served,
            rules: rules.collect(),
            ending,
        }
    }
}

fn first_error(status: &Status) -> Option<String> {
    (!status.first_error.is_empty()).then(|| status.first_error.clone())
}

/// Returns the contradiction in a phase's numbers, if there is one. Each operation must have a
/// latency; without errors and losses the servers must count the same number of operations as the
/// clients.
fn contradiction(phase: &Phase, servers: &[Status]) -> Option<String> {
    let operations = phase.operations;
    let latencies = phase.latencies_ns.len();
    if latencies != operations {
        return Some(format!("operations: {operations}, latencies: {latencies}"));
    }
    let served = total(servers.iter().map(|status| status.operations));
    let lossless = phase.errors == 0 && phase.lost == 0;
    (lossless && served != operations)
        .then(|| format!("operations: clients count {operations}, servers {served}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::machine::Machine;
    use crate::selftest::command::Load;
    use crate::selftest::tests::plan;
    use crate::selftest::{html, report, samples};

    /// Nodes that report absurdly high numbers: these saturate, and never add up to no errors.
    #[test]
    fn numbers_beyond_all_measure_are_errors() {
        let rule =
            RuleStatus { rule: "drop".into(), matched: u64::MAX, dropped: u64::MAX, delayed: u64::MAX };
        let status = |nid: &str| Status {
            finished: true,
            elapsed: Duration::from_nanos(u64::MAX),
            operations: u64::MAX,
            bytes: u64::MAX,
            errors: 1 << 63,
            lost: u64::MAX,
            verified_bytes: u64::MAX,
            nid: nid.into(),
            rules: vec![rule.clone()],
            latencies: vec![(u64::MAX, u64::MAX), (1, u64::MAX), (0, u64::MAX)],
            ..Status::default()
        };
        for faults in [false, true] {
            let mut findings = Findings::new(faults);
            for name in ["bulk_read", "mixed"] {
                let phase = run::Phase { name, load: Load::Mixed, size: 64, in_flight: 1 };
                let finding = Finding {
                    clients: vec![status("a"), status("b")],
                    servers: vec![status("c"), status("d")],
                    complete: true,
                    client_addresses: Vec::new(),
                    server_addresses: Vec::new(),
                };
                let sample =
                    |at| Sample { at: Duration::from_secs(at), operations: u64::MAX, bytes: u64::MAX };
                findings.add(&phase, &plan(Load::Mixed, 64), 2, finding, vec![sample(1), sample(2)]);
            }
            let settings = samples::outcome().settings;
            let outcome = findings.outcome(settings, SystemTime::UNIX_EPOCH, Ending::Complete);
            assert_eq!(outcome.errors(), u64::MAX);
            assert!(!outcome.passed());
            // The reports can also show these numbers.
            assert!(report::text(&outcome).to_string().contains("\nFAILED: "));
            serde_json::to_string(&report::json(&outcome)).unwrap();
            html::page(&outcome, &Machine::default());
        }
    }
}
