//! Operations on a part of a buffer (motr-transport 5.5).

use lnet_fake::Call;
use lnet_region::{Fragment, IoVec, Region};
use nlx_core::{Core, OperationKind, Queue};

use super::bed;
use crate::bed::*;

/// Returns segments of these lengths, each in a separate region, with these numbers of bytes before
/// it.
fn segments(shape: &[(usize, usize)]) -> IoVec {
    let segment = |&(before, bytes): &(usize, usize)| {
        Fragment::new(Region::heap(before + bytes + 1).unwrap(), before, bytes).unwrap()
    };
    IoVec::new(shape.iter().map(segment).collect::<Vec<_>>()).unwrap()
}

/// Returns vectors of every kind: one segment, single bytes, odd starts, a short segment inside,
/// page ends.
fn shapes() -> Vec<IoVec> {
    vec![
        segments(&[(0, 1)]),
        segments(&[(0, 40)]),
        segments(&[(3, 1), (0, 1), (1, 1), (7, 1)]),
        segments(&[(0, 16), (5, 3), (0, 16), (1, 7)]),
        segments(&[(4095, 2), (4095, 9), (0, 30), (17, 1)]),
    ]
}

/// For each byte count of vectors of every kind exactly the first bytes are sent, and the buffer is
/// complete again each time.
// Covers: MT-16, MT-17, MT-227
#[test]
fn a_buffer_is_cut_to_every_byte_count_and_whole_again() {
    let bed = bed();
    for vector in shapes() {
        let total = vector.len();
        let bytes = pattern(11, total);
        fill(&vector, &bytes);
        let buffer = bed.core.register(&vector).unwrap();
        for length in 1..=total {
            let send = OperationKind::Send { length: length as u64, to: peer() };
            for kind in [send, active_send(length as u64)] {
                bed.submit_on(buffer, COOKIE, kind).unwrap();
                let message = bed.world.outgoing().pop().unwrap();
                assert_eq!(message.payload, bytes[..length], "{length} of {total}");
                bed.world.leave(&message, Ok(()));
                if message.ack {
                    bed.receive(&message.ack());
                }
                let event = bed.tm.event_get().unwrap().unwrap();
                assert_eq!((event.status(), event.length), (Ok(()), length as u64));
            }
            bed.spy.take_calls();
            bed.submit_on(buffer, COOKIE, OperationKind::PassiveReceive).unwrap();
            let calls = bed.spy.take_calls();
            assert!(matches!(&calls[1], Call::MdAttach { md, .. } if md.memory.len() == total));
            bed.tm.cancel(buffer, COOKIE).unwrap();
            assert!(bed.tm.event_get().unwrap().is_some());
        }
        assert_eq!(content(&vector), bytes);
    }
    bed.assert_idle();
}

/// Read data is written to exactly the first bytes of the buffer.
// Covers: MT-227
#[test]
fn an_active_receive_writes_no_more_than_it_asked_for() {
    let bed = bed();
    for vector in shapes() {
        let total = vector.len();
        let buffer = bed.core.register(&vector).unwrap();
        for length in 1..=total {
            fill(&vector, &vec![0xee; total]);
            bed.submit_on(buffer, COOKIE, active_receive(length as u64)).unwrap();
            let message = bed.world.outgoing().pop().unwrap();
            assert_eq!(message.length, length);
            bed.world.leave(&message, Ok(()));
            bed.receive(&message.reply(pattern(13, length)));
            let event = bed.tm.event_get().unwrap().unwrap();
            assert_eq!((event.status(), event.length), (Ok(()), length as u64));
            let mut expected = vec![0xee; total];
            expected[..length].copy_from_slice(&pattern(13, length));
            assert_eq!(content(&vector), expected, "{length} of {total}");
        }
    }
    bed.assert_idle();
}

/// The readable part of a passive buffer.
// Covers: MT-227
#[test]
fn a_passive_send_shows_no_more_than_it_said() {
    let bed = bed();
    for vector in shapes() {
        let buffer = bed.core.register(&vector).unwrap();
        for length in 1..=vector.len() as u64 {
            let kind = OperationKind::PassiveSend { length };
            let descriptor = bed.submit_on(buffer, COOKIE, kind).unwrap().descriptor.unwrap();
            let passive = Passive(passive_of(&descriptor));
            assert_eq!((passive.0.queue, passive.0.length), (Queue::PassiveBulkSend, length));
            bed.receive(&passive.get(&peer(), length as u32));
            assert_eq!(bed.tm.event_get().unwrap().map(|event| event.length), Some(length));
        }
    }
    bed.assert_idle();
}

/// Several messages in a vector of odd segments are adjacent.
// Covers: MT-20, MT-228
#[test]
fn messages_lie_one_behind_the_other_in_odd_segments() {
    let bed = bed();
    for vector in shapes() {
        let total = vector.len();
        let buffer = bed.core.register(&vector).unwrap();
        let kind = OperationKind::Receive { min_receive_size: 1, max_messages: total as u32 };
        bed.submit_on(buffer, COOKIE, kind).unwrap();
        (0..total).for_each(|_| bed.receive(&bed.message(&peer(), 1)));
        let offsets: Vec<u64> =
            std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|event| event.offset).collect();
        assert_eq!(offsets, (0..total as u64).collect::<Vec<_>>());
        assert_eq!(content(&vector), vec![7; total]);
    }
    bed.assert_idle();
}
