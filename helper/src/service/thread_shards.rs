//! Driving the network: each thread drives a fixed set of shards.

use lnet_api::{Drive, MAX_SHARDS, POLL_BUDGET, Poll};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

/// The shards of one thread.
///
/// The thread keeps the shards' tokens even while it sleeps, because no other thread of the helper
/// waits for the network. (A thread that waits nevertheless is woken by its event.) With the tokens
/// taken, the scheduler threads of the shards sleep, too, and an idle helper uses no processor
/// time.
pub(super) struct ThreadShards {
    thread: usize,
    threads: usize,
    /// Number of shards of the node when this thread was bound to processors.
    bound_for: usize,
    /// Bit set of the shards whose tokens the thread holds; their descriptors are in its `epoll`.
    held: u64,
}

impl ThreadShards {
    pub(super) fn new(thread: usize, threads: usize) -> ThreadShards {
        ThreadShards { thread, threads, bound_for: 0, held: 0 }
    }

    /// Binds this thread to the processors of its shards' CPU partition; if they belong to several,
    /// to those of all partitions. A further NI may bring further shards.
    fn bind(&mut self, drive: &dyn Drive) {
        self.bound_for = drive.shards();
        let mut partitions = self.shards(drive).map(|shard| drive.partition(shard));
        let Some(first) = partitions.next() else { return };
        let partition = partitions.all(|partition| partition == first).then_some(first);
        if let Err(errno) = drive.bind_thread(partition) {
            tracing::warn!(thread = self.thread, ?partition, %errno, "cannot bind a serving thread to the CPUs of its partition");
        }
    }

    fn shards(&self, drive: &dyn Drive) -> impl Iterator<Item = usize> + use<> {
        (self.thread..drive.shards().min(MAX_SHARDS)).step_by(self.threads)
    }

    /// Polls the thread's shards, except for those whose token another thread holds.
    pub(super) fn poll(&mut self, drive: &dyn Drive, epoll: &Epoll, mark: u64) -> Poll {
        if drive.shards() != self.bound_for {
            self.bind(drive);
        }
        let mut all = Poll::default();
        for shard in self.shards(drive) {
            if self.claim(drive, shard, epoll, mark) {
                all = all.and(drive.poll(shard, POLL_BUDGET));
            }
        }
        all
    }

    /// Arms the shards for sleep. Returns false if there is work.
    pub(super) fn arm(&self, drive: &dyn Drive) -> bool {
        (0..MAX_SHARDS).filter(|shard| self.held >> shard & 1 != 0).all(|shard| drive.arm(shard))
    }

    /// Releases the shards for other drivers.
    pub(super) fn release(&mut self, drive: &dyn Drive, epoll: &Epoll) {
        for shard in (0..MAX_SHARDS).filter(|shard| self.held >> shard & 1 != 0) {
            let _ = epoll.delete(drive.wait_fd(shard));
            drive.tokens().release(shard, drive.now_ns());
        }
        self.held = 0;
    }

    /// Claims the shard's token and watches its descriptor, unless this thread holds the token
    /// already. Returns false if another thread holds it, or if the descriptor cannot be watched:
    /// then the shard is left to its scheduler thread.
    fn claim(&mut self, drive: &dyn Drive, shard: usize, epoll: &Epoll, mark: u64) -> bool {
        let bit = 1 << shard;
        if self.held & bit != 0 {
            return true;
        }
        if !drive.tokens().claim(shard) {
            drive.tokens().ask_sched_thread(shard);
            return false;
        }
        let watched = epoll.add(drive.wait_fd(shard), EpollEvent::new(EpollFlags::EPOLLIN, mark));
        match watched {
            Ok(()) => self.held |= bit,
            Err(_) => drive.tokens().release(shard, drive.now_ns()),
        }
        watched.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};

    use lnet_api::{Clock, Errno, Tokens};
    use nix::sys::epoll::EpollCreateFlags;
    use nix::sys::eventfd::EventFd;
    use parking_lot::Mutex;

    use super::*;

    /// A node whose shards are in these partitions.
    struct Node {
        tokens: Tokens,
        partitions: Vec<usize>,
        events: Vec<EventFd>,
        bound: Mutex<Vec<Option<usize>>>,
    }

    impl Clock for Node {
        fn now_ns(&self) -> u64 {
            0
        }
    }

    impl Drive for Node {
        fn tokens(&self) -> &Tokens {
            &self.tokens
        }

        fn partition(&self, shard: usize) -> usize {
            self.partitions[shard]
        }

        fn bind_thread(&self, partition: Option<usize>) -> Result<(), Errno> {
            self.bound.lock().push(partition);
            Ok(())
        }

        fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
            self.events[shard].as_fd()
        }
    }

    /// A serving thread runs on the CPUs of its shards' partition, and no longer when an NI brings
    /// it shards of another one.
    // Covers: S-312
    #[test]
    fn a_thread_is_bound_to_the_partition_of_its_shards() {
        let node = Node {
            tokens: Tokens::new(2),
            partitions: vec![0, 1, 0, 1],
            events: (0..4).map(|_| EventFd::new().unwrap()).collect(),
            bound: Mutex::default(),
        };
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        let mut threads: Vec<_> = (0..3).map(|thread| ThreadShards::new(thread, 3)).collect();
        let mut bound = |node: &Node| {
            threads.iter_mut().for_each(|thread| {
                // The second poll changes nothing.
                thread.poll(node, &epoll, 0);
                thread.poll(node, &epoll, 0);
            });
            std::mem::take(&mut *node.bound.lock())
        };
        assert_eq!(bound(&node), [Some(0), Some(1)], "the third has no shard");
        node.tokens.grow(4);
        assert_eq!(bound(&node), [None, Some(1), Some(0)], "the first has the shards 0 and 3");
    }
}
