//! The time of this host, which a test may advance, and nodes that sleep.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Instant;

use lnet_api::{Lnd, Poll};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Kind, Node, states};

/// If nothing happens for this long, the test fails: an emulated machine is slow.
pub(super) const HUNG_MS: u16 = 60_000;

/// A clock that begins at its creation.
#[derive(Debug)]
pub struct RealTime {
    begin: Instant,
    /// The time by which the clock was advanced.
    ahead_ns: AtomicU64,
    /// The maximum length of a sleep.
    nap_ms: AtomicU16,
}

impl RealTime {
    /// Creates a clock that shows the time since its creation.
    #[allow(clippy::new_without_default, reason = "it begins at a moment")]
    pub fn new() -> RealTime {
        RealTime { begin: Instant::now(), ahead_ns: AtomicU64::new(0), nap_ms: AtomicU16::new(HUNG_MS) }
    }

    /// Returns the nanoseconds since its creation, plus the time by which it was advanced.
    pub fn now_ns(&self) -> u64 {
        1 + self.begin.elapsed().as_nanos() as u64 + self.ahead_ns.load(Ordering::Relaxed)
    }

    /// Advances the clock.
    pub fn turn_on(&self, ns: u64) {
        self.ahead_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Makes all further sleeps short.
    pub fn look_often(&self) {
        self.nap_ms.store(10, Ordering::Relaxed);
    }

    /// Polls nodes as a waiter does: while there is work, and then it sleeps until there is some.
    ///
    /// # Panics
    ///
    /// If the condition does not become true.
    pub fn until<K: Kind>(&self, nodes: &[&Node<K>], mut so: impl FnMut() -> bool) {
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

    fn sleep<K: Kind>(&self, nodes: &[&Node<K>], until_ns: Option<u64>) {
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
