//! Messages.

use nlx::{Errno, IoVec, Op, Queue};

use super::pair;
use crate::bed::*;

// Covers: MT-62
#[test]
fn a_posted_buffer_is_cancelled() {
    let pair = pair();
    let op = pair.b.receive_one(4096);
    pair.b.cancel(op);
    assert_eq!(pair.b.counts(Queue::MessageReceive), (1, 1, 0, 1));
    assert!(!pair.b.tm.cancel(op));
}

/// The check that all other tests rely on detects a wrong length and wrong bytes.
// Covers: MT-63
#[test]
fn patterns_of_other_lengths_and_positions_differ() {
    let all = pattern(0, 10_000);
    assert_eq!(all[..100], pattern(0, 100)[..]);
    assert_ne!(pattern(0, 99), pattern(0, 100));
    for shift in 1..3000 {
        assert_ne!(all[shift..shift + 64], all[..64], "{shift}");
    }
}

/// Four messages, the first of a third of the size and the others full; each arrives at its offset,
/// with its sender; the buffer is returned with the fourth. After each, the counters and the count
/// of the peer's end point agree.
// Covers: S-1, S-403, MT-20, MT-64, MT-68, MT-102, MT-153, MT-174, MT-215
#[test]
fn a_buffer_takes_as_many_messages_as_it_may() {
    let pair = pair();
    let full = 2048;
    let op = pair.b.receive(4 * full, 4, full);
    let (mut offset, mut kept) = (0, Vec::new());
    for (number, length) in (1..).zip([full / 3, full, full, full]) {
        // The free room holds a full message each time.
        let event = pair.pass(&pattern(0, length));
        assert_eq!((event.op, event.offset, event.length), (op, offset, length));
        assert_eq!(event.is_last(), number == 4);
        assert_eq!(pair.b.counts(Queue::MessageReceive), (1, 0, number, 0));
        assert_eq!(pair.a.counts(Queue::MessageSend), (number, 0, number, 0));
        kept.push(event);
        assert_eq!(kept[0].sender.as_ref().unwrap().references() as u64, number);
        offset += length;
    }
    // The first messages are unchanged.
    for event in &kept {
        assert_eq!(event.message.as_deref(), Some(&pattern(0, event.length)[..]));
    }
    assert_eq!(pair.b.tm.in_flight(), 0);
}

/// The first message is larger than a segment; a second buffer takes over when the first ends.
// Covers: MT-65, MT-67
#[test]
fn a_second_buffer_takes_over_after_the_most_messages() {
    let pair = pair();
    let full = 3 * SEGMENT;
    let ops = [(); 2].map(|()| {
        pair.b.tm.start(Op::receive(segments(&pair.b, 6)).min_receive_size(full).max_messages(2)).unwrap().op
    });
    take_over(&pair, ops, [SEGMENT + 1, full]);
}

/// Eight messages are allowed, but after two, less room is left than the smallest message needs.
// Covers: S-403, MT-66
#[test]
fn a_buffer_ends_when_little_room_is_left() {
    let pair = pair();
    let op = pair.b.receive(2500, 8, 1000);
    for (offset, last) in [(0, false), (900, true)] {
        let event = pair.pass(&pattern(0, 900));
        assert_eq!((event.op, event.offset, event.is_last()), (op, offset, last));
    }
    assert_eq!(pair.b.counts(Queue::MessageReceive), (1, 0, 2, 0));
}

/// The same with messages larger than a segment.
// Covers: MT-67
#[test]
fn a_second_buffer_takes_over_when_little_room_is_left() {
    let pair = pair();
    let length = SEGMENT + SEGMENT / 2;
    let ops = [(); 2].map(|()| {
        pair.b
            .tm
            .start(Op::receive(segments(&pair.b, 4)).min_receive_size(2 * SEGMENT).max_messages(8))
            .unwrap()
            .op
    });
    take_over(&pair, ops, [length, length]);
}

/// The send of a message without a buffer succeeds, and neither side fails.
// Covers: MT-69
#[test]
fn a_message_without_a_buffer_has_left() {
    let pair = pair();
    pair.send(b"hello");
    assert_eq!(pair.a.counts(Queue::MessageSend), (1, 0, 1, 0));
    assert_eq!(pair.b.counts(Queue::MessageReceive), (0, 0, 0, 0));
    pair.settle();
    pair.b.has_nothing();
    // The next one finds the buffer that is posted now.
    pair.b.receive_one(64);
    pair.pass(b"again");
}

/// The send to a transfer machine that does not exist succeeds too; the end point counts one again.
// Covers: MT-27, MT-71, MT-101
#[test]
fn a_message_without_a_receiver_has_left() {
    let pair = pair();
    let absent = pair.a.tm.end_point(&wanted(&pair.world, 1, "1")).unwrap();
    let op = pair.a.tm.start(Op::send(pair.a.filled(b"hello"), &absent).timeout(HUNG)).unwrap().op;
    assert!(absent.references() == 2 || pair.world.is_called());
    assert_eq!(pair.a.end_of(op).status, Ok(()));
    assert_eq!(absent.references(), 1);
    assert_eq!(pair.a.counts(Queue::MessageSend), (1, 0, 1, 0));
}

/// Invalid lengths are refused, and no operation is in flight (the preconditions of motr-transport
/// 2.6.2).
#[test]
fn what_cannot_be_sent_or_received_is_refused_with_its_buffer() {
    let pair = pair();
    let to = pair.a.knows(&pair.b);
    for length in [0, 65] {
        let refused =
            pair.a.tm.start(Op::send(pair.a.empty(64), &to).length(length)).expect_err("no such length");
        assert_eq!((refused.error.errno(), refused.buffer.len()), (Errno::EINVAL, 64));
    }
    for (min_receive_size, max_messages) in [(0, 1), (65, 1), (64, 0)] {
        let op = Op::receive(pair.a.empty(64)).min_receive_size(min_receive_size).max_messages(max_messages);
        let refused = pair.a.tm.start(op).expect_err("it cannot be");
        assert_eq!((refused.error.errno(), refused.buffer.len()), (Errno::EINVAL, 64));
    }
    assert_eq!(pair.a.tm.in_flight(), 0);
}

const SEGMENT: usize = 512;

/// Registers a buffer of this number of segments, each in separate memory.
fn segments(side: &Side, count: usize) -> nlx::Buffer {
    let fragments = (0..count).map(|_| side.empty(SEGMENT).memory().fragments()[0].clone());
    side.domain.register(IoVec::new(fragments.collect::<Vec<_>>()).unwrap()).unwrap()
}

/// Sends messages of these lengths, which fill one buffer after the other.
fn take_over(pair: &Pair, ops: [nlx::OpId; 2], lengths: [usize; 2]) {
    for op in ops {
        let mut offset = 0;
        for (length, last) in lengths.into_iter().zip([false, true]) {
            let event = pair.pass(&pattern(0, length));
            assert_eq!((event.op, event.offset, event.is_last()), (op, offset, last));
            offset += length;
        }
    }
    assert_eq!(pair.b.counts(Queue::MessageReceive), (2, 0, 4, 0));
}
