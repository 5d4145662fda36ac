//! The network of verbs nodes: a simulated one in virtual time, or the devices of the guest in real
//! time.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lnet_o2iblnd::{Fabric, O2ib, O2ibConfig};
use lnet_sim::ib::IbBehaviour;

use super::{Network, Node, Place, TestBed, guest};

/// RDMA devices.
pub enum VerbsBed {
    /// Simulated devices, in virtual time.
    Simulated(Network),
    /// The guest's devices, in real time.
    Real(Place),
}

impl VerbsBed {
    /// Creates the bed; a simulated network gets this behaviour.
    pub fn with(behaviour: IbBehaviour) -> VerbsBed {
        match Place::of_guest() {
            Some(place) => VerbsBed::Real(place),
            None => VerbsBed::Simulated(Network::new(behaviour)),
        }
    }

    /// Creates a simulated network, in the guest too.
    pub fn simulated() -> VerbsBed {
        VerbsBed::Simulated(Network::new(IbBehaviour::reliable()))
    }

    /// Returns the devices of the host with the address of this number, from 1.
    pub fn host(&self, number: usize) -> (Ipv4Addr, Arc<dyn Fabric>) {
        match self {
            VerbsBed::Simulated(network) => network.host(number),
            VerbsBed::Real(place) => (place.address(number), guest::fabric()),
        }
    }

    /// Advances a simulated network's time at the rate of real time until `over` is set: for nodes
    /// that threads drive.
    pub fn keep_time(&self, over: &AtomicBool) {
        if let VerbsBed::Simulated(network) = self {
            network.keep_time(over);
        }
    }

    /// Sets the port of the device with the address of this number down or up.
    pub fn set_port(&self, number: usize, up: bool) {
        match self {
            VerbsBed::Simulated(network) => network.net.set_port(number - 1, up),
            VerbsBed::Real(place) => place.set_link(number, up),
        }
    }

    /// Returns whether any amount of memory may be locked.
    pub fn is_unlimited(&self) -> bool {
        matches!(self, VerbsBed::Real(_)) && nix::unistd::geteuid().is_root()
    }

    /// Makes sleeps short: for a test with a node without a driver, which cannot wake the sleeper.
    pub fn look_often(&self) {
        match self {
            VerbsBed::Simulated(network) => network.look_often(),
            VerbsBed::Real(place) => place.time.look_often(),
        }
    }

    /// Ends as [`TestBed::end`] does, in a test that made a device refuse work requests.
    pub fn end_of_wrong<const N: usize>(self, nodes: [Node<O2ib>; N]) {
        let all: Vec<&Node<O2ib>> = nodes.iter().collect();
        self.until(&all, || all.iter().all(|node| VerbsBed::is_at_rest(node)));
        for node in &nodes {
            let conn_stats = node.lnd.conn_stats();
            assert_eq!((conn_stats.bounces, conn_stats.receives, conn_stats.waiting), (0, 0, 0));
            node.end();
        }
        drop(nodes);
        if let VerbsBed::Simulated(Network { net, .. }) = &self {
            assert_eq!((0..N).map(|host| net.ends(host)).sum::<usize>(), 0);
            assert_eq!(net.registrations(), 0);
        }
        if let VerbsBed::Real(place) = &self {
            place.check_resources();
        }
    }
}

impl TestBed for VerbsBed {
    type Kind = O2ib;

    /// Uses the devices of the guest inside of it, and a simulated network outside.
    fn new() -> VerbsBed {
        VerbsBed::with(IbBehaviour::reliable())
    }

    fn node(&self, number: usize, config: O2ibConfig) -> Node<O2ib> {
        let (address, fabric) = self.host(number);
        Node::new(address, fabric, config, self.now_ns())
    }

    fn now_ns(&self) -> u64 {
        match self {
            VerbsBed::Simulated(network) => network.net.now_ns(),
            VerbsBed::Real(place) => place.time.now_ns(),
        }
    }

    fn until(&self, nodes: &[&Node<O2ib>], so: impl FnMut() -> bool) {
        match self {
            VerbsBed::Simulated(network) => network.until(nodes, so),
            VerbsBed::Real(place) => place.time.until(nodes, so),
        }
    }

    fn later(&self, nodes: &[&Node<O2ib>], ns: u64) {
        match self {
            VerbsBed::Simulated(network) => network.later(nodes, ns),
            VerbsBed::Real(place) => place.time.turn_on(ns),
        }
        self.until(nodes, || true);
    }

    fn is_at_rest(node: &Node<O2ib>) -> bool {
        node.engine.sending() == 0 && node.lnd.conn_stats().operations == 0
    }

    fn end<const N: usize>(self, nodes: [Node<O2ib>; N]) {
        if let VerbsBed::Simulated(network) = &self {
            assert_eq!(network.net.wrong(), None);
        }
        self.end_of_wrong(nodes);
    }
}
