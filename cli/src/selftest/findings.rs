//! What the nodes told, phase by phase, put together.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::command::{Plan, RuleStatus, Status};
use super::console::Finding;
use super::result::{Ending, Outcome, Phase, RuleCount, Sample, Served, Settings};
use super::run;
use super::stats::Statistics;
use super::tally::latencies;

/// What has been found so far.
pub(super) struct Findings {
    /// Operations may be lost: rules drop messages.
    faults: bool,
    phases: Vec<Phase>,
    served: Served,
    /// Of each node, by its NID.
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

    /// Takes what a phase came to.
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
        let sum = |field: fn(&Status) -> u64| told.iter().map(field).sum::<u64>();
        let mut latency = Statistics::default();
        told.iter().for_each(|status| latency.merge(&status.latency_ns));
        let mut found = Phase {
            name: phase.name,
            size: plan.size.into(),
            in_flight: plan.in_flight,
            clients,
            elapsed: told.iter().map(|status| status.elapsed).max().unwrap_or_default(),
            operations: sum(|status| status.operations),
            bytes: sum(|status| status.bytes),
            latency_ns: latency,
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
            // Nothing drops messages, so nothing may be lost.
            found.errors += std::mem::take(&mut found.lost);
            found.first_error = found.first_error.or_else(|| {
                (found.errors > 0).then(|| "operations have not ended within their timeout".to_string())
            });
        }
        for (value, count) in told.iter().flat_map(|status| &status.latencies) {
            found.latencies_ns.saturating_record_n(*value, *count);
        }
        let problem = if complete { amiss(&found, &servers) } else { None };
        if let Some(problem) = problem {
            found.errors += 1;
            found.first_error.get_or_insert(problem);
        }
        self.served.verified_bytes += servers.iter().map(|status| status.verified_bytes).sum::<u64>();
        self.served.errors += servers.iter().map(|status| status.errors).sum::<u64>();
        self.phases.push(found);
    }

    /// Messages dropped and delayed in this phase, at whose beginning all rules count from 0. The nodes of one process share
    /// their rules, and their NID.
    fn count_rules<'a>(&mut self, nodes: impl Iterator<Item = &'a Status>) -> (u64, u64) {
        let mut now = BTreeMap::new();
        for status in nodes {
            now.insert(&status.nid, &status.rules);
        }
        let sum = |field: fn(&RuleStatus) -> u64| now.values().copied().flatten().map(field).sum();
        let counts = (sum(|rule| rule.dropped), sum(|rule| rule.delayed));
        for (nid, rules) in now {
            let so_far = self.rules.entry(nid.clone()).or_default();
            for rule in rules {
                match so_far.iter_mut().find(|known| known.rule == rule.rule) {
                    None => so_far.push(rule.clone()),
                    Some(known) => {
                        known.matched += rule.matched;
                        known.dropped += rule.dropped;
                        known.delayed += rule.delayed;
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

/// What does not fit together: each operation has a latency, and servers have seen as many as clients.
fn amiss(phase: &Phase, servers: &[Status]) -> Option<String> {
    let operations = phase.operations;
    let recorded = phase.latencies_ns.len();
    if phase.latency_ns.count() != operations || recorded != operations {
        let counted = phase.latency_ns.count();
        return Some(format!(
            "{operations} operations have {counted} latencies, {recorded} in the histogram"
        ));
    }
    let served: u64 = servers.iter().map(|status| status.operations).sum();
    let lossless = phase.errors == 0 && phase.lost == 0;
    (lossless && served != operations)
        .then(|| format!("clients count {operations} operations, servers {served}"))
}
