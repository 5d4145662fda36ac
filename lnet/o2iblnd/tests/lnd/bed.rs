//! What the nodes are on: a simulated network in virtual time, or the devices of the guest in real time.

use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet_o2iblnd::{Fabric, O2ibConfig};
use lnet_sim::ib::{IbHabits, IbNet};

use crate::node::{Node, states};
use crate::real;

pub(crate) const S: u64 = 1_000_000_000;

/// Events of the simulated network after which nothing more is expected to happen.
const STEPS: usize = 500_000;

pub(crate) enum Bed {
    Simulated(IbNet),
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
            None => Bed::Simulated(IbNet::new(1, habits)),
        }
    }

    /// The devices of the host with the address of this number, from 1.
    pub(crate) fn host(&self, number: usize) -> (Ipv4Addr, Arc<dyn Fabric>) {
        match self {
            Bed::Simulated(net) => {
                let address = Ipv4Addr::new(10, 77, 0, number as u8);
                (address, Arc::new(net.host(net.add_host(vec![address], true))))
            }
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
            Bed::Simulated(net) => net.now_ns(),
            Bed::Real(place) => place.now_ns(),
        }
    }

    /// Drives nodes until something is so.
    pub(crate) fn until(&self, nodes: &[&Node], mut so: impl FnMut() -> bool) {
        match self {
            Bed::Simulated(net) => {
                for _ in 0..STEPS {
                    while nodes.iter().map(|node| node.poll(net.now_ns()).work).sum::<usize>() > 0 {}
                    if so() {
                        return;
                    }
                    if !nodes.iter().all(|node| node.arm()) {
                        continue;
                    }
                    if net.step().is_none() {
                        net.after(S, 0);
                    }
                }
                let (wrong, seen) = (net.wrong(), net.seen());
                panic!("it never becomes so; wrong: {wrong:?}, seen: {seen:?}\n{}", states(nodes));
            }
            Bed::Real(place) => place.until(nodes, so),
        }
    }

    /// Lets so much time pass, driving nodes.
    pub(crate) fn later(&self, nodes: &[&Node], ns: u64) {
        match self {
            Bed::Simulated(net) => {
                let end_ns = net.now_ns() + ns;
                net.at(end_ns, 0);
                self.until(nodes, || net.now_ns() >= end_ns);
            }
            Bed::Real(place) => place.turn_on(ns),
        }
        self.until(nodes, || true);
    }

    /// Any memory may be locked.
    pub(crate) fn is_unlimited(&self) -> bool {
        matches!(self, Bed::Real(_)) && nix::unistd::geteuid().is_root()
    }

    /// There is somebody without a driver, who cannot wake the one that sleeps.
    pub(crate) fn look_often(&self) {
        if let Bed::Real(place) = self {
            place.look_often();
        }
    }

    /// All that nodes have begun has ended; they leave nothing behind.
    pub(crate) fn end<const N: usize>(self, nodes: [Node; N]) {
        if let Bed::Simulated(net) = &self {
            assert_eq!(net.wrong(), None);
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
        if let Bed::Simulated(net) = &self {
            assert_eq!((0..N).map(|host| net.ends(host)).sum::<usize>(), 0);
            assert_eq!(net.registrations(), 0);
        }
        if let Bed::Real(place) = &self {
            place.check_resources();
        }
    }
}
