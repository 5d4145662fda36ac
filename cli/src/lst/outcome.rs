//! The results of `nlx lst run`: intervals, averages of nodes and groups, errors.

use std::time::{Duration, SystemTime};

use lnet_nid::ProcessId;
use lnet_proto::lst::Statistics;
use nlx_lst::console::{NodeAnswer, Rates, TargetReport};
use nlx_lst::print::target_name;
use serde_json::{Value, json};

use super::latency::ClientLatency;
use crate::svg::Sample;
use crate::tables::Grid;

/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

/// The rates of a node or a group: messages received and sent per second, MiB received and sent per
/// second.
pub(super) type Averages = [f64; 4];

fn averages_of(rates: &Rates) -> Averages {
    [rates.received, rates.sent, rates.bytes_received / MIB, rates.bytes_sent / MIB]
}

/// What a run has measured.
pub(super) struct Outcome {
    pub(super) started: SystemTime,
    /// The intervals, each with the rates of all groups.
    intervals: Vec<Vec<TargetReport<Rates>>>,
    /// The error counters, asked after the test.
    errors: Vec<TargetReport<Statistics>>,
    pub(super) latencies: Vec<ClientLatency>,
    /// What the console warned of, and the operations that failed at some nodes.
    pub(super) warnings: Vec<String>,
    /// The highest return code of the operations.
    pub(super) code: u8,
}

/// The results of a node.
pub(super) struct NodeResult {
    group: String,
    pub(super) node: ProcessId,
    rates: Averages,
    /// Number of intervals in which it did not answer.
    pub(super) missed: usize,
    /// RPCs of its test clients that failed.
    errors: u64,
}

/// The results of a group.
pub(super) struct GroupResult {
    pub(super) name: String,
    nodes: usize,
    /// The sums of its nodes.
    pub(super) rates: Averages,
    errors: u64,
}

impl Outcome {
    pub(super) fn new() -> Outcome {
        Outcome {
            started: SystemTime::now(),
            intervals: Vec::new(),
            errors: Vec::new(),
            latencies: Vec::new(),
            warnings: Vec::new(),
            code: 0,
        }
    }

    pub(super) fn add_interval(&mut self, groups: &[TargetReport<Rates>]) {
        self.intervals.push(groups.to_vec());
    }

    pub(super) fn set_errors(&mut self, groups: &[TargetReport<Statistics>]) {
        self.errors = groups.to_vec();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Returns the time that all intervals cover, by the slowest clock of each.
    pub(super) fn measured(&self) -> Duration {
        self.intervals.iter().map(|groups| length(groups)).sum()
    }

    /// Returns the number of RPCs of test clients that failed.
    pub(super) fn failed(&self) -> u64 {
        self.nodes().iter().map(|node| node.errors).sum()
    }

    /// Returns whether every command was carried out, and no RPC failed.
    pub(super) fn is_ok(&self) -> bool {
        self.code == 0 && self.failed() == 0
    }

    /// Returns the averages of each node over all intervals.
    pub(super) fn nodes(&self) -> Vec<NodeResult> {
        let Some(last) = self.intervals.last() else { return Vec::new() };
        let targets = last.iter().enumerate();
        let nodes = targets
            .flat_map(|(index, target)| target.nodes.iter().map(move |node| (index, target, node.node)));
        let result = |(index, target, node): (usize, &TargetReport<Rates>, ProcessId)| {
            let all = self.intervals.iter().filter_map(|groups| groups.get(index));
            let own = all.flat_map(|group| &group.nodes).filter(|answer| answer.node == node);
            let rates: Vec<Rates> = own.filter_map(|answer| answer.answer.ok()).collect();
            NodeResult {
                group: target_name(&target.target),
                node,
                rates: average(&rates),
                missed: self.intervals.len() - rates.len(),
                errors: self.errors_of(node),
            }
        };
        nodes.map(result).collect()
    }

    /// Returns the results of each group.
    pub(super) fn groups(&self) -> Vec<GroupResult> {
        let nodes = self.nodes();
        let names = self.intervals.last().into_iter().flatten().map(|group| target_name(&group.target));
        let result = |name: String| {
            let mut group = GroupResult { name, nodes: 0, rates: [0.0; 4], errors: 0 };
            for node in nodes.iter().filter(|node| node.group == group.name) {
                group.nodes += 1;
                group.errors += node.errors;
                group.rates.iter_mut().zip(node.rates).for_each(|(sum, rate)| *sum += rate);
            }
            group
        };
        names.map(result).collect()
    }

    /// Returns what a group had done by the end of each interval: messages received and sent, MiB
    /// received and sent.
    pub(super) fn samples(&self, group: usize) -> [Vec<Sample>; 4] {
        let (mut at, mut totals) = (Duration::ZERO, [0.0; 4]);
        let mut samples = [const { Vec::new() }; 4];
        for groups in &self.intervals {
            at += length(groups);
            for rates in groups.get(group).into_iter().flat_map(TargetReport::results) {
                let seconds = f64::from(rates.interval_ms) / 1e3;
                totals.iter_mut().zip(averages_of(rates)).for_each(|(total, rate)| *total += rate * seconds);
            }
            samples.iter_mut().zip(totals).for_each(|(list, total)| list.push(Sample { at, total }));
        }
        samples
    }

    fn errors_of(&self, node: ProcessId) -> u64 {
        let answers = self.errors.iter().flat_map(|target| &target.nodes);
        let own = answers.filter(|answer: &&NodeAnswer<Statistics>| answer.node == node);
        let count = |counters: Statistics| u64::from(counters.brw_errors) + u64::from(counters.ping_errors);
        own.filter_map(|answer| answer.answer.ok()).map(count).max().unwrap_or(0)
    }

    /// Returns a table of the nodes, and of the sums of each group that has several.
    pub(super) fn table(&self) -> Grid {
        let row = |group: String, node: String, rates: Averages, errors: u64| {
            let rates = rates.map(|rate| format!("{rate:.1}"));
            [group, node].into_iter().chain(rates).chain([errors.to_string()]).collect()
        };
        let nodes = self
            .nodes()
            .into_iter()
            .map(|node| row(node.group, node.node.to_string(), node.rates, node.errors));
        let groups = self.groups().into_iter().filter(|group| group.nodes > 1);
        let totals = groups
            .map(|group| row(group.name, format!("all {} nodes", group.nodes), group.rates, group.errors));
        Grid {
            header: vec!["group", "node", "in msg/s", "out msg/s", "in MiB/s", "out MiB/s", "errors"],
            words: 2,
            rows: nodes.chain(totals).collect(),
        }
    }

    /// Returns a table of the error counters of each node.
    pub(super) fn errors_table(&self) -> Grid {
        let row = |answer: &NodeAnswer<Statistics>| {
            let counts = match answer.answer {
                Ok(Statistics {
                    brw_errors, ping_errors, rpc_errors, rpcs_dropped, rpcs_expired, ..
                }) => [brw_errors, ping_errors, rpc_errors, rpcs_dropped, rpcs_expired]
                    .map(|count| count.to_string()),
                Err(_) => [""; 5].map(String::from),
            };
            [answer.node.to_string()].into_iter().chain(counts).collect()
        };
        Grid {
            header: vec!["node", "brw errors", "ping errors", "RPC errors", "dropped RPCs", "expired RPCs"],
            words: 1,
            rows: self.errors.iter().flat_map(|target| &target.nodes).map(row).collect(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "nodes": self.nodes().iter().map(NodeResult::to_json).collect::<Vec<_>>(),
            "groups": self.groups().iter().map(GroupResult::to_json).collect::<Vec<_>>(),
            "latencies": self.latencies.iter().map(ClientLatency::to_json).collect::<Vec<_>>(),
            "seconds": self.measured().as_secs_f64(), "errors": self.failed(), "ok": self.is_ok(),
        })
    }
}

impl NodeResult {
    fn to_json(&self) -> Value {
        let NodeResult { group, node, rates, missed, errors } = self;
        let node = node.to_string();
        with(*rates, json!({ "group": group, "node": node, "missed_intervals": missed, "errors": errors }))
    }
}

impl GroupResult {
    fn to_json(&self) -> Value {
        let GroupResult { name, nodes, rates, errors } = self;
        with(*rates, json!({ "group": name, "nodes": nodes, "errors": errors }))
    }
}

/// Adds the averages to an object.
fn with(rates: Averages, mut object: Value) -> Value {
    let names = ["messages_received_per_s", "messages_sent_per_s", "mib_received_per_s", "mib_sent_per_s"];
    names.iter().zip(rates).for_each(|(name, rate)| object[*name] = rate.into());
    object
}

/// Returns the length of an interval by the slowest clock of its nodes.
fn length(groups: &[TargetReport<Rates>]) -> Duration {
    let all = groups.iter().flat_map(TargetReport::results).map(|rates| rates.interval_ms);
    Duration::from_millis(all.max().unwrap_or(0).into())
}

/// Returns averages weighted by the lengths of the intervals.
fn average(rates: &[Rates]) -> Averages {
    let total_ms: f64 = rates.iter().map(|rates| f64::from(rates.interval_ms)).sum();
    let mut averages = [0.0; 4];
    for one in rates.iter().filter(|_| total_ms > 0.0) {
        let share = f64::from(one.interval_ms) / total_ms;
        averages.iter_mut().zip(averages_of(one)).for_each(|(sum, rate)| *sum += rate * share);
    }
    averages
}

/// Returns the sums of a group in one interval as a line for people.
pub(super) fn interval_text(group: &TargetReport<Rates>) -> String {
    let mut sums = [0.0; 4];
    for rates in group.results() {
        sums.iter_mut().zip(averages_of(rates)).for_each(|(sum, rate)| *sum += rate);
    }
    let [received, sent, mib_received, mib_sent] = sums;
    let name = target_name(&group.target);
    format!("{name}: in {received:.0} msg/s {mib_received:.1} MiB/s, out {sent:.0} msg/s {mib_sent:.1} MiB/s")
}

/// Returns the rates of a group in one interval.
pub(super) fn interval_json(group: &TargetReport<Rates>) -> Value {
    let node = |node: &NodeAnswer<Rates>| match node.answer {
        Ok(rates) => json!({
            "node": node.node.to_string(), "interval_ms": rates.interval_ms,
            "messages_received_per_s": rates.received, "messages_sent_per_s": rates.sent,
            "bytes_received_per_s": rates.bytes_received, "bytes_sent_per_s": rates.bytes_sent,
        }),
        Err(failure) => json!({ "node": node.node.to_string(), "errno": failure.errno() as i32 }),
    };
    json!({ "group": target_name(&group.target), "nodes": group.nodes.iter().map(node).collect::<Vec<_>>() })
}
