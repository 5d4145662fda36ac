//! Texts as `lst` prints them (lst 12.1), and its return codes.
//!
//! Where the newest `lst` prints a node's id or a group's name wrongly, these texts have the right
//! one. A second line with the reason follows the errors that `lst` gives without one.

mod errors;
mod lists;
mod nodes;
mod stat;

use std::fmt::{self, Write};

use nix::errno::Errno;

use crate::command::View;
use crate::console::{GroupOutcome, NodeAnswer, NodeFailure, Report};

pub use errors::error;
pub use lists::{list_batch, list_batches, list_group, list_groups, show_session};
pub use nodes::target_name;

/// What a command prints, and its return code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// What goes to the standard output. Each line ends with a line feed.
    pub output: String,
    /// What goes to the standard error output, likewise.
    pub errors: String,
    /// The return code; 0 is success.
    pub code: u8,
}

/// Return code of a command that the console refuses.
pub const REFUSED: u8 = 255;

/// Return code of a command of which an RPC failed.
pub const RPC_FAILED: u8 = 254;

/// Return code of a command that a node has refused.
pub const NODE_REFUSED: u8 = 253;

/// Return code of a list of something that does not exist.
pub const NOT_FOUND: u8 = 234;

impl Printed {
    fn out(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.output, "{line}").expect("writing to a string does not fail");
    }

    fn err(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.errors, "{line}").expect("writing to a string does not fail");
    }

    /// Raises the code for a failure: that of a failed RPC is above that of a refusal.
    fn note(&mut self, failure: NodeFailure) {
        let code = match failure {
            NodeFailure::Rpc(_) => RPC_FAILED,
            NodeFailure::Refused(_) => NODE_REFUSED,
        };
        self.code = self.code.max(code);
    }

    /// Prints a line for each node at which the operation failed.
    fn failures(&mut self, operation: &str, nodes: &[NodeAnswer<()>]) {
        for node in nodes {
            if let Err(failure) = node.answer {
                let reason = describe(failure.errno());
                self.err(format_args!("operation {operation} failed on {}: {reason}", node.node));
                self.note(failure);
            }
        }
    }
}

/// Prints the result of an operation, or an interim result.
#[must_use]
pub fn report(report: &Report, view: &View) -> Printed {
    let mut printed = Printed::default();
    let to = &mut printed;
    match report {
        Report::Session(session) => lists::new_session(to, session),
        Report::Batch { .. } => {}
        Report::Group { name, outcome, nodes } => match outcome {
            GroupOutcome::Added | GroupOutcome::AddedWithoutNodes => {
                to.failures("create session", nodes);
                if *outcome == GroupOutcome::AddedWithoutNodes {
                    to.err(format_args!("No nodes added successfully, deleting group {name}"));
                    to.err(format_args!("Group is deleted"));
                } else if let View::AddGroup { nodes } = view {
                    to.out(format_args!("{nodes} are added to session"));
                }
            }
            GroupOutcome::Refreshed | GroupOutcome::Shrunk => to.failures("Updating group", nodes),
            GroupOutcome::Deleted => to.failures("Deleting group", nodes),
        },
        Report::Test { number, nodes, .. } => {
            to.failures("add test", nodes);
            if number.is_some() {
                to.out(format_args!("Test was added successfully"));
            }
        }
        Report::Run { batch, nodes } => {
            to.failures("run batch", nodes);
            if nodes.iter().any(|node| node.answer.is_ok()) {
                to.out(format_args!("{batch} is running now"));
            }
        }
        Report::Stopping { nodes, .. } => to.out(format_args!("{nodes} batch in stopping")),
        Report::Stop { nodes, running, .. } => stopped(to, nodes, *running),
        Report::Query(query) => nodes::query(to, query, view),
        Report::Stat(targets) => stat::rates(to, targets, view),
        Report::Errors(targets) => nodes::errors(to, targets, view),
        Report::Ping(target) => nodes::ping(to, target),
        Report::End { nodes } => to.failures("end session", nodes),
    }
    printed
}

fn stopped(to: &mut Printed, nodes: &[NodeAnswer<()>], running: usize) {
    to.failures("stop batch", nodes);
    match running {
        0 => to.out(format_args!("Batch is stopped")),
        _ => {
            to.err(format_args!("{running} nodes still run the batch"));
            to.code = to.code.max(RPC_FAILED);
        }
    }
}

/// Returns the text of an errno as the C library has it.
fn describe(errno: Errno) -> &'static str {
    match errno {
        Errno::EOPNOTSUPP => "Operation not supported",
        errno => errno.desc(),
    }
}
