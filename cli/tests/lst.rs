//! `nlx lst` as processes: test nodes, a console that runs a test, and one that is killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Write;
use std::process::{Output, Stdio};

use nlx_testkit::addresses::unused;
use support::lst::{Node, on};
use support::{complaint, free_port, json_lines, nlx};

/// Runs a test of two seconds from a console on an address of its own.
fn run(port: u16, from: &Node, to: &Node, words: &[&str]) -> Output {
    let start = on(unused(), port);
    let start: Vec<&str> = start.iter().map(String::as_str).collect();
    let run = ["run", "--from", &from.nid, "--to", &to.nid, "--duration", "2"];
    nlx(&[&start[..], &run, words].concat()).output().unwrap()
}

/// The result of a run, its exit status, and what the nodes say of it.
// Covers: S-313
#[test]
fn a_console_runs_a_test_between_two_nodes() {
    let port = free_port(unused());
    let (mut client, mut server) = (Node::start(port), Node::start(port));
    let output = run(port, &client, &server, &["brw", "write", "size=64k", "check=full"]);
    assert!(output.status.success(), "{}{}", complaint(&output), String::from_utf8_lossy(&output.stdout));
    let lines = json_lines(&output.stdout);
    let result = &lines.last().unwrap()["result"];
    assert_eq!((&result["ok"], &result["errors"]), (&true.into(), &0.into()), "{result}");
    let nodes: Vec<_> = result["nodes"].as_array().unwrap().iter().map(|node| node["node"].clone()).collect();
    assert_eq!(nodes, [format!("12345-{}", client.nid), format!("12345-{}", server.nid)]);
    assert!(client.line()["session"].is_string() && server.line()["session"].is_string());
    let latency = client.line()["latencies"][0].clone();
    for node in [&mut client, &mut server] {
        assert!(node.line()["session"].is_null(), "the console ends its session");
    }
    let (sent, got) = (client.stop(), server.stop());
    let bytes = got["bulk_bytes_got"].as_u64().unwrap();
    assert!(bytes > 0 && bytes == sent["rpcs_sent"].as_u64().unwrap() * 65_536, "{sent} {got}");
    assert_eq!((&got["rpcs_dropped"], &sent["rpcs_expired"]), (&0.into(), &0.into()));
    assert_eq!((&latency["rpcs"], &latency["errors"]), (&sent["rpcs_sent"], &0.into()));
}

/// The page of a run says what its JSON says, also of the RPCs of the console's own process; the other
/// client prints the latencies of its RPCs when the session ends.
// Covers: S-313
#[test]
fn a_page_has_the_figures_of_the_json() {
    let port = free_port(unused());
    let (mut client, server) = (Node::start(port), Node::start(port));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let own = unused();
    let start = on(own, port);
    let start: Vec<&str> = start.iter().map(String::as_str).collect();
    let from = format!("{},{own}@tcp", client.nid);
    let run =
        ["run", "--from", &from, "--to", &server.nid, "--duration", "2", "--html", path.to_str().unwrap()];
    let test = ["brw", "read", "size=16k", "check=simple", "concurrency=2"];
    let output = nlx(&[&start[..], &run, &test].concat()).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<body class=\"passed\">") && page.contains(&run.join(" ")), "{page}");
    let lines = json_lines(&output.stdout);
    let result = &lines.last().unwrap()["result"];
    assert_eq!(result["seconds"].as_f64().unwrap().round(), 2.0);
    let averages = ["messages_received_per_s", "messages_sent_per_s", "mib_received_per_s", "mib_sent_per_s"];
    let rows = result["nodes"].as_array().unwrap().iter().chain(&result["groups"].as_array().unwrap()[..1]);
    for row in rows {
        let name = row["node"].as_str().unwrap_or("all 2 nodes");
        let numbers =
            averages.map(|key| format!("<td class=\"number\">{:.1}</td>", row[key].as_f64().unwrap()));
        let cells = format!("<td>{name}</td>{}<td class=\"number\">{}</td>", numbers.concat(), row["errors"]);
        assert!(page.contains(&cells), "{cells} in {page}");
    }
    let latency = &result["latencies"][0];
    let percentiles =
        ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| latency[key].as_u64().unwrap());
    assert!(percentiles.is_sorted() && percentiles[0] > 0, "{latency}");
    assert!(page.contains(&format!("this node&#39;s RPCs: {} done, 0 failed", latency["rpcs"])), "{latency}");
    for (name, ns) in ["p50", "p90", "p99", "p99.9", "max"].iter().zip(percentiles) {
        let row = format!("<td>{name}</td><td class=\"number\">{:.1}</td>", ns as f64 / 1e3);
        assert!(page.contains(&row), "{row} in {page}");
    }
    // Two pictures of each group, and the histogram of this process.
    assert_eq!(page.matches("<svg ").count(), 5);
    assert!(client.line()["session"].is_string());
    let other = client.line();
    assert!(other["latencies"][0]["rpcs"].as_u64() > Some(0), "{other}");
    assert!(client.line()["session"].is_null());
}

/// A page that cannot be written is a failure before the test, not after it; it is JSON if `--json`
/// stands behind `run`.
#[test]
fn a_page_that_cannot_be_written_stops_the_run() {
    let (net, port) = (format!("tcp({})", unused()), free_port(unused()).to_string());
    let start =
        ["lst", "--net", &net, "--accept-port", &port, "run", "--json", "--html", "/no/such/report.html"];
    let output =
        nlx(&[&start[..], &["--from", "10.0.0.1@tcp", "--to", "10.0.0.1@tcp", "ping"]].concat()).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), complaint(&output).as_str()), (Some(1), ""));
    let error = json_lines(&output.stdout).pop().unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("/no/such/report.html"), "{error}");
}

/// A console that is killed leaves its session at the nodes; the next one is refused, and takes them
/// by force.
// Covers: S-313
#[test]
fn nodes_of_a_killed_console_are_taken_by_force() {
    let port = free_port(unused());
    let (mut client, server) = (Node::start(port), Node::start(port));
    let args = on(unused(), port);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["script", "-"]).collect();
    let mut console = nlx(&args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let script = format!(
        "new_session dead\nadd_group c {}\nadd_group s {}\nadd_test --from c --to s ping\nrun batch\nsleep 600\n",
        client.nid, server.nid
    );
    let mut input = console.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    // A script is read to its end before anything is sent.
    drop(input);
    assert_eq!(client.line()["session"], "dead");
    console.kill().unwrap();
    console.wait().unwrap();
    let refused = run(port, &client, &server, &["ping"]);
    assert!(!refused.status.success());
    let forced = run(port, &client, &server, &["--force", "ping"]);
    assert!(forced.status.success(), "{}{}", complaint(&forced), String::from_utf8_lossy(&forced.stdout));
    assert!(json_lines(&forced.stdout).last().unwrap()["result"]["ok"].as_bool().unwrap());
}
