//! `nlx lst` as processes: test nodes, a console that runs a test, and one that is killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Output, Stdio};

use nlx_testkit::addresses::unused;
use serde_json::Value;
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

/// Starts a console that runs a script.
fn script(port: u16, text: &str, output: Stdio) -> Child {
    let args = on(unused(), port);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["script", "-"]).collect();
    let mut console = nlx(&args).stdin(Stdio::piped()).stdout(output).stderr(Stdio::null()).spawn().unwrap();
    // A script is read to its end before anything is sent.
    console.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    console
}

/// Runs a script; returns its exit status, and what its commands have printed.
fn run_script(port: u16, text: &str) -> (Option<i32>, Vec<Value>) {
    let output = script(port, text, Stdio::piped()).wait_with_output().unwrap();
    (output.status.code(), json_lines(&output.stdout))
}

/// Descriptors of a process with a thousand nodes: a listening socket of each, the connections of a
/// console, and those between five hundred pairs of nodes.
const DESCRIPTORS: u64 = 8_000;

/// A whole script over a thousand nodes: the nodes of each command have all answered, and the RPCs of
/// all clients have been done.
// Covers: S-313
#[test]
fn a_script_drives_a_thousand_simulated_nodes() {
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    if hard < DESCRIPTORS {
        return nlx_skip::skipped("a thousand simulated nodes", "the limit of descriptors is too low");
    }
    const ALL: &str = "127.77.[0-3].[1-250]@tcp";
    const LOOPS: u64 = 10;
    let port = free_port(unused());
    let (nodes, simulation) = Node::simulate(port, &[ALL]);
    assert_eq!(simulation["nodes"], 1000, "{simulation}");
    let text = format!(
        "new_session thousand
         add_group clients 127.77.[0-1].[1-250]@tcp
         add_group servers 127.77.[2-3].[1-250]@tcp
         add_test --from clients --to servers --distribute 1:1 --loop {LOOPS} ping
         list_group --all clients
         run
         stat clients servers --delay 1 --count 1
         stop
         show_error clients servers
         ping --group servers
         end_session"
    );
    let (status, lines) = run_script(port, &text);
    let failed: Vec<_> = lines.iter().filter(|line| line["code"] != 0).collect();
    assert_eq!((status, failed), (Some(0), vec![]));
    let output = |command: &str| {
        let of_command = |line: &&Value| line["command"].as_str().unwrap().trim().starts_with(command);
        let texts = lines.iter().filter(of_command).map(|line| line["output"].as_str().unwrap());
        texts.collect::<String>()
    };
    assert_eq!(output("list_group").matches(": Active").count(), 500);
    assert_eq!(output("ping").matches(": Active [session: thousand id:").count(), 500);
    assert!(output("show_error").contains("Total 0 error nodes in servers"), "{}", output("show_error"));
    let counters = nodes.stop();
    let [sent, dropped, expired] = ["rpcs_sent", "rpcs_dropped", "rpcs_expired"].map(|name| &counters[name]);
    assert_eq!((sent.as_u64(), dropped.as_u64(), expired.as_u64()), (Some(500 * LOOPS), Some(0), Some(0)));
}

/// The nodes that misbehave, and no others, are those that the simulation names: a console reports
/// each of them as what it is.
#[test]
fn simulated_nodes_misbehave_as_they_say() {
    let port = free_port(unused());
    let words = ["127.78.0.[1-40]@tcp", "--dead", "10", "--busy", "5", "--slow", "20%", "--dying", "10"];
    let more = ["--delay", "0.02", "--seed", "3"];
    let (_nodes, simulation) = Node::simulate(port, &[&words[..], &more].concat());
    let kind = |name: &str| -> BTreeSet<String> {
        let nids = simulation["misbehave"][name].as_array().unwrap();
        nids.iter().map(|nid| nid.as_str().unwrap().to_string()).collect()
    };
    let [dead, busy, slow, dying] = ["dead", "busy", "slow", "dying"].map(kind);
    assert_eq!([&dead, &busy, &slow, &dying].map(BTreeSet::len), [4, 2, 8, 4]);
    // The NIDs in lines with this text.
    let named = |line: &Value, text: &str| -> BTreeSet<String> {
        let lines = line["errors"].as_str().unwrap().lines().filter(|line| line.contains(text));
        let nids = lines.filter_map(|line| line.split("12345-").nth(1)?.split("@tcp").next());
        nids.map(|address| format!("{address}@tcp")).collect()
    };
    let (status, lines) = run_script(port, "new_session one\nadd_group all 127.78.0.[1-40]@tcp\n");
    let refused = lines.last().unwrap();
    assert_eq!(status, Some(refused["code"].as_i64().unwrap() as i32));
    assert_eq!(named(refused, "Device or resource busy"), busy);
    assert_eq!(named(refused, "Connection refused"), dead);
    assert_eq!(named(refused, ""), &busy | &dead);
    // The members of the session answer for some time, the slow ones included; then some disappear.
    let left: Vec<String> = (1..=40).map(|host| format!("127.78.0.{host}@tcp")).collect();
    let left: Vec<&str> =
        left.iter().filter(|nid| !busy.contains(*nid) && !dead.contains(*nid)).map(String::as_str).collect();
    let pings = "ping --group all\n".repeat(30);
    let (status, lines) =
        run_script(port, &format!("new_session two\nadd_group all {}\n{pings}", left.join(" ")));
    let last = lines.last().unwrap();
    assert_eq!((status, &last["code"]), (Some(254), &254.into()), "{last}");
    let gone = last["output"].as_str().unwrap().lines().filter(|line| !line.contains("[session: two id:"));
    let gone: Vec<_> = gone.filter(|line| line.contains("12345-")).collect();
    assert!(!gone.is_empty(), "{last}");
    assert!(gone.iter().all(|line| dying.iter().any(|nid| line.contains(&**nid))), "{gone:?} {dying:?}");
}
