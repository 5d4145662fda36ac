//! A drive for programs that wait in the network's virtual time.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lnet::Engine;
use lnet_api::{Clock, Drive, Errno, Poll, Tokens};
use nlx_sync::Bell;
use parking_lot::Mutex;

use crate::{SimNet, Step};

/// The interval without events after which time advances and the engines' timers run.
const TICK_NS: u64 = 1_000_000;

/// The number of the network's timer for ticks.
const TICK: u64 = 0;

/// A [`Drive`] with which a waiting thread runs a [`SimNet`]: its clock is the network's, and every
/// poll is one step. So layers above an engine that wait through a drive (`nlx-kcore`, and with it
/// `nlx`) run in virtual time.
///
/// All nodes of a network share one drive: it has a single shard, so that one thread at a time
/// steps. While only one thread waits, every run of a seed is the same.
///
/// With no message in flight, time *jumps* from tick to tick: a wait of an hour takes a moment.
/// Threads that wait without a deadline would advance the time while other threads work, whose
/// operations then time out. Programs with such threads (callbacks) let time *flow*
/// ([`SimDrive::flow`]): then idle time passes no faster than real time, and messages travel as
/// fast as before.
///
/// The drive uses the timers of [`SimNet::after`]; no other code may use them.
pub struct SimDrive {
    net: Arc<SimNet>,
    engines: Vec<Arc<Engine>>,
    tokens: Tokens,
    flows: AtomicBool,
    /// The real time of the last tick.
    ticked: Mutex<Instant>,
    /// A descriptor that is never readable: a waiting thread sleeps until the next tick at most.
    fd: Bell,
}

impl SimDrive {
    /// Makes a drive of this network and of the engines on it, whose timers it runs.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there is no descriptor left.
    pub fn new(net: Arc<SimNet>, engines: Vec<Arc<Engine>>) -> Result<Arc<SimDrive>, Errno> {
        net.after(TICK_NS, TICK);
        Ok(Arc::new(SimDrive {
            net,
            engines,
            tokens: Tokens::new(1),
            flows: AtomicBool::new(false),
            ticked: Mutex::new(Instant::now()),
            fd: Bell::new()?,
        }))
    }

    /// Returns the network that the drive runs.
    #[must_use]
    pub fn net(&self) -> &Arc<SimNet> {
        &self.net
    }

    /// Makes idle time pass no faster than real time.
    pub fn flow(&self) {
        *self.ticked.lock() = Instant::now();
        self.flows.store(true, Ordering::Relaxed);
    }

    /// Returns whether it is too early for the next tick.
    fn is_early(&self) -> bool {
        self.flows.load(Ordering::Relaxed)
            && !self.net.has_traffic()
            && self.ticked.lock().elapsed() < Duration::from_nanos(TICK_NS)
    }

    fn tick(&self) {
        *self.ticked.lock() = Instant::now();
        self.net.after(TICK_NS, TICK);
        let now_ns = self.net.now_ns();
        for engine in &self.engines {
            engine.advance(now_ns);
        }
    }
}

impl Clock for SimDrive {
    fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }
}

impl Drive for SimDrive {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn poll(&self, _: usize, _: usize) -> Poll {
        if self.is_early() {
            return Poll { work: 0, deadline_ns: self.net.next_ns() };
        }
        if let Some(Step::Timer(_)) = self.net.step() {
            self.tick();
            // While time flows, there may be no work for a long time; otherwise there always is
            // some.
            let work = usize::from(!self.flows.load(Ordering::Relaxed));
            return Poll { work, deadline_ns: self.net.next_ns() };
        }
        Poll { work: 1, deadline_ns: None }
    }

    fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Arc<lnet_api::Sleeper> {
        Arc::new(lnet_api::Sleeper::new().unwrap())
    }

    #[test]
    fn an_hour_of_virtual_time_is_waited_for_in_a_moment() {
        let drive = SimDrive::new(SimNet::new(1, Arc::new(())), Vec::new()).unwrap();
        let hour_ns = 3_600_000_000_000;
        assert!(!lnet_api::wait_until(&*drive, &sleeper(), Some(hour_ns), || false));
        assert!((hour_ns..hour_ns + TICK_NS).contains(&drive.now_ns()));
    }

    #[test]
    fn flowing_time_is_no_faster_than_the_clock() {
        let drive = SimDrive::new(SimNet::new(1, Arc::new(())), Vec::new()).unwrap();
        drive.flow();
        let start = Instant::now();
        assert!(!lnet_api::wait_until(&*drive, &sleeper(), Some(20 * TICK_NS), || false));
        assert!(start.elapsed() >= Duration::from_nanos(20 * TICK_NS));
    }
}
