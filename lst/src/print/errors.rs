//! Errors of the console itself.

use super::{Printed, REFUSED, describe};
use crate::console::{ConsoleError, ConsoleOperation};

/// Prints the error with which the console has refused an operation.
#[must_use]
pub fn error(operation: &ConsoleOperation, error: &ConsoleError) -> Printed {
    let mut printed = Printed { code: REFUSED, ..Printed::default() };
    let errno = describe(error.errno());
    if let ConsoleError::Hazard(_) | ConsoleError::Canceled | ConsoleError::Range { .. } = error {
        printed.err(format_args!("{error}"));
        return printed;
    }
    match (operation, error) {
        (ConsoleOperation::NewSession(_), _) => {
            printed.err(format_args!("new session creation failed"));
            printed.err(format_args!("{errno}"));
        }
        (_, ConsoleError::Exists { object, .. }) => printed.err(format_args!("{object} already exists")),
        (ConsoleOperation::DelGroup { .. }, _) => {
            printed.err(format_args!("Failed to delete group: {errno}"))
        }
        (ConsoleOperation::UpdateGroup { .. }, _) => {
            printed.err(format_args!("Failed to update group: {errno}"))
        }
        (ConsoleOperation::AddTest(_), ConsoleError::Running { .. }) => {
            printed.err(format_args!("Invalid parameters list in command line"));
        }
        (ConsoleOperation::Run { batch, .. } | ConsoleOperation::Stop { batch, .. }, _) => {
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
const fn word(operation: &ConsoleOperation) -> &'static str {
    match operation {
        ConsoleOperation::NewSession(_) => "new_session",
        ConsoleOperation::AddGroup { .. } => "add_group",
        ConsoleOperation::DelGroup { .. } => "del_group",
        ConsoleOperation::UpdateGroup { .. } => "update_group",
        ConsoleOperation::AddBatch { .. } => "add_batch",
        ConsoleOperation::AddTest(_) => "test",
        ConsoleOperation::Run { .. } => "run",
        ConsoleOperation::Stop { .. } => "stop",
        ConsoleOperation::Query(_) => "query",
        ConsoleOperation::Stat(_) => "stat",
        ConsoleOperation::ShowError { .. } => "show_error",
        ConsoleOperation::Ping { .. } => "ping",
        ConsoleOperation::EndSession => "end_session",
    }
}
