//! Runs the tool as a user does, and ends it in any case.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file has its own copy of this module and uses a part of it"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod helper;
pub mod lst;
pub mod store;

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
pub use nlx_testkit::until;

/// Returns the command of the tool, which cargo has built for these tests.
pub fn nlx(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nlx"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the tool to its end.
pub fn run(args: &[&str]) -> Output {
    nlx(args).output().expect("the tool starts")
}

/// Returns the tool's standard error.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a port that is free on an address at this moment.
pub fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind(SocketAddr::from((address, 0))).unwrap().local_addr().unwrap().port()
}

/// Starts `nlx serve` on an address.
pub fn serve(address: Ipv4Addr, port: u16, more: &[&str]) -> Server {
    let (net, port) = (format!("tcp({address})"), port.to_string());
    Server::start(nlx(&[&["serve", "--net", &net, "--accept-port", &port], more].concat()))
}

/// Runs a command that asks a node from an address of this host.
pub fn ask(command: &str, target: Ipv4Addr, from: Ipv4Addr, port: u16, more: &[&str]) -> Output {
    run(&[&asking(command, target, from, port).iter().map(String::as_str).collect::<Vec<_>>()[..], more]
        .concat())
}

/// Returns the arguments of a command that asks `target` from the address `from`.
pub fn asking(command: &str, target: Ipv4Addr, from: Ipv4Addr, port: u16) -> [String; 6] {
    [command, &format!("{target}@tcp"), "--from", &format!("{from}@tcp"), "--accept-port", &port.to_string()]
        .map(str::to_string)
}

/// Parses output as lines of JSON.
pub fn json_lines(bytes: &[u8]) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"))).collect()
}

/// Returns the status of all nodes of this host.
pub fn status() -> serde_json::Value {
    serde_json::from_slice(&run(&["status", "--json", "--timeout", "60"]).stdout).unwrap()
}

/// A running `nlx serve`; it is killed when the test ends.
pub struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The first line of the server's output.
    pub greeting: String,
}

impl Server {
    /// Starts the server and waits until it serves.
    pub fn start(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the tool starts");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.contains("serving"), "{line:?}");
        Server { child, output, greeting: line }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of the server's output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Waits for the server's end; returns its exit status and the rest of its output.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
