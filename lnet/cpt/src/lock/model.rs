//! Every interleaving of private and exclusive holders: conflicting holders exclude each other,
//! each sees the writes of those before, and every thread gets its lock (loom reports a thread that
//! is never woken as a deadlock).
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lnet-cpt --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{ExclusiveGuard, PercptLock, PrivateGuard};

/// A number whose accesses loom checks against each other.
struct CheckedNumber(UnsafeCell<u32>);

// SAFETY: test only; loom reports each pair of accesses that are not ordered.
unsafe impl Sync for CheckedNumber {}

impl CheckedNumber {
    fn new() -> CheckedNumber {
        CheckedNumber(UnsafeCell::new(0))
    }

    fn read(&self) -> u32 {
        // SAFETY: a read that loom checks against all writes.
        self.0.with(|number| unsafe { number.read() })
    }

    fn add(&self) {
        // SAFETY: an access that loom checks against all others.
        self.0.with_mut(|number| unsafe { number.write(number.read() + 1) });
    }
}

type Lock = PercptLock<CheckedNumber, CheckedNumber>;

fn lock(partitions: usize) -> Arc<Lock> {
    Arc::new(PercptLock::with_partitions(partitions, |_| CheckedNumber::new(), CheckedNumber::new()))
}

/// Changes the partition's data, and reads the shared data.
fn private(guard: PrivateGuard<'_, CheckedNumber, CheckedNumber>) {
    guard.add();
    guard.shared().read();
}

/// Changes the data of all partitions and the shared data.
fn exclusive(mut guard: ExclusiveGuard<'_, CheckedNumber, CheckedNumber>) {
    let (parts, shared) = guard.split();
    shared.add();
    parts.for_each(|part| part.add());
}

fn run(lock: &Arc<Lock>, workers: &[fn(&Lock)]) {
    let threads: Vec<_> = workers
        .iter()
        .map(|&work| {
            let lock = lock.clone();
            thread::spawn(move || work(&lock))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn totals(lock: &Lock) -> (Vec<u32>, u32) {
    let mut all = lock.lock_all();
    (all.parts_mut().map(|part| part.read()).collect(), all.shared().read())
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

// Covers: S-304
#[test]
fn loom_private_locks_of_one_partition_exclude() {
    model(|| {
        let lock = lock(2);
        run(&lock, &[|lock| private(lock.lock(1)), |lock| private(lock.lock(1))]);
        assert_eq!(totals(&lock), (vec![0, 2], 0));
    });
}

// Covers: S-304
#[test]
fn loom_exclusive_and_private_exclude() {
    model(|| {
        let lock = lock(2);
        run(&lock, &[|l| private(l.lock(0)), |l| private(l.lock(1)), |l| exclusive(l.lock_all())]);
        assert_eq!(totals(&lock), (vec![2, 2], 1));
    });
}

// Covers: S-304
#[test]
fn loom_two_exclusives_exclude_and_both_get_in() {
    model(|| {
        let lock = lock(2);
        run(&lock, &[|l| exclusive(l.lock_all()), |l| exclusive(l.lock_all()), |l| private(l.lock(1))]);
        assert_eq!(totals(&lock), (vec![2, 3], 2));
    });
}

/// Model with one partition.
// Covers: S-304
#[test]
fn loom_one_partition_is_a_plain_lock() {
    model(|| {
        let lock = lock(1);
        run(&lock, &[|l| private(l.lock(0)), |l| exclusive(l.lock_all())]);
        assert_eq!(totals(&lock), (vec![2], 1));
    });
}

/// The model detects an exclusive holder that leaves out the last private lock.
// Covers: S-304
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_notices_an_exclusive_that_leaves_one_lock_out() {
    model(|| {
        let lock = lock(2);
        let weak: fn(&Lock) = |lock| {
            let mut guard = lock.close();
            guard.take(1);
            exclusive(guard);
        };
        run(&lock, &[|lock| private(lock.lock(1)), weak]);
    });
}
