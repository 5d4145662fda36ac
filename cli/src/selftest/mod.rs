//! `nlx selftest`: two nodes in two processes, messages and bulk between them, every byte verified.

mod client;
mod pattern;
mod progress;
mod protocol;
mod report;
#[allow(dead_code, reason = "the reports and the engine are about to use it")]
mod result;
mod server;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nlx::{Buffer, Domain, Receive, TransferMachine};

use crate::args::{SelftestArgs, SelftestPeerArgs};
use crate::failure::{Context, Failure};
use crate::{descriptors, output};
use protocol::MESSAGE_BYTES;

/// The portal of both transfer machines: what Motr's net test uses, far from Lustre's own.
const PORTAL: u32 = 42;

/// The largest bulk transfer: LNet's largest payload.
const BULK_BYTES: usize = 1 << 20;

/// Each operation ends within this time, well or badly; far above anything a sound loopback does.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Runs the self-test and prints its result; fails if a byte or an event was wrong or missing.
pub(crate) fn run(args: &SelftestArgs) -> Result<(), Failure> {
    descriptors::use_all();
    let port = match args.accept_port {
        0 => free_port()?,
        port => port,
    };
    let mut peer = Peer::start(port, args)?;
    let address = peer.address.clone();
    let report = client::run(args, port, &address, &mut || peer.check())?;
    if args.json {
        output::json(&report)?;
    } else {
        report.print()?;
    }
    match (report.passed, args.json) {
        (true, _) => Ok(()),
        // The report has said it.
        (false, true) => Err(Failure::quiet()),
        (false, false) => Err(Failure::new("the self-test failed: see the errors above")),
    }
}

/// Runs the serving side; only the self-test itself starts it.
pub(crate) fn run_peer(args: &SelftestPeerArgs) -> Result<(), Failure> {
    descriptors::use_all();
    server::run(args)
}

/// A port that is free on both addresses at this moment.
fn free_port() -> Result<u16, Failure> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        let first = TcpListener::bind(SocketAddr::from((CLIENT, 0))).context("no free port on 127.0.0.1")?;
        let port = first.local_addr().context("no free port on 127.0.0.1")?.port();
        if TcpListener::bind(SocketAddr::from((SERVER, port))).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new(format!("no port is free on both {CLIENT} and {SERVER}; name one with --accept-port")))
}

/// The process of the serving side; it ends with this value.
struct Peer {
    child: Child,
    address: String,
}

impl Peer {
    fn start(port: u16, args: &SelftestArgs) -> Result<Peer, Failure> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let child = Command::new(program)
            .args(["selftest-peer", "--net", &format!("tcp({SERVER})"), "--accept-port", &port.to_string()])
            .args(args.partitions.to_args())
            .args(args.spoil.then_some("--spoil"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the second process")?;
        let mut peer = Peer { child, address: String::new() };
        let output =
            peer.child.stdout.take().ok_or_else(|| Failure::new("the second process has no output"))?;
        peer.address = first_line(output)?;
        Ok(peer)
    }

    /// Fails if the process has ended, which it never does by itself.
    fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                Err(Failure::new(format!("the second process ended in the middle of the test: {status}")))
            }
            Err(error) => Err(Failure::new(format!("cannot look at the second process: {error}"))),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It has nothing to save; an error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line a process prints, unless it ends or stalls before.
fn first_line(output: ChildStdout) -> Result<String, Failure> {
    let (line, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = BufReader::new(output).read_line(&mut text);
        // The receiver may have given up: then nobody wants the line.
        let _ = line.send(read.map(|_| text.trim().to_string()));
    });
    match lines.recv_timeout(server::START_TIMEOUT) {
        Ok(Ok(text)) if !text.is_empty() => Ok(text),
        Ok(_) => Err(Failure::new("the second process ended before it was ready; its message stands above")),
        Err(_) => {
            Err(Failure::new(format!("the second process was not ready after {:?}", server::START_TIMEOUT)))
        }
    }
}

/// The receive buffers of one side: more room than the other can have in flight, posted again as they fill.
struct ReceivePool {
    receive: Receive,
}

impl ReceivePool {
    /// Buffers of 64 messages each; 16 of them take four times the most that can be in flight, answers included.
    const BUFFERS: usize = 16;
    const MESSAGES: u32 = 64;

    fn post(domain: &Domain, machine: &TransferMachine) -> Result<ReceivePool, Failure> {
        let receive = Receive { min_receive_size: MESSAGE_BYTES, max_messages: ReceivePool::MESSAGES };
        let pool = ReceivePool { receive };
        for _ in 0..ReceivePool::BUFFERS {
            let buffer = domain.allocate(MESSAGE_BYTES * ReceivePool::MESSAGES as usize)?;
            pool.repost(machine, Some(buffer))?;
        }
        Ok(pool)
    }

    /// Posts a buffer again that has come back with its last message.
    fn repost(&self, machine: &TransferMachine, buffer: Option<Buffer>) -> Result<(), Failure> {
        if let Some(buffer) = buffer {
            machine.receive(buffer, self.receive, None).map_err(|refused| Failure::from(refused.error))?;
        }
        Ok(())
    }
}
