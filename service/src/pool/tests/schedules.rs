//! Random schedules of handlers that block until they are released, in several partitions.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Handlers that run until their items are released.
#[derive(Default)]
struct Held {
    /// The items that run, with their partition and that of their worker.
    inside: StdMutex<BTreeMap<u32, (usize, usize)>>,
    released: StdMutex<BTreeSet<u32>>,
    changed: Condvar,
}

/// Releases all items when it is dropped, also if the test fails: a pool waits for its handlers.
struct ReleasesAll(Arc<Held>);

impl Drop for ReleasesAll {
    fn drop(&mut self) {
        self.0.release(ALL);
    }
}

/// Released in place of all items.
const ALL: u32 = u32::MAX;

impl Held {
    fn release(&self, token: u32) {
        self.released.lock().unwrap().insert(token);
        self.changed.notify_all();
    }

    /// Returns the partition of each item that runs, and that of its worker.
    fn inside(&self) -> BTreeMap<u32, (usize, usize)> {
        self.inside.lock().unwrap().clone()
    }
}

impl Source for Held {
    fn run(&self, home: usize, token: u32, _: u64) {
        let thread = std::thread::current();
        let on = thread.name().and_then(|name| name.strip_prefix("test-")?.parse().ok()).unwrap();
        self.inside.lock().unwrap().insert(token, (home, on));
        let released = self.released.lock().unwrap();
        drop(
            self.changed
                .wait_while(released, |released| !released.contains(&token) && !released.contains(&ALL))
                .unwrap(),
        );
        self.inside.lock().unwrap().remove(&token);
    }
}

#[derive(Debug, Clone)]
enum Op {
    Push(usize),
    /// Ends one of the handlers that run.
    Release(prop::sample::Index),
}

fn op(partitions: usize) -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..partitions).prop_map(Op::Push),
        2 => any::<prop::sample::Index>().prop_map(Op::Release),
    ]
}

fn ops() -> impl Strategy<Value = (usize, u32, Vec<Op>)> {
    (2..=3_usize, 1..=2_u32).prop_flat_map(|(partitions, max)| {
        (Just(partitions), Just(max), prop::collection::vec(op(partitions), 1..40))
    })
}

/// Returns the number of items that run on the workers of a partition.
fn running_on(inside: &BTreeMap<u32, (usize, usize)>, partition: usize) -> usize {
    inside.values().filter(|(_, on)| *on == partition).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No item crosses while its partition has a worker for it, and none waits then. An item that is
    /// pushed to a partition without a worker makes one cross, if another partition has a worker.
    // Covers: S-313
    #[test]
    fn items_cross_if_and_only_if_their_partition_has_no_worker((partitions, max, ops) in ops()) {
        let pool = Pool::start("test", Still(Instant::now()), partitions, options(1, max)).unwrap();
        let mut own = None;
        let held = pool.add(64, |handle| {
            own = Some(handle);
            Ok(Arc::new(Held::default()))
        }).unwrap();
        let handle = own.unwrap();
        let _released = ReleasesAll(held.clone());
        let max = max as usize;
        let mut left = BTreeSet::new();
        // Settled: no item waits that a thread could run, and each partition has a driver, which other
        // partitions can ask.
        let settle = |left: &BTreeSet<u32>| until("the pool has settled", || {
            let (counters, inside) = (pool.counters(), held.inside());
            let waiting: usize = counters.iter().map(|counters| counters.waiting).sum();
            let has_driver = |part: &Part| part.driver.load(Ordering::Acquire) != NONE;
            let is_full = |partition: usize| running_on(&inside, partition) == max;
            let settled = |(partition, counters): (usize, &PoolCounters)| {
                counters.handling as usize == running_on(&inside, partition)
                    && (counters.waiting == 0 || is_full(partition))
            };
            left.iter().filter(|token| inside.contains_key(token)).count() == inside.len()
                && inside.len() + waiting == left.len()
                && counters.iter().enumerate().all(settled)
                && pool.0.parts.iter().all(has_driver)
        });
        settle(&left);
        for (token, op) in (0..).zip(&ops) {
            let before = held.inside();
            let crossed = |partition: usize| pool.counters()[partition].crossed;
            let was_crossed: Vec<u64> = (0..partitions).map(crossed).collect();
            let was_full: Vec<bool> = (0..partitions).map(|of| running_on(&before, of) == max).collect();
            match op {
                Op::Push(partition) => {
                    left.insert(token);
                    push(&handle, *partition, token, Class::Normal);
                    let can_cross = (0..partitions).any(|of| of != *partition && !was_full[of]);
                    if was_full[*partition] && can_cross {
                        until("an item crosses", || crossed(*partition) > was_crossed[*partition]);
                    }
                    settle(&left);
                    match held.inside().get(&token) {
                        Some((home, on)) if !was_full[*partition] => prop_assert_eq!(home, on),
                        Some((home, on)) => prop_assert!(home != on && !was_full[*on]),
                        None => prop_assert!(was_full[*partition]),
                    }
                }
                Op::Release(which) if !before.is_empty() => {
                    let tokens: Vec<u32> = before.keys().copied().collect();
                    let token = tokens[which.index(tokens.len())];
                    left.remove(&token);
                    held.release(token);
                    settle(&left);
                }
                Op::Release(_) => {}
            }
            for partition in 0..partitions {
                let more = crossed(partition) - was_crossed[partition];
                prop_assert!(more == 0 || was_full[partition], "{} items crossed from {}", more, partition);
            }
        }
        left.iter().for_each(|token| held.release(*token));
        until("all items ran", || {
            pool.counters().iter().all(|counters| counters.waiting == 0 && counters.handling == 0)
        });
        let pushed = ops.iter().filter(|op| matches!(op, Op::Push(_))).count() as u64;
        prop_assert_eq!(pool.counters().iter().map(|counters| counters.items).sum::<u64>(), pushed);
    }

    /// Slow handlers take a worker each and delay no others: what is pushed behind them runs while
    /// they still run, as long as fewer of them run than the partition may have handlers.
    // Covers: S-313
    #[test]
    fn slow_handlers_delay_no_others(slow in 1..=3_u32, quick in 1..=40_u32, between in any::<bool>()) {
        let (pool, handle, recorder) = pool(1, options(1, 4));
        recorder.hold(true);
        for token in 0..slow {
            push(&handle, 0, 1000 + token, Class::Normal);
            if between {
                push(&handle, 0, token, Class::Normal);
            }
        }
        (0..quick).for_each(|token| push(&handle, 0, 100 + token, Class::Normal));
        let quick = (quick + if between { slow } else { 0 }) as usize;
        until("the others ran", || recorder.count() == quick);
        until("the slow ones run", || recorder.inside.load(Ordering::Acquire) == slow as usize);
        until("each has a worker", || pool.counters()[0].handling == slow);
        // One thread drives; each slow handler has one.
        let counters = pool.counters()[0];
        prop_assert!(counters.threads > slow && counters.grown >= u64::from(slow), "{:?}", counters);
        recorder.hold(false);
        until("all ran", || recorder.count() == quick + slow as usize);
    }
}
