//! The results of `nlx lst run` as one self-contained page, in the form of that of `nlx selftest`:
//! rates over time, latencies, a table, errors, and the command that runs it again.

use nlx_lst::command::Plan;
use nlx_lst::console::TestKind;

use super::latency::ClientLatency;
use super::outcome::{GroupResult, Outcome};
use crate::machine::Machine;
use crate::svg::{
    Card, Curve, Header, Latency, cards, command_line, document, facts, latencies, over_time, pair, section,
    table,
};
use crate::tables::Grid;
use crate::units::{counted, grouped, in_thousands, in_time, in_words};

/// The end of a run.
pub(super) enum Ending {
    Complete,
    Interrupted,
    /// The test could not continue, for this reason.
    Failed(String),
}

/// Returns the HTML page of a run: its groups, rates, latencies and warnings.
pub(super) fn page(plan: &Plan, outcome: &Outcome, ending: &Ending, machine: &Machine) -> String {
    let groups = outcome.groups();
    let own = outcome.latencies.iter().map(latency_card);
    let of_groups = groups.iter().flat_map(|group| group_cards(plan, group));
    let sections = match outcome.is_empty() {
        true => String::new(),
        false => [
            cards(own.chain(of_groups)),
            groups.iter().enumerate().map(|(index, group)| pictures(outcome, index, group)).collect(),
            outcome.latencies.iter().map(latency_section).collect(),
            section("All nodes", "averages of all intervals", &table(&outcome.table())),
            section("Errors", "counted by each node, in this session", &table(&outcome.errors_table())),
        ]
        .concat(),
    };
    let parts =
        [header(plan, outcome, ending), sections, facts(machine, &settings(plan), &command_line(words()))];
    let title = format!("nlx lst run, {}: {}", machine.host, headline(outcome, ending));
    document(title, "", class(outcome, ending), &parts.concat())
}

fn class(outcome: &Outcome, ending: &Ending) -> &'static str {
    match ending {
        Ending::Complete if outcome.is_ok() => "passed",
        Ending::Interrupted if outcome.is_ok() => "interrupted",
        _ => "failed",
    }
}

/// Returns the result in a sentence.
fn headline(outcome: &Outcome, ending: &Ending) -> String {
    match (ending, outcome.failed()) {
        (Ending::Failed(_), _) => "The test could not continue".into(),
        (_, failed) if failed > 0 => format!("{} failed", counted(failed, "RPC")),
        _ if !outcome.is_ok() => "Some nodes did not carry out a command".into(),
        (Ending::Interrupted, _) => "Ended early; until then no RPC failed".into(),
        (Ending::Complete, _) => "No RPC failed".into(),
    }
}

fn header(plan: &Plan, outcome: &Outcome, ending: &Ending) -> String {
    let lines = [format!(
        "{}, {} in flight of each client to each of its servers; {}, {}; {} measured",
        plan.kind,
        plan.concurrency,
        counted(plan.from.len() as u64, "client"),
        counted(plan.to.len() as u64, "server"),
        in_words(outcome.measured()),
    )];
    let failure = match ending {
        Ending::Failed(reason) => Some(reason.clone()),
        Ending::Complete | Ending::Interrupted => None,
    };
    let silent = outcome.nodes().into_iter().filter(|node| node.missed > 0);
    let silent = silent
        .map(|node| format!("{} did not answer in {}", node.node, counted(node.missed as u64, "interval")));
    let errors: Vec<String> =
        failure.into_iter().chain(silent).chain(outcome.warnings.iter().cloned()).collect();
    let (headline, started) = (&headline(outcome, ending), outcome.started);
    Header { command: "nlx lst run", started, headline, lines: &lines, errors: &errors }.html()
}

/// Returns what a group received and sent: messages of pings, and otherwise bytes.
fn group_cards(plan: &Plan, group: &GroupResult) -> [Card; 2] {
    let [received, sent, mib_received, mib_sent] = group.rates;
    let (rates, unit) = match plan.kind {
        TestKind::Ping => ([received, sent], "msg/s"),
        TestKind::Brw(_) => ([mib_received, mib_sent], "MiB/s"),
    };
    let card = |(direction, rate)| Card {
        name: format!("{}, {direction}", group.name),
        value: in_thousands(rate),
        unit: unit.into(),
    };
    [("in", rates[0]), ("out", rates[1])].map(card)
}

fn latency_card(client: &ClientLatency) -> Card {
    let median = in_time(Latency::from(&client.times_ns()).p50_us);
    let (value, unit) = median.rsplit_once(' ').unwrap_or_default();
    Card { name: "this node's RPCs, median".into(), value: value.into(), unit: unit.into() }
}

/// Returns the rates of a group over time.
fn pictures(outcome: &Outcome, index: usize, group: &GroupResult) -> String {
    let name = &group.name;
    let [received, sent, mib_received, mib_sent] = outcome.samples(index);
    let [received_per_s, sent_per_s, mib_received_per_s, mib_sent_per_s] = group.rates;
    let curve = |name, samples, mean, unit: &str| Curve {
        name,
        samples,
        mean,
        words: format!("{} {unit}", in_thousands(mean)),
    };
    let messages =
        [curve("in", received, received_per_s, "msg/s"), curve("out (dashed)", sent, sent_per_s, "msg/s")];
    let bytes = [
        curve("in", mib_received, mib_received_per_s, "MiB/s"),
        curve("out (dashed)", mib_sent, mib_sent_per_s, "MiB/s"),
    ];
    let pictures = [
        ("LNet messages over time, msg/s".to_string(), over_time(&format!("Messages of {name}"), &messages)),
        ("Bandwidth over time, MiB/s".to_string(), over_time(&format!("Bandwidth of {name}"), &bytes)),
    ];
    section(
        &format!("Group {name}"),
        "sums of all nodes, with all other LNet traffic of theirs",
        &pair(pictures),
    )
}

/// Returns the latencies of a test client in this process.
fn latency_section(client: &ClientLatency) -> String {
    let times_ns = client.times_ns();
    let percentiles = Latency::from(&times_ns).percentiles_us();
    let rows = percentiles.map(|(name, us)| vec![name.to_string(), format!("{us:.1}")]).to_vec();
    let percentiles = table(&Grid { header: vec!["RPCs of this node", "µs"], words: 1, rows });
    let pictures = [
        ("Latency: share of the RPCs".to_string(), latencies("this node's RPCs", &times_ns)),
        ("Percentiles".to_string(), percentiles),
    ];
    section("This node as a client", &client.to_string(), &pair(pictures))
}

fn settings(plan: &Plan) -> [(&'static str, String); 6] {
    let nodes =
        |nodes: &[lnet_nid::ProcessId]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    [
        ("test", format!("{} concurrency={}", plan.kind, plan.concurrency)),
        ("distribution", format!("{}:{}", plan.distribution.clients, plan.distribution.servers)),
        ("duration, interval", format!("{} s, {} s", grouped(plan.duration_s.into()), plan.interval_s)),
        ("session", plan.session.name.to_string()),
        ("clients", nodes(&plan.from)),
        ("servers", nodes(&plan.to)),
    ]
}

/// Returns the command line of this process, with the program's name as `nlx`.
fn words() -> impl Iterator<Item = String> {
    ["nlx".to_string()].into_iter().chain(std::env::args().skip(1))
}

#[cfg(test)]
mod tests;
