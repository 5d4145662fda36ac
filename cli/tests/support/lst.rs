//! Test nodes and consoles of `nlx lst` as processes.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nlx_testkit::addresses::unused;
use serde_json::Value;

use super::{json_lines, nlx};

/// Returns the arguments before the command of a program on an address.
pub fn on(address: Ipv4Addr, port: u16) -> [String; 6] {
    let net = format!("tcp({address})");
    ["lst", "--json", "--net", &net, "--accept-port", &port.to_string()].map(str::to_string)
}

/// A running `nlx lst node`; it is killed when the test ends.
pub struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
    pub nid: String,
}

impl Node {
    pub fn start(port: u16) -> Node {
        Node::with(port, &[])
    }

    /// Starts a test node with further options.
    pub fn with(port: u16, more: &[&str]) -> Node {
        let address = unused();
        let (mut node, greeting) = Node::spawn(address, port, &[&["node"], more].concat());
        node.nid = format!("{address}@tcp");
        assert_eq!(greeting["lst_node"]["nids"][0], node.nid.as_str(), "{greeting}");
        node
    }

    /// Starts simulated nodes; returns them with the object that says which misbehave.
    pub fn simulate(port: u16, words: &[&str]) -> (Node, Value) {
        let (node, greeting) = Node::spawn(unused(), port, &[&["simulate"], words].concat());
        (node, greeting["lst_simulation"].clone())
    }

    /// Starts a program; returns it with the first object that it prints.
    fn spawn(address: Ipv4Addr, port: u16, words: &[&str]) -> (Node, Value) {
        let args = on(address, port);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(words.iter().copied()).collect();
        let mut child = nlx(&args).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut node = Node { child, output, nid: String::new() };
        let greeting = node.line();
        (node, greeting)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// Stops the node; returns its counters.
    pub fn stop(mut self) -> Value {
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
