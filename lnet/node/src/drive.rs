//! The driver of a node: the shards of all its LNDs in one table, polled by waiting threads.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lnet::Engine;
use lnet_api::{
    Clock, Drive, EqHandle, Errno, LNet, LNetError, Lnd, LndError, MAX_SHARDS, Poll, Polled, ShutdownFlag,
    Sleeper, Tokens,
};
use lnet_api::{has_spare_processor, wait_until};
use lnet_cpt::{CptTable, PartitionMemory, bind_thread};
use parking_lot::Mutex;

/// The drive handle: the shards of all LNDs, the engine's timers, and the clock.
pub(crate) struct NodeDrive {
    pub(crate) engine: Arc<Engine>,
    lnds: Mutex<Vec<DrivenLnd>>,
    /// The node's shards, in the order in which they were created: one per token.
    shards: [OnceLock<Shard>; MAX_SHARDS],
    tokens: Tokens,
    ending: ShutdownFlag,
    spin: Duration,
    table: Arc<CptTable>,
    started: Instant,
}

/// An LND, and the number of its shards that the node already drives.
struct DrivenLnd {
    lnd: Arc<dyn Lnd>,
    taken: usize,
}

/// A shard that the node drives: its LND, and its number there.
struct Shard {
    lnd: Arc<dyn Lnd>,
    number: usize,
}

impl NodeDrive {
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left.
    pub(crate) fn new(
        engine: Arc<Engine>,
        lnds: Vec<Arc<dyn Lnd>>,
        spin: Duration,
        table: Arc<CptTable>,
    ) -> Result<NodeDrive, Errno> {
        let drive = NodeDrive {
            engine,
            lnds: Mutex::new(lnds.into_iter().map(|lnd| DrivenLnd { lnd, taken: 0 }).collect()),
            shards: [const { OnceLock::new() }; MAX_SHARDS],
            tokens: Tokens::new(0),
            ending: ShutdownFlag::new()?,
            spin,
            table,
            started: Instant::now(),
        };
        drive.take_shards();
        Ok(drive)
    }

    /// Adds the shards that LNDs have created since the last call, and drives them from now on. One
    /// LND creates at most [`MAX_SHARDS`]; shards of several LNDs beyond that number are not
    /// driven.
    pub(crate) fn take_shards(&self) {
        let mut lnds = self.lnds.lock();
        let mut count = self.tokens.count();
        for DrivenLnd { lnd, taken } in &mut *lnds {
            for number in *taken..lnd.shards() {
                let Some(place) = self.shards.get(count) else {
                    tracing::error!(net_type = ?lnd.net_type(), number, "cannot add a shard: the limit of {MAX_SHARDS} shards of a node is reached");
                    break;
                };
                let _ = place.set(Shard { lnd: lnd.clone(), number });
                (count, *taken) = (count + 1, number + 1);
            }
        }
        self.tokens.grow(count);
    }

    /// Adds an LND to those that the node drives; its shards are added once they exist.
    pub(crate) fn add_lnd(&self, lnd: Arc<dyn Lnd>) {
        self.lnds.lock().push(DrivenLnd { lnd, taken: 0 });
    }

    /// Waits with [`wait_until`] and this node's spin limit; the sleeper may have been used on
    /// other nodes.
    pub(crate) fn wait(
        &self,
        sleeper: &Arc<Sleeper>,
        deadline_ns: Option<u64>,
        ready: impl FnMut() -> bool,
    ) -> bool {
        sleeper.spin_for(self.spin);
        wait_until(self, sleeper, deadline_ns, ready)
    }

    /// Waits for the next event of polled queues, and drives the network while it waits
    /// ([`crate::Node::eq_poll`]).
    pub(crate) fn eq_poll(
        &self,
        eqs: &[EqHandle],
        timeout: Option<Duration>,
    ) -> Result<Option<Polled>, LNetError> {
        // If an event exists already, neither a list nor a descriptor is needed.
        if let Some(polled) = self.engine.eq_poll(eqs)? {
            return Ok(Some(polled));
        }
        let deadline_ns = timeout.map(|timeout| {
            let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            self.now_ns().saturating_add(timeout_ns)
        });
        let outcome = crate::interrupt::with_sleeper(|sleeper| {
            let _watch = self.engine.eq_watch(eqs, sleeper)?;
            let mut found = Ok(None);
            self.wait(sleeper, deadline_ns, || {
                found = self.engine.eq_poll(eqs);
                !matches!(found, Ok(None))
            });
            found
        });
        let no_sleeper = |errno| LndError { what: "make an eventfd to wait for events".to_string(), errno };
        let found = outcome.map_err(no_sleeper)??;
        let drive: &dyn Drive = self;
        if found.is_none() && drive.has_ended() { Err(LNetError::ShuttingDown) } else { Ok(found) }
    }

    /// Ends all waits, because the node has been shut down.
    pub(crate) fn end(&self) {
        self.ending.end();
    }

    fn shard(&self, shard: usize) -> &Shard {
        // Cannot fail: the caller's number is below the count of tokens, which grows after the
        // shard is stored.
        self.shards[shard].get().unwrap_or_else(|| unreachable!("shard {shard} is not there yet"))
    }
}

impl Clock for NodeDrive {
    fn now_ns(&self) -> u64 {
        // The clock begins at one second, so that a time in the past is never 0 and never negative.
        const BEGIN_NS: u64 = 1_000_000_000;
        BEGIN_NS + self.started.elapsed().as_nanos() as u64
    }
}

impl Drive for NodeDrive {
    fn ending(&self) -> Option<&ShutdownFlag> {
        Some(&self.ending)
    }

    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn spin(&self) -> Duration {
        self.spin
    }

    fn poll(&self, shard: usize, budget: usize) -> Poll {
        let now_ns = self.now_ns();
        let Shard { lnd, number } = self.shard(shard);
        let polled = lnd.poll(*number, now_ns, budget);
        polled.and(Poll { work: 0, deadline_ns: self.engine.advance(now_ns) })
    }

    fn is_active(&self, shard: usize) -> bool {
        self.shard(shard).lnd.is_active()
    }

    fn near(&self) -> u64 {
        let current = self.table.current(true);
        let near = (0..self.shards()).filter(|&shard| Some(self.partition(shard)) == current);
        near.fold(0, |near, shard| near | 1 << shard)
    }

    fn partition(&self, shard: usize) -> usize {
        let shard = self.shard(shard);
        shard.lnd.partition(shard.number) % self.table.partitions().max(1)
    }

    fn bind_thread(&self, partition: Option<usize>) -> Result<(), Errno> {
        bind_thread(&self.table, partition).map(drop).map_err(|error| error.errno())
    }

    fn memory(&self) -> PartitionMemory {
        PartitionMemory::of(&self.table)
    }

    fn has_spare_processor(&self) -> bool {
        has_spare_processor()
    }

    fn arm(&self, shard: usize) -> bool {
        let Shard { lnd, number } = self.shard(shard);
        lnd.arm(*number)
    }

    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        let Shard { lnd, number } = self.shard(shard);
        lnd.wait_fd(*number)
    }
}
