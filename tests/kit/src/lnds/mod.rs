//! Nodes made of an engine and an LND, and the test beds they run on: sockets of this host in real
//! time, simulated RDMA devices in virtual time, or the RDMA devices of the guest.

mod exchange;
mod guest;
mod load;
mod node;
mod real_time;
mod simulated;
mod tcp;
mod verbs;
pub mod watched;

use std::fmt::Debug;

use lnet_lnd::Protocol;
use lnet_o2iblnd::O2ib;
use lnet_socklnd::Sock;

pub use exchange::{exchange, get, put};
pub use guest::{Place, told};
pub use load::{GETS, Load, PUTS};
pub use node::{Node, PORTAL, portal, states};
pub use real_time::RealTime;
pub use simulated::Network;
pub use tcp::TcpBed;
pub use verbs::VerbsBed;

/// Nanoseconds of a second.
pub const S: u64 = 1_000_000_000;

/// A kind of network under test.
pub trait Kind: Protocol<ConnStats: Debug> {
    /// Returns the number of CPU partitions of a node with these tunables.
    fn partitions(config: &Self::Config) -> usize;
}

impl Kind for Sock {
    fn partitions(config: &Self::Config) -> usize {
        config.partitions
    }
}

impl Kind for O2ib {
    fn partitions(config: &Self::Config) -> usize {
        config.partitions
    }
}

/// The network that nodes of a test run on, and its time.
pub trait TestBed: Sized {
    /// The kind of network.
    type Kind: Kind<Config: Default>;

    /// Creates a bed without nodes.
    fn new() -> Self;

    /// Creates a node on a separate host with this number, from 1.
    fn node(&self, number: usize, config: <Self::Kind as Protocol>::Config) -> Node<Self::Kind>;

    /// Returns the time of the nodes.
    fn now_ns(&self) -> u64;

    /// Drives nodes until the condition is true, as a waiter does: polls while there is work, and
    /// then sleeps until there is some.
    ///
    /// # Panics
    ///
    /// If the condition does not become true.
    fn until(&self, nodes: &[&Node<Self::Kind>], so: impl FnMut() -> bool);

    /// Drives nodes for `ns` nanoseconds.
    fn later(&self, nodes: &[&Node<Self::Kind>], ns: u64);

    /// Returns whether everything that a node has started has ended.
    fn is_at_rest(node: &Node<Self::Kind>) -> bool;

    /// Ends the bed, and checks that everything that the nodes have started ends and is released.
    fn end<const N: usize>(self, nodes: [Node<Self::Kind>; N]);

    /// Creates two nodes with these tunables.
    fn pair(&self, config: &<Self::Kind as Protocol>::Config) -> [Node<Self::Kind>; 2] {
        [1, 2].map(|number| self.node(number, config.clone()))
    }

    /// Runs a test on two nodes with these tunables, and checks that they release everything.
    fn on_pair(config: &<Self::Kind as Protocol>::Config, test: impl FnOnce(&Self, [&Node<Self::Kind>; 2])) {
        let bed = Self::new();
        let nodes = bed.pair(config);
        test(&bed, nodes.each_ref());
        bed.end(nodes);
    }
}
