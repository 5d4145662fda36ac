//! `docs/json.md` lists exactly the members that `--json` prints.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Stdio;

use serde_json::Value;
use support::{ask, asking, free_port, json_lines, nlx, run, serve};

/// A member in the documentation.
#[derive(Debug)]
struct Member {
    path: String,
    always: bool,
}

/// Returns the members in a command's section.
fn documented(command: &str) -> Vec<Member> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md")).unwrap();
    let heading = format!("\n## {command}\n");
    let section = page.split(&heading).nth(1).unwrap_or_else(|| panic!("no section {command}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let members = rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let always = cells[1].is_empty();
        let paths = cells[0].split('`').skip(1).step_by(2).flat_map(expanded);
        paths.map(move |path| Member { path, always }).collect::<Vec<_>>()
    });
    members.collect()
}

/// Expands `a.{b,c}` to `a.b` and `a.c`.
fn expanded(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_string()] };
    let (choices, after) = rest.split_once('}').unwrap();
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

/// Collects the paths of all members that contain no others.
fn printed(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let dot = if path.is_empty() { "" } else { "." };
            members.iter().for_each(|(name, value)| printed(value, &format!("{path}{dot}{name}"), found));
        }
        Value::Array(elements) => {
            elements.iter().for_each(|element| printed(element, &format!("{path}[]"), found));
        }
        _ => drop(found.insert(path.to_string())),
    }
}

fn names(member: &Member, path: &str) -> bool {
    match member.path.strip_suffix(".*") {
        Some(above) => {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        }
        // A list of values may be named without its brackets.
        None => path == member.path || path.strip_suffix("[]") == Some(&member.path),
    }
}

/// Checks that every printed member is documented, and that members that are always present were
/// printed.
fn check(command: &str, lines: &[Value]) {
    let members = documented(command);
    assert!(!members.is_empty() && !lines.is_empty(), "{command}");
    let mut paths = BTreeSet::new();
    lines.iter().for_each(|line| printed(line, "", &mut paths));
    for path in &paths {
        assert!(
            members.iter().any(|member| names(member, path)),
            "{command} prints {path}, which docs/json.md lacks"
        );
    }
    for member in members.iter().filter(|member| member.always) {
        let found = paths.iter().any(|path| names(member, path));
        assert!(found, "{command} does not print {}, which docs/json.md promises: {paths:?}", member.path);
    }
}

#[test]
fn what_asking_commands_print_is_documented() {
    let [here, there, nobody] = [1, 2, 3].map(|last| Ipv4Addr::new(127, 1, 17, last));
    let port = free_port(there);
    let server = serve(there, port, &[]);
    let json = |command: &str, target, more: &[&str]| {
        json_lines(&ask(command, target, here, port, &[more, &["--json"]].concat()).stdout)
    };
    let ping = [
        json("ping", there, &["--count", "2", "--interval", "0.01", "--size", "4K", "--to-nlx"]),
        json("ping", nobody, &[]),
        json("ping", there, &[&format!("{nobody}@tcp")]),
    ];
    check("nlx ping", &ping.concat());
    check("Failures", &ping[1]);
    check("nlx discover", &json("discover", there, &["--push"]));
    // The node has a peer while it is pinged.
    let asking = asking("ping", there, here, port);
    let asking = asking.iter().map(String::as_str).chain(["--count", "0", "--interval", "0.01"]);
    let mut asking = nlx(&asking.collect::<Vec<_>>()).stdout(Stdio::null()).spawn().unwrap();
    let pid = server.pid().to_string();
    let status = loop {
        let status = json_lines(&run(&["status", &pid, "--json", "--timeout", "60"]).stdout);
        if status[0]["nodes"][0]["peers"]["list"][0]["tcp"]["connections"].as_u64() > Some(0) {
            break status;
        }
    };
    asking.kill().unwrap();
    asking.wait().unwrap();
    check("nlx status", &status);
}

#[test]
fn what_the_self_test_prints_is_documented() {
    let told =
        ["selftest", "--net", "tcp", "--count", "30", "--faults", "drop every 1000 put portal 1", "--json"];
    let report = json_lines(&run(&told).stdout);
    check("nlx selftest", &report);
    assert!(!report[0]["rules"].as_array().unwrap().is_empty());
}

#[test]
fn what_is_said_of_networks_is_documented() {
    let shown = run(&[
        "net",
        "show",
        "--net",
        "tcp(127.1.17.4)",
        "--accept-port",
        "9",
        "--why",
        "--tunables",
        "--json",
    ]);
    check("nlx net show", &json_lines(&shown.stdout));
    check("nlx net devices", &json_lines(&run(&["net", "devices", "--json"]).stdout));
}
