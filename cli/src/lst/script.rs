//! `nlx lst script`: the commands of a script, in one session.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lnet_proto::lst::Name;
use nlx_lst::command::{Command, View, parse, script_lines};
use nlx_lst::console::{Event, Operation};
use nlx_lst::net::ConsoleRunner;
use nlx_lst::print::{self, Printed};
use serde_json::json;

use super::{Host, defaults, plan};
use crate::args::LstArgs;
use crate::failure::{Context, Failure};
use crate::output;
use crate::signals::Signals;

/// Maximum length of a script in bytes: a line for each of ten thousand nodes fits.
const SCRIPT_MAX: u64 = 4 << 20;

pub(super) fn run(args: &LstArgs, file: &Path) -> Result<(), Failure> {
    let signals = Signals::take(false)?;
    let script = load(file)?;
    // The whole script is read before anything is sent.
    let mut commands = Vec::new();
    for (number, line) in script_lines(&script) {
        let named = |error| Failure::new(format!("{}:{number}: {error}", file.display()));
        commands.extend(parse(&line, &defaults()).map_err(named)?.map(|command| (line, command)));
    }
    let host = Host::start(args)?;
    let session = Session { console: host.console()?, signals, json: args.json, args, host: &host };
    let outcome = commands.iter().try_for_each(|(line, command)| session.command(line, command));
    // Nodes keep a session that is not ended for 100 s.
    let _ = session.console.run(Operation::EndSession, &|| false, |_| {});
    outcome
}

fn load(file: &Path) -> Result<String, Failure> {
    let mut script = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(SCRIPT_MAX + 1).read_to_string(&mut script)
    } else {
        let opened = std::fs::File::open(file).context(&format!("cannot open {}", file.display()))?;
        opened.take(SCRIPT_MAX + 1).read_to_string(&mut script)
    };
    let length = read.context(&format!("cannot read {}", file.display()))?;
    if length as u64 > SCRIPT_MAX {
        return Err(Failure::new(format!("{} is longer than {SCRIPT_MAX} bytes", file.display())));
    }
    Ok(script)
}

struct Session<'a> {
    console: ConsoleRunner,
    signals: Arc<Signals>,
    json: bool,
    args: &'a LstArgs,
    host: &'a Host,
}

impl Session<'_> {
    fn command(&self, line: &str, command: &Command) -> Result<(), Failure> {
        let is_over = || self.signals.stopped();
        if is_over() {
            return Err(Failure::new("interrupted").exit(130));
        }
        match command {
            Command::Operation { operation, view } => self.operation(line, operation, view),
            Command::Sleep { seconds } => {
                let time = Duration::from_secs(u64::from(*seconds));
                self.console.idle(time, &is_over, |event| self.event(line, event, &View::All));
                Ok(())
            }
            Command::Plan(plan) => plan::within(self.args, self.host, &self.console, &self.signals, plan),
            Command::ShowSession => {
                let session = self.console.look(|console| console.session());
                self.print(line, &print::show_session(session.as_ref(), std::process::id()))
            }
            Command::ListGroup { groups, states } => self.list_groups(line, groups, *states),
            Command::ListBatch { batch, test, servers, states } => {
                let batches = self.console.look(|console| console.batches());
                let printed = match batch {
                    None => print::list_batches(&batches),
                    Some(name) => {
                        let found = batches.iter().find(|batch| batch.name == *name);
                        print::list_batch(found, *test, *servers, *states)
                    }
                };
                self.print(line, &printed)
            }
        }
    }

    fn list_groups(
        &self,
        line: &str,
        names: &[Name],
        states: nlx_lst::console::NodeStates,
    ) -> Result<(), Failure> {
        let groups = self.console.look(|console| console.groups());
        if names.is_empty() {
            return self.print(line, &print::list_groups(&groups));
        }
        names.iter().try_for_each(|name| {
            let found = groups.iter().find(|group| group.name == *name);
            self.print(line, &print::list_group(found, states))
        })
    }

    fn operation(&self, line: &str, operation: &Operation, view: &View) -> Result<(), Failure> {
        let is_over = || self.signals.stopped();
        let outcome = self.console.run(operation.clone(), &is_over, |event| self.event(line, event, view));
        match outcome {
            Ok(report) => self.print(line, &print::report(&report, view)),
            Err(error) => self.print(line, &print::error(operation, &error)),
        }
    }

    /// Prints an interim result or a warning.
    fn event(&self, line: &str, event: &Event, view: &View) {
        match event {
            // If standard output is closed, the next result fails with the error.
            Event::Progress(report) => drop(self.print(line, &print::report(report, view))),
            Event::Warning(warning) => output::print_error(format_args!("nlx: {warning}")),
            Event::Done(_) => {}
        }
    }

    /// Prints the texts of a result. A code other than 0 is an error, which ends the script.
    fn print(&self, line: &str, printed: &Printed) -> Result<(), Failure> {
        let Printed { output: text, errors, code } = printed;
        if self.json {
            output::json(&json!({ "command": line, "output": text, "errors": errors, "code": code }))?;
        } else {
            if !text.is_empty() {
                output::line(text.trim_end_matches('\n'))?;
            }
            if !errors.is_empty() {
                output::print_error(errors.trim_end_matches('\n'));
            }
        }
        if *code == 0 { Ok(()) } else { Err(Failure::quiet().exit(*code)) }
    }
}
