//! Counters.

use std::time::Duration;

use nlx::{Event, Op, Queue, QueueStatistics};

use super::pair;
use crate::bed::*;

const LENGTH: usize = 1000;

/// An operation of each queue, then its counters; a read resets them to 0 on request.
// Covers: MT-102, MT-106, MT-107, X-6
#[test]
fn each_queue_counts_its_own() {
    let Pair { a, b, world: _world } = &pair();
    let one_of_each = || {
        a.receive_one(LENGTH);
        let receives = a.tm.start(Op::passive_receive(a.empty(LENGTH)).timeout(HUNG)).unwrap().offer;
        let sends =
            a.tm.start(Op::passive_send(a.filled(&pattern(0, LENGTH))).length(LENGTH).timeout(HUNG))
                .unwrap()
                .offer;
        b.send(a, &pattern(0, LENGTH));
        b.tm.start(Op::active_send(b.filled(&pattern(0, LENGTH)), &receives).length(LENGTH).timeout(HUNG))
            .unwrap();
        b.tm.start(Op::active_receive(b.empty(LENGTH), &sends).timeout(HUNG)).unwrap();
        [a, b].map(|side| [(); 3].map(|()| side.next()))
    };
    let first = one_of_each();
    for events in &first {
        assert!(events.iter().all(|event| event.status.is_ok() && event.length == LENGTH && event.is_last()));
    }
    for (side, events) in [a, b].into_iter().zip(&first) {
        let counters = side.tm.statistics();
        for event in events {
            assert_eq!(
                counters[event.queue.index()],
                counted(std::slice::from_ref(event)),
                "{:?}",
                event.queue
            );
        }
        let others = counters.iter().filter(|counters| **counters == QueueStatistics::default()).count();
        assert_eq!(others, 3);
    }
    drop(first);
    let second = one_of_each();
    for (side, events) in [a, b].into_iter().zip(&second) {
        let before = side.tm.statistics();
        assert_eq!(side.tm.take_statistics(), before);
        for event in events {
            let counters = before[event.queue.index()];
            assert_eq!((counters.adds, counters.successes, counters.bytes), (2, 2, 2 * LENGTH as u64));
            assert!(counters.time_in_queue >= event.after);
        }
        assert_eq!(side.tm.statistics(), [QueueStatistics::default(); Queue::COUNT]);
    }
}

/// A cancel and a timeout are failures; no bytes are counted for them; only the first counts as a
/// cancel.
// Covers: MT-106
#[test]
fn failures_are_counted_apart() {
    let Pair { a, .. } = &pair();
    let op = a.receive_one(64);
    a.cancel(op);
    let op = a.tm.start(Op::receive(a.empty(64)).timeout(SOON)).unwrap().op;
    a.end_of(op);
    assert_eq!(a.counts(Queue::MessageReceive), (2, 1, 0, 2));
    let counters = a.tm.statistics()[Queue::MessageReceive.index()];
    assert_eq!((counters.bytes, counters.bytes_max), (0, 0));
    assert!(counters.time_in_queue > Duration::ZERO);
}

/// Returns the expected counters of a queue with these events, each the only one of its operation.
fn counted(events: &[Event]) -> QueueStatistics {
    let bytes = || events.iter().map(|event| event.length as u64);
    QueueStatistics {
        adds: events.len() as u64,
        cancels: 0,
        successes: events.iter().filter(|event| event.status.is_ok()).count() as u64,
        failures: events.iter().filter(|event| event.status.is_err()).count() as u64,
        time_in_queue: events.iter().map(|event| event.after).sum(),
        bytes: bytes().sum(),
        bytes_max: bytes().max().unwrap_or(0),
    }
}
