//! `nlx ping`: what `lctl ping` does, once or again and again.

mod tally;

use std::time::{Duration, Instant};

use lnet_node::{Node, PingAnswer, PingFailure, PingStep};
use serde_json::{Value, json};

use crate::args::PingArgs;
use crate::failure::Failure;
use crate::output;
use crate::signals::Signals;
use crate::source::{self, Question};
use tally::Tally;

pub(crate) fn run(args: &PingArgs) -> Result<(), Failure> {
    let signals = Signals::take(false)?;
    let questions = args.nids.iter().map(|&nid| source::question(nid, &args.asking));
    let questions: Vec<Question> = questions.collect::<Result<_, _>>()?;
    let node = source::node_for(&questions, &args.asking)?;
    let pinger = Pinger { node, args, signals: &signals };
    match args.count {
        None => pinger.once(&questions)?,
        Some(count) => pinger.again_and_again(&questions, count)?,
    }
    pinger.node.shutdown(source::PARTING);
    Ok(())
}

struct Pinger<'a> {
    node: Node,
    args: &'a PingArgs,
    signals: &'a Signals,
}

impl Pinger<'_> {
    /// Each node once: prints its NIDs as `lctl ping` does.
    fn once(&self, questions: &[Question]) -> Result<(), Failure> {
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

    /// One line for each answer, and the numbers at the end.
    fn again_and_again(&self, questions: &[Question], count: u64) -> Result<(), Failure> {
        let mut tallies = vec![Tally::default(); questions.len()];
        let rounds = if count == 0 { u64::MAX } else { count };
        for round in 1..=rounds {
            let begun = Instant::now();
            for (question, tally) in questions.iter().zip(&mut tallies) {
                self.ask_once_more(question, round, tally)?;
            }
            let rest = self.args.interval.saturating_sub(begun.elapsed());
            if self.signals.stopped()
                || (round < rounds && self.node.wait(&self.signals.interrupt, Some(rest)))
            {
                break;
            }
        }
        for (question, tally) in questions.iter().zip(&tallies) {
            if self.args.json {
                output::json(&tally.to_json(question.target))?;
            } else {
                output::line(format_args!("--- {} ---\n{tally}", question.target))?;
            }
        }
        // With nothing sent nothing is known.
        let all = tallies.iter().all(|tally| tally.is_complete());
        if all { Ok(()) } else { Err(Failure::quiet()) }
    }

    fn ask_once_more(&self, question: &Question, round: u64, tally: &mut Tally) -> Result<(), Failure> {
        if self.signals.stopped() {
            return Ok(());
        }
        match self.ask(question) {
            Ok(answer) => {
                tally.answered(answer.round_trip);
                if self.args.json {
                    return output::json(&to_json(question, &answer, Some(round)));
                }
                output::line(format_args!(
                    "answer {round} from {}: {}, {} ms",
                    question.target,
                    count_of_nids(answer.nids.len()),
                    tally::milliseconds(answer.round_trip)
                ))
            }
            // Whoever stops it does not call the last one lost.
            Err(PingFailure { step: PingStep::Interrupted, .. }) => Ok(()),
            Err(failure) => {
                tally.lost();
                self.print_failure(question, Some(round), &failure)
            }
        }
    }

    fn ask(&self, question: &Question) -> Result<PingAnswer, PingFailure> {
        let Question { target, from } = *question;
        self.node.ping_unless(&self.signals.interrupt, target, Some(from), self.args.timeout)
    }

    fn print_nids(&self, question: &Question, answer: &PingAnswer, named: bool) -> Result<(), Failure> {
        if self.args.json {
            return output::json(&to_json(question, answer, None));
        }
        if named {
            output::line(format_args!("{}:", question.target))?;
        }
        let mut nids = vec![lnet_nid::Nid::LOOPBACK];
        nids.extend(&answer.nids);
        nids.iter().try_for_each(|nid| output::line(format_args!("{}-{nid}", answer.pid)))
    }

    fn print_failure(
        &self,
        question: &Question,
        round: Option<u64>,
        failure: &PingFailure,
    ) -> Result<(), Failure> {
        let told = Failure::of_ping(failure);
        if self.args.json {
            let nid = question.target.to_string();
            return output::json(&json!({ "nid": nid, "seq": round, "error": told.to_json() }));
        }
        output::complain(format_args!("nlx: {told}"));
        Ok(())
    }
}

fn to_json(question: &Question, answer: &PingAnswer, round: Option<u64>) -> Value {
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
    value
}

fn count_of_nids(count: usize) -> String {
    if count == 1 { "1 NID".to_string() } else { format!("{count} NIDs") }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
