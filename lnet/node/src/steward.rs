//! The scheduler threads (S-203, S-312): one for each shard of an LND, bound to the CPUs of the shard's partition. They
//! drive the node while nobody waits on it, as when the program computes.
//!
//! One thread at a time keeps watch: it looks every [`GRACE`] at which shards are neglected, and wakes their threads; the
//! others sleep without a timer. It leaves the watch to another when its own shard needs it, so that nobody's timer runs
//! while all shards are driven by their threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use lnet_api::{Clock, Drive, Errno, EventFd, Sleeper, Tokens, drive_shard, wait_until};
use lnet_cpt::{CptError, CptTable, bind_thread};
use parking_lot::RwLock;

use crate::NodeError;
use crate::drive::NodeDrive;

/// How long a shard stays free before its scheduler thread takes it. Longer than a waiter needs to handle its events and
/// wait again, so that the two don't fight; short against every timeout of the protocol.
pub const GRACE: Duration = Duration::from_millis(5);

/// The threads, and the means to end them.
pub(crate) struct Stewards {
    crew: Arc<Crew>,
    table: Arc<CptTable>,
    threads: Vec<JoinHandle<()>>,
}

impl Stewards {
    /// No threads yet.
    pub(crate) fn new(drive: Arc<NodeDrive>, table: Arc<CptTable>) -> Stewards {
        let crew = Crew {
            alone: Alone { drive, tokens: Tokens::new(0) },
            sleepers: RwLock::default(),
            watched: AtomicBool::new(false),
            resting: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        };
        Stewards { crew: Arc::new(crew), table, threads: Vec::new() }
    }

    /// How many threads there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Starts a thread for each shard that has none. If one may not run on its partition's CPUs, `refuse` makes the error.
    pub(crate) fn grow(&mut self, refuse: &dyn Fn(CptError) -> NodeError) -> Result<(), NodeError> {
        for shard in self.threads.len()..self.crew.drive().shards() {
            self.threads.push(self.start(shard, refuse)?);
        }
        Ok(())
    }

    fn start(
        &self,
        shard: usize,
        refuse: &dyn Fn(CptError) -> NodeError,
    ) -> Result<JoinHandle<()>, NodeError> {
        let system = |what: &'static str| move |errno| NodeError::System { what: what.to_string(), errno };
        let sleeper = self.crew.sleeper(shard).map_err(system("make an eventfd"))?;
        let (bound, outcome) = mpsc::sync_channel(1);
        let (crew, table) = (self.crew.clone(), self.table.clone());
        let cpt = crew.drive().partition(shard) % table.partitions().max(1);
        let work = move || {
            let binding = bind_thread(&table, cpt);
            let good = binding.is_ok();
            // Whoever starts it waits for this word.
            let _ = bound.send(binding);
            if good {
                crew.serve(shard, &sleeper);
            }
        };
        let name = format!("lnet-sched-{shard}");
        let thread = std::thread::Builder::new().name(name).spawn(work).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
            NodeError::System { what: "start a scheduler thread".to_string(), errno }
        })?;
        match outcome.recv() {
            Ok(Ok(_)) => Ok(thread),
            Ok(Err(source)) => Err(refuse(source)),
            Err(_) => Err(system("start a scheduler thread")(Errno::ECANCELED)),
        }
    }
}

impl Drop for Stewards {
    fn drop(&mut self) {
        self.crew.ended.store(true, Ordering::SeqCst);
        self.crew.sleepers.read().iter().for_each(|sleeper| sleeper.wake());
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed by the runtime; the node is ending anyway.
            let _ = thread.join();
        }
    }
}

/// What the threads share.
struct Crew {
    alone: Alone,
    /// Each shard's thread's.
    sleepers: RwLock<Vec<Arc<dyn Sleeper>>>,
    /// Somebody keeps watch.
    watched: AtomicBool,
    /// A bit for each thread that sleeps because another keeps watch.
    resting: AtomicU64,
    ended: AtomicBool,
}

impl Crew {
    fn drive(&self) -> &NodeDrive {
        &self.alone.drive
    }

    /// The sleeper of a shard's thread: a thread that could not be started has left one.
    fn sleeper(&self, shard: usize) -> Result<Arc<dyn Sleeper>, Errno> {
        let mut sleepers = self.sleepers.write();
        if let Some(sleeper) = sleepers.get(shard) {
            return Ok(sleeper.clone());
        }
        let sleeper: Arc<dyn Sleeper> = Arc::new(EventFd::new()?);
        self.drive().tokens().set_steward(shard, sleeper.clone());
        sleepers.push(sleeper.clone());
        Ok(sleeper)
    }

    fn serve(&self, shard: usize, sleeper: &Arc<dyn Sleeper>) {
        while !self.is_over() {
            if self.keep_watch(shard, sleeper) {
                drive_shard(self.drive(), shard, sleeper, || self.is_over());
            } else {
                self.rest(shard, sleeper);
            }
        }
    }

    /// Keeps watch until the thread's own shard is neglected, or all is over; `false` if another keeps watch.
    fn keep_watch(&self, shard: usize, sleeper: &Arc<dyn Sleeper>) -> bool {
        // SYNC crew.watch
        if self.watched.swap(true, Ordering::SeqCst) {
            return self.is_neglected(shard);
        }
        while !self.is_over() && !self.is_neglected(shard) {
            let grace_ns = GRACE.as_nanos() as u64;
            // Its own timer alone ends it: waiters never pay a system call to keep it quiet.
            wait_until(&self.alone, sleeper, Some(self.alone.now_ns() + grace_ns), || self.is_over());
            self.wake_neglected();
        }
        // SYNC crew.watch: either this sees a thread at rest, or that thread sees that nobody keeps watch.
        self.watched.store(false, Ordering::SeqCst);
        let next = self.resting.load(Ordering::SeqCst).trailing_zeros() as usize;
        if let Some(next) = self.sleepers.read().get(next) {
            next.wake();
        }
        true
    }

    /// Sleeps until there is something to do or nobody keeps watch.
    fn rest(&self, shard: usize, sleeper: &Arc<dyn Sleeper>) {
        self.resting.fetch_or(1 << shard, Ordering::SeqCst);
        wait_until(&self.alone, sleeper, None, || {
            self.is_over() || !self.watched.load(Ordering::SeqCst) || self.is_neglected(shard)
        });
        self.resting.fetch_and(!(1 << shard), Ordering::SeqCst);
    }

    fn wake_neglected(&self) {
        for (shard, sleeper) in self.sleepers.read().iter().enumerate() {
            if self.resting.load(Ordering::Relaxed) & 1 << shard != 0 && self.is_neglected(shard) {
                sleeper.wake();
            }
        }
    }

    /// Whether a shard has work to be done and nobody who does it.
    fn is_neglected(&self, shard: usize) -> bool {
        let tokens = self.drive().tokens();
        let since_ns = self.alone.now_ns().saturating_sub(GRACE.as_nanos() as u64);
        tokens.free_since(shard, since_ns) && !tokens.wanted() && self.drive().is_active(shard)
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// The node's clock without its shards.
struct Alone {
    drive: Arc<NodeDrive>,
    tokens: Tokens,
}

impl Clock for Alone {
    fn now_ns(&self) -> u64 {
        self.drive.now_ns()
    }
}

impl Drive for Alone {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}
