//! What the self-test found out: a table for people, one JSON object for programs.

mod json;
mod table;

use std::fmt::Display;

use serde::Serialize;

use super::machine::Machine;
use super::result::Outcome;

/// The table and the verdict.
pub(super) fn text(outcome: &Outcome) -> impl Display {
    table::Text(outcome)
}

/// One JSON object.
pub(super) fn json(outcome: &Outcome) -> impl Serialize {
    json::Report::of(outcome, Machine::this())
}
