//! Nodes over sockets of this host, in real time.

use std::sync::Arc;

use lnet_socklnd::sys::{Os, TcpStack};
use lnet_socklnd::{Sock, SockConfig};

use super::{Node, RealTime, TestBed};
use crate::addresses;

/// The port at which all nodes listen: each has a different address.
const PORT: u16 = 21_987;

/// The sockets of this host. A node's number is ignored: each has an address that no other test
/// uses.
#[derive(Debug)]
pub struct TcpBed {
    time: RealTime,
}

impl TestBed for TcpBed {
    type Kind = Sock;

    fn new() -> TcpBed {
        TcpBed { time: RealTime::new() }
    }

    fn node(&self, _: usize, config: SockConfig) -> Node<Sock> {
        let config = SockConfig { accept_port: PORT, ..config };
        let host: Arc<dyn TcpStack> = Arc::new(Os);
        Node::new(addresses::unused(), host, config, self.now_ns())
    }

    fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    fn until(&self, nodes: &[&Node<Sock>], so: impl FnMut() -> bool) {
        self.time.until(nodes, so);
    }

    fn later(&self, nodes: &[&Node<Sock>], ns: u64) {
        self.time.turn_on(ns);
        self.until(nodes, || true);
    }

    fn is_at_rest(node: &Node<Sock>) -> bool {
        node.engine.sending() == 0
    }

    fn end<const N: usize>(self, nodes: [Node<Sock>; N]) {
        let all: Vec<&Node<Sock>> = nodes.iter().collect();
        self.until(&all, || all.iter().all(|node| TcpBed::is_at_rest(node)));
        nodes.iter().for_each(Node::end);
    }
}
