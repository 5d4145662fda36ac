//! The processes of a test.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::args::{CpuArgs, SpinArg};
use crate::failure::{Context, Failure};

/// The addresses of the nodes of a self-test on one host, over TCP.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Time within which the second process must be ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a port that is free on both addresses at this moment.
pub(super) fn free_port([client, server]: [IpAddr; 2]) -> Result<u16, Failure> {
    const TRIES: u32 = 100;
    let none = format!("no free port on {client}");
    for _ in 0..TRIES {
        let first = TcpListener::bind(SocketAddr::from((client, 0))).context(&none)?;
        let port = first.local_addr().context(&none)?.port();
        if TcpListener::bind(SocketAddr::from((server, port))).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new(format!("no port is free on both {client} and {server}; name one with --accept-port")))
}

/// The server's process, which is killed when this is dropped.
pub(super) struct Peer {
    child: Child,
    /// The address for its commands.
    pub(super) address: String,
}

impl Peer {
    /// Starts a server process with its own node.
    pub(super) fn start(net: &str, port: u16, cpus: &CpuArgs) -> Result<Peer, Failure> {
        Peer::spawn(|peer| {
            peer.args(["--net", net, "--accept-port", &port.to_string()]).args(cpus.to_args());
        })
    }

    /// Starts a server process behind a helper.
    pub(super) fn behind(socket: &Path, spin: SpinArg) -> Result<Peer, Failure> {
        Peer::spawn(|peer| {
            peer.arg("--socket").arg(socket).args(spin.to_args());
        })
    }

    fn spawn(options: impl FnOnce(&mut Command)) -> Result<Peer, Failure> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut command = Command::new(program);
        command.arg("selftest-peer");
        options(&mut command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C is for the console, which ends this process when it is done.
            .process_group(0)
            .spawn()
            .context("cannot start the second process")?;
        let mut peer = Peer { child, address: String::new() };
        let output =
            peer.child.stdout.take().ok_or_else(|| Failure::new("the second process has no output"))?;
        peer.address = first_line(output, "the second process")?;
        Ok(peer)
    }

    /// Fails if the process has ended, which it never does by itself.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        check(&mut self.child, "the second process")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The server has nothing to save; an error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ties this process to its parent: it is killed when the parent ends in any way.
pub(super) fn tie_to_parent() -> Result<(), Failure> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).context("cannot tie to the parent")
}

/// Fails if a process has ended that never does so by itself.
pub(super) fn check(child: &mut Child, name: &str) -> Result<(), Failure> {
    match child.try_wait() {
        Ok(None) => Ok(()),
        Ok(Some(status)) => Err(Failure::new(format!("{name} ended in the middle of the test: {status}"))),
        Err(error) => Err(Failure::new(format!("cannot check {name}: {error}"))),
    }
}

/// Returns the first line that a process prints, unless it ends or stalls before.
pub(super) fn first_line(output: ChildStdout, name: &str) -> Result<String, Failure> {
    let (line, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = BufReader::new(output).read_line(&mut text);
        // The receiver may have timed out.
        let _ = line.send(read.map(|_| text.trim().to_string()));
    });
    match lines.recv_timeout(START_TIMEOUT) {
        Ok(Ok(text)) if !text.is_empty() => Ok(text),
        Ok(_) => Err(Failure::new(format!("{name} ended before it was ready; see its message above"))),
        Err(_) => Err(Failure::new(format!("{name} was not ready after {START_TIMEOUT:?}"))),
    }
}
