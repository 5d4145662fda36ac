//! What LNet is asked for each operation (MT-15 to MT-18, MT-27, MT-207).

use lnet_api::{AckRequest, Get, Md, MdOptions, MeSpec, Position, Put, Threshold, Unlink};
use lnet_fake::Call;
use lnet_nid::{MatchBits, Portal, ProcessId};
use nlx_core::HdrData;
use proptest::prelude::*;

use super::*;

/// The ME and MD that a waiting operation was set up with.
fn attached(rig: &Rig) -> (MeSpec, Md) {
    match &rig.lnet.take_calls()[..] {
        [Call::MeAttach(me), Call::MdAttach { md, unlink: Unlink::Auto, .. }] => (*me, md.clone()),
        other => panic!("not attached, but {other:?}"),
    }
}

/// The MD and the PUT of an operation that sends.
fn sent(rig: &Rig) -> (Md, Put) {
    match &rig.lnet.take_calls()[..] {
        [Call::MdBind { md, unlink: Unlink::Auto }, Call::Put(put)] => (md.clone(), *put),
        other => panic!("not sent, but {other:?}"),
    }
}

fn entry(rig: &Rig, bits: MatchBits) -> MeSpec {
    MeSpec {
        portal: Portal::new(rig.tm.address().portal).unwrap(),
        match_id: ProcessId::ANY,
        match_bits: bits,
        ignore_bits: MatchBits(0),
        unlink: Unlink::Auto,
        position: Position::After,
    }
}

fn expect_md(rig: &Rig, md: &Md, length: usize, threshold: u32, options: MdOptions) {
    let own = rig.memory.fragments();
    assert!(md.memory.fragments().iter().zip(own).all(|(a, b)| a.region().same(b.region())));
    assert_eq!(md.memory.len(), length);
    assert_eq!((md.threshold, md.options), (Threshold::Limited(threshold), options));
    assert_eq!(md.eq, Some(rig.lnet.last_eq()));
}

// MT-18, MT-15
#[test]
fn a_receive_buffer_is_attached_with_its_limits() {
    let rig = Rig::new();
    rig.start(RECEIVE);
    let (me, md) = attached(&rig);
    assert_eq!(me, entry(&rig, match_bits(rig.tm.address().tmid, MatchCounter::UNSOLICITED)));
    expect_md(&rig, &md, BUFFER_BYTES, MESSAGES, MdOptions::OP_PUT | MdOptions::MAX_SIZE);
    assert_eq!(u64::from(md.max_size), MIN_RECEIVE_SIZE);
    assert_eq!(rig.tm.needed(), MESSAGES as usize);
}

// MT-27
#[test]
fn a_message_is_put_to_the_peers_queue_with_the_senders_address() {
    let rig = Rig::new();
    rig.start(OperationKind::Send { length: 2000, to: peer() });
    let (md, put) = sent(&rig);
    expect_md(&rig, &md, 2000, 1, MdOptions::empty());
    let own = rig.tm.address();
    assert_eq!(
        put,
        Put {
            source: Some(own.nid),
            md: put.md,
            ack: AckRequest::NoAck,
            target: ProcessId::lnet(peer().nid),
            portal: Portal::new(peer().portal).unwrap(),
            match_bits: match_bits(peer().tmid, MatchCounter::UNSOLICITED),
            offset: 0,
            hdr_data: HdrData { tmid: own.tmid.get(), portal: own.portal }.encode(),
        }
    );
    assert_eq!(rig.tm.needed(), 1);
}

#[test]
fn passive_buffers_are_attached_under_match_bits_of_their_own() {
    let rig = Rig::new();
    let own = rig.tm.address();
    let steps = [
        (OperationKind::PassiveReceive, Queue::PassiveBulkReceive, BUFFER_BYTES, MdOptions::OP_PUT),
        (OperationKind::PassiveSend { length: 4097 }, Queue::PassiveBulkSend, 4097, MdOptions::OP_GET),
    ];
    for (counter, (kind, queue, length, options)) in (1..).zip(steps) {
        let descriptor = rig.submit(kind).unwrap().descriptor.expect("it is passive");
        let (me, md) = attached(&rig);
        let bits = match_bits(own.tmid, MatchCounter::new(counter).unwrap());
        assert_eq!(me, entry(&rig, bits));
        expect_md(&rig, &md, length, 1, options);
        let said = match queue {
            Queue::PassiveBulkSend => descriptor.for_active_receive(u64::MAX),
            _ => descriptor.for_active_send(1),
        };
        assert_eq!(said, Ok(PassiveBuffer { address: own, match_bits: bits, queue, length: length as u64 }));
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        rig.tm.event_get().expect("it was cancelled");
        rig.lnet.take_calls();
    }
}

#[test]
fn an_active_receive_gets_as_much_as_the_descriptor_says() {
    let rig = Rig::new();
    let descriptor = peers_descriptor(Queue::PassiveBulkSend, 4095);
    rig.start(OperationKind::ActiveReceive { descriptor });
    let calls = rig.lnet.take_calls();
    let [Call::MdBind { md, unlink: Unlink::Auto }, Call::Get(get)] = &calls[..] else {
        panic!("not a GET, but {calls:?}")
    };
    expect_md(&rig, md, 4095, 2, MdOptions::empty());
    let expected = Get {
        source: Some(rig.tm.address().nid),
        md: get.md,
        target: ProcessId::lnet(peer().nid),
        portal: Portal::new(peer().portal).unwrap(),
        match_bits: descriptor.for_active_receive(4095).unwrap().match_bits,
        offset: 0,
    };
    assert_eq!(*get, expected);
}

// The design text has a header of 0 here, Motr's code its own address (motr-transport 13, row 3).
#[test]
fn an_active_send_puts_to_the_described_buffer_and_names_no_sender() {
    let rig = Rig::new();
    let descriptor = peers_descriptor(Queue::PassiveBulkReceive, 8192);
    rig.start(OperationKind::ActiveSend { descriptor, length: 1 });
    let (md, put) = sent(&rig);
    expect_md(&rig, &md, 1, 1, MdOptions::empty());
    assert_eq!((put.hdr_data, put.ack, put.offset), (HdrData::NONE, AckRequest::NoAck, 0));
    assert_eq!(put.match_bits, descriptor.for_active_send(1).unwrap().match_bits);
    assert_eq!((put.source, put.portal.get()), (Some(rig.tm.address().nid), peer().portal));
}

// MT-74, MT-79
#[test]
fn match_bits_count_up_and_skip_what_is_in_use_after_the_wrap() {
    let rig = Rig::new();
    let other = rig.core.register(&rig.memory).unwrap();
    let kind = OperationKind::PassiveReceive;
    let counter = |submitted: Submitted| {
        let passive = submitted.descriptor.unwrap().for_active_send(1).unwrap();
        nlx_core::split_match_bits(passive.match_bits).1.get()
    };
    assert_eq!(counter(rig.tm.submit(&Operation { buffer: other, cookie: 1, kind }).unwrap()), 1);
    rig.tm.shared().set_counter(MatchCounter::new(MatchCounter::LAST.get() - 1).unwrap());
    let last = MatchCounter::LAST.get();
    // 1 is in use when the counter comes round.
    for expected in [last - 1, last, 2] {
        assert_eq!(counter(rig.submit(kind).unwrap()), expected);
        rig.tm.cancel(rig.buffer, COOKIE).unwrap();
        rig.tm.event_get().expect("it was cancelled");
    }
}

// K7 and motr-transport 2.6.2
#[test]
fn numbers_that_do_not_fit_the_buffer_are_refused() {
    let rig = Rig::new();
    let all = BUFFER_BYTES as u64;
    let limits = rig.core.limits();
    let send = |length| OperationKind::Send { length, to: peer() };
    let receive = |min_receive_size, max_messages| OperationKind::Receive { min_receive_size, max_messages };
    let get = |length| OperationKind::ActiveReceive {
        descriptor: peers_descriptor(Queue::PassiveBulkSend, length),
    };
    let put = |room, length| OperationKind::ActiveSend {
        descriptor: peers_descriptor(Queue::PassiveBulkReceive, room),
        length,
    };
    for (kind, errno) in [
        (send(0), Errno::EINVAL),
        (send(all + 1), Errno::EINVAL),
        (OperationKind::Send { length: 1, to: Address { portal: 64, ..peer() } }, Errno::EINVAL),
        (OperationKind::Send { length: 1, to: Address { portal: 0, ..peer() } }, Errno::EINVAL),
        (receive(0, 1), Errno::EINVAL),
        (receive(all + 1, 1), Errno::EINVAL),
        (receive(1, 0), Errno::EINVAL),
        (receive(1, limits.messages_max + 1), Errno::EINVAL),
        (OperationKind::PassiveSend { length: 0 }, Errno::EINVAL),
        (OperationKind::PassiveSend { length: all + 1 }, Errno::EINVAL),
        (get(all + 1), Errno::EFBIG),
        (put(all, 0), Errno::EINVAL),
        (put(all, all + 1), Errno::EFBIG),
        (put(u64::MAX, all + 1), Errno::EINVAL),
        (
            OperationKind::ActiveReceive { descriptor: peers_descriptor(Queue::PassiveBulkReceive, 1) },
            Errno::EPERM,
        ),
    ] {
        assert_eq!(rig.submit(kind).map_err(|error| error.errno()), Err(errno), "{kind:?}");
        assert_eq!(rig.lnet.take_kinds(), []);
    }
    rig.assert_idle();
}

proptest! {
    // MT-16, MT-17, MT-227: only as many bytes as are to be sent are given to LNet, and the buffer is whole again.
    #[test]
    fn a_buffer_is_cut_to_every_length_and_whole_again(length in 1..=BUFFER_BYTES as u64) {
        let rig = Rig::new();
        for kind in [OperationKind::Send { length, to: peer() }, OperationKind::PassiveSend { length }] {
            rig.submit(kind).unwrap();
            let calls = rig.lnet.take_calls();
            let cut = calls.iter().find_map(|call| match call {
                Call::MdBind { md, .. } | Call::MdAttach { md, .. } => Some(md.memory.len() as u64),
                _ => None,
            });
            prop_assert_eq!(cut, Some(length));
            rig.tm.cancel(rig.buffer, COOKIE).unwrap();
            if matches!(kind, OperationKind::Send { .. }) {
                rig.lnet.inject(rig.lnet.last_md(), Happening::send());
            }
            prop_assert!(rig.tm.event_get().is_some());
            rig.lnet.take_calls();
        }
        rig.start(OperationKind::PassiveReceive);
        prop_assert_eq!(attached(&rig).1.memory.len(), BUFFER_BYTES);
    }
}
