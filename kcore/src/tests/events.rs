//! What reaches the client for each course of LNet's events (MT-20 to MT-42, MT-208, MT-229, MT-245).

use lnet_fake::Call;
use lnet_nid::ProcessId;
use nlx_core::HdrData;

use super::*;

/// Motr's tests have ACKs where none was asked for.
fn ack() -> Happening {
    Happening::ack().impossible()
}

/// Motr's tests have UNLINKs of what is being sent.
fn unlink() -> Happening {
    Happening::new(EventKind::Unlink).last().impossible()
}

fn put(length: u32) -> Happening {
    let sender = ProcessId::lnet(peer().nid);
    let hdr_data = HdrData { tmid: peer().tmid.get(), portal: peer().portal }.encode();
    Happening::put().length(length).from(sender).hdr_data(hdr_data)
}

/// Status and length that the client learns when this happens to an operation.
fn outcome(kind: OperationKind, happenings: &[Happening]) -> (Result<(), Errno>, u64) {
    let rig = Rig::new();
    let md = rig.start(kind);
    let (last, before) = happenings.split_last().expect("something happens");
    for happening in before {
        rig.lnet.inject(md, happening);
        assert!(!rig.tm.pending(), "{happening:?} is not the end");
    }
    rig.lnet.inject(md, last);
    let event = rig.only_event();
    assert_eq!(event.sender(), None);
    (event.status(), event.length)
}

// MT-20, MT-21, MT-22, MT-23
#[test]
fn a_receive_buffer_gives_one_event_for_each_message() {
    let rig = Rig::new();
    let md = rig.start(RECEIVE);
    // The third leaves too little room for a fourth.
    for (number, (length, offset)) in [(500, 0), (700, 500), (3000, 1200)].into_iter().enumerate() {
        rig.lnet.inject(md, ack());
        rig.lnet.inject(md, put(length));
        let event = rig.tm.event_get().expect("a message came");
        assert_eq!((event.status(), event.length, event.offset), (Ok(()), length.into(), offset));
        assert_eq!(event.sender(), Some(peer()));
        assert_eq!((event.buffer(), event.cookie), (rig.buffer, COOKIE));
        assert_eq!(event.unlinked(), number == 2);
        assert_eq!(rig.tm.needed(), if number == 2 { 0 } else { MESSAGES as usize });
    }
    rig.assert_idle();
}

// MT-24
#[test]
fn messages_accumulate_until_they_are_taken() {
    let rig = Rig::new();
    let md = rig.start(RECEIVE);
    for _ in 0..MESSAGES {
        rig.lnet.inject(md, put(1000));
        assert!(rig.tm.pending());
    }
    let offsets: Vec<u64> = std::iter::from_fn(|| rig.tm.event_get()).map(|event| event.offset).collect();
    assert_eq!(offsets, [0, 1000, 2000, 3000]);
    rig.assert_idle();
}

// MT-245
#[test]
fn a_message_without_header_data_has_no_sender() {
    for hdr_data in [HdrData::NONE, HdrData { tmid: 0, portal: 31 }.encode()] {
        let rig = Rig::new();
        let md = rig.start(RECEIVE);
        // The buffer ends with it.
        rig.lnet.inject(md, put(LENGTH).hdr_data(hdr_data));
        assert_eq!(rig.only_event().sender(), None);
    }
}

// Row 4 of motr-transport 13: a SEND of one's own carries one's own header data.
#[test]
fn only_messages_that_came_have_a_sender() {
    let kind = OperationKind::Send { length: 1, to: peer() };
    let hdr_data = HdrData { tmid: 9, portal: 31 }.encode();
    let send = Happening::send().from(ProcessId::lnet(peer().nid)).hdr_data(hdr_data);
    assert_eq!(outcome(kind, &[send]), (Ok(()), 1));
}

// MT-27, MT-28
#[test]
fn a_send_ends_with_its_status() {
    let kind = OperationKind::Send { length: 2000, to: peer() };
    let send = Happening::send();
    assert_eq!(outcome(kind, std::slice::from_ref(&send)), (Ok(()), 2000));
    assert_eq!(outcome(kind, &[send.failed(Errno::EHOSTUNREACH)]).0, Err(Errno::EHOSTUNREACH));
}

// MT-29 to MT-32
#[test]
fn passive_operations_end_with_their_data_or_an_unlink() {
    let came = Happening::put().length(BUFFER_BYTES as u32 - 1);
    assert_eq!(outcome(OperationKind::PassiveReceive, &[came]), (Ok(()), BUFFER_BYTES as u64 - 1));
    assert_eq!(outcome(OperationKind::PassiveReceive, &[ack(), unlink()]).0, Err(Errno::ECANCELED));
    let kind = OperationKind::PassiveSend { length: 4096 };
    assert_eq!(outcome(kind, &[Happening::get().length(4096)]), (Ok(()), 4096));
    assert_eq!(outcome(kind, &[ack(), unlink()]).0, Err(Errno::ECANCELED));
}

// MT-33 to MT-39
#[test]
fn an_active_receive_ends_with_the_reply_wherever_that_comes() {
    let kind = OperationKind::ActiveReceive { descriptor: peers_descriptor(Queue::PassiveBulkSend, 4096) };
    // With a length that is wrong: the REPLY's counts.
    let send = || Happening::send().mlength(1);
    let reply = || Happening::reply().length(4096);
    let eio = Err(Errno::EIO);
    assert_eq!(outcome(kind, &[send(), ack(), reply()]), (Ok(()), 4096));
    assert_eq!(outcome(kind, &[reply(), send()]), (Ok(()), 4096));
    assert_eq!(outcome(kind, &[send().failed(Errno::EIO)]).0, eio);
    assert_eq!(outcome(kind, &[send(), ack(), reply().failed(Errno::EIO)]).0, eio);
    assert_eq!(outcome(kind, &[reply().failed(Errno::EIO), send()]).0, eio);
    assert_eq!(outcome(kind, &[ack(), send().last()]).0, Err(Errno::ECANCELED));
    assert_eq!(outcome(kind, &[unlink()]).0, Err(Errno::ECANCELED));
}

#[test]
fn an_active_receive_that_never_left_is_unlinked_and_ends_with_its_own_status() {
    let rig = Rig::new();
    let kind = OperationKind::ActiveReceive { descriptor: peers_descriptor(Queue::PassiveBulkSend, 4096) };
    let md = rig.start(kind);
    rig.lnet.take_calls();
    rig.lnet.inject(md, Happening::send().failed(Errno::EHOSTUNREACH).not_last());
    assert!(matches!(rig.lnet.take_calls()[..], [Call::MdUnlink(unlinked)] if unlinked == md));
    assert_eq!(rig.only_event().status(), Err(Errno::EHOSTUNREACH));
}

// MT-40 to MT-42
#[test]
fn an_active_send_ends_with_its_send_or_an_unlink() {
    let descriptor = peers_descriptor(Queue::PassiveBulkReceive, 4096);
    let kind = OperationKind::ActiveSend { descriptor, length: 4096 };
    let send = Happening::send();
    assert_eq!(outcome(kind, std::slice::from_ref(&send)), (Ok(()), 4096));
    assert_eq!(outcome(kind, &[ack(), send.failed(Errno::EIO)]).0, Err(Errno::EIO));
    assert_eq!(outcome(kind, &[ack(), unlink()]).0, Err(Errno::ECANCELED));
}

// MT-229
#[test]
fn impossible_events_are_counted_and_do_no_harm() {
    let rig = Rig::new();
    let md = rig.start(OperationKind::Send { length: 1, to: peer() });
    rig.lnet.inject(md, Happening::put().impossible());
    assert!(!rig.tm.pending());
    rig.lnet.inject(md, Happening::get().last().impossible());
    assert_eq!(rig.only_event().status(), Err(Errno::EIO));
    for user_ptr in [0, 1, 1 << 32, u64::MAX] {
        rig.lnet.inject_stray(rig.lnet.last_eq(), Happening::put().user_ptr(user_ptr).last());
    }
    assert!(!rig.tm.pending());
    let faults = rig.core.faults();
    assert_eq!((faults.unexpected, faults.stale, faults.overruns), (2, 4, 0));
}

#[test]
fn the_time_of_an_event_counts_from_the_start_of_its_operation() {
    let rig = Rig::new();
    rig.drive.clock().set_now_ns(1_000);
    let md = rig.start(RECEIVE);
    rig.drive.clock().set_now_ns(1_400);
    rig.lnet.inject(md, put(1));
    rig.drive.clock().set_now_ns(2_000);
    rig.lnet.inject(md, put(1));
    let times: Vec<u64> = std::iter::from_fn(|| rig.tm.event_get()).map(|event| event.time_ns).collect();
    assert_eq!(times, [400, 1_000]);
    assert_eq!(rig.drive.now_ns(), 2_000);
}

// MT-225
#[test]
fn every_operation_can_end_inside_the_call_that_starts_it() {
    for (kind, call, happenings) in every_operation() {
        let rig = Rig::new();
        rig.lnet.complete_inside(call, happenings);
        rig.submit(kind).unwrap();
        let event = rig.only_event();
        assert_eq!((event.status(), event.length), (Ok(()), 4096), "{kind:?}");
    }
}

// MT-225, MT-34: over the loopback the REPLY can come before the SEND, both inside the call.
#[test]
fn a_get_can_end_out_of_order_inside_its_call() {
    let rig = Rig::new();
    rig.lnet.complete_inside(CallKind::Get, [Happening::reply(), Happening::send()]);
    rig.submit(every_operation()[Queue::ActiveBulkReceive.index()].0).unwrap();
    let event = rig.only_event();
    assert_eq!((event.status(), event.length), (Ok(()), 4096));
}
