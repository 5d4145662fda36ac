//! Errors of the program: messages and operations that cannot succeed.

use nlx::{Errno, Op, Queue};

use super::{pair, world};
use crate::bed::*;

/// A message to a transfer machine that is not started has left; a machine that is started later
/// does not get it.
// Covers: MT-193
#[test]
fn a_message_to_a_machine_that_is_not_started_is_gone() {
    let pair = pair();
    let Pair { a, world, .. } = &pair;
    let to = a.tm.end_point(&wanted(world, 1, "9")).unwrap();
    let op = a.tm.start(Op::send(a.filled(b"too early"), &to).timeout(HUNG)).unwrap().op;
    assert_eq!(a.end_of(op).status, Ok(()));
    pair.settle();
    let late = Side::on(world, 1, "9");
    late.receive_one(64);
    let op = a.tm.start(Op::send(a.filled(b"in time"), &to).timeout(HUNG)).unwrap().op;
    assert_eq!(a.end_of(op).status, Ok(()));
    assert_eq!(late.next().message.as_deref(), Some(&b"in time"[..]));
}

/// A message longer than a buffer allows does not use it, and shorter ones find it.
// Covers: MT-195
#[test]
fn a_message_that_is_too_long_leaves_the_buffer_alone() {
    let pair = pair();
    let op = pair.b.receive(400, 2, 200);
    pair.send(&pattern(0, 201));
    let event = pair.pass(&pattern(0, 200));
    assert_eq!((event.op, event.is_last()), (op, false));
    pair.send(&pattern(0, 401));
    assert!(pair.pass(&pattern(0, 10)).is_last());
    assert_eq!(pair.b.counts(Queue::MessageReceive), (1, 0, 2, 0));
}

/// A receive buffer that has messages is cancelled: its messages stay, later ones go elsewhere.
// Covers: MT-240
#[test]
fn a_buffer_with_messages_is_cancelled() {
    let pair = pair();
    let several = |buffer| Op::receive(buffer).max_messages(10);
    let first = pair.b.tm.start(several(pair.b.empty(640))).unwrap().op;
    let event = pair.pass(b"one");
    assert!(!event.is_last());
    assert!(pair.b.tm.cancel(first));
    let end = pair.b.end_of(first);
    assert_eq!((end.status, end.length, end.message.is_none()), (Err(Errno::ECANCELED), 0, true));
    // The bytes of a message outlive its operation, and keep the buffer from being posted again.
    let refused = pair.b.tm.start(several(end.buffer.unwrap())).expect_err("it is lent out");
    assert_eq!((refused.error.errno(), event.message.as_deref()), (Errno::EBUSY, Some(&b"one"[..])));
    drop(event);
    let second = pair.b.tm.start(several(refused.buffer)).unwrap().op;
    assert_eq!(pair.pass(b"two").op, second);
}

/// Reactions to an event: the same buffer is posted again, another is started, and another
/// cancelled.
// Covers: MT-244
#[test]
fn between_two_events_anything_is_started_and_cancelled() {
    let pair = pair();
    let mut to_cancel = pair.b.tm.start(Op::passive_receive(pair.b.empty(64))).unwrap().op;
    pair.b.receive_one(64);
    for round in 0..32_u8 {
        pair.send(&[round]);
        let event = pair.b.next();
        assert_eq!(event.message.as_deref(), Some(&[round][..]));
        drop(event.message);
        pair.b.tm.start(Op::receive(event.buffer.unwrap())).unwrap();
        let next = pair.b.tm.start(Op::passive_receive(pair.b.empty(64))).unwrap().op;
        assert!(pair.b.tm.cancel(to_cancel));
        pair.b.tm.cancel(to_cancel);
        assert_eq!(pair.b.end_of(to_cancel).status, Err(Errno::ECANCELED));
        assert!(!pair.b.tm.cancel(to_cancel));
        to_cancel = next;
    }
    assert_eq!(pair.b.counts(Queue::MessageReceive), (33, 0, 32, 0));
}

/// Without room for its events an operation is refused with its buffer; there is room again when
/// another ends.
// Covers: MT-243
#[test]
fn an_operation_without_room_for_its_events_is_refused() {
    let world = world();
    let domain = world.domain(0);
    let options = nlx::TmOptions::default().events_max(4);
    let tm = domain.transfer_machine(&wanted(&world, 0, "*"), options).unwrap();
    let a = Side::of(tm, domain);
    let three = |buffer| Op::receive(buffer).min_receive_size(1).max_messages(3).timeout(HUNG);
    let first = a.tm.start(three(a.empty(64))).unwrap().op;
    let refused = a.tm.start(three(a.empty(64))).expect_err("there is room for one more");
    assert_eq!((refused.error.errno(), a.tm.in_flight()), (Errno::ENOMEM, 1));
    let other = a.tm.start(Op::passive_receive(a.empty(64))).unwrap().op;
    a.cancel(first);
    let again = a.tm.start(three(refused.buffer)).unwrap().op;
    a.cancel(again);
    a.cancel(other);
    assert_eq!(a.counts(Queue::MessageReceive), (2, 2, 0, 2));
}
