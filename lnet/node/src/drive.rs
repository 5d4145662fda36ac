use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use lnet::Engine;
use lnet_api::{Clock, Drive, Lnd, Poll, Tokens};

/// The drive handle: the shards of all LNDs in a row, the engine's timers, and the clock.
pub(crate) struct NodeDrive {
    pub(crate) engine: Arc<Engine>,
    pub(crate) lnds: Vec<Arc<dyn Lnd>>,
    /// For each shard of the node: which LND, and which of its shards.
    shards: Vec<(usize, usize)>,
    tokens: Tokens,
    started: Instant,
}

impl NodeDrive {
    pub(crate) fn new(engine: Arc<Engine>, lnds: Vec<Arc<dyn Lnd>>) -> NodeDrive {
        let of_lnd =
            |(index, lnd): (usize, &Arc<dyn Lnd>)| (0..lnd.shards()).map(move |shard| (index, shard));
        let shards: Vec<_> = lnds.iter().enumerate().flat_map(of_lnd).collect();
        let tokens = Tokens::new(shards.len());
        NodeDrive { engine, lnds, shards, tokens, started: Instant::now() }
    }

    /// Whether there is anything that a thread should drive.
    pub(crate) fn is_active(&self) -> bool {
        self.lnds.iter().any(|lnd| lnd.is_active())
    }

    fn lnd(&self, shard: usize) -> (&dyn Lnd, usize) {
        let (lnd, own) = self.shards[shard];
        (&*self.lnds[lnd], own)
    }
}

impl Clock for NodeDrive {
    fn now_ns(&self) -> u64 {
        // The clock begins at one second, so that "long ago" is never 0 and never negative.
        const BEGIN_NS: u64 = 1_000_000_000;
        BEGIN_NS + self.started.elapsed().as_nanos() as u64
    }
}

impl Drive for NodeDrive {
    fn shards(&self) -> usize {
        self.shards.len()
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn poll(&self, shard: usize, budget: usize) -> Poll {
        let now_ns = self.now_ns();
        let (lnd, own) = self.lnd(shard);
        let polled = lnd.poll(own, now_ns, budget);
        polled.and(Poll { work: 0, deadline_ns: self.engine.advance(now_ns) })
    }

    fn arm(&self, shard: usize) -> bool {
        let (lnd, own) = self.lnd(shard);
        lnd.arm(own)
    }

    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        let (lnd, own) = self.shards[shard];
        self.lnds[lnd].wait_fd(own)
    }
}
