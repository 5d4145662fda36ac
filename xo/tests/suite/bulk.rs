//! Bulk transfers.

use nlx::{Errno, Offer, Op, OpId, Queue, Refused, Started};

use super::pair;
use crate::bed::*;

/// Both passive queues: a descriptor of 48 bytes, cancelled, counted; the descriptor outlives its
/// operation.
// Covers: MT-62, MT-80, MT-103, MT-106
#[test]
fn passive_buffers_are_offered_and_cancelled() {
    let Pair { a, .. } = &pair();
    let Started { op, offer: receives } = a.tm.start(Op::passive_receive(a.empty(4096))).unwrap();
    a.cancel(op);
    let Started { op, offer: sends } = a.tm.start(Op::passive_send(a.empty(4096))).unwrap();
    a.cancel(op);
    for (queue, offer) in [(Queue::PassiveBulkReceive, &receives), (Queue::PassiveBulkSend, &sends)] {
        assert_eq!(a.counts(queue), (1, 1, 0, 1));
        assert_eq!(offer.as_bytes().len(), 48);
    }
    assert_ne!(receives, sends);
}

/// Refused in the wrong direction and where it does not fit; read into a larger buffer, with one
/// event on each side.
// Covers: MT-81, MT-102, MT-172, MT-215
#[test]
fn what_is_offered_is_read() {
    let Pair { a, b, world: _world } = &pair();
    for length in [1, 4095, 4096, 65_537, 1 << 20] {
        let data = pattern(0, length);
        let Started { op: passive, offer: sends } =
            a.tm.start(Op::passive_send(a.filled(&data)).timeout(HUNG)).unwrap();
        let active_send = |sends: &Offer| b.tm.start(Op::active_send(b.empty(length), sends).timeout(HUNG));
        assert_eq!(errno_of(active_send(&sends), length), Errno::EPERM);
        if length > 1 {
            let short = b.tm.start(Op::active_receive(b.empty(length - 1), &sends).timeout(HUNG));
            assert_eq!(errno_of(short, length - 1), Errno::EFBIG);
        }
        let room = (length + 4096).min(1 << 20);
        let active = b.tm.start(Op::active_receive(b.empty(room), &sends).timeout(HUNG)).unwrap().op;
        let event = b.end_of(active);
        assert_eq!((event.queue, event.status), (Queue::ActiveBulkReceive, Ok(())));
        assert_eq!((event.length, event.offset), (length, 0));
        assert_eq!(event.buffer.unwrap().read().unwrap()[..length], data[..]);
        let event = a.end_of(passive);
        assert_eq!((event.queue, event.status), (Queue::PassiveBulkSend, Ok(())));
        assert_eq!(event.length, length);
    }
    assert_eq!(
        (a.counts(Queue::PassiveBulkSend), b.counts(Queue::ActiveBulkReceive)),
        ((5, 0, 5, 0), (5, 0, 5, 0))
    );
    assert_eq!(b.counts(Queue::ActiveBulkSend), (0, 0, 0, 0));
}

/// The same for a buffer that peers write into; data that is longer is refused before any transfer.
// Covers: MT-82, MT-102, MT-197, MT-215
#[test]
fn what_is_offered_is_written() {
    let Pair { a, b, world: _world } = &pair();
    for length in [1, 4097, (1 << 20) - 8192] {
        let data = pattern(0, length);
        let room = length + 8192;
        let Started { op: passive, offer: receives } =
            a.tm.start(Op::passive_receive(a.empty(room)).timeout(HUNG)).unwrap();
        assert_eq!(
            errno_of(b.tm.start(Op::active_receive(b.empty(1 << 20), &receives).timeout(HUNG)), 1 << 20),
            Errno::EPERM
        );
        if room < 1 << 20 {
            let larger = b.tm.start(Op::active_send(b.empty(room + 1), &receives).timeout(HUNG));
            assert_eq!(errno_of(larger, room + 1), Errno::EFBIG);
        }
        let active = b.tm.start(Op::active_send(b.filled(&data), &receives).timeout(HUNG)).unwrap().op;
        let event = b.end_of(active);
        assert_eq!((event.queue, event.status, event.length), (Queue::ActiveBulkSend, Ok(()), length));
        let event = a.end_of(passive);
        assert_eq!((event.queue, event.status, event.length), (Queue::PassiveBulkReceive, Ok(()), length));
        assert!(event.sender.is_none() && event.message.is_none());
        assert_eq!(event.buffer.unwrap().read().unwrap()[..length], data[..]);
    }
}

/// A descriptor used in the wrong direction is refused, and its buffer stays in flight.
// Covers: MT-81, MT-82, MT-196, MT-246
#[test]
fn a_wrong_pairing_harms_no_other_peer() {
    let Pair { a, b, world: _world } = &pair();
    let Started { op: sends_op, offer: sends } = a.tm.start(Op::passive_send(a.empty(100))).unwrap();
    let Started { op: receives_op, offer: receives } = a.tm.start(Op::passive_receive(a.empty(100))).unwrap();
    assert_eq!(errno_of(b.tm.start(Op::active_send(b.empty(100), &sends).timeout(HUNG)), 100), Errno::EPERM);
    for (offer, errno) in [(receives, Errno::EPERM), (Offer::NONE, Errno::EINVAL)] {
        assert_eq!(errno_of(b.tm.start(Op::active_receive(b.empty(100), &offer).timeout(HUNG)), 100), errno);
    }
    assert_eq!((a.tm.in_flight(), b.tm.in_flight()), (2, 0));
    a.cancel(sends_op);
    a.cancel(receives_op);
}

/// A descriptor that was used, or whose operation was cancelled, gives an error at once, and not at
/// the timeout; a write to it gets an error too.
// Covers: MT-198
#[test]
fn a_descriptor_that_was_used_or_cancelled_says_so() {
    let Pair { a, b, world: _world } = &pair();
    let data = pattern(0, 1000);
    for used in [true, false] {
        let Started { op: sends_op, offer: sends } =
            a.tm.start(Op::passive_send(a.filled(&data)).timeout(HUNG)).unwrap();
        let Started { op: receives_op, offer: receives } =
            a.tm.start(Op::passive_receive(a.empty(1000)).timeout(HUNG)).unwrap();
        let read = || b.end_of(b.tm.start(Op::active_receive(b.empty(1000), &sends)).unwrap().op);
        let write = || b.end_of(b.tm.start(Op::active_send(b.filled(&data), &receives)).unwrap().op);
        if used {
            assert_eq!([read().status, write().status], [Ok(()); 2]);
            assert_eq!([sends_op, receives_op].map(|op| a.end_of(op).status), [Ok(()); 2]);
        } else {
            a.cancel(sends_op);
            a.cancel(receives_op);
        }
        for event in [read(), write(), read()] {
            assert_eq!((event.status, event.length), (Err(Errno::ENODATA), 0), "{:?}", event.queue);
            assert_eq!(event.buffer.unwrap().len(), 1000);
        }
        a.has_nothing();
    }
}

/// The descriptor of a buffer that was cancelled and offered again is invalid, and the new offer is
/// not affected.
// Covers: MT-198
#[test]
fn a_stale_descriptor_does_not_reach_the_next_offer() {
    let Pair { a, b, world: _world } = &pair();
    let data = pattern(0, 1000);
    let Started { op, offer: stale } = a.tm.start(Op::passive_send(a.filled(&data))).unwrap();
    assert!(a.tm.cancel(op));
    let event = a.end_of(op);
    let Started { op, offer: fresh } =
        a.tm.start(Op::passive_send(event.buffer.unwrap()).length(1000).timeout(HUNG)).unwrap();
    assert_ne!(stale, fresh);
    let lost = b.tm.start(Op::active_receive(b.empty(1000), &stale)).unwrap().op;
    let event = b.end_of(lost);
    // A GET that matches nothing has no answer in LNet; but this peer runs nlx.
    assert_eq!((event.status, event.length), (Err(Errno::ENODATA), 0));
    assert!(event.buffer.unwrap().read().unwrap().iter().all(|&byte| byte == 0));
    a.has_nothing();
    let active = b.tm.start(Op::active_receive(b.empty(1000), &fresh).timeout(HUNG)).unwrap().op;
    assert_eq!(b.end_of(active).buffer.unwrap().read().unwrap()[..], data[..]);
    assert_eq!(a.end_of(op).status, Ok(()));
}

/// Both machines transfer data in both directions at once.
#[test]
fn bulk_goes_both_ways_at_once() {
    let Pair { a, b, world: _world } = &pair();
    let data = pattern(0, 300_000);
    let mut ends = Vec::new();
    for (one, other) in [(a, b), (b, a)] {
        let Started { op: sends_op, offer: sends } =
            one.tm.start(Op::passive_send(one.filled(&data)).timeout(HUNG)).unwrap();
        let Started { op: receives_op, offer: receives } =
            one.tm.start(Op::passive_receive(one.empty(data.len())).timeout(HUNG)).unwrap();
        let reads_op =
            other.tm.start(Op::active_receive(other.empty(data.len()), &sends).timeout(HUNG)).unwrap().op;
        let writes_op =
            other.tm.start(Op::active_send(other.filled(&data), &receives).timeout(HUNG)).unwrap().op;
        ends.push((one, [sends_op, receives_op]));
        ends.push((other, [reads_op, writes_op]));
    }
    for side in [a, b] {
        let mut wanted: Vec<OpId> =
            ends.iter().filter(|(of, _)| std::ptr::eq(*of, side)).flat_map(|(_, ops)| *ops).collect();
        let mut got = Vec::new();
        for _ in 0..4 {
            let event = side.next();
            assert_eq!((event.status, event.length), (Ok(()), data.len()));
            assert_eq!(event.buffer.unwrap().read().unwrap()[..], data[..]);
            got.push(event.op);
        }
        wanted.sort();
        got.sort();
        assert_eq!(got, wanted);
    }
}

/// Returns the errno of a refused operation, and checks that its buffer has this length.
fn errno_of(result: Result<Started, Refused>, bytes: usize) -> Errno {
    let refused = result.expect_err("it is refused");
    assert_eq!(refused.buffer.len(), bytes);
    refused.error.errno()
}
