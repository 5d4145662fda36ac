//! The judge's output.

use std::collections::BTreeMap;
use std::fmt;

use super::Outcome;

/// The outcomes of checks or rules, in the order of the table.
#[derive(Debug, Clone, Default)]
pub struct Report {
    rows: Vec<Row>,
}

/// One line of the report.
#[derive(Debug, Clone)]
struct Row {
    name: &'static str,
    enforces: &'static str,
    outcome: Outcome,
}

impl Report {
    /// Adds a line.
    pub fn add(&mut self, name: &'static str, enforces: &'static str, outcome: Outcome) {
        self.rows.push(Row { name, enforces, outcome });
    }

    /// Returns the failures, with their reasons.
    pub fn failures(&self) -> BTreeMap<&'static str, String> {
        let failed = |row: &Row| match &row.outcome {
            Outcome::Fail(words) => Some((row.name, format!("{words} ({})", row.enforces))),
            _ => None,
        };
        self.rows.iter().filter_map(failed).collect()
    }

    /// Returns the names of passed checks or rules.
    pub fn passed(&self) -> Vec<&'static str> {
        self.rows.iter().filter(|row| row.outcome == Outcome::Pass).map(|row| row.name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", line(row.name, row.enforces, &row.outcome)))
    }
}

/// Formats one line: the outcome, the name, the enforced line.
pub fn line(name: &str, enforces: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Pass => format!("PASS {name:<16} {enforces}"),
        Outcome::Fail(words) => format!("FAIL {name:<16} {enforces}\n     {words}"),
        Outcome::DoesNotApply => format!("  -  {name:<16} {enforces}"),
    }
}
