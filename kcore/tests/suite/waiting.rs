//! Waiting for events (S-412).

use nlx_core::OperationKind;

use super::bed;
use crate::bed::*;

/// A deadline in the past, 0, or none at all.
// Covers: S-412, MT-230
#[test]
fn a_wait_looks_whatever_its_deadline() {
    let bed = bed();
    bed.drive.clock().set_now_ns(1_000);
    for deadline_ns in [Some(0), Some(999), Some(1_000)] {
        assert!(!bed.tm.event_wait(deadline_ns));
    }
    bed.submit(RECEIVE).unwrap();
    bed.receive(&bed.message(&peer(), 1));
    for deadline_ns in [Some(0), Some(999), Some(1_000), Some(u64::MAX), None] {
        assert!(bed.tm.event_wait(deadline_ns));
    }
    assert!(bed.tm.event_get().unwrap().is_some());
    assert!(!bed.tm.event_wait(Some(0)));
}

/// One wait for many events; neither waiting nor checking consumes an event.
// Covers: S-412, MT-84, MT-230, MT-231
#[test]
fn waiting_and_asking_take_nothing() {
    let bed = bed().started(RECEIVE);
    for _ in 0..3 {
        bed.receive(&bed.message(&peer(), 1));
    }
    for taken in 0..3 {
        for _ in 0..100 {
            assert!(bed.tm.pending(), "{taken} of 3 are taken");
        }
        assert!(bed.tm.event_wait(None) && bed.tm.event_wait(Some(0)));
        assert!(bed.tm.event_get().unwrap().is_some());
    }
    for _ in 0..100 {
        assert!(!bed.tm.pending());
    }
    assert!(!bed.tm.event_wait(Some(0)));
}

/// A sleeper is woken once for all events so far, and the same wake-ups do not end the next wait.
// Covers: S-411, S-412, MT-24, MT-230
#[test]
fn one_wake_up_serves_many_events() {
    let bed = bed().started(RECEIVE);
    std::thread::scope(|scope| {
        let (waiter, _) = asleep(scope, || assert!(bed.tm.event_wait(None)));
        (0..3).for_each(|_| bed.receive(&bed.message(&peer(), 1)));
        waiter.join().unwrap();
        assert_eq!(std::iter::from_fn(|| bed.tm.event_get().unwrap()).count(), 3);

        // Of the three wake-ups none is left.
        let (waiter, _) = asleep(scope, || assert!(bed.tm.event_wait(None)));
        assert!(!waiter.is_finished());
        bed.receive(&bed.message(&peer(), 1));
        waiter.join().unwrap();
    });
    assert!(bed.tm.event_get().unwrap().is_some_and(|event| event.unlinked()));
}

/// K10: a signal neither ends a wait nor makes it spin.
// Covers: S-412, MT-230
#[test]
fn signals_do_not_end_a_wait() {
    let bed = bed();
    let passive = bed.expose(OperationKind::PassiveReceive);
    let signals = Signals::new();
    std::thread::scope(|scope| {
        let (waiter, waiter_thread) = asleep(scope, || bed.tm.event_wait(None));
        for _ in 0..5 {
            assert!(signals.interrupt(&waiter, waiter_thread));
        }
        until("it sleeps again", || waiter_thread.sleeps());
        assert!(!waiter.is_finished());
        bed.receive(&passive.put(&peer(), 1));
        assert!(waiter.join().unwrap());
    });
    assert_eq!(bed.only_event().status(), Ok(()));
}

// Covers: S-412, MT-230
#[test]
fn a_waiter_can_be_woken_without_an_event() {
    let bed = bed();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| bed.tm.event_wait(None));
        bed.tm.wake();
        assert!(!waiter.join().unwrap());
    });
    // The one wake-up is consumed.
    assert!(!bed.tm.event_wait(Some(0)));
}

// Covers: MT-110
#[test]
fn polling_does_not_sleep() {
    let bed = bed();
    bed.tm.poll();
    assert!(!bed.tm.pending());
}
