//! Unsolicited messages.

use lnet_api::Errno;
use nlx_core::{HdrData, OperationKind};

use super::bed;
use crate::bed::*;

/// Each message is a separate event with its length and offset; the third leaves too little room
/// for a fourth.
// Covers: S-411, MT-15, MT-20, MT-21, MT-22, MT-23, MT-208
#[test]
fn a_receive_buffer_gives_one_event_for_each_message() {
    let bed = bed().started(RECEIVE);
    let mut content = Vec::new();
    for (number, (length, offset)) in [(500, 0), (700, 500), (3000, 1200)].into_iter().enumerate() {
        let from = peer_of(number as u32);
        bed.receive(&bed.message(&from, length));
        let event = bed.tm.event_get().unwrap().expect("a message came");
        assert_eq!((event.status(), event.length, event.offset), (Ok(()), length.into(), offset));
        assert_eq!(event.sender(), Some(from));
        assert_eq!((event.buffer(), event.cookie), (bed.buffer, COOKIE));
        assert_eq!(event.unlinked(), number == 2);
        assert_eq!(bed.tm.needed(), if number == 2 { 0 } else { MESSAGES as usize });
        content.extend(pattern(7, length as usize));
    }
    assert_eq!(crate::bed::content(&bed.memory)[..content.len()], content);
    bed.assert_idle();
    bed.assert_no_faults();
}

/// The other end of a receive buffer: its maximum number of messages.
// Covers: MT-20
#[test]
fn a_receive_buffer_ends_with_its_last_message() {
    let bed = bed().started(RECEIVE);
    for number in 1..=MESSAGES {
        bed.receive(&bed.message(&peer(), 1));
        let event = bed.tm.event_get().unwrap().unwrap();
        assert_eq!(
            (event.unlinked(), event.released),
            (number == MESSAGES, u32::from(number == MESSAGES) * MESSAGES)
        );
    }
    assert!(bed.world.arrive(&bed.message(&peer(), 1)).is_none(), "nobody takes a message more");
    bed.assert_idle();
}

/// The sender is in each event.
// Covers: MT-22
#[test]
fn each_message_names_its_own_sender() {
    let bed = bed().started(RECEIVE);
    let from = [peer_of(0), peer_of(0), peer_of(1), peer_of(3)];
    from.iter().for_each(|from| bed.receive(&bed.message(from, 10)));
    let senders: Vec<_> =
        std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|event| event.sender()).collect();
    assert_eq!(senders, from.map(Some));
}

/// Events that wait in the queue are neither lost nor out of order.
// Covers: S-417, MT-24, MT-208
#[test]
fn messages_accumulate_until_they_are_taken() {
    let bed = bed().started(RECEIVE);
    for number in 0..MESSAGES {
        bed.receive(&bed.message(&peer_of(number), 1000));
        assert!(bed.tm.pending());
    }
    assert_eq!(bed.tm.needed(), MESSAGES as usize);
    let offsets: Vec<u64> =
        std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|event| event.offset).collect();
    assert_eq!(offsets, [0, 1000, 2000, 3000]);
    bed.assert_idle();
}

/// A message that is longer than the remaining room, or than `min_receive_size`, does not match.
// Covers: S-403
#[test]
fn a_message_that_is_too_long_is_not_taken() {
    let bed = bed().started(RECEIVE);
    assert!(bed.world.arrive(&bed.message(&peer(), MIN_RECEIVE_SIZE as u32 + 1)).is_none());
    bed.receive(&bed.message(&peer(), MIN_RECEIVE_SIZE as u32));
    assert_eq!(bed.only_event().length, MIN_RECEIVE_SIZE);
}

// Covers: MT-245
#[test]
fn a_message_without_header_data_has_no_sender() {
    for no_sender in [HdrData::NONE, HdrData { tmid: 0, portal: 31 }.encode()] {
        let bed = bed().started(RECEIVE);
        // The buffer ends with it.
        let mut message = bed.message(&peer(), LENGTH);
        let Body::Put { hdr_data, .. } = &mut message.body else { unreachable!() };
        *hdr_data = no_sender;
        bed.receive(&message);
        assert_eq!(bed.only_event().sender(), None);
    }
}

/// A message that is interrupted is reported with its reason.
// Covers: S-411
#[test]
fn a_message_that_breaks_off_is_an_event_with_its_reason() {
    let bed = bed().started(RECEIVE);
    bed.world.arrive(&bed.message(&peer(), 100)).unwrap()(Err(Errno::EIO));
    let event = bed.tm.event_get().unwrap().unwrap();
    assert_eq!((event.status(), event.sender()), (Err(Errno::EIO), None));
    bed.tm.cancel(bed.buffer, COOKIE).unwrap();
    if !event.unlinked() {
        assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED));
    }
}

/// The arguments of the PUT, and the one event. Row 4 of motr-transport 13: the SEND of an own
/// message names no sender, although it carries the own header data.
// Covers: S-411, MT-27
#[test]
fn a_message_goes_to_its_peer_with_the_senders_address_and_gives_one_event() {
    let bed = bed();
    fill(&bed.memory, &pattern(3, BUFFER_BYTES));
    let message = bed.send(OperationKind::Send { length: 2000, to: peer() });
    let own = bed.tm.address();
    assert_eq!((message.is_get, message.ack, message.offset), (false, false, 0));
    assert_eq!((message.to.nid, message.to.pid, message.portal), (peer().nid, peer().pid, peer().portal));
    assert_eq!(message.bits.0, u64::from(peer().tmid.get()) << 52);
    assert_eq!(message.hdr_data, u64::from(own.tmid.get()) << 52 | u64::from(own.portal));
    assert_eq!(message.payload, pattern(3, BUFFER_BYTES)[..2000]);
    assert_eq!((bed.tm.needed(), bed.tm.pending()), (1, false));
    bed.world.leave(&message, Ok(()));
    let event = bed.only_event();
    assert_eq!((event.status(), event.length, event.sender()), (Ok(()), 2000, None));
    bed.assert_no_faults();
}

// Covers: MT-27, MT-28
#[test]
fn a_message_that_cannot_leave_ends_with_the_reason() {
    for errno in [Errno::EHOSTUNREACH, Errno::EIO, Errno::ECONNRESET, Errno::ETIMEDOUT] {
        let bed = bed();
        let message = bed.send(OperationKind::Send { length: 1, to: peer() });
        bed.world.leave(&message, Err(errno));
        assert_eq!(bed.only_event().status(), Err(errno));
    }
}

/// An ACK that was not requested changes nothing.
// Covers: MT-21
#[test]
fn an_ack_for_a_message_means_nothing() {
    let bed = bed();
    let message = bed.send(OperationKind::Send { length: 100, to: peer() });
    bed.world.arrive(&message.ack()).into_iter().for_each(|finish| finish(Ok(())));
    assert!(!bed.tm.pending());
    bed.world.leave(&message, Ok(()));
    assert_eq!(bed.only_event().status(), Ok(()));
}

/// The time in an event counts from the start of its operation.
#[test]
fn the_time_of_an_event_counts_from_the_start_of_its_operation() {
    let bed = bed();
    bed.drive.clock().set_now_ns(1_000);
    bed.submit(RECEIVE).unwrap();
    for now_ns in [1_400, 2_000] {
        bed.drive.clock().set_now_ns(now_ns);
        bed.receive(&bed.message(&peer(), 1));
    }
    let times: Vec<u64> =
        std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|event| event.time_ns).collect();
    assert_eq!(times, [400, 1_000]);
}
