//! What the self-test found out: a table for people, one JSON object for programs.

mod json;
mod table;

use super::machine::Machine;
use super::result::Outcome;
use crate::failure::Failure;
use crate::output;

/// Prints the table and the verdict.
pub(super) fn print(outcome: &Outcome) -> Result<(), Failure> {
    output::line(table::Text(outcome))
}

/// Prints one JSON object.
pub(super) fn json(outcome: &Outcome) -> Result<(), Failure> {
    output::json(&json::Report::of(outcome, Machine::this()))
}
