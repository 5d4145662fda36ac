//! Driving the network: each thread drives the shards that are its own, for as long as it lives.

use lnet_api::{Drive, MAX_SHARDS, POLL_BUDGET, Poll};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

/// The shards of one thread.
///
/// It keeps their tokens asleep and awake: nobody else in the helper waits for the network. (Whoever does all the same is
/// woken by what it waits for.) So the stewards of the shards sleep, too, and an idle helper takes no processor time.
pub(super) struct Network {
    thread: usize,
    threads: usize,
    /// It has been bound to the CPU partition of its shards, if they are of one.
    is_bound: bool,
    /// Those that it has; their descriptors stand in its `epoll`.
    held: u64,
}

impl Network {
    pub(super) fn new(thread: usize, threads: usize) -> Network {
        Network { thread, threads, is_bound: false, held: 0 }
    }

    /// Binds this thread, whose own they are, to the processors of their CPU partition; it stays where it is if they are of
    /// several.
    fn bind(&mut self, drive: &dyn Drive) {
        self.is_bound = true;
        let mut partitions = self.shards(drive).map(|shard| drive.partition(shard));
        let Some(first) = partitions.next() else { return };
        if partitions.all(|partition| partition == first)
            && let Err(errno) = drive.bind_thread(first)
        {
            tracing::warn!(thread = self.thread, partition = first, %errno, "a serving thread is not bound");
        }
    }

    fn shards(&self, drive: &dyn Drive) -> impl Iterator<Item = usize> + use<> {
        (self.thread..drive.shards().min(MAX_SHARDS)).step_by(self.threads)
    }

    /// Moves all of them forward.
    pub(super) fn poll(&mut self, drive: &dyn Drive, epoll: &Epoll, mark: u64) -> Poll {
        let mut all = Poll::default();
        for shard in self.shards(drive) {
            if self.claim(drive, shard, epoll, mark) {
                all = all.and(drive.poll(shard, POLL_BUDGET));
            }
        }
        all
    }

    /// Announces sleep. False if there is something to do.
    pub(super) fn arm(&self, drive: &dyn Drive) -> bool {
        (0..MAX_SHARDS).filter(|shard| self.held >> shard & 1 != 0).all(|shard| drive.arm(shard))
    }

    /// Others may drive them.
    pub(super) fn release(&mut self, drive: &dyn Drive, epoll: &Epoll) {
        for shard in (0..MAX_SHARDS).filter(|shard| self.held >> shard & 1 != 0) {
            let _ = epoll.delete(drive.wait_fd(shard));
            drive.tokens().release(shard, drive.now_ns());
        }
        self.held = 0;
    }

    /// Whether the shard's token is this thread's. A shard that cannot be watched is left to its steward.
    fn claim(&mut self, drive: &dyn Drive, shard: usize, epoll: &Epoll, mark: u64) -> bool {
        let bit = 1 << shard;
        if self.held & bit != 0 {
            return true;
        }
        if !drive.tokens().claim(shard) {
            drive.tokens().ask_steward(shard);
            return false;
        }
        let watched = epoll.add(drive.wait_fd(shard), EpollEvent::new(EpollFlags::EPOLLIN, mark));
        match watched {
            Ok(()) => {
                self.held |= bit;
                if !self.is_bound {
                    self.bind(drive);
                }
            }
            Err(_) => drive.tokens().release(shard, drive.now_ns()),
        }
        watched.is_ok()
    }
}
