//! `nlx ping`: pings nodes as `lctl ping` does, once or repeatedly.

mod stats;

use std::fmt;
use std::time::{Duration, Instant};

use lnet_node::{ConnInfo, Connections, Node, PingAnswer, PingFailure, PingStep};
use serde_json::{Value, json};

use crate::args::PingArgs;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;
use crate::source::{self, Question};
use crate::units::counted;
use stats::PingStats;

pub(crate) fn run(args: &PingArgs) -> Result<(), Failure> {
    let signals = Signals::take(false)?;
    let questions = args.nids.iter().map(|&nid| source::question(nid, &args.asking));
    let questions: Vec<Question> = questions.collect::<Result<_, _>>()?;
    let node = source::node_for(&questions, &args.asking)?;
    let pinger = Pinger { node, args, signals: &signals };
    match args.count {
        None => pinger.ping_once(&questions)?,
        Some(count) => pinger.ping_repeatedly(&questions, count)?,
    }
    pinger.node.shutdown(source::FINAL_DRAIN);
    Ok(())
}

/// A node's answer, with `--size` also the state of the path to it.
struct Answer {
    ping: PingAnswer,
    path: Option<PathState>,
}

/// The state of the path to a node, for large messages.
struct PathState {
    bytes: usize,
    /// Set if a PUT of this size is sent.
    tries: bool,
    /// Time until it was acknowledged.
    probe: Option<Duration>,
    connections: Vec<ConnInfo>,
}

struct Pinger<'a> {
    node: Node,
    args: &'a PingArgs,
    signals: &'a Signals,
}

impl Pinger<'_> {
    /// Pings each node once: prints its NIDs as `lctl ping` does.
    fn ping_once(&self, questions: &[Question]) -> Result<(), Failure> {
        let mut missing = None;
        for question in questions {
            match self.ask(question) {
                Ok(answer) => self.print_nids(question, &answer, questions.len() > 1)?,
                Err(failure) if questions.len() == 1 => return Err(Failure::of_ping(&failure)),
                Err(failure) => {
                    self.print_failure(question, None, &failure)?;
                    missing = Some(Failure::quiet());
                }
            }
        }
        missing.map_or(Ok(()), Err)
    }

    /// Pings in rounds: prints one line for each answer, and statistics at the end.
    fn ping_repeatedly(&self, questions: &[Question], count: u64) -> Result<(), Failure> {
        let mut all_stats = vec![PingStats::default(); questions.len()];
        let rounds = if count == 0 { u64::MAX } else { count };
        for round in 1..=rounds {
            let begun = Instant::now();
            for (question, stats) in questions.iter().zip(&mut all_stats) {
                self.ping_in_round(question, round, stats)?;
            }
            let rest = self.args.interval.saturating_sub(begun.elapsed());
            if self.signals.stopped()
                || (round < rounds && self.node.wait(&self.signals.interrupt, Some(rest)))
            {
                break;
            }
        }
        for (question, stats) in questions.iter().zip(&all_stats) {
            if self.args.json {
                output::json(&stats.to_json(question.target))?;
                continue;
            }
            output::line(format_args!("--- {} ---\n{stats}", question.target))?;
            if let Some(bytes) = self.args.size {
                output::line(PathState {
                    bytes,
                    tries: self.args.to_nlx,
                    probe: None,
                    connections: self.connections(question),
                })?;
            }
        }
        // Without any ping the state is unknown.
        let all = all_stats.iter().all(|stats| stats.is_complete());
        if all { Ok(()) } else { Err(Failure::quiet()) }
    }

    fn ping_in_round(&self, question: &Question, round: u64, stats: &mut PingStats) -> Result<(), Failure> {
        if self.signals.stopped() {
            return Ok(());
        }
        match self.ask(question) {
            Ok(answer) => {
                stats.answered(answer.ping.round_trip);
                if self.args.json {
                    return output::json(&to_json(question, &answer, Some(round)));
                }
                let probe = answer.path.as_ref().and_then(PathState::probe).map(|probe| format!(", {probe}"));
                output::line(format_args!(
                    "answer {round} from {}: {}, {} ms{}",
                    question.target,
                    counted(answer.ping.nids.len() as u64, "NID"),
                    stats::milliseconds(answer.ping.round_trip),
                    probe.unwrap_or_default()
                ))
            }
            // A ping that the user interrupts does not count as lost.
            Err(PingFailure { step: PingStep::Interrupted, .. }) => Ok(()),
            Err(failure) => {
                stats.lost();
                self.print_failure(question, Some(round), &failure)
            }
        }
    }

    fn ask(&self, question: &Question) -> Result<Answer, PingFailure> {
        let Question { target, from } = *question;
        let PingArgs { size, to_nlx, timeout, .. } = *self.args;
        let interrupt = &self.signals.interrupt;
        let ping = self.node.ping_unless(interrupt, target, Some(from), timeout)?;
        let Some(bytes) = size else { return Ok(Answer { ping, path: None }) };
        let probe = to_nlx.then(|| self.node.probe_unless(interrupt, target, Some(from), bytes, timeout));
        let probe = probe.transpose()?;
        Ok(Answer {
            ping,
            path: Some(PathState { bytes, tries: to_nlx, probe, connections: self.connections(question) }),
        })
    }

    fn connections(&self, question: &Question) -> Vec<ConnInfo> {
        self.node.tcp().connections(|nid| nid == question.target)
    }

    fn print_nids(&self, question: &Question, answer: &Answer, named: bool) -> Result<(), Failure> {
        if self.args.json {
            return output::json(&to_json(question, answer, None));
        }
        if named {
            output::line(format_args!("{}:", question.target))?;
        }
        let mut nids = vec![lnet_nid::Nid::LOOPBACK];
        nids.extend(&answer.ping.nids);
        nids.iter().try_for_each(|nid| output::line(format_args!("{}-{nid}", answer.ping.pid)))?;
        answer.path.as_ref().map_or(Ok(()), output::line)
    }

    fn print_failure(
        &self,
        question: &Question,
        round: Option<u64>,
        failure: &PingFailure,
    ) -> Result<(), Failure> {
        let failure = Failure::of_ping(failure);
        if self.args.json {
            let nid = question.target.to_string();
            return output::json(&json!({ "nid": nid, "seq": round, "error": failure.to_json() }));
        }
        output::print_error(format_args!("nlx: {failure}"));
        Ok(())
    }
}

fn to_json(question: &Question, answer: &Answer, round: Option<u64>) -> Value {
    let Answer { ping: answer, path } = answer;
    let mut value = json!({
        "nid": question.target.to_string(),
        "from": question.from.to_string(),
        "nids": answer.nids.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "pid": answer.pid.0,
        "features": format!("{:#x}", answer.features),
        "round_trip_us": microseconds(answer.round_trip),
    });
    if let Some(round) = round {
        value["seq"] = round.into();
    }
    if let Some(PathState { bytes, probe, connections, .. }) = path {
        value["size"] = (*bytes).into();
        value["probe_us"] = probe.map(microseconds).into();
        value["connections"] = connections.iter().map(connection).collect();
    }
    value
}

fn connection(ConnInfo { conn_type, tcp, .. }: &ConnInfo) -> Value {
    json!({
        "type": conn_type.to_string(),
        "mss": tcp.mss,
        "path_mtu": tcp.path_mtu,
        "rtt_us": tcp.rtt_us,
        "retransmissions": tcp.retransmissions,
        "unacked_bytes": tcp.unacked_bytes,
    })
}

impl PathState {
    fn probe(&self) -> Option<String> {
        let time = stats::milliseconds(self.probe?);
        Some(format!("a PUT of {} acknowledged in {time} ms", counted(self.bytes as u64, "byte")))
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let connections = self.connections.iter().map(|ConnInfo { conn_type, tcp, .. }| {
            format!(
                "{conn_type}: segments of {} (path MTU {}), round trip {} ms, {}, {} unacknowledged",
                counted(tcp.mss, "byte"),
                tcp.path_mtu,
                stats::milliseconds(Duration::from_micros(tcp.rtt_us.into())),
                counted(tcp.retransmissions, "retransmission"),
                counted(tcp.unacked_bytes, "byte"),
            )
        });
        let mut lines: Vec<String> = self.probe().into_iter().chain(connections).collect();
        if self.connections.is_empty() {
            lines.push("no TCP connection to the node".to_string());
        }
        if !self.tries {
            let size = counted(self.bytes as u64, "byte");
            lines.push(format!("no message of {size} was sent: --to-nlx sends one, to a node that runs nlx"));
        }
        f.write_str(&lines.join("\n"))
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
