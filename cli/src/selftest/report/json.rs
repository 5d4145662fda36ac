//! The whole result as one object.

use serde::Serialize;

use crate::machine::Machine;
use crate::selftest::figures::Figures;
use crate::selftest::result::{Ending, Outcome, RuleCount, Settings};
use crate::units::in_iso;

/// The JSON report. Keys are the names of the table's columns, in snake case.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    passed: bool,
    /// `complete`, `interrupted` or `failed`.
    ending: &'static str,
    /// The reason why the test could not continue, if it could not.
    failure: Option<&'a str>,
    started: String,
    nlx: &'static str,
    machine: Machine,
    seed: u64,
    settings: Options<'a>,
    clients: &'a [String],
    servers: &'a [String],
    errors: u64,
    losses: u64,
    verified_bytes: u64,
    /// The bytes that the servers verified. Not part of a phase.
    server_verified_bytes: u64,
    server_errors: u64,
    phases: Vec<Figures<'a>>,
    rules: Vec<Rule<'a>>,
}

#[derive(Debug, Serialize)]
struct Options<'a> {
    /// `in-process` or `helper`.
    mode: &'static str,
    net: &'static str,
    size: u64,
    concurrency: u32,
    clients: u32,
    duration_s: f64,
    faults: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Rule<'a> {
    node: &'a str,
    rule: &'a str,
    matched: u64,
    dropped: u64,
    delayed: u64,
}

impl<'a> Report<'a> {
    pub(super) fn of(outcome: &'a Outcome, machine: Machine) -> Report<'a> {
        let Settings { mode, net, size, concurrency, clients, duration, seed, faults } = &outcome.settings;
        let (ending, failure) = match &outcome.ending {
            Ending::Complete => ("complete", None),
            Ending::Interrupted => ("interrupted", None),
            Ending::Failed(reason) => ("failed", Some(reason.as_str())),
        };
        let rule = |RuleCount { node, rule, matched, dropped, delayed }: &'a RuleCount| Rule {
            node,
            rule,
            matched: *matched,
            dropped: *dropped,
            delayed: *delayed,
        };
        Report {
            passed: outcome.passed(),
            ending,
            failure,
            started: in_iso(outcome.started),
            nlx: env!("CARGO_PKG_VERSION"),
            machine,
            seed: *seed,
            settings: Options {
                mode,
                net,
                size: *size,
                concurrency: *concurrency,
                clients: *clients,
                duration_s: duration.as_secs_f64(),
                faults: faults.as_deref(),
            },
            clients: &outcome.clients,
            servers: &outcome.servers,
            errors: outcome.errors(),
            losses: outcome.lost(),
            verified_bytes: outcome.verified_bytes(),
            server_verified_bytes: outcome.served.verified_bytes,
            server_errors: outcome.served.errors,
            phases: outcome.phases.iter().map(Figures::from).collect(),
            rules: outcome.rules.iter().map(rule).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::samples::{HOSTILE, hostile, outcome};

    fn json(outcome: &Outcome) -> serde_json::Value {
        serde_json::to_value(Report::of(outcome, Machine::default())).unwrap()
    }

    #[test]
    fn a_program_finds_what_the_table_says() {
        let outcome = outcome();
        let report = json(&outcome);
        assert_eq!((&report["passed"], &report["ending"]), (&true.into(), &"complete".into()));
        assert_eq!(report["seed"], outcome.settings.seed);
        assert_eq!(report["verified_bytes"], outcome.verified_bytes());
        let phases = report["phases"].as_array().unwrap();
        assert_eq!(phases.len(), outcome.phases.len());
        for (shown, phase) in phases.iter().zip(&outcome.phases) {
            let number = |key: &str| shown[key].as_f64().unwrap_or_else(|| panic!("{key} of {shown}"));
            assert_eq!((&shown["phase"], &shown["size"]), (&phase.name.into(), &phase.size.into()));
            assert!(
                (number("operations_per_s") * number("seconds") / number("operations") - 1.0).abs() < 1e-9
            );
            assert!((number("mb_per_s") * 1e6 - number("operations_per_s") * phase.size as f64).abs() < 1.0);
            let percentiles = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(number);
            assert!(percentiles.is_sorted() && percentiles[0] > 0.0, "{percentiles:?}");
            for key in ["errors", "losses", "losses_injected", "delayed"] {
                assert_eq!(number(key), 0.0);
            }
        }
    }

    #[test]
    fn losses_and_rules_are_counted() {
        let report = json(&hostile());
        assert_eq!(
            (&report["passed"], &report["losses"], &report["errors"]),
            (&false.into(), &3.into(), &1.into())
        );
        assert_eq!((&report["ending"], &report["failure"]), (&"failed".into(), &HOSTILE.into()));
        assert_eq!(
            (&report["rules"][0]["rule"], &report["rules"][0]["dropped"]),
            (&HOSTILE.into(), &3.into())
        );
        assert_eq!(report["phases"][0]["first_error"], HOSTILE);
    }
}
