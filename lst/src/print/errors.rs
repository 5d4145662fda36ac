//! Errors of the console itself.

use super::{Printed, REFUSED, describe};
use crate::console::{ConsoleError, Operation};

/// Prints the error with which the console has refused an operation.
#[must_use]
pub fn error(operation: &Operation, error: &ConsoleError) -> Printed {
    let mut printed = Printed { code: REFUSED, ..Printed::default() };
    let errno = describe(error.errno());
    if let ConsoleError::Hazard(_) | ConsoleError::Canceled | ConsoleError::Range { .. } = error {
        printed.err(format_args!("{error}"));
        return printed;
    }
    match (operation, error) {
        (Operation::NewSession(_), _) => {
            printed.err(format_args!("new session creation failed"));
            printed.err(format_args!("{errno}"));
        }
        (_, ConsoleError::Exists { object, .. }) => printed.err(format_args!("{object} already exists")),
        (Operation::DelGroup { .. }, _) => printed.err(format_args!("Failed to delete group: {errno}")),
        (Operation::UpdateGroup { .. }, _) => printed.err(format_args!("Failed to update group: {errno}")),
        (Operation::AddTest(_), ConsoleError::Running { .. }) => {
            printed.err(format_args!("Invalid parameters list in command line"));
        }
        (Operation::Run { batch, .. } | Operation::Stop { batch, .. }, _) => {
            printed.err(format_args!("Failed to get count of nodes from {batch}: {errno}"));
        }
        (operation, ConsoleError::NotFound { .. }) => {
            printed.err(format_args!("Can't find {} in current session", word(operation)));
        }
        (operation, _) => printed.err(format_args!("Failed to {}: {errno}", word(operation))),
    }
    printed.err(format_args!("  {error}"));
    printed
}

/// Returns the word for an operation in errors.
const fn word(operation: &Operation) -> &'static str {
    match operation {
        Operation::NewSession(_) => "new_session",
        Operation::AddGroup { .. } => "add_group",
        Operation::DelGroup { .. } => "del_group",
        Operation::UpdateGroup { .. } => "update_group",
        Operation::AddBatch { .. } => "add_batch",
        Operation::AddTest(_) => "test",
        Operation::Run { .. } => "run",
        Operation::Stop { .. } => "stop",
        Operation::Query(_) => "query",
        Operation::Stat(_) => "stat",
        Operation::ShowError { .. } => "show_error",
        Operation::Ping { .. } => "ping",
        Operation::EndSession => "end_session",
    }
}
