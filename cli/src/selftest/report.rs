//! The results of the self-test: a table for people, a JSON object for programs.

mod json;
mod table;

use std::fmt::Display;

use serde::Serialize;

use super::result::Outcome;
use crate::machine::Machine;

pub(super) use table::{phases, rules};

/// Returns the table and the result.
pub(super) fn text(outcome: &Outcome) -> impl Display {
    table::Text(outcome)
}

/// Returns the JSON object.
pub(super) fn json(outcome: &Outcome) -> impl Serialize {
    json::Report::of(outcome, Machine::this())
}
