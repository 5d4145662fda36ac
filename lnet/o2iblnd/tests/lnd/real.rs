//! The guest's devices.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Instant;

use lnet_api::{Lnd, Poll};
use lnet_o2iblnd::Fabric;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Mutex, MutexGuard};

use crate::node::{Node, states};

/// After this long nothing more is expected to happen: an emulated machine is slow.
const HUNG_MS: u16 = 60_000;

/// The devices of one guest are one test's at a time: it listens at the service's port.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Where the guest's two addresses are.
pub(crate) struct Place {
    _alone: MutexGuard<'static, ()>,
    addresses: Vec<Ipv4Addr>,
    begin: Instant,
    /// How far the clock has been turned on.
    ahead_ns: AtomicU64,
    /// How long a sleep is at most.
    nap_ms: AtomicU16,
    /// What the devices had to do before.
    resources: String,
}

#[cfg(feature = "verbs")]
pub(crate) fn fabric() -> Arc<dyn Fabric> {
    // SAFETY: it is for LNDs; strangers keep their buffers until their lines have ended.
    Arc::new(unsafe { lnet_o2iblnd::verbs::Host::new() })
}

#[cfg(not(feature = "verbs"))]
pub(crate) fn fabric() -> Arc<dyn Fabric> {
    panic!("in the guest, the feature `verbs` is wanted")
}

/// How many queues, registrations and so on the devices have.
fn resources() -> String {
    let shown = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    assert!(shown.status.success());
    String::from_utf8(shown.stdout).unwrap()
}

/// What the guest says of itself.
pub(crate) fn told(name: &str) -> Vec<String> {
    let words = std::env::var(name).unwrap_or_else(|_| panic!("the guest says nothing of {name}"));
    words.split_whitespace().map(str::to_owned).collect()
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

impl Place {
    /// `None` outside of the guest.
    pub(crate) fn of_guest() -> Option<Place> {
        std::env::var_os("NLX_GUEST")?;
        let addresses: Vec<Ipv4Addr> =
            told("NLX_GUEST_ADDRESSES").iter().map(|word| word.parse().unwrap()).collect();
        let _alone = ONE_AT_A_TIME.lock();
        // The libraries open each device once, and keep it.
        addresses.iter().for_each(|address| drop(fabric().open(*address).unwrap()));
        Some(Place {
            _alone,
            addresses,
            begin: Instant::now(),
            ahead_ns: AtomicU64::new(0),
            nap_ms: AtomicU16::new(HUNG_MS),
            resources: resources(),
        })
    }

    /// The address of this number, from 1: beyond those that the guest has, it is added.
    pub(crate) fn address(&self, number: usize) -> Ipv4Addr {
        if let Some(address) = self.addresses.get(number - 1) {
            return *address;
        }
        let netdevs = told("NLX_GUEST_NETDEVS");
        let address = Ipv4Addr::new(10, 77, 0, number as u8);
        let word = format!("{address}/24");
        ip(&["address", "replace", &word, "dev", &netdevs[0]]);
        // The device has it a moment later.
        let begin = Instant::now();
        while let Err(error) = fabric().open(address) {
            assert!(begin.elapsed().as_millis() < HUNG_MS.into(), "{error}");
            std::thread::yield_now();
        }
        address
    }

    /// Takes the port of the switch (tests/guest/network) down that an address is at, or up. What the switch knows of the
    /// address goes with it.
    pub(crate) fn set_link(&self, number: usize, up: bool) {
        let netdevs = told("NLX_GUEST_NETDEVS");
        assert_eq!(netdevs.len(), 2, "the guest wants --net veth");
        let (port, target) = (format!("port{}", number - 1), self.address(number).to_string());
        ip(&["-n", "switch", "link", "set", &port, if up { "up" } else { "down" }]);
        if up {
            let file = format!("/sys/class/net/{}/address", netdevs[number - 1]);
            let mac = std::fs::read_to_string(file).unwrap();
            ip(&["-n", "switch", "route", "replace", &target, "dev", &port]);
            ip(&["-n", "switch", "neigh", "replace", &target, "lladdr", mac.trim(), "dev", &port]);
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        1 + self.begin.elapsed().as_nanos() as u64 + self.ahead_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn turn_on(&self, ns: u64) {
        self.ahead_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// From now on nobody sleeps long.
    pub(crate) fn look_often(&self) {
        self.nap_ms.store(10, Ordering::Relaxed);
    }

    /// What was made of the devices' is gone.
    pub(crate) fn check_resources(&self) {
        let begin = Instant::now();
        // The kernel forgets what was destroyed a little later.
        while resources() != self.resources {
            assert!(begin.elapsed().as_millis() < HUNG_MS.into(), "{} was {}", resources(), self.resources);
            std::thread::yield_now();
        }
    }

    /// Polls nodes as a waiter does: while there is work, and then it sleeps until there is some.
    pub(crate) fn until(&self, nodes: &[&Node], mut so: impl FnMut() -> bool) {
        let begin = Instant::now();
        loop {
            let polled = nodes.iter().map(|node| node.poll(self.now_ns())).fold(Poll::default(), Poll::and);
            if so() {
                return;
            }
            assert!(begin.elapsed().as_millis() < HUNG_MS.into(), "it never becomes so: {}", states(nodes));
            if polled.work > 0 || !nodes.iter().all(|node| node.arm()) {
                continue;
            }
            self.sleep(nodes, polled.deadline_ns);
        }
    }

    fn sleep(&self, nodes: &[&Node], until_ns: Option<u64>) {
        let fds = nodes.iter().flat_map(|node| (0..node.lnd.shards()).map(|shard| node.lnd.wait_fd(shard)));
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let ms =
            until_ns.map_or(u64::MAX, |until_ns| until_ns.saturating_sub(self.now_ns()).div_ceil(1_000_000));
        poll(
            &mut fds,
            PollTimeout::from(u16::try_from(ms).unwrap_or(HUNG_MS).min(self.nap_ms.load(Ordering::Relaxed))),
        )
        .unwrap();
    }
}
