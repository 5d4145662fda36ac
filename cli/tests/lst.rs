//! `nlx lst` as processes: test nodes, a console that runs a test, and one that is killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nlx_testkit::addresses::unused;
use serde_json::Value;
use support::{complaint, free_port, json_lines, nlx};

/// Returns the arguments before the command of a program on an address.
fn on(address: Ipv4Addr, port: u16) -> [String; 6] {
    let net = format!("tcp({address})");
    ["lst", "--json", "--net", &net, "--accept-port", &port.to_string()].map(str::to_string)
}

/// A running `nlx lst node`; it is killed when the test ends.
struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
    nid: String,
}

impl Node {
    fn start(port: u16) -> Node {
        let address = unused();
        let args = on(address, port);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["node"]).collect();
        let mut child = nlx(&args).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut node = Node { child, output, nid: format!("{address}@tcp") };
        let greeting = node.line();
        assert_eq!(greeting["lst_node"]["nids"][0], node.nid.as_str(), "{greeting}");
        node
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// Stops the node; returns its counters.
    fn stop(mut self) -> Value {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        json_lines(rest.as_bytes()).pop().unwrap()["counters"].clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
    for node in [&mut client, &mut server] {
        assert!(node.line()["session"].is_string());
        assert!(node.line()["session"].is_null(), "the console ends its session");
    }
    let (sent, got) = (client.stop(), server.stop());
    let bytes = got["bulk_bytes_got"].as_u64().unwrap();
    assert!(bytes > 0 && bytes == sent["rpcs_sent"].as_u64().unwrap() * 65_536, "{sent} {got}");
    assert_eq!((&got["rpcs_dropped"], &sent["rpcs_expired"]), (&0.into(), &0.into()));
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
