//! Bulk transfers: one event each, whatever LNet events come in which order.

use lnet_api::{Errno, EventKind};
use nlx_core::{HdrData, OperationKind, split_match_bits};

use super::bed;
use crate::bed::*;

// Covers: S-411, MT-29
#[test]
fn a_passive_receive_ends_with_what_was_written() {
    let bed = bed();
    let passive = bed.expose(OperationKind::PassiveReceive);
    let length = BUFFER_BYTES as u32 - 1;
    bed.receive(&passive.put(&peer(), length));
    assert_eq!(content(&bed.memory)[..length as usize], pattern(9, length as usize));
    let event = bed.only_event();
    assert_eq!((event.status(), event.length, event.offset), (Ok(()), length.into(), 0));
    assert_eq!(event.sender(), None);
}

// Covers: S-411, MT-31
#[test]
fn a_passive_send_ends_when_its_reply_has_left() {
    let bed = bed();
    let passive = bed.expose(OperationKind::PassiveSend { length: LENGTH.into() });
    let finish = bed.world.arrive(&passive.get(&peer(), LENGTH)).expect("it is answered");
    assert!(!bed.tm.pending());
    finish(Ok(()));
    let event = bed.only_event();
    assert_eq!((event.status(), event.length, event.sender()), (Ok(()), LENGTH.into(), None));
}

/// A transfer that is interrupted ends with the reason.
// Covers: S-411
#[test]
fn a_passive_operation_whose_data_breaks_off_ends_with_the_reason() {
    let bed_in = bed();
    let passive = bed_in.expose(OperationKind::PassiveReceive);
    bed_in.world.arrive(&passive.put(&peer(), LENGTH)).unwrap()(Err(Errno::EIO));
    assert_eq!(bed_in.only_event().status(), Err(Errno::EIO));
    let bed_out = bed();
    let passive = bed_out.expose(OperationKind::PassiveSend { length: 10 });
    bed_out.world.arrive(&passive.get(&peer(), 10)).unwrap()(Err(Errno::ECONNRESET));
    assert_eq!(bed_out.only_event().status(), Err(Errno::ECONNRESET));
}

/// The counter increases by one for each passive buffer, and the id is the transfer machine's.
// Covers: MT-74
#[test]
fn passive_buffers_have_match_bits_of_their_own() {
    let bed = bed();
    for counter in 1..=5 {
        let kind = if counter % 2 == 0 {
            OperationKind::PassiveReceive
        } else {
            OperationKind::PassiveSend { length: counter }
        };
        let passive = bed.expose(kind);
        let (tmid, found) = split_match_bits(passive.0.match_bits);
        assert_eq!((tmid, found.get()), (bed.tm.address().tmid.get(), counter));
        assert_eq!(passive.0.address, bed.tm.address());
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        assert!(bed.tm.event_get().unwrap().is_some());
    }
}

/// The arguments of the GET; neither the SEND nor an ACK gives an event, and the REPLY ends it.
// Covers: S-411, MT-33
#[test]
fn an_active_receive_ends_with_its_reply() {
    let bed = bed();
    let message = bed.send(active_receive(LENGTH.into()));
    assert_eq!((message.is_get, message.length, message.offset), (true, LENGTH as usize, 0));
    assert_eq!((message.to.nid, message.portal), (peer().nid, peer().portal));
    assert_eq!(message.bits.0, u64::from(peer().tmid.get()) << 52 | 55);
    assert_eq!(bed.tm.needed(), 1);
    bed.world.leave(&message, Ok(()));
    assert!(!bed.tm.pending());
    bed.receive(&message.reply(pattern(5, LENGTH as usize)));
    assert_eq!(content(&bed.memory)[..LENGTH as usize], pattern(5, LENGTH as usize));
    let event = bed.only_event();
    assert_eq!((event.status(), event.length, event.offset), (Ok(()), LENGTH.into(), 0));
}

/// No event after the REPLY; after the SEND the REPLY's status and length.
// Covers: S-411, MT-34
#[test]
fn an_active_receive_whose_reply_comes_first_ends_with_its_send() {
    let bed = bed();
    let message = bed.send(active_receive(LENGTH.into()));
    bed.receive(&message.reply(pattern(5, 100)));
    assert!(!bed.tm.pending());
    bed.world.leave(&message, Ok(()));
    let kinds: Vec<_> = bed.spy.take_events().iter().map(|event| (event.kind, event.unlinked)).collect();
    assert_eq!(kinds, [(EventKind::Reply, false), (EventKind::Send, true)]);
    let event = bed.only_event();
    assert_eq!((event.status(), event.length), (Ok(()), 100));
}

/// No REPLY will come.
// Covers: MT-35
#[test]
fn an_active_receive_that_cannot_leave_ends_with_the_reason() {
    let bed = bed();
    let message = bed.send(active_receive(LENGTH.into()));
    bed.world.leave(&message, Err(Errno::EIO));
    assert_eq!(bed.only_event().status(), Err(Errno::EIO));
}

// Covers: MT-36
#[test]
fn an_active_receive_whose_reply_breaks_off_ends_with_the_reason() {
    let bed = bed();
    let message = bed.send(active_receive(LENGTH.into()));
    bed.world.leave(&message, Ok(()));
    bed.world.arrive(&message.reply(pattern(5, 100))).unwrap()(Err(Errno::EIO));
    assert_eq!(bed.only_event().status(), Err(Errno::EIO));
}

// Covers: MT-37
#[test]
fn a_reply_that_breaks_off_before_the_send_is_remembered() {
    let bed = bed();
    let message = bed.send(active_receive(LENGTH.into()));
    bed.world.arrive(&message.reply(pattern(5, 100))).unwrap()(Err(Errno::EIO));
    assert!(!bed.tm.pending());
    bed.world.leave(&message, Ok(()));
    assert_eq!(bed.only_event().status(), Err(Errno::EIO));
}

/// Cancelled before its message has left, and then it leaves.
// Covers: MT-38, MT-39, MT-42
#[test]
fn an_active_operation_that_is_cancelled_before_it_leaves_is_cancelled() {
    for kind in [active_receive(LENGTH.into()), active_send(LENGTH.into())] {
        let bed = bed();
        let message = bed.send(kind);
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        assert!(!bed.tm.pending());
        bed.world.leave(&message, Ok(()));
        assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED), "{kind:?}");
    }
}

/// Cancelled while it waits for its REPLY.
// Covers: MT-39
#[test]
fn an_active_receive_that_waits_for_its_reply_can_be_cancelled() {
    let bed = bed();
    let message = bed.send(active_receive(LENGTH.into()));
    bed.world.leave(&message, Ok(()));
    bed.tm.cancel(bed.buffer, COOKIE).unwrap();
    assert!(bed.world.arrive(&message.reply(pattern(1, 10))).is_none(), "a late REPLY is nobody's");
    assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED));
}

/// MT-40; the design text has no header data here (motr-transport 13, row 3; K3). Unlike Motr's it
/// asks for an ACK, so its success means that the data has arrived.
// Covers: MT-40
#[test]
fn an_active_send_ends_when_it_is_acknowledged() {
    let bed = bed();
    fill(&bed.memory, &pattern(3, BUFFER_BYTES));
    let message = bed.send(active_send(LENGTH.into()));
    assert_eq!((message.is_get, message.ack, message.hdr_data), (false, true, HdrData::NONE));
    assert_eq!(message.bits.0, u64::from(peer().tmid.get()) << 52 | 55);
    assert_eq!(message.payload, pattern(3, BUFFER_BYTES)[..LENGTH as usize]);
    bed.world.leave(&message, Ok(()));
    assert!(!bed.tm.pending());
    bed.world.arrive(&message.ack()).into_iter().for_each(|finish| finish(Ok(())));
    let event = bed.only_event();
    assert_eq!((event.status(), event.length), (Ok(()), LENGTH.into()));
}

// Covers: MT-41
#[test]
fn an_active_send_that_cannot_leave_ends_with_the_reason() {
    let bed = bed();
    let message = bed.send(active_send(LENGTH.into()));
    bed.world.leave(&message, Err(Errno::EIO));
    assert_eq!(bed.only_event().status(), Err(Errno::EIO));
}

// Covers: S-411, MT-30, MT-32
#[test]
fn passive_operations_can_be_cancelled() {
    for kind in [OperationKind::PassiveReceive, OperationKind::PassiveSend { length: 4096 }] {
        let bed = bed();
        let passive = bed.expose(kind);
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        assert!(bed.world.arrive(&passive.put(&peer(), 1)).is_none(), "the buffer is not there any more");
        assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED));
    }
}

/// A peer that answers a GET with an ACK cannot make an operation that never ends.
// Covers: MT-21
#[test]
fn an_ack_for_a_get_leaves_it_to_its_reply() {
    for leaves_first in [true, false] {
        let bed = bed();
        let message = bed.send(active_receive(LENGTH.into()));
        let noise = || bed.world.arrive(&message.ack()).into_iter().for_each(|finish| finish(Ok(())));
        if leaves_first {
            bed.world.leave(&message, Ok(()));
            noise();
        } else {
            noise();
            bed.world.leave(&message, Ok(()));
        }
        assert!(!bed.tm.pending());
        bed.receive(&message.reply(pattern(5, LENGTH as usize)));
        assert_eq!(bed.only_event().status(), Ok(()));
    }
}
