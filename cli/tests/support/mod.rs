//! Running the tool as a user does, and ending it whatever happens.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file has its own copy of this module and uses a part of it"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The tool, built by cargo for these tests.
pub fn nlx(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nlx"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the tool to its end.
pub fn run(args: &[&str]) -> Output {
    nlx(args).output().expect("the tool starts")
}

/// What it wrote to standard error.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A port that is free on an address at this moment.
pub fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind(SocketAddr::from((address, 0))).unwrap().local_addr().unwrap().port()
}

/// A running `nlx serve`; it is killed when the test ends.
pub struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it and waits until it serves.
    pub fn start(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the tool starts");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("serving "), "{line:?}");
        Server { child, output }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; gives the rest of its output.
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
