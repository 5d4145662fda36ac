//! The page from top to bottom.

use std::fmt::Display;

use super::{latency, throughput};
use crate::selftest::figures::Figures;
use crate::selftest::machine::Machine;
use crate::selftest::result::{Ending, Outcome, Phase, RuleCount, total};
use crate::svg::{document, escaped, section};
use crate::units::{counted, grouped, in_bytes, in_iso, in_time, in_words, plural};

/// The phase that measures latency; the others measure throughput.
const PING_PONG: &str = "ping_pong";

/// Returns the whole page.
pub(super) fn page(outcome: &Outcome, machine: &Machine) -> String {
    let phases: Vec<(Figures<'_>, &Phase)> =
        outcome.phases.iter().map(|phase| (Figures::from(phase), phase)).collect();
    let parts = [
        header(outcome),
        cards(phases.iter().map(|(figures, _)| figures)),
        phases.iter().map(|(figures, phase)| pictures(figures, phase)).collect(),
        table(outcome, phases.iter().map(|(figures, _)| figures)),
        rules(&outcome.rules),
        facts(outcome, machine),
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
    let mut notes: String = lines.iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
    for phase in &outcome.phases {
        if let Some(error) = &phase.first_error {
            let words = format!("{}: {error}", phase.name.replace('_', " "));
            notes.push_str(&format!("<p class=\"wrong\">{}</p>\n", escaped(words)));
        }
    }
    let when = in_iso(outcome.started).replace('T', " ").replace('Z', " UTC");
    format!(
        "<header>\n<p>nlx selftest, {}</p>\n<h1>{}</h1>\n{notes}</header>\n",
        escaped(when),
        escaped(headline(outcome))
    )
}

/// Returns the main number of each phase, in large type.
fn cards<'a>(phases: impl Iterator<Item = &'a Figures<'a>>) -> String {
    let cards: String = phases
        .map(|figures| {
            let (rate, unit) = throughput::rate_text(figures);
            let median = in_time(figures.p50_us);
            let (name, (value, unit)) = match figures.phase {
                PING_PONG => {
                    (format!("{}, median", figures.name()), median.rsplit_once(' ').unwrap_or_default())
                }
                _ => (figures.name(), (rate.as_str(), unit)),
            };
            format!(
                "<div><dt>{}</dt><dd>{} <small>{}</small></dd></div>\n",
                escaped(name),
                escaped(value),
                escaped(unit)
            )
        })
        .collect();
    format!("<dl class=\"cards\">\n{cards}</dl>\n")
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
    let body = format!(
        "<div class=\"pair\">\n<figure><h3>Latency: share of the operations</h3>{}</figure>\n\
         <figure><h3>Throughput over time, {}</h3>{}</figure>\n</div>\n",
        latency::picture(figures, &phase.latencies_ns),
        throughput::unit(figures),
        throughput::picture(figures, &phase.samples)
    );
    section(&capitalised(&figures.name()), &what, &body)
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn table<'a>(outcome: &Outcome, phases: impl Iterator<Item = &'a Figures<'a>>) -> String {
    let faults = outcome.settings.faults.is_some();
    let mut names = vec!["phase", "bytes", "clients", "in flight", "operations", "op/s", "MB/s"];
    names.extend(["p50 µs", "p90 µs", "p99 µs", "p99.9 µs", "max µs", "errors"]);
    names.extend(faults.then_some("lost"));
    names.push("verified");
    let head: String = names.iter().map(|name| cell("th", "", name)).collect();
    let rows: String = phases
        .map(|figures| {
            let mut cells = vec![
                figures.name(),
                grouped(figures.size),
                figures.clients.to_string(),
                figures.concurrency.to_string(),
                grouped(figures.operations),
                grouped(figures.operations_per_s.round() as u64),
                format!("{:.1}", figures.mb_per_s),
            ];
            cells.extend(figures.latencies_us().map(|(_, us)| format!("{us:.1}")));
            let mut row: String = cells.iter().map(|text| cell("td", "", text)).collect();
            let class = if figures.errors > 0 { "wrong" } else { "" };
            row.push_str(&cell("td", class, grouped(figures.errors)));
            if faults {
                row.push_str(&cell("td", "", grouped(figures.losses)));
            }
            row.push_str(&cell("td", "", in_bytes(figures.verified_bytes)));
            format!("<tr>{row}</tr>\n")
        })
        .collect();
    section(
        "All phases",
        "",
        &format!("<div class=\"wide\"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n"),
    )
}

fn cell(element: &str, class: &str, text: impl Display) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<{element}{class}>{}</{element}>", escaped(text))
}

/// Returns the section about messages that were dropped and delayed on purpose.
fn rules(rules: &[RuleCount]) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let numbers = ["matched", "dropped", "delayed"].map(|name| cell("th", "number", name));
    let head = [cell("th", "", "node"), cell("th", "", "rule"), numbers.concat()].concat();
    let rows: String = rules
        .iter()
        .map(|rule| {
            let words = [cell("td", "", &rule.node), cell("td", "", &rule.rule)].concat();
            let counts = [rule.matched, rule.dropped, rule.delayed];
            let counts = counts.map(|count| cell("td", "number", grouped(count))).concat();
            format!("<tr>{words}{counts}</tr>\n")
        })
        .collect();
    let body =
        format!("<div class=\"wide\"><table class=\"words\">\n<tr>{head}</tr>\n{rows}</table></div>\n");
    section("Faults on purpose", "", &body)
}

/// Returns the section about the machine and the settings.
fn facts(outcome: &Outcome, machine: &Machine) -> String {
    let settings = &outcome.settings;
    let memory = if machine.memory_bytes == 0 { "unknown".into() } else { in_bytes(machine.memory_bytes) };
    let all = [
        ("host", machine.host.clone()),
        ("system", machine.system.clone()),
        ("processor", format!("{} × {}", machine.cpus, machine.processor)),
        ("memory", memory),
        ("network", format!("{}, {}", settings.net, settings.mode)),
        ("each phase", in_words(settings.duration)),
        ("seed", settings.seed.to_string()),
        ("faults", settings.faults.clone().unwrap_or_else(|| "none".into())),
        ("clients", outcome.clients.join(", ")),
        ("servers", outcome.servers.join(", ")),
        ("verified by servers", in_bytes(outcome.served.verified_bytes)),
        ("made by", format!("nlx {}", env!("CARGO_PKG_VERSION"))),
    ];
    let facts: String = all
        .iter()
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(value)))
        .collect();
    let body = format!(
        "<dl class=\"facts\">\n{facts}</dl>\n<pre><code>{}</code></pre>\n",
        escaped(command(outcome))
    );
    section("How it was run", "", &body)
}

/// Returns the command that runs the test again.
fn command(outcome: &Outcome) -> String {
    let settings = &outcome.settings;
    let mut words = vec![
        "nlx selftest".to_string(),
        format!("--net {} --mode {}", quoted(settings.net), settings.mode),
        format!("--duration {}", settings.duration.as_secs_f64()),
        format!("--size {}", settings.size),
        format!("--concurrency {}", settings.concurrency),
        format!("--clients {}", settings.clients),
        format!("--seed {}", settings.seed),
    ];
    words.extend(settings.faults.as_ref().map(|faults| format!("--faults {}", quoted(faults))));
    words.join(" ")
}

/// Quotes a word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@=,".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
