//! Driving a node: the waiting threads poll its shards.
//!
//! A hand-off between an I/O thread and the thread that waits for its result costs as much as the
//! network itself, so the waiting thread polls the network. Each shard has a token; a waiter takes
//! the tokens that are free, polls those shards, and sleeps on their descriptors and its own
//! [`Sleeper`]. A waiter that gets no token sleeps on its `Sleeper` alone. A waiter that stops
//! driving wakes one waiter that lacks a token, so that each shard has a driver while any thread
//! waits. A *scheduler thread* (one per shard of a node) takes over a shard that no thread has
//! polled for a while ([`drive_shard`]), and releases it as soon as a waiter requests it. One
//! scheduler thread at a time checks for shards that have not been polled for that long
//! ([`Watch`]).
//!
//! Handlers run while a shard is polled, and may block. So an awake waiter does not keep shards
//! that it does not use: each shard that it has not polled for a while may be taken by another
//! waiting thread, or by the shard's scheduler thread. A shard whose driver sleeps on it is not
//! taken: that would cost a wake-up each time. [`wait_until`] describes how several threads share
//! shards under load.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use lnet_cpt::PartitionMemory;

use crate::Errno;

// Only this crate's own models use loom's types: models of other crates use the real drive.
#[cfg(all(test, loom))]
use nlx_sync::model as sync;
#[cfg(not(all(test, loom)))]
use nlx_sync::plain as sync;

mod event_loop_handle;
#[cfg(all(test, loom))]
mod model;
mod rules;
mod token;
mod tokens;
mod wait;
mod watch;

pub use event_loop_handle::EventLoopHandle;
pub use nlx_sync::{DEFAULT_SPIN, MAX_SPIN, Sleeper, has_spare_processor};
pub use tokens::Tokens;
pub use wait::{ShutdownFlag, wait_until};
pub use watch::{Watch, drive_shard};

/// Maximum number of shards of a node: some per LND and CPU partition. A waiter's mask has one bit
/// for each.
pub const MAX_SHARDS: usize = 64;

/// The number of messages that one poll of a shard handles before the waiter polls other shards and
/// checks its condition.
pub const POLL_BUDGET: usize = 64;

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Poll {
    /// Number of messages and other events handled; 0 means that the waiter may sleep.
    pub work: usize,
    /// The time of the next poll even if nothing arrives, in nanoseconds of the node's clock.
    pub deadline_ns: Option<u64>,
}

impl Poll {
    /// Combines two results: the sum of the work, the earlier deadline.
    pub fn and(self, other: Poll) -> Poll {
        let deadline_ns = match (self.deadline_ns, other.deadline_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Poll { work: self.work + other.work, deadline_ns }
    }
}

/// A monotonic clock: nanoseconds since a fixed moment.
pub trait Clock: Send + Sync {
    /// Returns the current time in nanoseconds.
    fn now_ns(&self) -> u64;
}

/// The drive handle of a node: all shards of all its LNDs, and the engine's timers.
pub trait Drive: Clock {
    /// Returns the number of shards, at most [`MAX_SHARDS`]; it may grow, see [`Tokens::grow`].
    fn shards(&self) -> usize {
        self.tokens().count()
    }
    /// Returns the flag that ends waits when the node has been shut down; `None` by default, for a
    /// node that never is.
    fn ending(&self) -> Option<&ShutdownFlag> {
        None
    }
    /// Returns the shards' tokens.
    fn tokens(&self) -> &Tokens;
    /// Returns the [spin limit](Sleeper::spinning) of waits on this node; zero by default.
    fn spin(&self) -> Duration {
        Duration::ZERO
    }
    /// Drives a shard without blocking, and runs the engine's timers. The caller holds the shard's
    /// token.
    fn poll(&self, shard: usize, budget: usize) -> Poll {
        let _ = (shard, budget);
        Poll::default()
    }
    /// Returns whether a shard has connections or listeners that must be driven; by default `true`.
    fn is_active(&self, shard: usize) -> bool {
        let _ = shard;
        true
    }
    /// Returns the shards of the calling thread's CPU partition as a mask; by default all. A waiter
    /// that gives shards to others keeps these longest.
    fn near(&self) -> u64 {
        u64::MAX
    }
    /// Returns the CPU partition of a shard; by default there is one.
    fn partition(&self, shard: usize) -> usize {
        let _ = shard;
        0
    }
    /// Binds this thread to the processors of a CPU partition whose shards it drives, or with
    /// `None` to those of all partitions; by default it does nothing.
    ///
    /// # Errors
    /// The system's error: EPERM if this process may not use some of the processors.
    fn bind_thread(&self, partition: Option<usize>) -> Result<(), Errno> {
        let _ = partition;
        Ok(())
    }
    /// Returns the memory of the CPU partitions (S-305); by default memory is not placed.
    fn memory(&self) -> PartitionMemory {
        PartitionMemory::default()
    }
    /// Returns whether another thread would find a free processor; true by default.
    fn has_spare_processor(&self) -> bool {
        true
    }
    /// Arms a shard before a sleep; see [`crate::Lnd::arm`].
    fn arm(&self, shard: usize) -> bool {
        let _ = shard;
        true
    }
    /// Returns the time to sleep until `until_ns`, in nanoseconds. A test's clock that does not run
    /// may advance to `until_ns` instead, and return 0.
    fn sleep_ns(&self, until_ns: u64) -> u64 {
        until_ns.saturating_sub(self.now_ns())
    }
    /// Returns the descriptor of an armed shard; see [`crate::Lnd::wait_fd`].
    ///
    /// # Panics
    /// By default: a node that has shards must implement this.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        unreachable!("shard {shard} of a node without shards")
    }
}

impl dyn Drive + '_ {
    /// Returns whether the node has been shut down, so that no further event will come.
    pub fn has_ended(&self) -> bool {
        self.ending().is_some_and(ShutdownFlag::is_over)
    }

    /// Polls once every shard that is free, or that its driver has not polled for a while. For
    /// callers that must not sleep. Requests scheduler threads that drive to give up their shards.
    pub fn poll_free_shards(&self) -> Poll {
        let mut all = Poll::default();
        for shard in 0..self.shards() {
            if let Some(claim) = Claim::take(self, shard) {
                all = all.and(self.poll(shard, POLL_BUDGET));
                drop(claim);
            } else {
                self.tokens().ask_sched_thread(shard);
            }
        }
        all
    }
}

/// A token held for a moment; dropping it releases the token, also when a handler panics.
struct Claim<'a> {
    drive: &'a dyn Drive,
    shard: usize,
}

impl Claim<'_> {
    /// Takes the token if it is free, or if its holder has not polled the shard for a while.
    fn take(drive: &dyn Drive, shard: usize) -> Option<Claim<'_>> {
        let tokens = drive.tokens();
        let taken = tokens.claim(shard) || tokens.claim_left(shard, drive.now_ns());
        taken.then(|| Claim { drive, shard })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.drive.tokens().release(self.shard, self.drive.now_ns());
    }
}

/// Iterates over the shards of a mask, in ascending order.
fn shards_of(mask: u64) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let shard = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (shard < MAX_SHARDS).then_some(shard)
    })
}
