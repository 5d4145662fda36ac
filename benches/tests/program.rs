//! The program as its users run it.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nlx-bench")).args(args).output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("the output is text")
}

#[test]
fn an_unknown_row_or_option_is_named_and_ends_with_2() {
    for (wrong, named) in
        [("tcp/no-such-row", "tcp/no-such-row"), ("--fast", "--fast"), ("--rounds=0", "--rounds")]
    {
        let output = bench(&[wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn the_list_names_every_row_once() {
    let list = stdout(&bench(&["--list"]));
    let named = list.lines().filter(|line| !line.starts_with(' '));
    let mut names: Vec<&str> = named.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"tcp/pingpong-64") && names.contains(&"match/unique-1m"), "{list}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{list}");
}

// Covers: S-316, S-418
#[test]
fn a_row_is_one_line_of_json_whose_ratio_lies_within_its_spread() {
    let text = stdout(&bench(&["--quick", "--rounds", "3", "--json", "tcp/get-1m", "tcp/rate-64"]));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines.iter().map(|line| &line["row"]).collect::<Vec<_>>(), ["tcp/get-1m", "tcp/rate-64"]);
    for line in &lines {
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {line}"));
        assert!(number(&line["value"]) > 0.0 && number(&line["anchor_value"]) > 0.0, "{line}");
        let [min, max] = [0, 1].map(|index| number(&line["spread"][index]));
        assert!((min..=max).contains(&number(&line["ratio"])), "{line}");
        assert_eq!(line["rounds"], 3);
        assert!(line["met"].is_boolean() && line["unit"].is_string() && line["anchor"].is_string(), "{line}");
        assert!(line["goal"].as_str().is_some_and(|goal| goal.starts_with(">= ")), "{line}");
    }
    for (line, key) in lines.iter().zip(["cpu_s_per_gib", "cpu_us_per_message"]) {
        let keys = [key, &format!("anchor_{key}"), "cpu_ratio"];
        assert!(keys.iter().all(|&key| line[key].as_f64().is_some_and(|cost| cost > 0.0)), "{line}");
    }
}

// Covers: S-316
#[test]
fn the_table_in_markdown_has_a_line_for_each_comparison_and_for_what_is_not_measured() {
    // Most machines have too few cores for 16 busy handlers.
    let text = stdout(&bench(&["--quick", "--markdown", "bevq/latency", "smp/busy-16"]));
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with('|')).collect();
    let columns = |line: &&str| line.matches(" |").count();
    assert!(table.iter().all(|line| columns(line) == 8), "{text}");
    let names: Vec<&str> = table.iter().filter_map(|line| line.split(" | ").next()).collect();
    assert_eq!(names, ["| row", "| ---", "| `bevq/latency`", "| the same", "| `smp/busy-16`"]);
}

/// Rule 7 of the architecture, over real TCP and on both sides: messages in steady state allocate
/// nothing. A connection uses some memory, and no more than agreed.
#[test]
fn a_message_over_tcp_allocates_nothing_and_a_connection_takes_little() {
    let rows = ["alloc/message-tcp", "mem/tcp-connection", "mem/tcp-connection-resident"];
    let text = stdout(&bench(&[&["--quick", "--json"], &rows[..]].concat()));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(lines.iter().map(|line| &line["row"]).collect::<Vec<_>>(), rows);
    assert_eq!(lines[0]["value"], 0.0, "{text}");
    assert!(lines.iter().all(|line| line["met"] == true), "{text}");
    assert!(lines[1]["value"].as_f64().is_some_and(|bytes| bytes > 0.0), "{text}");
}
