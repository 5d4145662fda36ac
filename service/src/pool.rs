//! Worker threads on CPU partitions, and the work that waits for them (S-313).
//!
//! Each partition has queues of *items* and worker threads that are bound to its CPUs. An item is a
//! number that a [`Source`] pushed: a request that arrived, bulk that ended, a call that was
//! answered. So one thread waits for requests, bulk and timers together.
//!
//! One worker of a partition, its *driver*, waits in [`Driver::wait`] and so drives the network;
//! the items that it delivers it also runs, without a hand-off. The other workers are idle and cost
//! nothing. A worker that takes an item which will run long, or that leaves a backlog, first calls
//! an idle worker, or starts another thread, so that the network keeps a driver. "Long" is what the
//! items of that source took lately, compared with the price of a hand-off ([`HAND_OVER_NS`]).
//!
//! A handler may block although the items of its source were short. While a partition has no
//! driver, the pool's *watch*, a thread with a timer, therefore looks every [`WATCH_NS`] whether a
//! worker has been busy since its last look, and calls another one for it. While all drivers sleep,
//! the watch sleeps without a timer.
//!
//! An item stays in its partition. Only when all its workers run handlers and no further thread may
//! be started do the drivers of other partitions take items from it; [`PoolCounters::crossed`]
//! counts them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nlx_sync::Sleeper;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::{Driver, PoolOptions, ServiceError};

/// A worker calls another one before it runs what is expected to take longer: some times the price
/// of a hand-off between two sleeping threads (docs/performance.md). So what arrives while a
/// handler runs waits at most this long, unless the handler takes longer than usual.
pub const HAND_OVER_NS: u64 = 100_000;

/// Maximum number of items that a worker runs as one batch, whose messages leave together.
pub const BATCH_MAX: usize = 64;

/// Interval at which the watch looks for partitions without a driver whose workers are busy.
pub const WATCH_NS: u64 = 5_000_000;

/// Maximum number of sources of a pool, services and callers: two for each of two thousand simulated
/// test nodes. Each costs an estimate of 8 bytes in every partition.
pub const SOURCES_MAX: usize = 4096;

/// Maximum number of partitions of a pool: a mask has one bit for each.
pub const PARTITIONS_MAX: usize = 64;

/// Urgent items that run in a row while others wait; then one of the others runs, so that neither
/// class starves.
pub const URGENT_IN_A_ROW: u32 = 8;

/// No worker.
const NONE: u32 = u32::MAX;

/// No timer.
const NEVER: u64 = u64::MAX;

/// The class of an item: within a class, first come is first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Ordinary work.
    #[default]
    Normal,
    /// Work that goes before ordinary work: control messages, lock callbacks, the end of bulk.
    Urgent,
}

/// Where items come from: a service, or a caller.
pub trait Source: Send + Sync {
    /// Runs an item, on a worker thread of the partition, or of another one if this one is starved.
    /// The worker took it at `now_ns`.
    fn run(&self, partition: usize, token: u32, now_ns: u64);

    /// Does what is due at this time, and returns the time of the next call; `None` for none until
    /// [`PoolHandle::wake_at`].
    fn tick(&self, partition: usize, now_ns: u64) -> Option<u64> {
        let _ = (partition, now_ns);
        None
    }

    /// Called once the pool has ended: no item runs any more.
    fn ended(&self) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    source: u32,
    token: u32,
}

/// What a worker does next.
enum Work {
    /// Run an item that was pushed to the partition `home`.
    Run {
        item: Item,
        home: usize,
        began_ns: u64,
    },
    Tick,
}

/// The counters of one partition of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolCounters {
    /// Worker threads.
    pub threads: u32,
    /// Handlers that run now.
    pub handling: u32,
    /// Items that wait for a worker.
    pub waiting: usize,
    /// Largest number of items that have waited at a time.
    pub waiting_max: usize,
    /// Items that were run.
    pub items: u64,
    /// Items of this partition that workers of other partitions ran, because all of its own were
    /// busy.
    pub crossed: u64,
    /// Threads that were started beyond the minimum.
    pub grown: u64,
    /// Threads that ended after a time without work.
    pub shrunk: u64,
    /// Threads that could not be started.
    pub not_started: u64,
    /// Handlers that panicked; the item was given up.
    pub panics: u64,
}

#[derive(Default)]
struct Queue {
    urgent: VecDeque<Item>,
    normal: VecDeque<Item>,
    urgent_run: u32,
    /// Numbers of workers that sleep without driving.
    idle: Vec<u32>,
    /// Numbers that no thread has.
    free: Vec<u32>,
    counters: PoolCounters,
    over: bool,
}

impl Queue {
    fn len(&self) -> usize {
        self.urgent.len() + self.normal.len()
    }

    fn push(&mut self, item: Item, class: Class) {
        match class {
            Class::Normal => self.normal.push_back(item),
            Class::Urgent => self.urgent.push_back(item),
        }
        self.counters.waiting_max = self.counters.waiting_max.max(self.len());
    }

    fn pop(&mut self) -> Option<Item> {
        let normal_is_due = self.urgent_run >= URGENT_IN_A_ROW && !self.normal.is_empty();
        if let Some(item) = (!normal_is_due).then(|| self.urgent.pop_front()).flatten() {
            self.urgent_run += 1;
            return Some(item);
        }
        self.urgent_run = 0;
        self.normal.pop_front()
    }
}

/// A worker's sleeper, and whether another worker has called it.
struct Seat {
    sleeper: OnceLock<Arc<Sleeper>>,
    called: AtomicBool,
}

/// One partition. Aligned so that no two share a cache line.
#[repr(align(128))]
struct Part {
    queue: Mutex<Queue>,
    /// The length of the queue, for checks without the lock.
    waiting: AtomicUsize,
    /// The number of the worker that drives.
    driver: AtomicU32,
    /// Set while the maximum number of handlers runs.
    full: AtomicBool,
    /// The time at which a worker last took an item.
    busy_since_ns: AtomicU64,
    /// The time of the next tick.
    tick_ns: AtomicU64,
    /// The partitions that have work and no worker for it.
    starved: AtomicU64,
    /// The time that an item of each source took lately, in nanoseconds.
    estimates_ns: Box<[AtomicU64]>,
    /// The number of sources whose items take long.
    long_sources: AtomicUsize,
    seats: Box<[Seat]>,
}

/// The sources of a pool by their numbers; `None` for one that is being made.
type Sources = Vec<Option<Arc<dyn Source>>>;

struct Inner {
    driver: Box<dyn Driver>,
    options: PoolOptions,
    parts: Box<[Part]>,
    sources: RwLock<Sources>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Wakes the watch when a partition has no driver any more.
    watch: Sleeper,
    is_over: AtomicBool,
    /// Set once a worker has found that the network has ended.
    has_ended: Mutex<bool>,
    ended: Condvar,
    name: String,
}

/// The worker threads of all partitions. Dropping it ends them; items that wait are not run.
pub struct Pool(Arc<Inner>);

/// A source's way to push items to its pool.
#[derive(Clone)]
pub struct PoolHandle {
    inner: Arc<Inner>,
    source: u32,
}

impl Pool {
    /// Starts the minimum of worker threads in each of `partitions` partitions. The threads are
    /// called `NAME-PARTITION`.
    ///
    /// # Errors
    /// EINVAL for options outside their range, EAGAIN or EMFILE if a thread or its descriptor
    /// cannot be made.
    pub fn start(
        name: &str,
        driver: impl Driver,
        partitions: usize,
        options: PoolOptions,
    ) -> Result<Pool, ServiceError> {
        options.check()?;
        let partitions = partitions.clamp(1, PARTITIONS_MAX);
        let parts = (0..partitions).map(|_| Part::new(&options)).collect();
        let inner = Inner {
            driver: Box::new(driver),
            options,
            parts,
            sources: RwLock::default(),
            threads: Mutex::default(),
            watch: Sleeper::new().map_err(|errno| ServiceError::system("a descriptor for a pool", errno))?,
            is_over: AtomicBool::new(false),
            has_ended: Mutex::new(false),
            ended: Condvar::new(),
            name: name.to_string(),
        };
        let pool = Pool(Arc::new(inner));
        for part in 0..partitions {
            for _ in 0..options.threads_min {
                let number = pool.0.parts[part].queue.lock().seat();
                number.map_or(Ok(()), |number| pool.0.spawn(part, number))?;
            }
        }
        let inner = pool.0.clone();
        let watch = std::thread::Builder::new().name(format!("{name}-watch")).spawn(move || inner.watch());
        let watch = watch.map_err(|error| ServiceError::system("a thread for a pool", errno_of(&error)))?;
        pool.0.threads.lock().push(watch);
        Ok(pool)
    }

    /// Returns the number of partitions, each with its threads and queues.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.0.parts.len()
    }

    /// Adds a source. `make` gets its handle; `room` is the number of items that it may have
    /// waiting in one partition, for which memory is reserved.
    ///
    /// # Errors
    /// ENOMEM beyond [`SOURCES_MAX`], and what `make` returns.
    pub fn add<S: Source + 'static>(
        &self,
        room: usize,
        make: impl FnOnce(PoolHandle) -> Result<Arc<S>, ServiceError>,
    ) -> Result<Arc<S>, ServiceError> {
        let source = {
            let mut sources = self.0.sources.write();
            if sources.len() >= SOURCES_MAX {
                let what = format!("the pool {} has {SOURCES_MAX} sources already", self.0.name);
                return Err(ServiceError::system(what, nix::errno::Errno::ENOMEM));
            }
            sources.push(None);
            sources.len() as u32 - 1
        };
        for part in &self.0.parts {
            let mut queue = part.queue.lock();
            let (urgent, normal) = (queue.urgent.len(), queue.normal.len());
            queue.urgent.reserve(urgent + room);
            queue.normal.reserve(normal + room);
        }
        let made = make(PoolHandle { inner: self.0.clone(), source })?;
        self.0.sources.write()[source as usize] = Some(made.clone());
        Ok(made)
    }

    /// Blocks until the network has ended: its node has been shut down, or the helper is gone. For the
    /// main thread of a server.
    pub fn wait_for_end(&self) {
        let mut has_ended = self.0.has_ended.lock();
        while !*has_ended {
            self.0.ended.wait(&mut has_ended);
        }
    }

    /// Returns the counters of each partition.
    #[must_use]
    pub fn counters(&self) -> Vec<PoolCounters> {
        self.0.parts.iter().map(|part| part.queue.lock().counters()).collect()
    }

    /// Returns the CPU partition of the host in which a partition of the pool lies.
    pub(crate) fn cpt(&self, partition: usize) -> usize {
        self.0.driver.cpt(partition)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for part in &self.0.parts {
            part.queue.lock().over = true;
        }
        self.0.is_over.store(true, Ordering::Release);
        self.0.watch.wake();
        self.0.parts.iter().flat_map(|part| &part.seats).for_each(|seat| self.0.call_seat(seat));
        loop {
            let Some(thread) = self.0.threads.lock().pop() else { break };
            if thread.join().is_err() {
                tracing::error!(pool = self.0.name, "a worker thread has panicked");
            }
        }
        // The sources have handles of this pool.
        let sources = std::mem::take(&mut *self.0.sources.write());
        sources.iter().flatten().for_each(|source| source.ended());
    }
}

impl PoolHandle {
    /// Pushes an item. Neither wakes a worker nor allocates, as event handlers must not; call
    /// [`PoolHandle::wake`] afterwards.
    pub fn push(&self, partition: usize, token: u32, class: Class) {
        let part = &self.inner.parts[partition];
        let mut queue = part.queue.lock();
        queue.push(Item { source: self.source, token }, class);
        part.waiting.store(queue.len(), Ordering::Release);
    }

    /// Wakes a worker for what was pushed to a partition, if none is awake for it.
    pub fn wake(&self, partition: usize) {
        self.inner.wake(partition);
    }

    /// Requests a tick of the source at this time, or at an earlier one that it has requested.
    pub fn wake_at(&self, partition: usize, at_ns: u64) {
        let part = &self.inner.parts[partition];
        if part.tick_ns.fetch_min(at_ns, Ordering::AcqRel) > at_ns {
            // It begins its wait again, with this deadline.
            let driver = part.driver.load(Ordering::Acquire);
            part.seats.get(driver as usize).into_iter().for_each(|seat| self.inner.call_seat(seat));
        }
    }

    /// Returns the current time in nanoseconds of the driver's clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.driver.now_ns()
    }

    /// Returns the number of partitions.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.inner.parts.len()
    }
}

impl Seat {
    fn sleeper(&self) -> Result<&Arc<Sleeper>, nix::errno::Errno> {
        if let Some(sleeper) = self.sleeper.get() {
            return Ok(sleeper);
        }
        let made = Arc::new(Sleeper::new()?);
        Ok(self.sleeper.get_or_init(|| made))
    }
}

impl Part {
    fn new(options: &PoolOptions) -> Part {
        // One more thread than handlers, which drives while all handlers run.
        let seats = options.threads_max + 1;
        let queue = Queue {
            idle: Vec::with_capacity(seats as usize),
            free: (0..seats).rev().collect(),
            ..Queue::default()
        };
        Part {
            queue: Mutex::new(queue),
            waiting: AtomicUsize::new(0),
            driver: AtomicU32::new(NONE),
            full: AtomicBool::new(false),
            busy_since_ns: AtomicU64::new(0),
            tick_ns: AtomicU64::new(NEVER),
            starved: AtomicU64::new(0),
            estimates_ns: (0..SOURCES_MAX).map(|_| AtomicU64::new(0)).collect(),
            long_sources: AtomicUsize::new(0),
            seats: (0..seats)
                .map(|_| Seat { sleeper: OnceLock::new(), called: AtomicBool::new(false) })
                .collect(),
        }
    }

    /// Returns whether the driver has a reason to check the queue.
    fn has_news(&self) -> bool {
        let can_run = self.waiting.load(Ordering::Acquire) > 0 && !self.full.load(Ordering::Relaxed);
        can_run || self.starved.load(Ordering::Acquire) != 0
    }

    /// Takes the next work of this partition, if there is some and a handler may run.
    fn take(&self, queue: &mut Queue, home: usize, options: &PoolOptions, now_ns: u64) -> Option<Work> {
        if self.tick_ns.load(Ordering::Acquire) <= now_ns {
            self.tick_ns.store(NEVER, Ordering::Release);
            return Some(Work::Tick);
        }
        if queue.counters.handling >= options.threads_max {
            return None;
        }
        let item = queue.pop()?;
        self.waiting.store(queue.len(), Ordering::Release);
        self.begin(queue, options, now_ns);
        Some(Work::Run { item, home, began_ns: now_ns })
    }

    fn begin(&self, queue: &mut Queue, options: &PoolOptions, now_ns: u64) {
        queue.counters.handling += 1;
        queue.counters.items += 1;
        self.full.store(queue.counters.handling >= options.threads_max, Ordering::Relaxed);
        self.busy_since_ns.store(now_ns, Ordering::Relaxed);
    }

    fn estimate_ns(&self, source: u32) -> u64 {
        self.estimates_ns[source as usize].load(Ordering::Relaxed)
    }

    /// Moves the estimate of a source an eighth of the way to what an item took.
    fn learn(&self, source: u32, took_ns: u64) {
        let estimate = &self.estimates_ns[source as usize];
        let old_ns = estimate.load(Ordering::Relaxed);
        let new_ns = old_ns - old_ns / 8 + took_ns / 8;
        // Another worker may have learned in between. What was really replaced keeps the count exact.
        let replaced_ns = estimate.swap(new_ns, Ordering::Relaxed);
        let is_long = |estimate_ns: u64| usize::from(estimate_ns > HAND_OVER_NS);
        let change = is_long(new_ns).wrapping_sub(is_long(replaced_ns));
        if change != 0 {
            self.long_sources.fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Queue {
    /// Takes the number of another thread.
    fn seat(&mut self) -> Option<u32> {
        let number = self.free.pop()?;
        self.counters.threads += 1;
        Some(number)
    }

    /// Returns an idle worker, or a new one.
    fn another(&mut self) -> Help {
        match self.idle.pop() {
            Some(number) => Help::Call(number),
            None => self.seat().map_or(Help::No, Help::Start),
        }
    }

    fn counters(&self) -> PoolCounters {
        PoolCounters { waiting: self.len(), ..self.counters }
    }
}

/// The workers that run the next items while a worker is busy.
enum Help {
    /// No further worker is needed.
    No,
    /// An idle worker.
    Call(u32),
    /// A new thread, with this number.
    Start(u32),
    /// The workers of other partitions.
    Others,
}

impl Inner {
    fn spawn(self: &Arc<Inner>, partition: usize, number: u32) -> Result<(), ServiceError> {
        let part = &self.parts[partition];
        let inner = self.clone();
        let spawned = part.seats[number as usize].sleeper().map_err(|errno| (errno, "a descriptor"));
        let spawned = spawned.and_then(|_| {
            std::thread::Builder::new()
                .name(format!("{}-{partition}", self.name))
                .spawn(move || inner.work(partition, number))
                .map_err(|error| (errno_of(&error), "a thread"))
        });
        match spawned {
            Ok(thread) => {
                let mut threads = self.threads.lock();
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                Ok(())
            }
            Err((errno, what)) => {
                let mut queue = part.queue.lock();
                queue.free.push(number);
                queue.counters.threads -= 1;
                queue.counters.not_started += 1;
                let what = format!("{what} for a worker of the pool {} in partition {partition}", self.name);
                Err(ServiceError::system(what, errno))
            }
        }
    }

    fn work(self: &Arc<Inner>, partition: usize, number: u32) {
        self.driver.bind(partition);
        // Copied once, so that an item takes no lock and counts no reference for its source.
        let mut sources = Vec::new();
        while let Some(work) = self.next(partition, number) {
            if self.is_long(partition, &work) {
                self.perform(partition, work, false, &mut sources);
                continue;
            }
            let mut next = Some(work);
            self.driver.batch(&mut || {
                for count in 1..=BATCH_MAX {
                    let Some(work) = next.take() else { break };
                    next = self.perform(partition, work, count < BATCH_MAX, &mut sources);
                }
            });
        }
    }

    /// Runs an item, or the sources' timers. If `goes_on`, takes the next item of a batch, if one waits
    /// and none is expected to take long.
    fn perform(
        self: &Arc<Inner>,
        partition: usize,
        work: Work,
        goes_on: bool,
        sources: &mut Sources,
    ) -> Option<Work> {
        let is_item = matches!(work, Work::Run { .. });
        let now_ns = match work {
            Work::Tick => self.tick(partition),
            Work::Run { item, home, began_ns } => self.run(partition, (item, home), began_ns, sources),
        };
        let part = &self.parts[partition];
        let goes_on = goes_on && part.long_sources.load(Ordering::Relaxed) == 0;
        let mut queue = part.queue.lock();
        if is_item {
            queue.counters.handling -= 1;
            part.full.store(false, Ordering::Relaxed);
        }
        if !goes_on || queue.len() == 0 || queue.over {
            return None;
        }
        let work = part.take(&mut queue, partition, &self.options, now_ns)?;
        let help = self.help_for(part, &mut queue, &work);
        drop(queue);
        self.call(partition, help);
        Some(work)
    }

    /// Returns whether this work is expected to take so long that messages of earlier work must not
    /// wait for it.
    fn is_long(&self, partition: usize, work: &Work) -> bool {
        match work {
            Work::Tick => false,
            Work::Run { item, .. } => self.parts[partition].estimate_ns(item.source) > HAND_OVER_NS,
        }
    }

    /// Runs an item, and returns the time afterwards.
    fn run(
        &self,
        partition: usize,
        (item, home): (Item, usize),
        began_ns: u64,
        sources: &mut Sources,
    ) -> u64 {
        let index = item.source as usize;
        if sources.get(index).is_none_or(Option::is_none) {
            sources.clone_from(&self.sources.read());
        }
        let part = &self.parts[partition];
        if let Some(Some(source)) = sources.get(index)
            && catch_unwind(AssertUnwindSafe(|| source.run(home, item.token, began_ns))).is_err()
        {
            part.queue.lock().counters.panics += 1;
        }
        let now_ns = self.driver.now_ns();
        part.learn(item.source, now_ns.saturating_sub(began_ns));
        now_ns
    }

    /// Runs what is due in all sources, and returns the time before.
    fn tick(&self, partition: usize) -> u64 {
        let sources = self.sources.read().clone();
        let now_ns = self.driver.now_ns();
        let next_ns = sources.iter().flatten().filter_map(|source| source.tick(partition, now_ns)).min();
        if let Some(next_ns) = next_ns {
            self.parts[partition].tick_ns.fetch_min(next_ns, Ordering::AcqRel);
        }
        now_ns
    }

    /// Returns a worker's next work; `None` if the worker ends.
    fn next(self: &Arc<Inner>, partition: usize, number: u32) -> Option<Work> {
        let part = &self.parts[partition];
        loop {
            let now_ns = self.driver.now_ns();
            let mut queue = part.queue.lock();
            if queue.over {
                return None;
            }
            if let Some(work) = part.take(&mut queue, partition, &self.options, now_ns) {
                let help = self.help_for(part, &mut queue, &work);
                drop(queue);
                self.call(partition, help);
                return Some(work);
            }
            if part.driver.load(Ordering::Relaxed) != NONE {
                queue.idle.push(number);
                drop(queue);
                if !self.sleep(part, number) {
                    return None;
                }
                continue;
            }
            part.driver.store(number, Ordering::Release);
            drop(queue);
            if let Some((work, help)) = self.drive(partition, number) {
                self.call(partition, help);
                return Some(work);
            }
        }
    }

    /// Drives until there is work, and takes it. `None` if there is none, and the worker must look
    /// again.
    fn drive(&self, partition: usize, number: u32) -> Option<(Work, Help)> {
        let part = &self.parts[partition];
        let seat = &part.seats[number as usize];
        let sleeper = seat.sleeper().ok()?;
        let tick_ns = part.tick_ns.load(Ordering::Acquire);
        let mut found = None;
        let mut ready = || {
            if part.has_news() {
                found = self.take_news(partition);
            }
            found.is_some() || seat.called.load(Ordering::Acquire)
        };
        let deadline_ns = Some(tick_ns).filter(|&tick_ns| tick_ns != NEVER);
        let has_ended = self.driver.has_ended();
        if has_ended {
            *self.has_ended.lock() = true;
            self.ended.notify_all();
        }
        if has_ended || !self.options.drives {
            // After the end nothing more arrives; what is pushed by other threads, and the timers, still
            // run.
            let left = |tick_ns: u64| Duration::from_nanos(tick_ns.saturating_sub(self.driver.now_ns()));
            let deadline = deadline_ns.and_then(|tick_ns| Instant::now().checked_add(left(tick_ns)));
            let _ = sleeper.sleep(deadline, ready);
        } else {
            self.driver.wait(sleeper, deadline_ns, &mut ready);
        }
        seat.called.store(false, Ordering::Relaxed);
        if found.is_none() {
            part.driver.store(NONE, Ordering::Release);
        }
        self.watch.wake();
        found
    }

    /// Takes work of the own partition, then of one that is starved. The driver has its place no
    /// more if it gets some.
    fn take_news(&self, partition: usize) -> Option<(Work, Help)> {
        let part = &self.parts[partition];
        let now_ns = self.driver.now_ns();
        let mut queue = part.queue.lock();
        if let Some(work) = part.take(&mut queue, partition, &self.options, now_ns) {
            part.driver.store(NONE, Ordering::Release);
            let help = self.help_for(part, &mut queue, &work);
            return Some((work, help));
        }
        if queue.counters.handling >= self.options.threads_max {
            part.starved.store(0, Ordering::Relaxed);
            return None;
        }
        drop(queue);
        let (item, home) = self.take_starved(part)?;
        let mut queue = part.queue.lock();
        part.begin(&mut queue, &self.options, now_ns);
        part.driver.store(NONE, Ordering::Release);
        let work = Work::Run { item, home, began_ns: now_ns };
        let help = self.help_for(part, &mut queue, &work);
        Some((work, help))
    }

    /// Takes an item of a partition that has asked for help.
    fn take_starved(&self, part: &Part) -> Option<(Item, usize)> {
        let mut mask = part.starved.swap(0, Ordering::AcqRel);
        while mask != 0 {
            let home = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let other = &self.parts[home];
            let mut queue = other.queue.lock();
            if !other.full.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(item) = queue.pop() {
                other.waiting.store(queue.len(), Ordering::Release);
                queue.counters.crossed += 1;
                // More may wait there, and in the other partitions of the mask.
                let more = if queue.len() > 0 { 1 << home } else { 0 };
                part.starved.fetch_or(mask | more, Ordering::AcqRel);
                return Some((item, home));
            }
        }
        None
    }

    /// Returns which other workers must be awake while a worker runs this work.
    fn help_for(&self, part: &Part, queue: &mut Queue, work: &Work) -> Help {
        let Work::Run { item, .. } = work else { return Help::No };
        let expected_ns = part.estimate_ns(item.source);
        let backlog_ns = expected_ns.saturating_mul(queue.len() as u64);
        if expected_ns.max(backlog_ns) <= HAND_OVER_NS {
            return Help::No;
        }
        if part.driver.load(Ordering::Relaxed) != NONE {
            return if part.full.load(Ordering::Relaxed) && queue.len() > 0 {
                Help::Others
            } else {
                Help::No
            };
        }
        queue.another()
    }

    fn call(self: &Arc<Inner>, partition: usize, help: Help) {
        match help {
            Help::No => {}
            Help::Call(number) => self.call_seat(&self.parts[partition].seats[number as usize]),
            Help::Others => self.ask_others(partition),
            Help::Start(number) => match self.spawn(partition, number) {
                Ok(()) => self.parts[partition].queue.lock().counters.grown += 1,
                Err(error) => tracing::warn!(%error, "a service has fewer threads than it needs"),
            },
        }
    }

    /// Asks one driver of another partition that waits, and may run a handler, to take an item of this
    /// one.
    fn ask_others(&self, partition: usize) {
        let count = self.parts.len();
        for step in 1..count {
            let other = &self.parts[(partition + step) % count];
            let is_idle = other.waiting.load(Ordering::Relaxed) == 0 && !other.full.load(Ordering::Relaxed);
            if is_idle && other.driver.load(Ordering::Relaxed) != NONE {
                other.starved.fetch_or(1 << partition, Ordering::AcqRel);
                if self.wake_driver(other) {
                    return;
                }
            }
        }
    }

    fn wake(&self, partition: usize) {
        let part = &self.parts[partition];
        if part.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        if part.full.load(Ordering::Relaxed) {
            return self.ask_others(partition);
        }
        self.wake_driver(part);
    }

    fn call_seat(&self, seat: &Seat) {
        seat.called.store(true, Ordering::Release);
        seat.sleeper.get().into_iter().for_each(|sleeper| self.driver.wake(sleeper));
    }

    /// Wakes the driver of a partition. Returns whether there is one.
    fn wake_driver(&self, part: &Part) -> bool {
        let driver = part.driver.load(Ordering::Acquire);
        let sleeper = part.seats.get(driver as usize).and_then(|seat| seat.sleeper.get());
        sleeper.inspect(|sleeper| self.driver.wake(sleeper)).is_some()
    }

    /// Keeps watch until the pool ends.
    fn watch(self: &Arc<Inner>) {
        let is_over = || self.is_over.load(Ordering::Acquire);
        let mut seen_ns: Vec<u64> = vec![0; self.parts.len()];
        while !is_over() {
            let has_driver = |part: &Part| part.driver.load(Ordering::Acquire) != NONE;
            if self.parts.iter().all(has_driver) {
                let _ = self.watch.sleep(None, || is_over() || !self.parts.iter().all(has_driver));
            }
            // This sleep is not announced, so a driver that leaves its wait does not wake the watch.
            std::thread::sleep(Duration::from_nanos(WATCH_NS));
            for (partition, part) in self.parts.iter().enumerate() {
                let busy_ns = part.busy_since_ns.load(Ordering::Relaxed);
                if !has_driver(part) && busy_ns == std::mem::replace(&mut seen_ns[partition], busy_ns) {
                    let help = part.queue.lock().another();
                    self.call(partition, help);
                }
            }
        }
    }

    /// Sleeps without driving until another worker calls. Returns `false` if the thread ends,
    /// because it was not needed for a while.
    fn sleep(&self, part: &Part, number: u32) -> bool {
        let seat = &part.seats[number as usize];
        let Ok(sleeper) = seat.sleeper() else { return true };
        let is_called = || seat.called.load(Ordering::Acquire);
        let deadline = Instant::now() + self.options.idle;
        while !is_called() && Instant::now() < deadline {
            let _ = sleeper.sleep(Some(deadline), is_called);
        }
        seat.called.store(false, Ordering::Relaxed);
        let mut queue = part.queue.lock();
        let Some(index) = queue.idle.iter().position(|&idle| idle == number) else { return true };
        queue.idle.swap_remove(index);
        if queue.over || queue.counters.threads <= self.options.threads_min {
            return true;
        }
        queue.counters.threads -= 1;
        queue.counters.shrunk += 1;
        queue.free.push(number);
        false
    }
}

fn errno_of(error: &std::io::Error) -> nix::errno::Errno {
    nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
pub(crate) mod tests;
