//! The page as a whole: well-formed, self-contained, with the figures of the JSON, and safe with any
//! values.

use lnet_nid::{Pid, ProcessId};
use lnet_proto::lst::{Name, Statistics};
use nlx_lst::command::{Command, Defaults, Plan, parse};
use nlx_lst::console::{NodeAnswer, NodeFailure, NodeState, Rates, Target, TargetReport};

use super::*;
use crate::svg::elements;

/// A text that a hostile node might report.
const HOSTILE: &str = "\"'><script>alert(1)</script>";

fn plan() -> Plan {
    let line = "run --from 10.0.0.[1-2]@tcp --to 10.0.0.3@tcp brw write size=64k check=full --duration 3";
    let Ok(Some(Command::Plan(plan))) = parse(line, &Defaults::default()) else { panic!("{line}") };
    plan
}

fn target<T>(name: &str, answers: Vec<(u8, Result<T, NodeFailure>)>) -> TargetReport<T> {
    let node = |last: u8| ProcessId::new(format!("10.0.0.{last}@tcp").parse().unwrap(), Pid::LNET);
    let answer = |(last, answer)| NodeAnswer { node: node(last), state: NodeState::Active, answer };
    TargetReport {
        target: Target::Group(Name::new(name).unwrap()),
        nodes: answers.into_iter().map(answer).collect(),
    }
}

fn rates(received: f64, mib: f64) -> Result<Rates, NodeFailure> {
    let bytes = mib * f64::from(1 << 20);
    let last = Statistics::default();
    Ok(Rates {
        interval_ms: 1000,
        received,
        sent: received / 2.0,
        bytes_received: bytes,
        bytes_sent: 8.0 * bytes,
        last,
    })
}

/// Three intervals of two clients and a server; a client did not answer in one of them.
fn outcome() -> Outcome {
    let mut outcome = Outcome::new();
    for interval in 0..3 {
        let at = f64::from(interval);
        let second =
            if interval == 1 { Err(NodeFailure::Rpc(lnet_api::Errno::ETIMEDOUT)) } else { rates(50.0, 1.5) };
        let clients = target("clients", vec![(1, rates(100.0 + at, 3.0)), (2, second)]);
        outcome.add_interval(&[clients, target("servers", vec![(3, rates(150.0, 4.0))])]);
    }
    let none = Statistics::default();
    let clients = target(
        "clients",
        vec![(1, Ok(none)), (2, Ok(Statistics { brw_errors: 7, rpcs_expired: 5, ..none }))],
    );
    outcome.set_errors(&[clients, target("servers", vec![(3, Ok(none))])]);
    outcome
}

fn text(outcome: &Outcome, ending: &Ending) -> String {
    let machine = Machine { host: HOSTILE.into(), ..Machine::default() };
    page(&plan(), outcome, ending, &machine)
}

fn verdict(page: &str) -> &str {
    page.split("<body class=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a body")
}

// Covers: S-313
#[test]
fn each_figure_is_that_of_the_json() {
    let outcome = outcome();
    let (page, json) = (text(&outcome, &Ending::Complete), outcome.to_json());
    let names = elements(&page);
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!((count("svg"), count("h1"), count("script")), (4, 1, 0));
    let number = |value: &serde_json::Value, key: &str| format!("{:.1}", value[key].as_f64().expect(key));
    let keys = ["messages_received_per_s", "messages_sent_per_s", "mib_received_per_s", "mib_sent_per_s"];
    for (list, name) in [("nodes", "node"), ("groups", "nodes")] {
        for one in json[list].as_array().unwrap().iter().filter(|one| one["nodes"] != 1) {
            let numbers = keys.map(|key| format!("<td class=\"number\">{}</td>", number(one, key))).concat();
            let words = one[name].as_str().map_or(format!("all {} nodes", one[name]), String::from);
            let row = format!("<td>{words}</td>{numbers}");
            assert!(page.contains(&row), "{row} in {page}");
        }
    }
    let [clients, servers] = [0, 1].map(|group| &json["groups"][group]);
    assert_eq!(
        (number(clients, "messages_received_per_s"), number(clients, "mib_sent_per_s")),
        ("151.0".into(), "36.0".into())
    );
    assert_eq!((&clients["errors"], &servers["errors"], &json["errors"]), (&7.into(), &0.into(), &7.into()));
    assert_eq!((verdict(&page), &json["ok"], &json["seconds"]), ("failed", &false.into(), &3.0.into()));
    for words in
        ["<h1>7 RPCs failed</h1>", "12345-10.0.0.2@tcp did not answer in 1 interval", "mean in 151 msg/s"]
    {
        assert!(page.contains(words), "{words} in {page}");
    }
}

#[test]
fn the_verdict_is_that_of_the_run() {
    let mut good = outcome();
    good.set_errors(&[]);
    assert_eq!(verdict(&text(&good, &Ending::Complete)), "passed");
    assert_eq!(verdict(&text(&good, &Ending::Interrupted)), "interrupted");
    assert_eq!(verdict(&text(&good, &Ending::Failed("why".into()))), "failed");
    good.code = 253;
    assert_eq!(verdict(&text(&good, &Ending::Complete)), "failed");
}

/// A run that ended before its first interval has a page too, and texts of the run are escaped.
#[test]
fn a_run_without_an_interval_has_a_page_too() {
    let mut outcome = Outcome::new();
    outcome.warnings.push(HOSTILE.into());
    let page = text(&outcome, &Ending::Failed(HOSTILE.into()));
    elements(&page);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;") && !page.contains("NaN"), "{page}");
    for word in ["src=", "href", "url(", "@import", "http:", "https:", "//", "<link", "<img"] {
        assert!(!page.contains(word), "{word}");
    }
}
