//! The commands of a session, of a script or each by itself: run on a console, and printed.

use lnet_proto::lst::Name;
use nlx_lst::command::{Command, View};
use nlx_lst::console::{ConsoleOperation, Event, NodeStates, Warning};
use nlx_lst::net::ConsoleRunner;
use nlx_lst::print::{self, Printed};
use serde_json::json;

use crate::failure::Failure;
use crate::output;

/// Where results of commands go.
pub(super) trait Sink {
    /// Shows the texts of a result, of the command with these words.
    fn show(&self, line: &str, printed: &Printed) -> Result<(), Failure>;

    /// Shows a warning.
    fn warn(&self, warning: &Warning);

    /// Returns whether the command is to end before its time.
    fn is_over(&self) -> bool;
}

/// Runs a command, except those that only scripts have. A code other than 0 is an error, which has been
/// shown.
///
/// `key` is the number of the session for its user.
pub(super) fn run(
    (console, key): (&ConsoleRunner, u32),
    to: &dyn Sink,
    line: &str,
    command: &Command,
) -> Result<(), Failure> {
    match command {
        Command::Operation { operation, view } => run_operation(console, to, line, operation, view),
        Command::ShowSession => {
            let session = console.look(|console| console.session());
            show(to, line, &print::show_session(session.as_ref(), key))
        }
        Command::ListGroup { groups, states } => list_groups(console, to, line, groups, *states),
        Command::ListBatch { batch, test, servers, states } => {
            let batches = console.look(|console| console.batches());
            let printed = match batch {
                None => print::list_batches(&batches),
                Some(name) => {
                    let found = batches.iter().find(|batch| batch.name == *name);
                    print::list_batch(found, *test, *servers, *states)
                }
            };
            show(to, line, &printed)
        }
        Command::Sleep { .. } => {
            Err(Failure::new("'sleep' is a command of scripts").hint("use the command of the shell"))
        }
        Command::Plan(_) => Err(Failure::new("'run --from … --to …' opens a session of its own")),
    }
}

fn list_groups(
    console: &ConsoleRunner,
    to: &dyn Sink,
    line: &str,
    names: &[Name],
    states: NodeStates,
) -> Result<(), Failure> {
    let groups = console.look(|console| console.groups());
    if names.is_empty() {
        return show(to, line, &print::list_groups(&groups));
    }
    names.iter().try_for_each(|name| {
        let found = groups.iter().find(|group| group.name == *name);
        show(to, line, &print::list_group(found, states))
    })
}

fn run_operation(
    console: &ConsoleRunner,
    to: &dyn Sink,
    line: &str,
    operation: &ConsoleOperation,
    view: &View,
) -> Result<(), Failure> {
    let is_over = || to.is_over();
    match console.run(operation.clone(), &is_over, |event| show_event(to, line, event, view)) {
        Ok(report) => show(to, line, &print::report(&report, view)),
        Err(error) => show(to, line, &print::error(operation, &error)),
    }
}

/// Shows an interim result or a warning.
pub(super) fn show_event(to: &dyn Sink, line: &str, event: &Event, view: &View) {
    match event {
        // If the reader has gone, the next result fails with the error.
        Event::Progress(report) => drop(to.show(line, &print::report(report, view))),
        Event::Warning(warning) => to.warn(warning),
        Event::Done(_) => {}
    }
}

fn show(to: &dyn Sink, line: &str, printed: &Printed) -> Result<(), Failure> {
    to.show(line, printed)?;
    if printed.code == 0 { Ok(()) } else { Err(Failure::quiet().exit(printed.code)) }
}

/// Prints the texts of a result.
pub(super) fn print(line: &str, printed: &Printed, json: bool) -> Result<(), Failure> {
    let Printed { output: text, errors, code } = printed;
    if json {
        return output::json(&json!({ "command": line, "output": text, "errors": errors, "code": code }));
    }
    if !text.is_empty() {
        output::line(text.trim_end_matches('\n'))?;
    }
    if !errors.is_empty() {
        output::print_error(errors.trim_end_matches('\n'));
    }
    Ok(())
}
