//! Large bulk transfers.

use nlx::{Errno, Offer, Op, Queue, Started, Stop};

use super::pair;
use crate::bed::*;

const PART: usize = 1 << 20;

/// Reads and writes, of lengths around the limits of parts; one event on each side, and all parts
/// counted.
#[test]
fn large_buffers_are_read_and_written() {
    let Pair { a, b, world: _world } = &pair();
    let mut parts = 0;
    for length in [1, PART - 1, PART, PART + 1, 3 * PART, 9 * PART - 1] {
        let data = pattern(0, length);
        let mut source = a.filled(&data);
        source.set_tag(7);
        let Started { op: passive, offer } =
            a.tm.start(Op::passive_send(source).length(length).timeout(HUNG)).unwrap();
        assert_eq!((offer.length(), offer.parts()), (length as u64, length.div_ceil(PART)));
        assert!(a.tm.in_flight() == offer.parts());
        let offer = Offer::from_bytes(offer.as_bytes()).unwrap();
        let active = b.tm.start(Op::active_receive(b.empty(length + 10), &offer).timeout(HUNG)).unwrap().op;
        let event = b.end_of(active);
        assert_eq!((event.queue, event.status, event.length), (Queue::ActiveBulkReceive, Ok(()), length));
        assert!(event.buffer.unwrap().read().unwrap()[..length] == data, "{length} bytes read wrongly");
        let event = a.end_of(passive);
        assert_eq!((event.queue, event.status, event.length), (Queue::PassiveBulkSend, Ok(()), length));
        assert_eq!((event.tag, event.buffer.unwrap().read().unwrap()[..] == data), (7, true));

        let Started { op: passive, offer } =
            a.tm.start(Op::passive_receive(a.empty(length + 10)).length(length).timeout(HUNG)).unwrap();
        let active = b.tm.start(Op::active_send(b.filled(&data), &offer).timeout(HUNG)).unwrap().op;
        let event = b.end_of(active);
        assert_eq!((event.queue, event.status, event.length), (Queue::ActiveBulkSend, Ok(()), length));
        let event = a.end_of(passive);
        assert_eq!((event.queue, event.status, event.length), (Queue::PassiveBulkReceive, Ok(()), length));
        assert!(event.buffer.unwrap().read().unwrap()[..length] == data, "{length} bytes written wrongly");
        parts += length.div_ceil(PART) as u64;
    }
    let all = (parts, 0, parts, 0);
    assert_eq!([b.counts(Queue::ActiveBulkReceive), b.counts(Queue::ActiveBulkSend)], [all; 2]);
    assert_eq!([a.counts(Queue::PassiveBulkSend), a.counts(Queue::PassiveBulkReceive)], [all; 2]);
}

/// An offer can be cancelled, times out as a whole, and is stopped; each returns the whole buffer.
#[test]
fn what_is_not_taken_ends_as_a_whole() {
    let Pair { a, .. } = &pair();
    let op = a.tm.start(Op::passive_send(a.empty(5 * PART))).unwrap().op;
    assert!(a.tm.cancel(op));
    let event = a.end_of(op);
    assert_eq!((event.status, event.buffer.unwrap().len()), (Err(Errno::ECANCELED), 5 * PART));
    let op = a.tm.start(Op::passive_receive(a.empty(5 * PART)).timeout(SOON)).unwrap().op;
    let event = a.end_of(op);
    assert_eq!((event.status, event.buffer.unwrap().len()), (Err(Errno::ETIMEDOUT), 5 * PART));
    let op = a.tm.start(Op::passive_receive(a.empty(5 * PART))).unwrap().op;
    a.tm.stop(Stop::Abort, HUNG).unwrap();
    let event = a.end_of(op);
    assert_eq!((event.status, event.buffer.unwrap().len()), (Err(Errno::ECANCELED), 5 * PART));
}
