//! The scheduler threads' watch: with any of them as keeper, no shard stays neglected, and no
//! wake-up is lost.
//!
//! The program computes, so its messages must arrive although it does not drive. Time passes when
//! all threads sleep, and once at any other moment.

use std::time::Duration;

use super::*;
use crate::drive::Watch;
use nlx_sync::broken;

use crate::drive::rules::{LEAVE, RELEASE, REST, ROUSE};

const GRACE_NS: u64 = 10;

/// The model's time is long enough for all messages to arrive: a scheduler thread takes a shard at
/// most two grace periods after the shard was left.
const _: () = assert!(LATEST_NS >= 8 * GRACE_NS);

/// The time by which the keeper sleeps without a timer, if all shards have been attended to from
/// the beginning.
const QUIET_NS: u64 = 4 * GRACE_NS + 1;

struct World {
    net: Arc<Net>,
    watch: Arc<Watch>,
    sched_threads: Vec<Running>,
}

impl World {
    /// Creates scheduler threads for two shards, and a program.
    fn new() -> World {
        World::after(|_| {})
    }

    /// Creates a world like [`World::new`], and runs `prepare` before the scheduler threads start.
    fn after(prepare: impl FnOnce(&Net)) -> World {
        let net = Net::new(2);
        net.system.set_time(GRACE_NS);
        // No shard has been neglected yet.
        (0..2).for_each(|shard| net.tokens.release(shard, GRACE_NS));
        prepare(&net);
        let watch = Arc::new(Watch::new(Duration::from_nanos(GRACE_NS)));
        let sleepers = [0, 1].map(|shard| net.sleepers[MOST + shard].clone());
        (0..2).for_each(|shard| net.tokens.set_sched_thread(shard, sleepers[shard].clone()));
        let sched_threads = sleepers.into_iter().enumerate().map(|(shard, sleeper)| {
            let watch = watch.clone();
            start(&net, Part::SchedThread, move |net| {
                watch.serve_with(net, shard, &sleeper, net.sleep(MOST + shard))
            })
        });
        World { sched_threads: sched_threads.collect(), net, watch }
    }

    /// Lets a grace period pass, at any moment of the other threads.
    fn pass(&self) {
        // Set under the lock, so that no thread is between its last reading of the clock and its
        // sleep.
        let _kernel = self.net.system.kernel.lock().unwrap();
        self.net.system.set_time(self.net.now_ns() + GRACE_NS);
    }

    /// Sleeps, without driving, until a message has arrived or the model has stalled.
    fn expect(&self, number: usize) {
        self.net.expect(number, number);
    }

    fn end(self) {
        self.watch.end(&*self.net);
        end(&self.net, [], self.sched_threads);
    }
}

fn two_neglected_shards() {
    let world = World::new();
    world.net.arrive(0, 0);
    world.net.arrive(1, 1);
    world.pass();
    world.expect(0);
    world.expect(1);
    world.end();
}

/// The first shard needs its scheduler thread at once, the second one only later.
fn one_after_the_other() {
    let world = World::new();
    world.net.quiet.store(0b10, Relaxed);
    world.net.arrive(0, 0);
    world.pass();
    world.expect(0);
    world.net.quiet.store(0, Relaxed);
    world.net.arrive(1, 1);
    world.expect(1);
    world.end();
}

/// Both scheduler threads drive, or are about to; a waiter calls them off and later leaves the
/// shards.
fn a_waiter_that_comes_and_goes() {
    let world = World::new();
    let waiter = waiter(&world.net, 0);
    world.net.arrive(0, 0);
    waiter.join().unwrap();
    world.net.arrive(1, 1);
    world.expect(1);
    world.end();
}

/// The program has all shards exclusively, so that no timer runs; then it releases them.
fn a_holder_that_goes() {
    let world = World::after(|net| (0..2).for_each(|shard| assert!(net.tokens.claim(shard))));
    world.net.system.sleep(ONLOOKER_SLOT, WakeOn { until_ns: Some(QUIET_NS), ..WakeOn::default() });
    world.net.arrive(0, 0);
    (0..2).for_each(|shard| world.net.tokens.release(shard, world.net.now_ns()));
    world.expect(0);
    world.end();
}

/// A message arrives on each shard while all threads sleep, and the handler of the first blocks
/// until the second has come.
fn with_a_handler_that_blocks() -> World {
    World::after(|net| {
        net.blocks.store(true, Relaxed);
        net.system.kernel.lock().unwrap().due = vec![(QUIET_NS, 0, 0), (QUIET_NS, 1, 1)];
    })
}

/// The program waits for the first message, and then for the second.
fn a_handler_that_blocks() {
    let world = with_a_handler_that_blocks();
    world.net.wait(0);
    world.expect(1);
    world.end();
}

/// Another thread waits for the second message, and has no shard.
fn a_handler_that_blocks_beside_a_waiter() {
    let world = with_a_handler_that_blocks();
    let other = waiter(&world.net, 1);
    world.net.wait(0);
    world.net.expect(1, ONLOOKER_SLOT);
    other.join().unwrap();
    world.end();
}

#[test]
fn two_neglected_shards_are_driven() {
    check(2, two_neglected_shards);
}

// Covers: S-203
#[test]
fn who_drives_leaves_the_watch_to_the_other() {
    check(2, one_after_the_other);
}

#[test]
fn a_shard_that_a_waiter_leaves_is_driven() {
    check(1, a_waiter_that_comes_and_goes);
}

#[test]
fn a_shard_that_one_driver_had_alone_is_driven() {
    check(1, a_holder_that_goes);
}

// Covers: S-203
#[test]
fn a_shard_is_driven_while_its_drivers_handler_blocks() {
    check(1, a_handler_that_blocks);
}

// Covers: S-203
#[test]
fn a_waiter_drives_while_anothers_handler_blocks() {
    check(0, a_handler_that_blocks_beside_a_waiter);
}

/// If a waiter that sleeps on all shards wakes up without waking the keeper, the keeper sleeps for
/// ever.
#[test]
#[should_panic(expected = "all threads sleep")]
fn roused_silently_leaves_no_watch() {
    broken(ROUSE, || check(1, a_handler_that_blocks));
}

/// If exclusively held shards are released without waking the keeper, the keeper sleeps for ever.
#[test]
#[should_panic(expected = "all threads sleep")]
fn released_silently_leaves_no_watch() {
    broken(RELEASE, || check(1, a_holder_that_goes));
}

/// A scheduler thread that leaves the watch may not see the one that goes to rest, and then no
/// thread keeps watch: loom finds it.
#[test]
#[should_panic(expected = "all threads sleep")]
fn announced_too_late_leaves_no_watch() {
    broken(REST, || check(2, one_after_the_other));
}

/// If the thread that leaves the watch wakes no other, no thread keeps watch either.
#[test]
#[should_panic(expected = "all threads sleep")]
fn left_silently_leaves_no_watch() {
    broken(LEAVE, || check(2, one_after_the_other));
}
