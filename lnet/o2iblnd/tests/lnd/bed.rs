//! What the nodes are on: a simulated network in virtual time, or the devices of the guest in real time.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lnet_o2iblnd::{Fabric, O2ibConfig};
use lnet_sim::ib::IbHabits;

use crate::node::Node;
use crate::real;
use crate::simulated::Network;

pub(crate) const S: u64 = 1_000_000_000;

pub(crate) enum Bed {
    Simulated(Network),
    Real(real::Place),
}

impl Bed {
    /// The guest's devices in the guest; elsewhere a simulated network.
    pub(crate) fn new() -> Bed {
        Bed::with(IbHabits::reliable())
    }

    /// If it is simulated, with these habits.
    pub(crate) fn with(habits: IbHabits) -> Bed {
        match real::Place::of_guest() {
            Some(place) => Bed::Real(place),
            None => Bed::Simulated(Network::new(habits)),
        }
    }

    /// A simulated network, in the guest too.
    pub(crate) fn simulated() -> Bed {
        Bed::Simulated(Network::new(IbHabits::reliable()))
    }

    /// The devices of the host with the address of this number, from 1.
    pub(crate) fn host(&self, number: usize) -> (Ipv4Addr, Arc<dyn Fabric>) {
        match self {
            Bed::Simulated(network) => network.host(number),
            Bed::Real(place) => (place.address(number), real::fabric()),
        }
    }

    /// A node on a host of its own.
    pub(crate) fn node(&self, number: usize, config: O2ibConfig) -> Node {
        let (address, fabric) = self.host(number);
        Node::new(address, fabric, config, self.now_ns())
    }

    /// Two nodes with these tunables.
    pub(crate) fn pair(&self, config: &O2ibConfig) -> [Node; 2] {
        [1, 2].map(|number| self.node(number, config.clone()))
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Bed::Simulated(network) => network.net.now_ns(),
            Bed::Real(place) => place.now_ns(),
        }
    }

    /// Drives nodes until something is so.
    pub(crate) fn until(&self, nodes: &[&Node], so: impl FnMut() -> bool) {
        match self {
            Bed::Simulated(network) => network.until(nodes, so),
            Bed::Real(place) => place.until(nodes, so),
        }
    }

    /// Lets so much time pass, driving nodes.
    pub(crate) fn later(&self, nodes: &[&Node], ns: u64) {
        match self {
            Bed::Simulated(network) => network.later(nodes, ns),
            Bed::Real(place) => place.turn_on(ns),
        }
        self.until(nodes, || true);
    }

    /// Lets the time of a simulated network pass as the real one does, until it is over: for nodes that threads drive.
    pub(crate) fn keep_time(&self, over: &AtomicBool) {
        if let Bed::Simulated(network) = self {
            network.keep_time(over);
        }
    }

    /// The port of the device with the address of this number goes down, or up.
    pub(crate) fn set_port(&self, number: usize, up: bool) {
        match self {
            Bed::Simulated(network) => network.net.set_port(number - 1, up),
            Bed::Real(place) => place.set_link(number, up),
        }
    }

    /// Any memory may be locked.
    pub(crate) fn is_unlimited(&self) -> bool {
        matches!(self, Bed::Real(_)) && nix::unistd::geteuid().is_root()
    }

    /// There is somebody without a driver, who cannot wake the one that sleeps.
    pub(crate) fn look_often(&self) {
        match self {
            Bed::Simulated(network) => network.look_often(),
            Bed::Real(place) => place.look_often(),
        }
    }

    /// All that nodes have begun has ended; they leave nothing behind.
    pub(crate) fn end<const N: usize>(self, nodes: [Node; N]) {
        if let Bed::Simulated(network) = &self {
            assert_eq!(network.net.wrong(), None);
        }
        self.end_of_wrong(nodes);
    }

    /// The same after work requests that a device has refused, as somebody wanted it.
    pub(crate) fn end_of_wrong<const N: usize>(self, nodes: [Node; N]) {
        let all: Vec<&Node> = nodes.iter().collect();
        let at_rest = |node: &Node| node.engine.sending() == 0 && node.lnd.census().operations == 0;
        self.until(&all, || all.iter().all(|node| at_rest(node)));
        for node in &nodes {
            let census = node.lnd.census();
            assert_eq!((census.bounces, census.receives, census.waiting), (0, 0, 0));
            node.end();
        }
        drop(nodes);
        if let Bed::Simulated(Network { net, .. }) = &self {
            assert_eq!((0..N).map(|host| net.ends(host)).sum::<usize>(), 0);
            assert_eq!(net.registrations(), 0);
        }
        if let Bed::Real(place) = &self {
            place.check_resources();
        }
    }
}
