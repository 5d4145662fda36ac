//! `nlx lst run`: one test from its session to its result.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_nid::ProcessId;
use lnet_proto::lst::Statistics;
use nlx_lst::command::Plan;
use nlx_lst::console::{Event, NodeAnswer, Operation, Rates, Report, Summary, Target, TargetReport};
use nlx_lst::net::{ConsoleRunner, TestNode};
use nlx_lst::print;
use serde_json::{Value, json};

use super::Host;
use crate::args::LstArgs;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::units::in_time;
use crate::{output, tables};

/// Bytes of a MiB.
const MIB: f64 = (1 << 20) as f64;

pub(super) fn run(args: &LstArgs, plan: &Plan) -> Result<(), Failure> {
    let signals = Signals::take(false)?;
    let host = Host::start(args)?;
    let console = host.console()?;
    within(args, &host, &console, &signals, plan)
}

/// Runs a plan on a console without a session.
pub(super) fn within(
    args: &LstArgs,
    host: &Host,
    console: &ConsoleRunner,
    signals: &Arc<Signals>,
    plan: &Plan,
) -> Result<(), Failure> {
    let own = host.node.nids();
    let takes_part = plan.from.iter().chain(&plan.to).any(|node| own.contains(&node.nid));
    let test = if takes_part { Some(host.test_node()?) } else { None };
    let mut run = Run { json: args.json, intervals: Vec::new(), errors: Vec::new(), code: 0, seconds: 0 };
    let is_over = || signals.stopped();
    let mut outcome = Ok(());
    let mut latencies = Vec::new();
    for operation in plan.operations() {
        let is_end = matches!(operation, Operation::EndSession);
        // After a failure or an interruption the test is still stopped, and its session ended.
        let is_cleanup = is_end || matches!(operation, Operation::Stop { .. });
        if (outcome.is_err() || is_over()) && !is_cleanup {
            continue;
        }
        if is_end {
            latencies = test.as_ref().map(latencies_of).unwrap_or_default();
        }
        let never = || false;
        let over: &dyn Fn() -> bool = if is_cleanup { &never } else { &is_over };
        let mut printed = Ok(());
        let done = console.run(operation.clone(), over, |event| {
            if printed.is_ok() {
                printed = run.event(event);
            }
        });
        let done = match done {
            Ok(report) => run.report(&report),
            // Without a running batch there is nothing to stop.
            Err(_) if is_cleanup && outcome.is_err() => Ok(()),
            Err(error) => {
                let text = print::error(&operation, &error).errors;
                Err(Failure::at("lst", error.errno(), text.trim_end().replace('\n', ";")))
            }
        };
        outcome = outcome.and(printed).and(done);
    }
    let errors = run.end(&latencies)?;
    outcome?;
    match run.code {
        0 if errors > 0 => {
            let text = format!("{errors} RPCs of the test failed");
            Err(Failure::at("lst", Errno::EIO, text).hint("the column 'errors' names the nodes"))
        }
        0 if is_over() => Err(Failure::new("interrupted").exit(130)),
        0 => Ok(()),
        code => Err(Failure::quiet().exit(code)),
    }
}

/// Percentiles of the RPCs of a client in this process, in nanoseconds.
struct Latency {
    rpcs: u64,
    errors: u64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

fn latencies_of(test: &TestNode) -> Vec<Latency> {
    let of = |client: nlx_lst::node::Client| {
        let times = client.instance.latency();
        let at = |quantile| times.value_at_quantile(quantile);
        let (p50, p99, p999, max) = (at(0.5), at(0.99), at(0.999), times.max());
        Latency { rpcs: times.len(), errors: client.instance.errors(), p50, p99, p999, max }
    };
    test.clients().into_iter().map(of).collect()
}

/// The results of a run.
struct Run {
    json: bool,
    /// The intervals, each with the rates of all targets.
    intervals: Vec<Vec<TargetReport<Rates>>>,
    errors: Vec<TargetReport<Statistics>>,
    code: u8,
    seconds: u64,
}

impl Run {
    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        match event {
            Event::Progress(Report::Stat(targets)) => self.interval(targets),
            Event::Warning(warning) => {
                output::print_error(format_args!("nlx: {warning}"));
                Ok(())
            }
            Event::Progress(_) | Event::Done(_) => Ok(()),
        }
    }

    fn report(&mut self, report: &Report) -> Result<(), Failure> {
        let printed = print::report(report, &nlx_lst::command::View::All);
        self.code = self.code.max(printed.code);
        let errors = printed.errors.trim_end().replace('\n', "; ");
        match report {
            Report::Stat(targets) => self.interval(targets),
            Report::Errors(targets) => {
                self.errors.clone_from(targets);
                Ok(())
            }
            // Without its test the rest of the plan makes no sense.
            Report::Group { .. } | Report::Test { .. } | Report::Run { .. } if printed.code != 0 => {
                Err(Failure::at("lst", Errno::EIO, errors).exit(printed.code))
            }
            _ if errors.is_empty() => Ok(()),
            _ => {
                output::print_error(format_args!("nlx: {errors}"));
                Ok(())
            }
        }
    }

    fn interval(&mut self, targets: &[TargetReport<Rates>]) -> Result<(), Failure> {
        let milliseconds =
            targets.iter().flat_map(TargetReport::results).map(|rates| rates.interval_ms).max();
        self.seconds += u64::from(milliseconds.unwrap_or(0)).div_ceil(1000);
        self.intervals.push(targets.to_vec());
        if self.json {
            return output::json(&json!({ "interval": targets.iter().map(rates_json).collect::<Vec<_>>() }));
        }
        let line: Vec<String> = targets.iter().map(rates_text).collect();
        output::line(format_args!("{:>4} s  {}", self.intervals.len(), line.join("   ")))
    }

    /// Prints a table of the nodes, and the sums.
    fn end(&self, latencies: &[Latency]) -> Result<u64, Failure> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return Ok(0);
        }
        let errors: u64 = nodes.iter().map(|node| node.errors).sum();
        if self.json {
            let latencies: Vec<Value> = latencies.iter().map(Latency::to_json).collect();
            let nodes: Vec<Value> = nodes.iter().map(NodeResult::to_json).collect();
            output::json(&json!({ "result": {
                "nodes": nodes, "errors": errors, "latencies": latencies, "ok": self.code == 0 && errors == 0,
            } }))?;
            return Ok(errors);
        }
        let header = ["group", "node", "in msg/s", "out msg/s", "in MiB/s", "out MiB/s", "errors"];
        let mut table = tables::numbers(header, 2);
        for node in &nodes {
            let mut row = vec![node.group.clone(), node.node.to_string()];
            row.extend(node.rates.iter().map(|rate| format!("{rate:.1}")));
            row.push(node.errors.to_string());
            table.add_row(row);
        }
        output::line(table)?;
        for latency in latencies {
            let [p50, p99, p999, max] =
                [latency.p50, latency.p99, latency.p999, latency.max].map(|ns| in_time(ns as f64 / 1e3));
            let Latency { rpcs, errors, .. } = latency;
            output::line(format_args!(
                "this node's RPCs: {rpcs} done, {errors} failed; latency {p50} median, {p99} 99 %, {p999} 99.9 %, {max} longest"
            ))?;
        }
        Ok(errors)
    }

    /// The averages of each node over all intervals.
    fn nodes(&self) -> Vec<NodeResult> {
        let Some(last) = self.intervals.last() else { return Vec::new() };
        let mut results = Vec::new();
        for (index, target) in last.iter().enumerate() {
            for node in &target.nodes {
                let all = self.intervals.iter().filter_map(|targets| targets.get(index));
                let own = all.flat_map(|target| &target.nodes).filter(|other| other.node == node.node);
                let rates: Vec<Rates> = own.filter_map(|answer| answer.answer.ok()).collect();
                results.push(NodeResult {
                    group: name_of(&target.target),
                    node: node.node,
                    rates: averages(&rates),
                    errors: self.errors_of(node.node),
                });
            }
        }
        results
    }

    fn errors_of(&self, node: ProcessId) -> u64 {
        let answers = self.errors.iter().flat_map(|target| &target.nodes);
        let own = answers.filter(|answer: &&NodeAnswer<Statistics>| answer.node == node);
        let count = |counters: Statistics| u64::from(counters.brw_errors) + u64::from(counters.ping_errors);
        own.filter_map(|answer| answer.answer.ok()).map(count).max().unwrap_or(0)
    }
}

/// A node's averages: messages received and sent per second, MiB received and sent per second.
struct NodeResult {
    group: String,
    node: ProcessId,
    rates: [f64; 4],
    errors: u64,
}

impl NodeResult {
    fn to_json(&self) -> Value {
        let [received, sent, mib_received, mib_sent] = self.rates;
        json!({
            "group": self.group, "node": self.node.to_string(), "messages_received_per_s": received,
            "messages_sent_per_s": sent, "mib_received_per_s": mib_received, "mib_sent_per_s": mib_sent,
            "errors": self.errors,
        })
    }
}

impl Latency {
    fn to_json(&self) -> Value {
        json!({
            "rpcs": self.rpcs, "errors": self.errors, "p50_ns": self.p50, "p99_ns": self.p99,
            "p999_ns": self.p999, "max_ns": self.max,
        })
    }
}

/// Averages weighted by the lengths of the intervals.
fn averages(rates: &[Rates]) -> [f64; 4] {
    let total_ms: f64 = rates.iter().map(|rates| f64::from(rates.interval_ms)).sum();
    let average = |of: fn(&Rates) -> f64| {
        let sum: f64 = rates.iter().map(|rates| of(rates) * f64::from(rates.interval_ms)).sum();
        if total_ms > 0.0 { sum / total_ms } else { 0.0 }
    };
    [
        average(|rates| rates.received),
        average(|rates| rates.sent),
        average(|rates| rates.bytes_received / MIB),
        average(|rates| rates.bytes_sent / MIB),
    ]
}

fn name_of(target: &Target) -> String {
    match target {
        Target::Session => "session".to_string(),
        Target::Group(name) | Target::Batch { name, .. } => name.to_string(),
        Target::Nodes(_) => "nodes".to_string(),
    }
}

fn rates_text(target: &TargetReport<Rates>) -> String {
    let total = |of: fn(&Rates) -> f64| Summary::of(target.results().map(of)).map_or(0.0, |sum| sum.total);
    format!(
        "{}: in {:.0} msg/s {:.1} MiB/s, out {:.0} msg/s {:.1} MiB/s",
        name_of(&target.target),
        total(|rates| rates.received),
        total(|rates| rates.bytes_received / MIB),
        total(|rates| rates.sent),
        total(|rates| rates.bytes_sent / MIB),
    )
}

fn rates_json(target: &TargetReport<Rates>) -> Value {
    let node = |node: &NodeAnswer<Rates>| match node.answer {
        Ok(rates) => json!({
            "node": node.node.to_string(), "interval_ms": rates.interval_ms,
            "messages_received_per_s": rates.received, "messages_sent_per_s": rates.sent,
            "bytes_received_per_s": rates.bytes_received, "bytes_sent_per_s": rates.bytes_sent,
        }),
        Err(failure) => json!({ "node": node.node.to_string(), "errno": failure.errno() as i32 }),
    };
    json!({ "group": name_of(&target.target), "nodes": target.nodes.iter().map(node).collect::<Vec<_>>() })
}
