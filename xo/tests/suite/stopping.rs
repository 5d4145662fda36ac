//! Stopping with operations of all queues in flight.

use std::collections::HashSet;
use std::time::Duration;

use nlx::{Errno, Event, Op, OpId, Queue, Started, Stop, TmState};

use super::pair;
use crate::bed::*;

const LENGTH: usize = 1000;

/// With abort, an operation of each queue ends; its buffer is returned after the stop, and the
/// address is free.
// Covers: MT-57, MT-95, MT-105, MT-215, MT-238, MT-239, X-4
#[test]
fn a_stop_with_abort_ends_operations_of_all_queues() {
    let pair = pair();
    let ops = of_each_queue(&pair, None);
    assert_eq!(pair.a.tm.state(), TmState::Started);
    assert!(pair.a.tm.in_flight() == Queue::COUNT || pair.world.is_called());
    pair.a.tm.stop(Stop::Abort, HUNG).unwrap();
    assert_eq!((pair.a.tm.state(), pair.a.tm.in_flight()), (TmState::Stopped, 0));
    let events = pair.a.rest();
    assert_eq!(events.iter().map(|event| event.op).collect::<HashSet<_>>(), HashSet::from(ops));
    for event in &events {
        assert!(ended_by_itself(event) || event.status == Err(Errno::ECANCELED), "{event:?}");
        assert!(event.is_last());
    }
    for queue in [Queue::MessageReceive, Queue::PassiveBulkReceive, Queue::PassiveBulkSend] {
        assert_eq!(pair.a.counts(queue), (1, 1, 0, 1));
    }
    let again = begin(&pair.a.domain, &pair.a.tm.address().to_string()).unwrap();
    assert_eq!(again.address(), pair.a.tm.address());
}

/// With `Drain`, a stop waits until each has ended by itself; here, by a timeout.
// Covers: MT-238
#[test]
fn a_stop_without_abort_waits_for_the_timeouts() {
    let pair = pair();
    let ops = of_each_queue(&pair, SOON);
    pair.a.tm.stop(Stop::Drain, HUNG).unwrap();
    let events = pair.a.rest();
    assert_eq!(events.iter().map(|event| event.op).collect::<HashSet<_>>(), HashSet::from(ops));
    for event in &events {
        assert!(ended_by_itself(event) || event.status == Err(Errno::ETIMEDOUT), "{event:?}");
    }
}

/// A stop that did not end in time goes on; it refuses new operations, delivers the ends of others,
/// and can be called again.
// Covers: MT-238, X-2, X-3
#[test]
fn a_stop_is_stopped_again_from_stopping() {
    let pair = pair();
    let op = pair.a.receive_one(64);
    for _ in 0..2 {
        let error = pair.a.tm.stop(Stop::Drain, Some(Duration::from_millis(1))).unwrap_err();
        assert_eq!((error.errno(), pair.a.tm.state()), (Errno::ETIMEDOUT, TmState::Stopping));
        let refused = pair.a.tm.start(Op::receive(pair.a.empty(64))).expect_err("it is stopping");
        assert_eq!(refused.error.errno(), Errno::ESHUTDOWN);
        assert_eq!(pair.a.tm.end_point("0@lo:12345:31:1").unwrap_err().errno(), Errno::ESHUTDOWN);
    }
    // The event of a cancelled operation is delivered as usual.
    pair.a.cancel(op);
    pair.a.tm.stop(Stop::Drain, HUNG).unwrap();
    pair.a.tm.stop(Stop::Abort, HUNG).unwrap();
    assert!(pair.a.rest().is_empty());
}

/// A machine dropped with operations of all queues in flight leaves nothing behind: its buffers
/// cannot be used again, but its address can.
// Covers: MT-53, MT-238, MT-239
#[test]
fn what_is_dropped_with_everything_in_flight_is_gone() {
    let pair = pair();
    of_each_queue(&pair, None);
    let Pair { a: Side { tm, domain, .. }, b, world } = pair;
    let address = tm.address();
    drop(tm);
    let tm = begin(&domain, &address.to_string()).unwrap();
    let pair = Pair { a: Side::of(tm, domain), b, world };
    // An earlier message may have found a buffer of the new machine.
    pair.b.tm.stop(Stop::Abort, HUNG).unwrap();
    let Pair { a, b, world } = pair;
    drop(b);
    let pair = Pair { b: Side::on(&world, 1, "77"), a, world };
    pair.b.receive_one(64);
    pair.pass(b"as if nothing had been");
}

/// Returns whether an operation of [`of_each_queue`] has ended before the stop: a message that has
/// left, or bulk that the peer has refused.
fn ended_by_itself(event: &Event) -> bool {
    match event.queue {
        Queue::MessageSend => event.status.is_ok(),
        Queue::ActiveBulkSend | Queue::ActiveBulkReceive => event.status == Err(Errno::ENODATA),
        _ => false,
    }
}

/// Starts an operation of each queue of `a`; active ones use offers that are no longer valid.
pub(super) fn of_each_queue(pair: &Pair, timeout: Option<Duration>) -> [OpId; Queue::COUNT] {
    let Pair { a, b, .. } = pair;
    let stale = |Started { op, offer }| {
        b.cancel(op);
        offer
    };
    let sends = stale(b.tm.start(Op::passive_send(b.empty(LENGTH))).unwrap());
    let receives = stale(b.tm.start(Op::passive_receive(b.empty(LENGTH))).unwrap());
    let buffer = || a.empty(LENGTH);
    [
        Op::receive(buffer()).timeout(timeout),
        Op::passive_receive(buffer()).timeout(timeout),
        Op::passive_send(buffer()).timeout(timeout),
        Op::active_receive(buffer(), &sends).timeout(timeout),
        Op::active_send(buffer(), &receives).timeout(timeout),
        Op::send(buffer(), &a.knows(b)).timeout(timeout),
    ]
    .map(|op| a.tm.start(op).unwrap().op)
}
