//! `nlx lst run`: one test from its session to its result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use comfy_table::presets::UTF8_BORDERS_ONLY;
use lnet_api::Errno;
use nlx_lst::command::{Plan, View};
use nlx_lst::console::{ConsoleOperation, Event, Rates, Report, TargetReport};
use nlx_lst::net::{ConsoleRunner, TestNodeOptions};
use nlx_lst::print;
use serde_json::json;

use super::latency::ClientLatency;
use super::outcome::{Outcome, interval_json, interval_text};
use super::{Host, html};
use crate::args::LstArgs;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::{output, svg};

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
    plan.html.as_deref().map_or(Ok(()), svg::reserve)?;
    let own = host.node.nids();
    let takes_part = plan.from.iter().chain(&plan.to).any(|node| own.contains(&node.nid));
    let test = if takes_part { Some(host.test_node(TestNodeOptions::default())?) } else { None };
    let json = args.json || plan.json;
    let duration = Duration::from_secs(plan.duration_s.into());
    let progress = Progress::new(&plan.kind.to_string(), duration, json);
    let mut run = Run { json, progress: &progress, outcome: Outcome::new() };
    let is_over = || signals.stopped();
    let mut outcome = Ok(());
    for operation in plan.operations() {
        let is_end = matches!(operation, ConsoleOperation::EndSession);
        // After a failure or an interruption the test is still stopped, and its session ended.
        let is_cleanup = is_end || matches!(operation, ConsoleOperation::Stop { .. });
        if (outcome.is_err() || is_over()) && !is_cleanup {
            continue;
        }
        if is_end {
            let clients = test.as_ref().map(|test| test.clients()).unwrap_or_default();
            run.outcome.latencies = clients.into_iter().map(ClientLatency::from).collect();
        }
        let measuring = matches!(operation, ConsoleOperation::Stat(_)).then(Instant::now);
        let looks = || {
            measuring.inspect(|began| progress.advance(began.elapsed()));
            !is_cleanup && is_over()
        };
        let mut printed = Ok(());
        let done = console.run(operation.clone(), &looks, |event| {
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
    progress.finish();
    run.end()?;
    if let Some(path) = &plan.html {
        let ending = match &outcome {
            Err(failure) => html::Ending::Failed(failure.to_string()),
            Ok(()) if is_over() => html::Ending::Interrupted,
            Ok(()) => html::Ending::Complete,
        };
        svg::write(&html::page(plan, &run.outcome, &ending, &Machine::this()), path)?;
        output::print_error(format_args!("the report is in {}", path.display()));
    }
    outcome?;
    verdict(&run.outcome, is_over())
}

/// Returns the result of a run that went to its end or was interrupted.
fn verdict(outcome: &Outcome, is_over: bool) -> Result<(), Failure> {
    let errors = outcome.failed();
    match outcome.code {
        0 if errors > 0 => {
            let text = format!("{errors} RPCs of the test failed");
            Err(Failure::at("lst", Errno::EIO, text).hint("the column 'errors' names the nodes"))
        }
        0 if is_over => Err(Failure::new("interrupted").exit(130)),
        0 => Ok(()),
        code => Err(Failure::quiet().exit(code)),
    }
}

/// A run in progress.
struct Run<'a> {
    json: bool,
    progress: &'a Progress,
    outcome: Outcome,
}

impl Run<'_> {
    fn event(&mut self, event: &Event) -> Result<(), Failure> {
        match event {
            Event::Progress(Report::Stat(groups)) => self.interval(groups),
            Event::Warning(warning) => {
                self.warn(warning.to_string());
                Ok(())
            }
            Event::Progress(_) | Event::Done(_) => Ok(()),
        }
    }

    fn report(&mut self, report: &Report) -> Result<(), Failure> {
        let printed = print::report(report, &View::All);
        self.outcome.code = self.outcome.code.max(printed.code);
        let errors = printed.errors.trim_end().replace('\n', "; ");
        match report {
            Report::Stat(groups) => self.interval(groups)?,
            Report::Errors(groups) => self.outcome.set_errors(groups),
            // Without its test the rest of the plan makes no sense.
            Report::Group { .. } | Report::Test { .. } | Report::Run { .. } if printed.code != 0 => {
                return Err(Failure::at("lst", Errno::EIO, errors).exit(printed.code));
            }
            _ if errors.is_empty() => {}
            _ => self.warn(errors),
        }
        Ok(())
    }

    fn warn(&mut self, text: String) {
        self.progress.error(format_args!("nlx: {text}"));
        self.outcome.warnings.push(text);
    }

    fn interval(&mut self, groups: &[TargetReport<Rates>]) -> Result<(), Failure> {
        self.outcome.add_interval(groups);
        if self.json {
            return output::json(
                &json!({ "interval": groups.iter().map(interval_json).collect::<Vec<_>>() }),
            );
        }
        let lines: Vec<String> = groups.iter().map(interval_text).collect();
        let measured = self.outcome.measured();
        self.progress.update(measured, lines.first().cloned().unwrap_or_default());
        let seconds = measured.as_secs_f64().round();
        self.progress.line(format_args!("{seconds:>4} s  {}", lines.join("   ")))
    }

    /// Prints the result.
    fn end(&self) -> Result<(), Failure> {
        if self.outcome.is_empty() {
            return Ok(());
        }
        if self.json {
            return output::json(&json!({ "result": self.outcome.to_json() }));
        }
        output::line(self.outcome.table().text(UTF8_BORDERS_ONLY))?;
        self.outcome.latencies.iter().try_for_each(output::line)
    }
}
