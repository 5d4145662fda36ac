//! A waiter with much work gives a shard away, to another waiter or to the shard's scheduler
//! thread. Polls take time in these models, and no timer fires: a model only ends if a shard is
//! given away.

use std::time::Duration;

use nlx_sync::broken;

use super::*;
use crate::drive::Watch;
use crate::drive::rules::{CALL, CLAIM_GIVEN, DROP, GIVE, SHARE, WAKE};
use crate::drive::token::{Holder, Mark};

/// The time by which the first waiter sleeps on both shards; then the second waiter starts.
const FIRST_NS: u64 = 10;
/// The time by which the second waiter also sleeps, because it has no shard; then messages arrive.
const SECOND_NS: u64 = 20;

/// The shard that the waiters keep, because their events came from it.
const KEPT: usize = 1;
/// The shard that is given away.
const GIVEN: usize = 0;

/// Starts two waiters that sleep, the first one on both shards. When six messages arrive at once,
/// three on each shard, the first waiter gives the shard `GIVEN` away. `given` and `kept` are the
/// numbers of the first message on each shard; the other messages are for no waiter (`FOR_NONE`).
fn loaded([given, kept]: [usize; 2]) -> (Arc<Net>, [Running; 2]) {
    let net = Net::new(2);
    net.busy_ns.store(BUSY_NS, Relaxed);
    net.sleepers[0].set_memo(1 << KEPT);
    // The waiter polls once after it has woken up, and once more before it gives a shard away.
    let due = [
        (GIVEN, given),
        (KEPT, kept),
        (GIVEN, FOR_NONE),
        (KEPT, FOR_NONE),
        (GIVEN, FOR_NONE),
        (KEPT, FOR_NONE),
    ];
    let due = due.map(|(shard, number)| (SECOND_NS, shard, number));
    net.system.kernel.lock().unwrap().due = due.into();
    let first = waiter(&net, 0);
    net.system.sleep(ONLOOKER_SLOT, WakeOn { until_ns: Some(FIRST_NS), ..WakeOn::default() });
    let second = waiter(&net, 1);
    (net, [first, second])
}

/// The handler of the first waiter's message blocks until the other waiter has received its message
/// from the shard given to it.
fn a_shard_for_a_waiter() {
    let (net, waiters) = loaded([1, 0]);
    net.blocks.store(true, Relaxed);
    end(&net, waiters, []);
}

/// Another thread delivers the second waiter's message: that waiter leaves at the moment when it is
/// given the shard on which the first one's message arrives.
fn a_shard_for_a_waiter_that_leaves() {
    let (net, waiters) = loaded([0, FOR_NONE]);
    net.system.sleep(ONLOOKER_SLOT, WakeOn { until_ns: Some(SECOND_NS), ..WakeOn::default() });
    net.got[1].store(true, Ordering::Release);
    net.sleepers[1].wake();
    end(&net, waiters, []);
}

/// Starts a scheduler thread for each shard, with a start time so late that no timer fires.
fn sched_threads(net: &Arc<Net>, shards: usize) -> (Arc<Watch>, Vec<Running>) {
    net.system.set_time(LATEST_NS);
    net.busy_ns.store(BUSY_NS, Relaxed);
    let watch = Arc::new(Watch::new(Duration::from_nanos(LATEST_NS)));
    let sleepers: Vec<_> = (0..shards).map(|shard| net.sleepers[MOST + shard].clone()).collect();
    sleepers
        .iter()
        .enumerate()
        .for_each(|(shard, sleeper)| net.tokens.set_sched_thread(shard, sleeper.clone()));
    // No shard counts as neglected yet.
    (0..shards).for_each(|shard| net.tokens.release(shard, LATEST_NS));
    let threads = sleepers.into_iter().enumerate().map(|(shard, sleeper)| {
        let watch = watch.clone();
        start(net, Part::SchedThread, move |net| {
            watch.serve_with(net, shard, &sleeper, net.sleep(MOST + shard))
        })
    });
    let threads = threads.collect();
    (watch, threads)
}

/// The handler of the waiter's message blocks until another message arrives on the shard that the
/// scheduler thread was given.
fn a_shard_for_a_sched_thread() {
    let net = Net::new(2);
    net.blocks.store(true, Relaxed);
    net.sleepers[0].set_memo(1 << KEPT);
    for (shard, number) in [(GIVEN, 1), (KEPT, 0), (GIVEN, FOR_NONE), (KEPT, FOR_NONE)] {
        net.arrive(shard, number);
    }
    let (watch, sched_threads) = sched_threads(&net, 2);
    net.wait(0);
    watch.end(&*net);
    end(&net, [], sched_threads);
}

/// A waiter gives a shard that it has not polled for a while to its scheduler thread; another
/// waiter takes the shard before or after that.
fn a_given_shard_that_a_waiter_takes() {
    let net = Net::new(1);
    let (watch, sched_threads) = sched_threads(&net, 1);
    let mark = Mark::default();
    let giver = Holder::of_wait(&mark);
    assert!(net.tokens.take(0, giver, net.now_ns()));
    net.system.set_time(LATEST_NS + TAKEN_AFTER_NS);
    let taker = waiter(&net, 0);
    net.tokens.give(0, giver, net.now_ns());
    net.system.set_time(LATEST_NS + 2 * TAKEN_AFTER_NS);
    net.arrive(0, 0);
    until_gone(&net, Part::Waiter);
    watch.end(&*net);
    end(&net, [taker], sched_threads);
}

/// A waiter gives its shard to a scheduler thread that claims it at once, so that the other waiter
/// can run at any step of the hand-over.
fn a_shard_that_is_given_while_a_waiter_takes_it() {
    let net = Net::new(1);
    net.tokens.set_sched_thread(0, net.sleepers[MOST].clone());
    let mark = Mark::default();
    let giver = Holder::of_wait(&mark);
    assert!(net.tokens.take(0, giver, net.now_ns()));
    net.system.set_time(TAKEN_AFTER_NS);
    let taker = waiter(&net, 0);
    net.arrive(0, 0);
    let giver = start(&net, Part::SchedThread, move |net| {
        let sched_thread = &net.sleepers[MOST];
        if net.tokens.give(0, giver, net.now_ns()) && net.tokens.claim_given(0, sched_thread) {
            net.poll(0, 1);
            net.tokens.release(0, net.now_ns());
        }
    });
    end(&net, [taker], [giver]);
}

/// A waiter releases a shard that it has not polled for a while, while one waiter may take it, and
/// then another.
fn a_shard_that_is_left_lying_and_dropped() {
    let net = Net::new(1);
    let mark = Mark::default();
    let dropper = Holder::of_wait(&mark);
    assert!(net.tokens.take(0, dropper, net.now_ns()));
    net.system.set_time(TAKEN_AFTER_NS);
    let waiters = [0, 1].map(|number| waiter(&net, number));
    net.arrive(0, 0);
    net.arrive(0, 1);
    net.tokens.drop_by(1, dropper, net.now_ns());
    end(&net, waiters, []);
}

// Covers: S-203
#[test]
fn a_waiter_drives_the_shard_that_it_is_given() {
    check(2, a_shard_for_a_waiter);
}

// Covers: S-203
#[test]
fn a_shard_that_is_given_to_a_waiter_that_leaves_is_driven() {
    check(2, a_shard_for_a_waiter_that_leaves);
}

// Covers: S-203
#[test]
fn a_sched_thread_drives_the_shard_that_it_is_given() {
    check(2, a_shard_for_a_sched_thread);
}

#[test]
fn a_shard_that_is_given_and_taken_has_one_driver() {
    check(2, a_given_shard_that_a_waiter_takes);
    check(3, a_shard_that_is_given_while_a_waiter_takes_it);
}

#[test]
fn a_shard_that_is_left_lying_and_dropped_has_one_driver() {
    check(3, a_shard_that_is_left_lying_and_dropped);
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn a_waiter_that_does_not_share_leaves_a_shard_to_no_other() {
    broken(SHARE, || check(1, a_shard_for_a_waiter));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn a_waiter_that_does_not_share_leaves_a_shard_to_no_sched_thread() {
    broken(SHARE, || check(1, a_shard_for_a_sched_thread));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn shared_silently_a_shard_is_not_driven() {
    broken(WAKE, || check(1, a_shard_for_a_waiter));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn woken_too_early_a_sched_thread_sees_no_shard() {
    broken(CALL, || check(2, a_shard_for_a_sched_thread));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn given_in_two_steps_a_shard_has_two_drivers() {
    broken(GIVE, || check(3, a_shard_that_is_given_while_a_waiter_takes_it));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn claimed_by_its_sched_thread_in_two_steps_a_shard_has_two_drivers() {
    broken(CLAIM_GIVEN, || check(2, a_given_shard_that_a_waiter_takes));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn dropped_in_two_steps_a_shard_has_two_drivers() {
    broken(DROP, || check(3, a_shard_that_is_left_lying_and_dropped));
}
