//! Two processes, of which one is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use lnet_api::{EventKind, MdOptions};
use lnet_nid::{Net, NetType, Nid, ProcessId};
use lnet_o2iblnd::O2ibConfig;
use nlx_testkit::buffers::whole;
use nlx_testkit::lnds::{GETS, Load, PUTS, S, TestBed as _};

use crate::Bed;

const READY: &str = "the server is ready";

/// Another process that serves PUTs and GETs at the guest's second address.
struct Server(Child);

impl Server {
    fn start() -> Server {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["--exact", "processes::server", "--ignored", "--nocapture"])
            .env("NLX_SERVES", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.lines().any(|line| line.unwrap().contains(READY)), "it never became ready");
        Server(child)
    }

    /// Kills the process with SIGKILL.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The program of the other process.
#[test]
#[ignore = "part of the next one: in the guest"]
fn server() {
    if std::env::var_os("NLX_SERVES").is_none() {
        return;
    }
    let bed = Bed::new();
    let node = bed.node(2, O2ibConfig::default());
    let memory = whole(1 << 20);
    node.serve(&memory, PUTS, MdOptions::OP_PUT);
    node.serve(&memory, GETS, MdOptions::OP_GET);
    println!("{READY}");
    loop {
        bed.until(&[&node], || node.has(EventKind::Put) || node.has(EventKind::Get));
        node.take();
    }
}

/// A peer that is killed under load: each message ends once; the restarted peer is found, and works
/// as the first did.
// Covers: S-4
#[test]
#[ignore = "needs two processes with RDMA: in the guest"]
fn a_peer_is_killed_under_load() {
    let bed = Bed::new();
    let node = bed.node(1, O2ibConfig::default());
    let there = Nid::new_v4(Net::new(NetType::O2IB, 0), bed.host(2).0);
    let server = ProcessId::lnet(there);
    for _ in 0..3 {
        let process = Server::start();
        let load = Load::at_server(&node, server, 20);
        bed.until(&[&node], || load.has_ended(&node));
        node.clear();
        let load = Load::at_server(&node, server, 200);
        bed.until(&[&node], || Load::ended(&node)[0] > 10);
        assert!(!load.has_ended(&node), "it is killed too late");
        process.kill();
        bed.until(&[&node], || load.has_ended(&node));
        assert!(node.events().iter().any(|event| event.status.is_err()));
        node.take();
        // After a failure a node does not try a peer again for a while.
        bed.later(&[&node], 60 * S);
    }
    bed.end([node]);
}
