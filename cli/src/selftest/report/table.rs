//! The result for people.

use std::fmt;

use comfy_table::presets::UTF8_FULL_CONDENSED;

use crate::selftest::figures::Figures;
use crate::selftest::result::{Ending, Outcome, RuleCount, total};
use crate::tables::{Grid, printable};
use crate::units::{counted, grouped, in_bytes, plural};

/// Formats a number without separators, for programs that read the table.
fn plain(number: u64) -> String {
    number.to_string()
}

/// The table, the errors, and the verdict.
pub(super) struct Text<'a>(pub(super) &'a Outcome);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Text(outcome) = self;
        if !outcome.phases.is_empty() {
            writeln!(f, "{}", phases(outcome, plain).text(UTF8_FULL_CONDENSED))?;
        }
        if !outcome.rules.is_empty() {
            writeln!(f, "{}", rules(&outcome.rules, plain).text(UTF8_FULL_CONDENSED))?;
        }
        for phase in &outcome.phases {
            if let Some(error) = &phase.first_error {
                let (name, errors) = (phase.name.replace('_', " "), counted(phase.errors, "error"));
                writeln!(f, "{name}: {errors}, the first: {}", printable(error))?;
            }
        }
        if outcome.served.errors > 0 {
            writeln!(
                f,
                "the servers found {} in the received data",
                counted(outcome.served.errors, "error")
            )?;
        }
        f.write_str(&verdict(outcome))
    }
}

/// Returns the table of all phases. `count` formats whole numbers.
pub(in crate::selftest) fn phases(outcome: &Outcome, count: fn(u64) -> String) -> Grid {
    let (clients, faults) = (outcome.settings.clients > 1, outcome.settings.faults.is_some());
    let mut header = vec!["phase", "bytes"];
    header.extend(clients.then_some("clients"));
    header.extend(["in flight", "operations", "op/s", "MB/s"]);
    header.extend(["p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs", "errors"]);
    header.extend(faults.then_some("lost"));
    header.push("verified");
    let row = |figures: Figures<'_>| {
        let mut row = vec![figures.name(), count(figures.size)];
        row.extend(clients.then(|| figures.clients.to_string()));
        row.push(figures.concurrency.to_string());
        row.push(count(figures.operations));
        row.push(count(figures.operations_per_s.round() as u64));
        row.push(format!("{:.1}", figures.mb_per_s));
        row.extend(figures.latency.percentiles_us().map(|(_, us)| format!("{us:.1}")));
        row.push(count(figures.errors));
        row.extend(faults.then(|| count(figures.losses)));
        row.push(in_bytes(figures.verified_bytes));
        row
    };
    Grid { header, words: 1, rows: outcome.phases.iter().map(Figures::from).map(row).collect() }
}

/// Returns the table of the rules by which messages were dropped and delayed on purpose.
pub(in crate::selftest) fn rules(rules: &[RuleCount], count: fn(u64) -> String) -> Grid {
    let row = |RuleCount { node, rule, matched, dropped, delayed }: &RuleCount| {
        [node, rule]
            .into_iter()
            .cloned()
            .chain([matched, dropped, delayed].map(|number| count(*number)))
            .collect()
    };
    let header = vec!["node", "rule", "matched", "dropped", "delayed"];
    Grid { header, words: 2, rows: rules.iter().map(row).collect() }
}

/// Returns the verdict: `passed: 19.28 GB verified, 0 errors, 127.0.0.1@tcp:12345:42:4095 ⇄
/// 127.0.0.2@tcp:12345:42:4095, in-process, seed 42`
fn verdict(outcome: &Outcome) -> String {
    let word = match &outcome.ending {
        _ if outcome.passed() => "passed".to_string(),
        Ending::Complete => "FAILED".to_string(),
        Ending::Interrupted => "interrupted".to_string(),
        Ending::Failed(reason) => format!("FAILED: {}", printable(reason)),
    };
    let mut parts =
        vec![format!("{} verified", in_bytes(outcome.verified_bytes())), counted(outcome.errors(), "error")];
    if outcome.settings.faults.is_some() {
        let dropped = total(outcome.phases.iter().map(|phase| phase.dropped));
        let messages = plural(dropped, "message");
        parts.push(format!("{} lost to {} dropped {messages}", grouped(outcome.lost()), grouped(dropped)));
    }
    parts.push(format!("{} ⇄ {}", nodes(&outcome.clients), nodes(&outcome.servers)));
    parts.push(outcome.settings.mode.to_string());
    parts.push(format!("seed {}", outcome.settings.seed));
    format!("{word}: {}", parts.join(", "))
}

/// Returns the first address, and the number of others.
fn nodes(addresses: &[String]) -> String {
    match addresses {
        [] => "none".to_string(),
        [only] => printable(only),
        [first, others @ ..] => format!("{} and {} more", printable(first), others.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::samples::{hostile, outcome};

    #[test]
    fn each_phase_has_its_line_and_the_last_is_the_verdict() {
        let outcome = outcome();
        let text = Text(&outcome).to_string();
        for phase in &outcome.phases {
            assert!(text.contains(&format!("│ {}", phase.name.replace('_', " "))), "{text}");
        }
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("passed: ")
                && last.contains("0 errors, 127.0.0.1@tcp:12345:42:4095 and 1 more ⇄")
        );
        assert!(!text.contains("lost"), "nothing is said of faults where there are none");
    }

    #[test]
    fn losses_are_reported_with_their_reason() {
        let mut failed = hostile();
        failed.phases[0].first_error = Some("\u{1b}[2J".into());
        let text = Text(&failed).to_string();
        assert!(text.contains("lost to 3 dropped messages"), "{text}");
        assert!(text.contains("ping pong: 1 error, the first: \\u{1b}[2J"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("FAILED: "), "{text}");
        let interrupted = Outcome { ending: Ending::Interrupted, ..outcome() };
        assert!(Text(&interrupted).to_string().contains("\ninterrupted: "));
    }

    #[test]
    fn a_test_that_never_began_says_why() {
        let ending = Ending::Failed("no node answered".into());
        let none =
            Outcome { phases: Vec::new(), clients: Vec::new(), servers: Vec::new(), ending, ..outcome() };
        let text = Text(&none).to_string();
        assert!(text.starts_with("FAILED: no node answered: 0 B verified, 0 errors, none ⇄ none"), "{text}");
    }
}
