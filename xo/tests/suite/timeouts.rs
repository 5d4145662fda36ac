//! Timeouts.

use std::time::Duration;

use nlx::{Errno, Op, Queue};

use super::pair;
use crate::bed::*;

const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

/// Each passive queue: late, but not early; counted as a failure and not as a cancel; and a buffer
/// whose operation has timed out can be used again.
// Covers: MT-85, MT-86, MT-99
#[test]
fn what_is_not_completed_times_out() {
    let Pair { a, .. } = &pair();
    let start = [
        |side: &Side, buffer, timeout| side.tm.start(Op::receive(buffer).timeout(timeout)),
        |side: &Side, buffer, timeout| side.tm.start(Op::passive_receive(buffer).timeout(timeout)),
        |side: &Side, buffer, timeout| side.tm.start(Op::passive_send(buffer).length(1).timeout(timeout)),
    ];
    for start in start {
        let refused = start(a, a.empty(64), Some(Duration::ZERO)).expect_err("it is too late");
        assert_eq!(refused.error.errno(), Errno::ETIME);
        let op = start(a, refused.buffer, SOON).unwrap().op;
        let event = a.end_of(op);
        assert_eq!((event.status, event.length), (Err(Errno::ETIMEDOUT), 0));
        assert!(event.after >= SOON.unwrap());
        assert_eq!(a.counts(event.queue), (1, 0, 0, 1));
        assert!(a.tm.statistics()[event.queue.index()].time_in_queue >= SOON.unwrap());
        // The timeout applied to the operation, not to the buffer.
        let again = start(a, event.buffer.unwrap(), None).unwrap().op;
        a.has_nothing();
        a.cancel(again);
    }
}

/// Two at the same time on one queue: both end, and their times add up.
// Covers: MT-86
#[test]
fn two_time_out_at_the_same_time() {
    let Pair { a, .. } = &pair();
    let mut ops = [(); 2].map(|()| a.tm.start(Op::receive(a.empty(64)).timeout(SOON)).unwrap().op);
    let mut ended = ops.map(|_| {
        let event = a.next();
        assert_eq!(event.status, Err(Errno::ETIMEDOUT));
        event.op
    });
    ops.sort();
    ended.sort();
    assert_eq!(ended, ops);
    assert_eq!(a.counts(Queue::MessageReceive), (2, 0, 0, 2));
    assert!(a.tm.statistics()[Queue::MessageReceive.index()].time_in_queue >= 2 * SOON.unwrap());
}

/// Only operations with a timeout expire, the earliest first.
// Covers: MT-87
#[test]
fn only_what_has_a_timeout_expires() {
    let Pair { a, .. } = &pair();
    let receive = |timeout| a.tm.start(Op::receive(a.empty(64)).timeout(timeout)).unwrap().op;
    let (never, late, soon) = (receive(None), receive(HOUR), receive(SOON));
    assert_eq!(a.end_of(soon).status, Err(Errno::ETIMEDOUT));
    assert_eq!(a.tm.in_flight(), 2);
    a.cancel(never);
    a.cancel(late);
}

/// An operation that ends in time does not time out; one that has messages does not time out before
/// they are delivered.
// Covers: MT-88, MT-240
#[test]
fn success_comes_before_the_timeout() {
    let pair = pair();
    pair.b.tm.start(Op::receive(pair.b.empty(64)).timeout(HOUR)).unwrap();
    pair.pass(b"in time");
    pair.b.has_nothing();
    let op = pair
        .b
        .tm
        .start(
            Op::receive(pair.b.empty(640))
                .min_receive_size(64)
                .max_messages(10)
                .timeout(Duration::from_millis(200)),
        )
        .unwrap()
        .op;
    pair.send(b"before the end");
    let first = pair.b.next();
    assert_eq!(first.op, op);
    // On a slow machine it has timed out before.
    if !first.is_last() {
        assert_eq!(first.message.as_deref(), Some(&b"before the end"[..]));
        assert_eq!(pair.b.end_of(op).status, Err(Errno::ETIMEDOUT));
    }
}
