//! A simulated network in virtual time.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lnet_api::Poll;
use lnet_o2iblnd::{Fabric, O2ib};
use lnet_sim::Step;
use lnet_sim::ib::{IbBehaviour, IbNet, SimFabric};
use parking_lot::Mutex;

use super::{Node, states};

/// The number of polls after which a test fails.
const POLLS: usize = 500_000;

/// The token of a timer that only advances time.
const DEADLINE: u64 = 0;

/// The maximum length of a sleep after [`Network::look_often`].
const NAP_NS: u64 = 10_000_000;

/// A simulated RDMA network, and its hosts.
pub struct Network {
    /// The simulated RDMA network.
    pub net: IbNet,
    hosts: Mutex<Vec<(Ipv4Addr, SimFabric)>>,
    /// Set if a sleep lasts at most one event of the network.
    often: AtomicBool,
}

impl Network {
    /// Creates a network with this behaviour, without hosts.
    pub fn new(behaviour: IbBehaviour) -> Network {
        Network { net: IbNet::new(1, behaviour), hosts: Mutex::default(), often: AtomicBool::new(false) }
    }

    /// Returns the host with the address of this number.
    pub fn host(&self, number: usize) -> (Ipv4Addr, Arc<dyn Fabric>) {
        let address = Ipv4Addr::new(10, 77, 0, number as u8);
        let fabric = self.net.host(self.net.add_host(vec![address], true));
        self.hosts.lock().push((address, fabric.clone()));
        (address, Arc::new(fabric))
    }

    /// Makes all further sleeps short.
    pub fn look_often(&self) {
        self.often.store(true, Ordering::Relaxed);
    }

    /// Polls nodes as a waiter does: while there is work, and then it sleeps until a descriptor is
    /// readable or a deadline has passed. An event that wakes no node is not seen.
    ///
    /// # Panics
    ///
    /// If the condition does not become true.
    pub fn until(&self, nodes: &[&Node<O2ib>], mut so: impl FnMut() -> bool) {
        for _ in 0..POLLS {
            let now_ns = self.net.now_ns();
            let polled = nodes.iter().map(|node| node.poll(now_ns)).fold(Poll::default(), Poll::and);
            if so() {
                return;
            }
            let sleeps = polled.work == 0 && nodes.iter().all(|node| node.arm());
            if sleeps && !self.sleep(nodes, polled.deadline_ns) {
                break;
            }
        }
        let (wrong, seen) = (self.net.wrong(), self.net.seen());
        panic!("it never becomes so; wrong: {wrong:?}, seen: {seen:?}\n{}", states(nodes));
    }

    /// Sleeps until a node is woken or the deadline has passed; returns false if the network has no
    /// event left that could wake one.
    fn sleep(&self, nodes: &[&Node<O2ib>], until_ns: Option<u64>) -> bool {
        let often = self.often.load(Ordering::Relaxed);
        let nap_ns = often.then(|| self.net.now_ns() + NAP_NS);
        let until_ns = until_ns.map(|until_ns| until_ns.max(self.net.now_ns() + 1));
        let until_ns = until_ns.into_iter().chain(nap_ns).min();
        while !self.is_ready(nodes) {
            let next_ns = self.net.next_ns();
            if let Some(until_ns) =
                until_ns.filter(|until_ns| next_ns.is_none_or(|next_ns| *until_ns < next_ns))
            {
                self.net.at(until_ns, DEADLINE);
            }
            match self.net.step() {
                Some(Step::Network) if !often => {}
                Some(_) => return true,
                None => return false,
            }
        }
        true
    }

    /// Drives nodes for `ns` nanoseconds.
    pub fn later(&self, nodes: &[&Node<O2ib>], ns: u64) {
        let end_ns = self.net.now_ns() + ns;
        self.net.at(end_ns, DEADLINE);
        self.until(nodes, || self.net.now_ns() >= end_ns);
    }

    /// Advances virtual time at the rate of real time.
    pub fn keep_time(&self, over: &AtomicBool) {
        let (begin, begin_ns) = (Instant::now(), self.net.now_ns());
        while !over.load(Ordering::SeqCst) {
            let now_ns = begin_ns + begin.elapsed().as_nanos() as u64;
            // The clock advances even if nothing happens.
            self.net.at(now_ns, DEADLINE);
            while self.net.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
                self.net.step();
            }
            std::thread::yield_now();
        }
    }

    /// Returns whether the descriptor of a shard of one of these nodes is readable.
    fn is_ready(&self, nodes: &[&Node<O2ib>]) -> bool {
        let hosts = self.hosts.lock();
        let driven = |address: &Ipv4Addr| nodes.iter().any(|node| node.id.nid.ipv4() == Some(*address));
        hosts
            .iter()
            .filter(|(address, _)| driven(address))
            .any(|(_, fabric)| (0..fabric.channels()).any(|channel| fabric.is_ready(channel)))
    }
}
