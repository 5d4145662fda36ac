//! Queues between two processes (MT-189), one of which may be stopped or killed at any instruction
//! (S-2).

use crossbeam_utils::Backoff;
use nlx_sync::{DEFAULT_SPIN, Sleeper, Waker};

use crate::oracle::{OracleOp, Sample, Sequence, mix, sample};
use crate::tests::other::{MAX_SLOTS, Other, inherited};
use crate::{Consumer, PopError, Producer, PushError, QueueWord, SharedMemory};

/// Number of events that pass in the long runs.
const EVENTS: u64 = 100_000;

/// Number of rounds of the tests in which the other process dies at a random instruction.
const ROUNDS: u64 = 25;

/// Pushes the event with this number as soon as there is room. `wait` is called until there is.
fn push_when_free(producer: &mut Producer<Sample, SharedMemory>, number: u64, mut wait: impl FnMut()) {
    let backoff = Backoff::new();
    while let Err(error) = producer.push(sample(number)) {
        assert!(matches!(error, PushError::Full { .. }), "{error}");
        if backoff.is_completed() {
            wait();
        }
        backoff.snooze();
    }
}

/// Takes events until `sequence` has seen `events` of them. `wait` is called while there is none.
fn take_until(
    consumer: &mut Consumer<Sample, SharedMemory>,
    sequence: &mut Sequence,
    events: u64,
    mut wait: impl FnMut(),
) {
    let backoff = Backoff::new();
    while sequence.seen < events {
        let before = sequence.seen;
        sequence.step(OracleOp::Drain(16), consumer);
        if sequence.seen != before {
            backoff.reset();
            continue;
        }
        if backoff.is_completed() {
            wait();
        }
        backoff.snooze();
    }
}

/// The other process takes, drains and grows, and sleeps when there is no event.
// Covers: S-6, MT-189, MT-206
#[test]
fn events_reach_a_consumer_in_another_process() {
    let (mut other, memory) = Other::start("processes::consume_all");
    let waker = Waker::futex(QueueWord::consumer(memory.clone()));
    let mut producer = Producer::new(memory).unwrap();
    for number in 1..=EVENTS {
        push_when_free(&mut producer, number, || other.check());
        waker.wake().unwrap();
    }
    assert!(other.finish().success());
    assert_eq!(producer.push(sample(0)), Ok(()), "the ring is in order");
}

// Covers: S-408, MT-189
#[test]
fn events_arrive_from_a_producer_in_another_process() {
    let (mut other, memory) = Other::start("processes::produce_all");
    let mut consumer = Consumer::new(memory).unwrap();
    consumer.grow(20).unwrap();
    // The other process ends once the last events fit into the ring.
    take_until(&mut consumer, &mut Sequence::default(), EVENTS, || {});
    assert!(other.finish().success());
    assert_eq!(consumer.pop(), Err(PopError::Empty));
}

/// Killed between any two instructions of taking or growing, the consumer leaves a consistent ring
/// that the producer can fill completely.
// Covers: S-2
#[test]
fn a_producer_outlives_a_killed_consumer() {
    for round in 0..ROUNDS {
        let (mut other, memory) = Other::start("processes::consume_for_ever");
        let mut producer = Producer::new(memory).unwrap();
        let survived = mix(round) % 3_000;
        (1..=survived).for_each(|number| push_when_free(&mut producer, number, || other.check()));
        other.kill();
        let more = (0..MAX_SLOTS).take_while(|_| producer.push(sample(0)).is_ok()).count();
        assert!(more < MAX_SLOTS as usize);
        let full = producer.push(sample(0));
        assert!(matches!(full, Err(PushError::Full { .. })), "{full:?}");
        assert_eq!(producer.free(), Ok(0));
    }
}

/// Killed between any two instructions of a push, the producer leaves whole events and no partial
/// one.
// Covers: S-2
#[test]
fn a_consumer_outlives_a_killed_producer() {
    for round in 0..ROUNDS {
        let (mut other, memory) = Other::start("processes::produce_for_ever");
        let mut consumer = Consumer::new(memory).unwrap();
        consumer.grow(30).unwrap();
        let mut sequence = Sequence::default();
        take_until(&mut consumer, &mut sequence, 1 + mix(round) % 3_000, || other.check());
        other.kill();
        let (seen, ready) = (sequence.seen, consumer.ready());
        sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
        assert_eq!(sequence.seen, seen + u64::from(ready));
        assert_eq!(consumer.pop(), Err(PopError::Empty));
        consumer.provision(50).unwrap();
    }
}

/// A stopped consumer never delays the producer, and afterwards both continue.
// Covers: S-2
#[test]
fn a_producer_is_not_held_up_by_a_stopped_consumer() {
    let (mut other, memory) = Other::start("processes::consume_for_ever");
    let mut producer = Producer::new(memory).unwrap();
    let mut number = 0;
    for round in 0..10 * ROUNDS {
        for _ in 0..mix(round) % 1_000 {
            number += 1;
            push_when_free(&mut producer, number, || other.check());
        }
        other.stop();
        // Every call returns, although the other process is stopped.
        let free = producer.free().unwrap();
        for _ in 0..free {
            number += 1;
            producer.push(sample(number)).unwrap();
        }
        assert!(matches!(producer.push(sample(0)), Err(PushError::Full { .. })));
        other.go_on();
    }
    // The other process checks each event that it takes; once it has taken these, it has checked
    // all earlier ones.
    let more = u64::from(producer.max_slots());
    (1..=more).for_each(|more| push_when_free(&mut producer, number + more, || other.check()));
}

/// A stopped producer never delays the consumer, and afterwards both continue.
// Covers: S-2
#[test]
fn a_consumer_is_not_held_up_by_a_stopped_producer() {
    let (mut other, memory) = Other::start("processes::produce_for_ever");
    let mut consumer = Consumer::new(memory).unwrap();
    consumer.grow(30).unwrap();
    let mut sequence = Sequence::default();
    for round in 0..10 * ROUNDS {
        let target = sequence.seen + mix(round) % 1_000;
        take_until(&mut consumer, &mut sequence, target, || other.check());
        other.stop();
        let (seen, ready) = (sequence.seen, consumer.ready());
        sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
        assert_eq!(sequence.seen, seen + u64::from(ready));
        assert!(consumer.is_empty());
        if consumer.slots() < MAX_SLOTS {
            consumer.grow(1).unwrap();
        }
        other.go_on();
    }
}

// The code that runs in the other process.

#[test]
#[ignore = "started by events_reach_a_consumer_in_another_process"]
fn consume_all() {
    let memory = inherited();
    let sleeper = Sleeper::futex(QueueWord::consumer(memory.clone())).spinning(DEFAULT_SPIN);
    let mut consumer = Consumer::new(memory).unwrap();
    let mut sequence = Sequence::default();
    while sequence.seen < EVENTS {
        sleeper.sleep(None, || !consumer.is_empty()).unwrap();
        sequence.step(random_op(&consumer, sequence.seen), &mut consumer);
    }
}

#[test]
#[ignore = "started by events_arrive_from_a_producer_in_another_process"]
fn produce_all() {
    let mut producer = Producer::new(inherited()).unwrap();
    (1..=EVENTS).for_each(|number| push_when_free(&mut producer, number, || {}));
}

#[test]
#[ignore = "started by a_producer_outlives_a_killed_consumer and others"]
fn consume_for_ever() {
    let mut consumer = Consumer::new(inherited()).unwrap();
    let mut sequence = Sequence::default();
    let backoff = Backoff::new();
    loop {
        if consumer.is_empty() {
            backoff.snooze()
        } else {
            backoff.reset()
        }
        let op = random_op(&consumer, sequence.seen);
        sequence.step(op, &mut consumer);
    }
}

#[test]
#[ignore = "started by a_consumer_outlives_a_killed_producer and others"]
fn produce_for_ever() {
    let mut producer = Producer::new(inherited()).unwrap();
    for number in 1.. {
        push_when_free(&mut producer, number, || {});
    }
}

/// Returns a random operation: mostly one that takes events, occasionally one that grows the ring
/// while that is possible.
fn random_op(consumer: &Consumer<Sample, SharedMemory>, dice: u64) -> OracleOp {
    match mix(dice) % 64 {
        0 if consumer.slots() + 3 <= consumer.max_slots() => OracleOp::Grow(1 + (mix(dice) >> 32) as u32 % 3),
        1..16 => OracleOp::Drain(8),
        16..20 => OracleOp::Forget(2),
        _ => OracleOp::Pop,
    }
}
