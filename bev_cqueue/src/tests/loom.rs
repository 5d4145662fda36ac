//! All interleavings of short runs, by loom (MT-206, MT-217, MT-218).
//!
//! Under loom an event's bytes are a plain cell: loom fails a model in which a read of an event is
//! not ordered with the writes of it. So these models prove that the consumer never reads a stale
//! event, on weakly ordered processors too.
//!
//! Then each end of each pair is weakened, and the same models must fail. That shows that the
//! ordering is needed and that the models detect its absence.

use std::panic::{RefUnwindSafe, UnwindSafe};

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use nlx_sync::wait::SLEEP;
use nlx_sync::{Bell, Rule, RuleEnd, Sleeper, Waker, weakened};

use crate::oracle::{Oracle, OracleOp, Sample, Sequence, Source, sample};
use crate::rules::{GET, GROW, PUT};
use crate::{Heap, Producer, PushError, QueueWord, taken};

type Halves = crate::Halves<Sample, Heap>;

const MAX_SLOTS: u32 = 8;

/// Creates a queue with `slots` slots, through which `passed` events have passed and in which
/// `waiting` more wait.
fn queue(slots: u32, passed: u64, waiting: u64) -> (Halves, Sequence) {
    let (mut producer, mut consumer) = crate::heap(MAX_SLOTS).unwrap();
    let mut oracle = Oracle::new(MAX_SLOTS);
    let mut run = |op| oracle.step(op, &mut producer, &mut consumer);
    run(OracleOp::Grow(slots - crate::MIN_SLOTS));
    (0..passed).flat_map(|_| [OracleOp::Push, OracleOp::Pop]).for_each(&mut run);
    run(OracleOp::PushIter(waiting as usize));
    ((producer, consumer), Sequence { seen: passed })
}

/// Pushes while the ring takes events, at most `tries` times; returns the number of events pushed
/// at the end.
fn push_some(producer: &mut Producer<Sample, Heap>, mut pushed: u64, tries: usize) -> u64 {
    for _ in 0..tries {
        match producer.push(sample(pushed + 1)) {
            Ok(()) => pushed += 1,
            Err(PushError::Full { .. }) => {}
            Err(PushError::Corrupt(corruption)) => panic!("{corruption}"),
        }
    }
    pushed
}

/// Explores every interleaving of `tries` pushes with the consumer's `ops`, from a queue as in
/// [`queue`]: the consumer sees whole events, each once and in order, and at the end all that were
/// pushed.
fn explore(slots: u32, passed: u64, waiting: u64, tries: usize, ops: &'static [OracleOp]) {
    loom::model(move || {
        let ((mut producer, mut consumer), mut sequence) = queue(slots, passed, waiting);
        let producing = thread::spawn(move || push_some(&mut producer, passed + waiting, tries));
        for &op in ops {
            sequence.step(op, &mut consumer);
        }
        let pushed = producing.join().unwrap();
        assert_eq!(u64::from(consumer.ready()), pushed - sequence.seen);
        sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
        assert_eq!(sequence.seen, pushed);
    });
}

// Covers: MT-206, MT-218
#[test]
fn loom_taking_while_pushing() {
    explore(2, 0, 0, 3, &[OracleOp::Pop, OracleOp::Pop, OracleOp::Pop]);
    explore(3, 1, 1, 3, &[OracleOp::Pop, OracleOp::Drain(2), OracleOp::Pop]);
    explore(3, 0, 2, 3, &[OracleOp::Drain(2), OracleOp::Drain(2)]);
    explore(3, 0, 2, 3, &[OracleOp::Forget(1), OracleOp::Pop]);
}

/// Model of a push of several events.
// Covers: MT-206
#[test]
fn loom_taking_while_pushing_several() {
    loom::model(|| {
        let ((mut producer, mut consumer), mut sequence) = queue(3, 1, 0);
        let producing = thread::spawn(move || match producer.push_iter((2..5).map(sample)) {
            Ok(pushed) => pushed as u64,
            Err(error) => panic!("{error}"),
        });
        sequence.step(OracleOp::Pop, &mut consumer);
        sequence.step(OracleOp::Drain(2), &mut consumer);
        let pushed = producing.join().unwrap();
        sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
        assert_eq!(sequence.seen, 1 + pushed);
    });
}

/// The ring grows while it is empty.
// Covers: MT-217
#[test]
fn loom_growing_an_empty_ring_while_pushing() {
    explore(2, 0, 0, 3, &[OracleOp::Grow(1), OracleOp::Pop, OracleOp::Pop]);
    explore(3, 1, 0, 3, &[OracleOp::Grow(2), OracleOp::Pop, OracleOp::Pop]);
    explore(3, 2, 0, 3, &[OracleOp::Grow(1), OracleOp::Grow(1), OracleOp::Pop]);
}

/// The ring grows while some of it is full.
// Covers: MT-217
#[test]
fn loom_growing_a_partial_ring_while_pushing() {
    explore(3, 0, 1, 3, &[OracleOp::Grow(1), OracleOp::Pop, OracleOp::Pop]);
    explore(3, 1, 1, 3, &[OracleOp::Pop, OracleOp::Grow(2), OracleOp::Pop]);
    explore(4, 1, 1, 3, &[OracleOp::Pop, OracleOp::Grow(1), OracleOp::Drain(2)]);
}

/// The ring grows while it is full, so that the producer continues to the slot that was the
/// divider.
// Covers: S-410, MT-217
#[test]
fn loom_growing_a_full_ring_while_pushing() {
    explore(2, 0, 1, 3, &[OracleOp::Grow(1), OracleOp::Pop, OracleOp::Pop]);
    explore(2, 1, 1, 3, &[OracleOp::Pop, OracleOp::Grow(2), OracleOp::Pop]);
    explore(3, 1, 2, 3, &[OracleOp::Grow(1), OracleOp::Pop, OracleOp::Grow(1)]);
    explore(3, 1, 2, 3, &[OracleOp::Forget(1), OracleOp::Grow(1), OracleOp::Pop]);
}

/// An operation is submitted once its events have room; a producer that sees the submission finds
/// the room.
// Covers: S-407
#[test]
fn loom_a_provisioned_event_finds_room() {
    loom::model(|| {
        let ((mut producer, mut consumer), mut sequence) = queue(2, 0, 0);
        let submitted = Arc::new(AtomicU32::new(0));
        let producing = thread::spawn({
            let submitted = submitted.clone();
            move || {
                let mut pushed = 0;
                for _ in 0..3 {
                    while pushed < u64::from(submitted.load(Ordering::Acquire)) {
                        producer.push(sample(pushed + 1)).expect("room was provisioned");
                        pushed += 1;
                    }
                }
            }
        });
        sequence.step(OracleOp::Provision(1), &mut consumer);
        submitted.store(1, Ordering::Release);
        sequence.step(OracleOp::Provision(1), &mut consumer);
        submitted.store(2, Ordering::Release);
        sequence.step(OracleOp::Pop, &mut consumer);
        if sequence.seen == 1 {
            // The first operation is over; the next one uses its provisioned room.
            sequence.step(OracleOp::Release(1), &mut consumer);
            sequence.step(OracleOp::Provision(1), &mut consumer);
            submitted.store(3, Ordering::Release);
        }
        producing.join().unwrap();
        assert!(consumer.slots() <= 3);
    });
}

/// Q3: the ring shrinks when no operation is under way. With the next operation the producer is
/// notified; it then finds the room of the smaller ring, and the slots that were cut off are used
/// when it grows again.
// Covers: S-407, S-410, MT-217
#[test]
fn loom_a_ring_shrinks_between_two_operations() {
    for passed in [0, 2] {
        loom::model(move || {
            let ((mut producer, mut consumer), mut sequence) = queue(4, passed, 0);
            sequence.step(OracleOp::Provision(1), &mut consumer);
            // The number of submitted operations, which is also the ring's size for the second.
            let submitted = Arc::new(AtomicU32::new(1));
            let producing = thread::spawn({
                let submitted = submitted.clone();
                move || {
                    let mut source = Source { pushed: passed };
                    source.step(OracleOp::Push, &mut producer);
                    if submitted.load(Ordering::Acquire) == 3 {
                        source.step(OracleOp::AcceptShrink, &mut producer);
                        // The events are pushed one after the other, so that each finds its room; a
                        // third event has none.
                        (0..3).for_each(|_| source.step(OracleOp::Push, &mut producer));
                    }
                    source.pushed
                }
            });
            sequence.step(OracleOp::Pop, &mut consumer);
            if sequence.seen == passed + 1 {
                sequence.step(OracleOp::Release(1), &mut consumer);
                sequence.step(OracleOp::Shrink(2), &mut consumer);
                sequence.step(OracleOp::Provision(2), &mut consumer);
                submitted.store(3, Ordering::Release);
                sequence.step(OracleOp::Pop, &mut consumer);
            }
            let pushed = producing.join().unwrap();
            sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
            assert_eq!(sequence.seen, pushed);
        });
    }
}

/// Q3: the ring shrinks with its producer locked, while an operation is under way whose events
/// another thread pushes.
// Covers: S-410
#[test]
fn loom_a_ring_shrinks_around_an_operation() {
    loom::model(|| {
        let ((producer, mut consumer), mut sequence) = queue(4, 1, 0);
        sequence.step(OracleOp::Provision(2), &mut consumer);
        let producer = Arc::new(Mutex::new(producer));
        let producing = thread::spawn({
            let producer = producer.clone();
            move || {
                let mut source = Source { pushed: 1 };
                (0..2).for_each(|_| source.step(OracleOp::Push, &mut producer.lock().unwrap()));
                source.pushed
            }
        });
        sequence.step(OracleOp::Pop, &mut consumer);
        let shrunk = consumer.shrink_with(3, || producer.lock().unwrap());
        assert_eq!(consumer.slots(), if shrunk.is_ok() { 3 } else { 4 });
        sequence.step(OracleOp::Pop, &mut consumer);
        assert_eq!(producing.join().unwrap(), 3, "both had room");
        sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
        assert_eq!(sequence.seen, 3);
    });
}

/// The producer may be dropped, or its thread end, at any time: pushed events remain.
#[test]
fn loom_events_outlive_their_producer() {
    loom::model(|| {
        let ((mut producer, mut consumer), mut sequence) = queue(3, 0, 0);
        thread::spawn(move || {
            producer.push(sample(1)).unwrap();
        });
        sequence.step(OracleOp::Pop, &mut consumer);
        sequence.step(OracleOp::Pop, &mut consumer);
        assert!(sequence.seen <= 1);
    });
}

/// A waker and the sleeper of its word.
type Sides = (Waker<QueueWord<Heap>>, Sleeper<QueueWord<Heap>>);
type Bells = fn(QueueWord<Heap>) -> Sides;

fn by_futex(word: QueueWord<Heap>) -> Sides {
    (Waker::futex(word.clone()), Sleeper::futex(word))
}

fn by_descriptor(word: QueueWord<Heap>) -> Sides {
    let bell = Bell::new().unwrap();
    (Waker::ringing(word.clone(), bell.clone()), Sleeper::ringing(word, bell))
}

/// Pushes and pops events; loom reports a deadlock if the consumer sleeps while an event is in its
/// queue.
fn no_wake_up_is_lost(bells: Bells, events: u64) {
    loom::model(move || {
        let ((mut producer, mut consumer), mut sequence) = queue(4, 0, 0);
        let (waker, sleeper) = bells(QueueWord::consumer(consumer.memory().clone()));
        let producing = thread::spawn(move || {
            for number in 1..=events {
                producer.push(sample(number)).unwrap();
                waker.wake().unwrap();
            }
        });
        while sequence.seen < events {
            while consumer.is_empty() {
                sleeper.sleep(None, || !consumer.is_empty()).unwrap();
            }
            sequence.step(OracleOp::Pop, &mut consumer);
        }
        producing.join().unwrap();
    });
}

#[test]
fn loom_no_wake_up_is_lost() {
    for bells in [by_futex, by_descriptor] {
        no_wake_up_is_lost(bells, 1);
        no_wake_up_is_lost(bells, 2);
    }
}

/// Loom reports a deadlock if a producer sleeps after its event was taken.
fn no_wake_up_of_a_producer_is_lost(bells: Bells) {
    loom::model(move || {
        const EVENTS: u64 = 1;
        let ((mut producer, mut consumer), mut sequence) = queue(4, 0, 0);
        let (waker, sleeper) = bells(QueueWord::producer(producer.memory().clone()));
        let taking = thread::spawn(move || {
            while sequence.seen < EVENTS {
                sequence.step(OracleOp::Drain(1), &mut consumer);
                waker.wake().unwrap();
                thread::yield_now();
            }
        });
        assert_eq!(push_some(&mut producer, 0, EVENTS as usize), EVENTS);
        let memory = producer.memory();
        while taken(memory) < EVENTS {
            sleeper.sleep(None, || taken(memory) >= EVENTS).unwrap();
        }
        taking.join().unwrap();
    });
}

#[test]
fn loom_no_wake_up_of_a_producer_is_lost() {
    no_wake_up_of_a_producer_is_lost(by_futex);
    no_wake_up_of_a_producer_is_lost(by_descriptor);
}

/// Checks that the models fail with `fault` when either end of `pair` is weakened.
fn needs(pair: Rule, models: impl Fn() + UnwindSafe + RefUnwindSafe, fault: &str) {
    for end in [RuleEnd::Store, RuleEnd::Load] {
        let outcome = std::panic::catch_unwind(|| weakened(pair, end, &models));
        let panic = outcome.expect_err("loom finds nothing wrong");
        let message = panic.downcast_ref::<String>().expect("loom says why");
        assert!(message.contains(fault), "{pair:?}, {end:?}: {message}");
    }
}

// Covers: MT-218
#[test]
fn loom_notices_a_weakened_put() {
    needs(PUT, loom_taking_while_pushing, "Causality violation");
}

// Covers: MT-218
#[test]
fn loom_notices_a_weakened_get() {
    needs(GET, loom_taking_while_pushing, "Causality violation");
}

// Covers: MT-218
#[test]
fn loom_notices_a_weakened_grow() {
    needs(GROW, loom_growing_a_full_ring_while_pushing, "Causality violation");
}

#[test]
fn loom_notices_a_missing_fence_before_sleep() {
    for bells in [by_futex, by_descriptor] {
        needs(SLEEP, || no_wake_up_is_lost(bells, 1), "deadlock");
        needs(SLEEP, || no_wake_up_of_a_producer_is_lost(bells), "deadlock");
    }
}
