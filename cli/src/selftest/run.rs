//! The phases of a self-test, one after the other.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use lnet_node::FaultAction;
use nlx::Errno;

use super::command::{Delivery, Load, Plan, Role, Status};
use super::console::TestObserver;
use super::findings::Findings;
use super::participants::{Nodes, Participants};
use super::protocol::ECHO_BYTES;
use super::result::{Ending, Live, Outcome, Settings};
use super::{faults, html, report, serve};
use crate::args::{DeliveryArg, SelftestArgs};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::units::{grouped, in_bytes, per_second, plural};
use crate::{output, setup, svg};

/// Messages in flight when their rate is measured, unless `--concurrency` is higher.
const RATE_IN_FLIGHT: u32 = 64;

/// Timeout of an operation: far above that of a working network; with faults, the cost of each
/// loss.
const TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_WITH_FAULTS: Duration = Duration::from_secs(1);

/// Runs the self-test and prints its result; fails if a byte or an event was wrong or missing.
pub(crate) fn run(args: &SelftestArgs) -> Result<(), Failure> {
    setup::use_all_descriptors();
    let signals = Signals::take(false)?;
    args.helped()?;
    if args.server {
        return serve::run_server(args, &signals);
    }
    if let Some(text) = &args.faults {
        // Checked before anything is started.
        let rules = faults::rules(text, 0, args.timeout.unwrap_or(TIMEOUT_WITH_FAULTS));
        let refused = |reason: String| Failure::at("arguments", Errno::EINVAL, format!("--faults: {reason}"));
        let rules = rules.map_err(|refusal| refused(refusal.reason))?;
        // Messages over the loopback would all be on time, and the report would look as if the
        // delays had been survived.
        if args.net == "lo" && rules.iter().any(|rule| matches!(rule.action, FaultAction::Delay { .. })) {
            return Err(refused("messages over the loopback cannot be delayed".into()).hint("--net tcp"));
        }
    }
    args.html.as_deref().map_or(Ok(()), svg::reserve)?;
    let outcome = outcome(args, &signals)?;
    // An error before the first measurement is only reported as the failure.
    let nothing = outcome.phases.is_empty() && !outcome.passed();
    if args.json {
        output::json(&report::json(&outcome))?
    } else if !nothing {
        output::line(report::text(&outcome))?
    }
    if let Some(path) = &args.html {
        svg::write(&html::page(&outcome, &Machine::this()), path)?;
        output::print_error(format_args!("the report is in {}", path.display()));
    }
    let failure = |text: &str| if args.json { Failure::quiet() } else { Failure::new(text) };
    match &outcome.ending {
        _ if outcome.passed() => Ok(()),
        Ending::Interrupted => {
            Err(failure("the self-test was interrupted: the report has the results so far"))
        }
        Ending::Failed(reason) if nothing => Err(failure(reason)),
        Ending::Failed(_) => Err(Failure::quiet()),
        Ending::Complete => Err(failure("the self-test failed: see the errors above")),
    }
}

/// One phase.
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) load: Load,
    pub(super) size: u32,
    pub(super) in_flight: u32,
}

fn phases(args: &SelftestArgs) -> [Phase; 5] {
    let (echo, size, bulk) = (ECHO_BYTES as u32, args.size, args.concurrency);
    let rate = bulk.max(RATE_IN_FLIGHT);
    [
        Phase { name: "ping_pong", load: Load::Echo, size: echo, in_flight: 1 },
        Phase { name: "message_rate", load: Load::Echo, size: echo, in_flight: rate },
        Phase { name: "bulk_read", load: Load::Read, size, in_flight: bulk },
        Phase { name: "bulk_write", load: Load::Write, size, in_flight: bulk },
        Phase { name: "mixed", load: Load::Mixed, size, in_flight: bulk },
    ]
}

/// Returns the part of a client's plan that is the same for all clients.
fn plan(phase: &Phase, args: &SelftestArgs, seed: u64) -> Plan {
    let timeout = if args.faults.is_some() { TIMEOUT_WITH_FAULTS } else { TIMEOUT };
    Plan {
        role: Role::Client,
        load: phase.load,
        delivery: match args.delivery {
            DeliveryArg::Wait => Delivery::Wait,
            DeliveryArg::Callback => Delivery::Callback,
        },
        address: String::new(),
        peers: Vec::new(),
        run: 0,
        size: phase.size,
        in_flight: phase.in_flight,
        duration: args.duration,
        count: args.count.unwrap_or(0),
        timeout: args.timeout.unwrap_or(timeout),
        tries: args.tries,
        messages: args.messages,
        delay: args.server_delay,
        seed,
        faults: args.faults.clone().unwrap_or_default(),
        spoil: args.spoil,
    }
}

/// Runs all phases, unless one fails.
fn outcome(args: &SelftestArgs, signals: &Signals) -> Result<Outcome, Failure> {
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let started = SystemTime::now();
    let Participants { mut console, mut nodes, net } = Participants::of(args, &signals.interrupt)?;
    let mut findings = Findings::new(args.faults.is_some());
    let mut ending = Ending::Complete;
    for phase in phases(args) {
        let plan = plan(&phase, args, seed);
        let progress = Progress::new(phase.name, args.duration, args.json);
        let mut looking = PhaseObserver { nodes: &mut nodes, signals, progress, samples: Vec::new() };
        let found = console.test(&plan, &mut looking);
        let PhaseObserver { progress, samples, .. } = looking;
        progress.finish();
        match found {
            Ok(finding) => {
                let complete = finding.complete;
                findings.add(&phase, &plan, args.clients, finding, samples);
                if !complete {
                    ending = Ending::Interrupted;
                    break;
                }
            }
            Err(_) if signals.stopped() => {
                ending = Ending::Interrupted;
                break;
            }
            Err(failure) => {
                ending = Ending::Failed(failure.to_string());
                break;
            }
        }
    }
    let settings = Settings {
        mode: args.mode.name(),
        net,
        size: args.size.into(),
        concurrency: args.concurrency,
        clients: args.clients,
        duration: args.duration,
        seed,
        faults: args.faults.clone(),
    };
    Ok(findings.outcome(settings, started, ending))
}

/// The observer of a phase.
struct PhaseObserver<'a> {
    nodes: &'a mut Nodes,
    signals: &'a Signals,
    progress: Progress,
    samples: Vec<super::result::Sample>,
}

impl TestObserver for PhaseObserver<'_> {
    fn check(&mut self) -> Result<(), Failure> {
        self.nodes.check()
    }

    fn is_stopped(&self) -> bool {
        self.signals.stopped()
    }

    fn round(&mut self, clients: &[Status]) {
        let sum = |field: fn(&Status) -> u64| super::result::total(clients.iter().map(field));
        let elapsed = clients.iter().map(|status| status.elapsed).max().unwrap_or_default();
        let live = Live {
            elapsed,
            operations: sum(|status| status.operations),
            bytes: sum(|status| status.bytes),
            verified_bytes: sum(|status| status.verified_bytes),
            errors: sum(|status| status.errors),
            lost: sum(|status| status.lost),
        };
        let sample = super::result::Sample { at: elapsed, operations: live.operations, bytes: live.bytes };
        self.samples.push(sample);
        self.progress.update(elapsed, words(&live));
    }
}

/// Returns the rates so far, and losses and errors if there are any.
fn words(live: &Live) -> String {
    let Live { elapsed, operations, bytes, verified_bytes, errors, lost } = *live;
    let rate = grouped(per_second(operations, elapsed).round() as u64);
    let speed = per_second(bytes, elapsed) / 1e6;
    let mut words = format!("{rate:>9} op/s {speed:>8.1} MB/s  {} verified", in_bytes(verified_bytes));
    for (count, label) in [(lost, "lost".to_string()), (errors, plural(errors, "error"))] {
        if count > 0 {
            words.push_str(&format!(", {} {label}", grouped(count)));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_printed_and_troubles_if_there_are_some() {
        let live =
            Live { elapsed: Duration::from_secs(2), operations: 3_000, bytes: 5_000_000, ..Live::default() };
        let plain = |live: Live| words(&live).replace('\u{202f}', " ");
        assert_eq!(plain(live), "    1 500 op/s      2.5 MB/s  0 B verified");
        assert!(plain(Live { errors: 2, lost: 1, ..live }).ends_with(" verified, 1 lost, 2 errors"));
        assert!(plain(Live::default()).starts_with("        0 op/s"));
    }
}
