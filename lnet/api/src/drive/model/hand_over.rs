//! The rules that keep two threads from driving one shard, and wake-ups from being lost. For each
//! rule, a model without it fails.

use nlx_sync::{RuleEnd, broken, weakened};

use super::event_loop_handle::{a_listener_and_a_waiter, two_listeners};
use super::*;
use crate::drive::rules::{
    BEGIN, CLAIM, DOZE, HAND_OVER, LISTENERS, PASS_ON, SCHED_THREAD, TAKE, WAITERS, WAKE,
};

/// A scheduler thread that drives leaves its shard to a waiter although no message comes.
fn a_sched_thread_that_is_called_off() {
    let net = Net::new(1);
    let (sched_thread, waiter) = (sched_thread(&net, 0), waiter(&net, 0));
    until_gone(&net, Part::SchedThread);
    net.arrive(0, 0);
    end(&net, [waiter], [sched_thread]);
}

#[test]
fn a_sched_thread_that_drives_leaves_its_shard_to_a_waiter() {
    check(3, a_sched_thread_that_is_called_off);
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn without_orderings_a_driver_does_not_see_what_the_last_one_did() {
    broken(HAND_OVER, || check(2, one_shard_and_two_waiters));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn put_back_without_an_ordering_a_shard_is_taken_too_early() {
    weakened(HAND_OVER, RuleEnd::Store, || check(2, a_shard_left_lying));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn claimed_in_two_steps_a_shard_has_two_drivers() {
    broken(CLAIM, || check(2, two_listeners));
}

// Covers: S-203
#[test]
#[should_panic(expected = "two threads drive one shard")]
fn taken_in_two_steps_a_shard_has_two_drivers() {
    broken(TAKE, || check(2, one_shard_and_two_waiters));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn polled_without_another_look_a_shard_that_was_taken_has_two_drivers() {
    broken(BEGIN, || check(2, a_shard_left_lying));
}

#[test]
#[should_panic(expected = "two threads drive one shard")]
fn slept_on_without_another_look_a_shard_that_was_taken_has_two_drivers() {
    broken(DOZE, || check(3, a_shard_left_lying));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn freed_silently_a_shard_is_not_driven() {
    broken(WAKE, || check(2, one_shard_and_two_waiters));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn without_barriers_neither_sees_the_other() {
    broken(WAITERS, || check(2, one_shard_and_two_waiters));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn without_its_barrier_a_listener_sees_no_free_shard() {
    broken(LISTENERS, || check(2, a_listener_and_a_waiter));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn not_called_off_a_sched_thread_keeps_its_shard() {
    broken(SCHED_THREAD, || check(2, a_sched_thread_that_is_called_off));
}

#[test]
#[should_panic(expected = "all threads sleep")]
fn not_passed_on_a_wake_up_is_lost() {
    broken(PASS_ON, || check(2, two_waiters_and_a_sched_thread));
}
