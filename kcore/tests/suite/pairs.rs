//! Two transfer machines, all six operations, with data (MT-211).

use lnet_api::Errno;
use lnet_region::{Fragment, IoVec, Region};
use nlx_core::{Core, Limits, OperationKind};

use super::pair;
use crate::bed::*;

/// Sends a message from one side to the other, and takes the event of the sending.
fn send(pair: &Pair, from: &Side, to: &Side, bytes: &[u8]) {
    let (buffer, memory) = from.buffer(bytes.len());
    fill(&memory, bytes);
    from.submit(buffer, OperationKind::Send { length: bytes.len() as u64, to: to.tm.address() }).unwrap();
    let event = pair.next(from);
    assert_eq!((event.buffer(), event.status(), event.unlinked()), (buffer, Ok(()), true));
    assert_eq!(event.sender(), None);
}

/// A single event each.
// Covers: S-417, MT-22, MT-27, MT-211
#[test]
fn a_message_arrives_with_its_sender_and_can_be_answered() {
    let pair = pair();
    let (inbox, memory) = pair.b.buffer(100);
    let once = OperationKind::Receive { min_receive_size: 100, max_messages: 1 };
    pair.b.submit(inbox, once).unwrap();
    send(&pair, &pair.a, &pair.b, b"question");
    let event = pair.next(&pair.b);
    assert_eq!((event.status(), event.length, event.offset), (Ok(()), 8, 0));
    assert_eq!(event.sender(), Some(pair.a.tm.address()));
    assert_eq!(content(&memory)[..8], *b"question");
    let (inbox, memory) = pair.a.buffer(100);
    pair.a.submit(inbox, once).unwrap();
    send(&pair, &pair.b, &pair.a, b"answer");
    let event = pair.next(&pair.a);
    assert_eq!((event.length, event.sender()), (6, Some(pair.b.tm.address())));
    assert_eq!(content(&memory)[..6], *b"answer");
    pair.assert_idle();
}

/// Several events of one buffer, which ends by number or by room.
// Covers: S-417, MT-20, MT-211
#[test]
fn several_messages_share_a_buffer() {
    let pair = pair();
    for (max_messages, room, messages) in [(3, 4096, 3), (100, 100, 7)] {
        let (inbox, memory) = pair.b.buffer(room);
        pair.b.submit(inbox, OperationKind::Receive { min_receive_size: 16, max_messages }).unwrap();
        for number in 0..messages {
            send(&pair, &pair.a, &pair.b, &pattern(number, 13));
            let event = pair.next(&pair.b);
            assert_eq!((event.length, event.offset), (13, 13 * number));
            assert_eq!(event.unlinked(), number == messages - 1);
        }
        let all: Vec<u8> = (0..messages).flat_map(|number| pattern(number, 13)).collect();
        assert_eq!(content(&memory)[..all.len()], all);
    }
    pair.assert_idle();
}

/// Exactly the length of the passive side, into a buffer with room for more.
// Covers: S-417, MT-31, MT-33, MT-75, MT-211
#[test]
fn bulk_is_read() {
    let pair = pair();
    for bytes in [1, 4095, 4096, 4097, Limits::LNET.buffer_bytes_max] {
        let (theirs, there) = pair.b.buffer(bytes);
        let (ours, here) = pair.a.buffer((bytes + 7).min(Limits::LNET.buffer_bytes_max));
        fill(&there, &pattern(5, bytes));
        let kind = OperationKind::PassiveSend { length: bytes as u64 };
        let descriptor = pair.b.submit(theirs, kind).unwrap().descriptor.unwrap();
        pair.a.submit(ours, OperationKind::ActiveReceive { descriptor }).unwrap();
        for side in [&pair.a, &pair.b] {
            let event = pair.next(side);
            assert_eq!((event.status(), event.length, event.unlinked()), (Ok(()), bytes as u64, true));
        }
        assert_eq!(content(&here)[..bytes], pattern(5, bytes));
        assert!(content(&here)[bytes..].iter().all(|&byte| byte == 0));
    }
    pair.assert_idle();
}

// Covers: S-417, MT-29, MT-40, MT-77, MT-211
#[test]
fn bulk_is_written() {
    let pair = pair();
    for bytes in [1, 4095, 4096, 4097, Limits::LNET.buffer_bytes_max] {
        let (theirs, there) = pair.b.buffer((bytes + 7).min(Limits::LNET.buffer_bytes_max));
        let (ours, here) = pair.a.buffer(bytes);
        fill(&here, &pattern(6, bytes));
        let descriptor = pair.b.submit(theirs, OperationKind::PassiveReceive).unwrap().descriptor.unwrap();
        pair.a.submit(ours, OperationKind::ActiveSend { descriptor, length: bytes as u64 }).unwrap();
        for side in [&pair.a, &pair.b] {
            let event = pair.next(side);
            assert_eq!((event.status(), event.length, event.unlinked()), (Ok(()), bytes as u64, true));
        }
        assert_eq!(content(&there)[..bytes], pattern(6, bytes));
    }
    pair.assert_idle();
}

/// Between vectors of odd segments, at every byte count.
// Covers: MT-227, MT-228
#[test]
fn bulk_of_every_byte_count_passes_between_odd_segments() {
    let odd = |lengths: &[usize]| {
        let segment = |(at, &bytes): (usize, &usize)| {
            Fragment::new(Region::heap(at + bytes).unwrap(), at, bytes).unwrap()
        };
        IoVec::new(lengths.iter().enumerate().map(segment).collect::<Vec<_>>()).unwrap()
    };
    let pair = pair();
    let (here, there) = (odd(&[3, 1, 16, 1, 20]), odd(&[1, 1, 17, 5, 2, 15]));
    let (ours, theirs) = (pair.a.core.register(&here).unwrap(), pair.b.core.register(&there).unwrap());
    let total = here.len();
    assert_eq!(total, there.len());
    let both_end = |bytes: usize| {
        for side in [&pair.a, &pair.b] {
            let event = pair.next(side);
            assert_eq!((event.status(), event.length), (Ok(()), bytes as u64));
        }
    };
    for bytes in 1..=total {
        let length = bytes as u64;
        fill(&here, &pattern(bytes as u64, total));
        fill(&there, &vec![0xee; total]);
        let descriptor = pair.b.submit(theirs, OperationKind::PassiveReceive).unwrap().descriptor.unwrap();
        pair.a.submit(ours, OperationKind::ActiveSend { descriptor, length }).unwrap();
        both_end(bytes);
        let written = [&pattern(bytes as u64, total)[..bytes], &vec![0xee; total - bytes]].concat();
        assert_eq!(content(&there), written);
        let kind = OperationKind::PassiveSend { length };
        let descriptor = pair.b.submit(theirs, kind).unwrap().descriptor.unwrap();
        fill(&here, &vec![0xdd; total]);
        pair.a.submit(ours, OperationKind::ActiveReceive { descriptor }).unwrap();
        both_end(bytes);
        assert_eq!(content(&here), [&written[..bytes], &vec![0xdd; total - bytes]].concat());
    }
    pair.assert_idle();
}

// Covers: MT-30, MT-32, MT-211
#[test]
fn what_waits_for_a_peer_is_cancelled() {
    let pair = pair();
    let waiting = [
        OperationKind::Receive { min_receive_size: 1, max_messages: 1 },
        OperationKind::PassiveReceive,
        OperationKind::PassiveSend { length: 1 },
    ];
    for kind in waiting {
        let (buffer, _) = pair.b.buffer(16);
        pair.b.submit(buffer, kind).unwrap();
        pair.b.tm.cancel(buffer, buffer.0).unwrap();
        assert_eq!(pair.next(&pair.b).status(), Err(Errno::ECANCELED));
    }
    pair.assert_idle();
}

/// Printed addresses are those of starting, sending and receiving.
// Covers: MT-7, MT-9, MT-210
#[test]
fn addresses_that_are_printed_can_be_used() {
    let pair = pair();
    for side in [&pair.a, &pair.b] {
        let text = side.tm.address().to_string();
        assert_eq!(text.parse(), Ok(side.tm.address()));
        assert!(side.core.nids().contains(&side.tm.address().nid));
    }
    let (inbox, _) = pair.b.buffer(8);
    pair.b.submit(inbox, OperationKind::Receive { min_receive_size: 8, max_messages: 1 }).unwrap();
    let (outbox, _) = pair.a.buffer(8);
    let to = pair.b.tm.address().to_string().parse().unwrap();
    pair.a.submit(outbox, OperationKind::Send { length: 8, to }).unwrap();
    let sender = pair.next(&pair.b).sender().unwrap();
    assert_eq!(sender.to_string(), pair.a.tm.address().to_string());
    assert!(pair.next(&pair.a).unlinked());
    pair.assert_idle();
}
