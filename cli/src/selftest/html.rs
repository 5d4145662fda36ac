//! The report as one self-contained page: pictures, table, machine, and the command to run it
//! again. It has no script and loads nothing; it is light or dark by the reader's setting, and can
//! be printed.

use super::figures::Figures;
use super::report;
use super::result::{Ending, Outcome, Phase, total};
use crate::machine::Machine;
use crate::svg::{
    Card, Curve, Header, Sample, cards, command_line, document, facts, latencies, over_time, pair, section,
    table,
};
use crate::units::{counted, grouped, in_bytes, in_thousands, in_time, in_words, plural};

/// Operations of at least this size are measured in bytes, smaller ones in operations.
const BULK_BYTES: u64 = 4096;

/// The phase that measures latency; the others measure throughput.
const PING_PONG: &str = "ping_pong";

/// Returns the HTML page of a selftest, with its figures and the machine.
pub(super) fn page(outcome: &Outcome, machine: &Machine) -> String {
    let phases: Vec<(Figures<'_>, &Phase)> =
        outcome.phases.iter().map(|phase| (Figures::from(phase), phase)).collect();
    let rules = match &outcome.rules[..] {
        [] => String::new(),
        rules => section("Faults on purpose", "", &table(&report::rules(rules, grouped))),
    };
    let parts = [
        header(outcome),
        cards(phases.iter().map(|(figures, _)| card(figures))),
        phases.iter().map(|(figures, phase)| pictures(figures, phase)).collect(),
        section("All phases", "", &table(&report::phases(outcome, grouped))),
        rules,
        facts(machine, &settings(outcome), &command(outcome)),
    ];
    let title = format!("nlx selftest, {}: {}", machine.host, headline(outcome));
    document(title, "", class(outcome), &parts.concat())
}

fn class(outcome: &Outcome) -> &'static str {
    match &outcome.ending {
        _ if outcome.passed() => "passed",
        Ending::Interrupted if outcome.errors() == 0 => "interrupted",
        _ => "failed",
    }
}

/// Returns the result in a sentence.
fn headline(outcome: &Outcome) -> String {
    match (&outcome.ending, outcome.errors()) {
        _ if outcome.passed() && outcome.lost() > 0 => "Only messages dropped on purpose were lost".into(),
        _ if outcome.passed() => "Every byte and every event was right".into(),
        (Ending::Failed(_), _) => "The test could not continue".into(),
        (Ending::Interrupted, 0) => "Ended early; until then everything was right".into(),
        (_, 1) => "One error".into(),
        (_, 0) => "Results are missing".into(),
        (_, errors) => format!("{} errors", grouped(errors)),
    }
}

fn header(outcome: &Outcome) -> String {
    let operations = total(outcome.phases.iter().map(|phase| phase.operations));
    let verified = in_bytes(outcome.verified_bytes().saturating_add(outcome.served.verified_bytes));
    let mut lines = vec![format!("{verified} of {} compared byte by byte", counted(operations, "operation"))];
    if outcome.lost() > 0 {
        let dropped = total(outcome.phases.iter().map(|phase| phase.dropped));
        lines.push(format!(
            "{} lost to {} dropped {}",
            counted(outcome.lost(), "operation"),
            grouped(dropped),
            plural(dropped, "message")
        ));
    }
    if let Ending::Failed(reason) = &outcome.ending {
        lines.push(reason.clone());
    }
    let error = |phase: &Phase| {
        let error = phase.first_error.as_ref()?;
        Some(format!("{}: {error}", phase.name.replace('_', " ")))
    };
    let errors: Vec<String> = outcome.phases.iter().filter_map(error).collect();
    let (headline, started) = (&headline(outcome), outcome.started);
    Header { command: "nlx selftest", started, headline, lines: &lines, errors: &errors }.html()
}

/// Returns a phase's main number.
fn card(figures: &Figures<'_>) -> Card {
    if figures.phase == PING_PONG {
        let median = in_time(figures.latency.p50_us);
        let (value, unit) = median.rsplit_once(' ').unwrap_or_default();
        return Card { name: format!("{}, median", figures.name()), value: value.into(), unit: unit.into() };
    }
    let (value, unit) = rate_text(figures);
    Card { name: figures.name(), value, unit: unit.into() }
}

/// Returns the unit of a phase's rate.
fn unit(figures: &Figures<'_>) -> &'static str {
    if figures.size >= BULK_BYTES { "MB/s" } else { "op/s" }
}

/// Returns the phase's rate as text, and its unit.
fn rate_text(figures: &Figures<'_>) -> (String, &'static str) {
    /// Rate from which it is shown in thousands.
    const MANY_MB: f64 = 10e3;
    match rate(figures) {
        rate if unit(figures) == "MB/s" && rate >= MANY_MB => (in_thousands(rate / 1e3), "GB/s"),
        rate => (in_thousands(rate), unit(figures)),
    }
}

fn rate(figures: &Figures<'_>) -> f64 {
    if figures.size >= BULK_BYTES { figures.mb_per_s } else { figures.operations_per_s }
}

/// Returns a phase's rate over time, which shows whether it was steady.
fn throughput(figures: &Figures<'_>, phase: &Phase) -> String {
    let total = |operations: u64, bytes: u64| match unit(figures) {
        "MB/s" => bytes as f64 / 1e6,
        _ => operations as f64,
    };
    let samples = phase.samples.iter();
    let samples =
        samples.map(|sample| Sample { at: sample.at, total: total(sample.operations, sample.bytes) });
    let (rate_text, of) = rate_text(figures);
    let curve = Curve {
        name: "",
        samples: samples.collect(),
        mean: rate(figures),
        words: format!("{rate_text} {of}"),
    };
    over_time(&format!("Throughput of {} over {:.1} s", figures.name(), figures.seconds), &[curve])
}

fn pictures(figures: &Figures<'_>, phase: &Phase) -> String {
    let clients =
        if figures.clients == 1 { String::new() } else { format!(" of each of {} clients", figures.clients) };
    // A mixed load also has messages.
    let each =
        if phase.bytes == figures.operations.saturating_mul(figures.size) { "each" } else { "at the most" };
    let what = format!(
        "{} in {:.1} s, {} {each}, {} in flight{clients}",
        counted(figures.operations, "operation"),
        figures.seconds,
        counted(figures.size, "byte"),
        figures.concurrency
    );
    let pictures = [
        ("Latency: share of the operations".to_string(), latencies(&figures.name(), &phase.latencies_ns)),
        (format!("Throughput over time, {}", unit(figures)), throughput(figures, phase)),
    ];
    section(&capitalised(&figures.name()), &what, &pair(pictures))
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn settings(outcome: &Outcome) -> [(&'static str, String); 7] {
    let settings = &outcome.settings;
    [
        ("network", format!("{}, {}", settings.net, settings.mode)),
        ("each phase", in_words(settings.duration)),
        ("seed", settings.seed.to_string()),
        ("faults", settings.faults.clone().unwrap_or_else(|| "none".into())),
        ("clients", outcome.clients.join(", ")),
        ("servers", outcome.servers.join(", ")),
        ("verified by servers", in_bytes(outcome.served.verified_bytes)),
    ]
}

/// Returns the command that runs the test again.
fn command(outcome: &Outcome) -> String {
    let settings = &outcome.settings;
    let mut words =
        ["nlx", "selftest", "--net", settings.net, "--mode", settings.mode].map(String::from).to_vec();
    let numbers = [
        ("--duration", settings.duration.as_secs_f64().to_string()),
        ("--size", settings.size.to_string()),
        ("--concurrency", settings.concurrency.to_string()),
        ("--clients", settings.clients.to_string()),
        ("--seed", settings.seed.to_string()),
    ];
    words.extend(numbers.into_iter().flat_map(|(option, value)| [option.to_string(), value]));
    words.extend(settings.faults.iter().flat_map(|faults| ["--faults".to_string(), faults.clone()]));
    command_line(words)
}

#[cfg(test)]
mod tests;
