//! Tests of the pool: its workers wait on a driver without a network.

use std::sync::Condvar;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

use nlx_testkit::until;

use super::*;
use crate::THREADS_MAX;

mod schedules;

/// Sleeps in place of driving a network.
pub(crate) struct Still(pub(crate) Instant);

impl Driver for Still {
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wait(
        &self,
        sleeper: &Arc<Sleeper>,
        deadline_ns: Option<u64>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let deadline = deadline_ns.map(|deadline_ns| self.0 + Duration::from_nanos(deadline_ns));
        let mut found = false;
        let mut look = || {
            found = found || ready();
            found
        };
        let _ = sleeper.sleep(deadline, &mut look);
        found
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn bind(&self, _: usize) {}
}

/// Records the items in the order in which they ran, and holds those from 1000 on until released.
#[derive(Default)]
struct Recorder {
    ran: StdMutex<Vec<(usize, u32, String)>>,
    held: StdMutex<bool>,
    released: Condvar,
    inside: AtomicUsize,
    ticks: AtomicUsize,
}

impl Recorder {
    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }

    fn count(&self) -> usize {
        self.ran.lock().unwrap().len()
    }
}

impl Source for Recorder {
    fn run(&self, partition: usize, token: u32, _: u64) {
        self.inside.fetch_add(1, Ordering::AcqRel);
        if token >= 1000 {
            let held = self.held.lock().unwrap();
            drop(self.released.wait_while(held, |held| *held).unwrap());
        }
        assert!(token != 999, "a handler that panics");
        let thread = std::thread::current().name().unwrap_or_default().to_string();
        self.ran.lock().unwrap().push((partition, token, thread));
        self.inside.fetch_sub(1, Ordering::AcqRel);
    }

    fn tick(&self, _: usize, _: u64) -> Option<u64> {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        None
    }
}

fn pool(partitions: usize, options: PoolOptions) -> (Pool, PoolHandle, Arc<Recorder>) {
    let pool = Pool::start("test", Still(Instant::now()), partitions, options).unwrap();
    let mut own = None;
    let recorder = pool
        .add(64, |handle| {
            own = Some(handle);
            Ok(Arc::new(Recorder::default()))
        })
        .unwrap();
    (pool, own.unwrap(), recorder)
}

fn push(handle: &PoolHandle, partition: usize, token: u32, class: Class) {
    handle.push(partition, token, class);
    handle.wake(partition);
}

fn options(threads_min: u32, threads_max: u32) -> PoolOptions {
    PoolOptions { threads_min, threads_max, idle: Duration::from_millis(20), drives: true }
}

#[test]
fn options_outside_their_range_are_refused() {
    for (min, max, name) in
        [(0, 1, "threads_min"), (3, 2, "threads_min"), (1, THREADS_MAX + 1, "threads_max")]
    {
        let refused = Pool::start("test", Still(Instant::now()), 1, options(min, max)).err().unwrap();
        assert!(matches!(refused, ServiceError::Option { name: named, .. } if named == name), "{refused}");
    }
}

/// First come, first served within a class; urgent items first, but not for ever.
// Covers: S-313
#[test]
fn urgent_items_go_first_and_do_not_starve_others() {
    let mut queue = Queue::default();
    for token in 0..20 {
        queue.push(Item { source: 0, token }, Class::Urgent);
        queue.push(Item { source: 0, token: 100 + token }, Class::Normal);
    }
    let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|item| item.token).collect();
    // A plain model: eight of one class, one of the other, until one class is empty.
    let (mut urgent, mut normal) = (0..20, 100..120);
    let mut expected: Vec<u32> = Vec::new();
    while expected.len() < 40 {
        expected.extend(urgent.by_ref().take(URGENT_IN_A_ROW as usize));
        expected.extend(normal.by_ref().take(if urgent.is_empty() { 20 } else { 1 }));
    }
    assert_eq!(order, expected);
}

/// With one worker, items run in the order in which they were pushed.
#[test]
fn one_worker_keeps_the_order() {
    let (_pool, handle, recorder) = pool(1, options(1, 1));
    for token in 0..500 {
        push(&handle, 0, token, Class::Normal);
    }
    until("all items ran", || recorder.count() == 500);
    let order: Vec<u32> = recorder.ran.lock().unwrap().iter().map(|(_, token, _)| *token).collect();
    assert_eq!(order, (0..500).collect::<Vec<_>>());
}

/// While a handler blocks, further threads run what arrives, up to the limit; they end when they
/// are not needed.
// Covers: S-313, S-314
#[test]
fn threads_grow_while_handlers_block_and_end_when_idle() {
    let (pool, handle, recorder) = pool(1, options(1, 3));
    recorder.hold(true);
    // The pool learns from the first ones that items of this source take long.
    for token in 1000..1003 {
        push(&handle, 0, token, Class::Normal);
        until("it blocks", || recorder.inside.load(Ordering::Acquire) == 1);
        recorder.hold(false);
        until("it ran", || recorder.count() as u32 == token - 999);
        recorder.hold(true);
    }
    for token in 1003..1010 {
        push(&handle, 0, token, Class::Normal);
    }
    until("three handlers block", || recorder.inside.load(Ordering::Acquire) == 3);
    let counters = pool.counters()[0];
    assert_eq!((counters.handling, counters.waiting), (3, 4));
    recorder.hold(false);
    until("all ran", || recorder.count() == 10);
    until("the others have ended", || pool.counters()[0].threads == 1);
    let counters = pool.counters()[0];
    assert_eq!((counters.grown, counters.handling, counters.items), (counters.shrunk, 0, 10));
    assert!(counters.grown >= 2, "{counters:?}");
}

/// A partition whose handlers all block gives its items to another one; otherwise none crosses.
// Covers: S-313
#[test]
fn items_cross_only_when_no_worker_is_left() {
    let (pool, handle, recorder) = pool(2, options(1, 1));
    for token in 0..100 {
        push(&handle, 0, token, Class::Normal);
        push(&handle, 1, token, Class::Normal);
    }
    until("all ran at home", || recorder.count() == 200);
    assert_eq!(pool.counters().iter().map(|counters| counters.crossed).sum::<u64>(), 0);
    let at_home = |(partition, _, thread): &(usize, u32, String)| *thread == format!("test-{partition}");
    assert!(recorder.ran.lock().unwrap().iter().all(at_home));
    recorder.hold(true);
    push(&handle, 0, 1000, Class::Normal);
    until("the only handler blocks", || recorder.inside.load(Ordering::Acquire) == 1);
    for token in 0..50 {
        push(&handle, 0, token, Class::Normal);
    }
    until("the other partition ran them", || recorder.count() == 250);
    assert_eq!((pool.counters()[0].crossed, pool.counters()[1].crossed), (50, 0));
    assert!(recorder.ran.lock().unwrap()[200..].iter().all(|ran| ran.0 == 0 && ran.2 == "test-1"));
    recorder.hold(false);
    until("the held one ran", || recorder.count() == 251);
}

/// A handler that panics costs its own item.
#[test]
fn a_panic_costs_one_item() {
    let (pool, handle, recorder) = pool(1, options(1, 2));
    for token in [999, 1, 999, 2] {
        push(&handle, 0, token, Class::Normal);
    }
    until("the others ran", || recorder.count() == 2);
    until("it is counted", || pool.counters()[0].panics == 2);
    assert_eq!(pool.counters()[0].handling, 0);
}

/// A tick comes although nothing is pushed, also when it is requested while the driver sleeps.
#[test]
fn ticks_come_at_their_time() {
    let (_pool, handle, recorder) = pool(1, options(1, 2));
    let hour_ns = 3_600_000_000_000;
    handle.wake_at(0, handle.now_ns() + hour_ns);
    handle.wake_at(0, handle.now_ns() + 1_000_000);
    until("the earlier one is due", || recorder.ticks.load(Ordering::Acquire) == 1);
    assert_eq!(recorder.count(), 0);
}

/// The end of a pool does not wait for work: what waits is not run.
#[test]
fn it_ends_with_items_waiting() {
    let (pool, handle, recorder) = pool(2, options(2, 4));
    for token in 0..10 {
        handle.push(0, token, Class::Normal);
    }
    drop(pool);
    assert!(recorder.count() <= 10);
    push(&handle, 1, 5, Class::Normal);
}
