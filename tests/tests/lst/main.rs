//! The judge of lst against itself, and against recorded sessions of kernel nodes: its raw console
//! drives its raw test node over TCP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod recorded;
mod refusals;
mod sessions;

use std::net::{Ipv4Addr, SocketAddr};

use nlx_tests::judge::lst::{Console, Sender, TestNode};
use nlx_tests::judge::wire::{Nid, Order};
use nlx_tests::judge::{Policy, Target};

/// A test node, and the way to it.
struct Place {
    node: TestNode,
    target: Target,
}

impl Place {
    /// Starts a test node; each test has addresses of its own.
    fn new(test: u8) -> Place {
        let [own, to] = [1, 2].map(|side| Ipv4Addr::new(127, 23, test, side));
        let nid = Nid::new(to, 0);
        let node = TestNode::start(SocketAddr::from((to, 0)), nid).unwrap();
        let target = Target::new(node.address(), nid, Nid::new(own, 0));
        let target = Target { privileged: false, policy: Policy::Hello, ..target };
        Place { node, target }
    }

    /// Connects a console with features 1.
    fn console(&self, order: Order) -> Console<'_> {
        let sender = Sender { order, features: 1, sid: (self.target.own.small(), 344_984) };
        Console::connect(&self.target, sender).unwrap()
    }
}
