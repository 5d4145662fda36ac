//! The LNet calls of each operation, and their arguments (S-413; motr-transport 5.6).

use lnet_api::{AckRequest, Get, Md, MdOptions, MeSpec, Position, Put, Threshold, Unlink};
use lnet_fake::Call;
use lnet_nid::{MatchBits, Portal, ProcessId};
use nlx_core::{HdrData, MatchCounter, OperationKind, Queue, match_bits};

use super::bed;
use crate::bed::*;

/// Returns the ME and MD of a waiting operation.
fn attached<W: World>(bed: &Bed<W>) -> (MeSpec, Md) {
    match &bed.spy.take_calls()[..] {
        [Call::MeAttach(me), Call::MdAttach { md, unlink: Unlink::Auto, .. }] => (*me, md.clone()),
        other => panic!("not attached, but {other:?}"),
    }
}

/// Returns the MD and the PUT of a sending operation.
fn sent<W: World>(bed: &Bed<W>) -> (Md, Put) {
    match &bed.spy.take_calls()[..] {
        [Call::BindPut { md, put }] => (md.clone(), *put),
        other => panic!("not sent, but {other:?}"),
    }
}

fn entry<W: World>(bed: &Bed<W>, bits: MatchBits) -> MeSpec {
    MeSpec {
        portal: Portal::new(bed.tm.address().portal).unwrap(),
        match_id: ProcessId::ANY,
        match_bits: bits,
        ignore_bits: MatchBits(0),
        unlink: Unlink::Auto,
        position: Position::After,
    }
}

/// MT-15: the memory is the buffer's own, the queue the transfer machine's; `user_ptr` identifies
/// the operation, which its event proves.
fn expect_md<W: World>(bed: &Bed<W>, md: &Md, length: usize, threshold: u32, options: MdOptions) {
    let own = bed.memory.fragments();
    assert!(md.memory.fragments().iter().zip(own).all(|(a, b)| a.region().same(b.region())));
    assert_eq!(md.memory.len(), length);
    assert_eq!((md.threshold, md.options), (Threshold::Limited(threshold), options));
    assert_eq!(md.eq, Some(bed.spy.last_eq()));
    assert_ne!(md.user_ptr, 0);
    bed.tm.cancel(bed.buffer, COOKIE).unwrap();
    bed.world.outgoing().iter().for_each(|message| bed.world.leave(message, Ok(())));
    assert!(bed.spy.take_events().iter().all(|event| event.user_ptr == md.user_ptr));
    assert_eq!(bed.tm.event_get().unwrap().map(|event| event.cookie), Some(COOKIE));
}

// Covers: S-7, S-413, S-417, MT-15, MT-18, MT-19, MT-207
#[test]
fn a_receive_buffer_is_attached_with_its_limits() {
    let bed = bed().started(RECEIVE);
    assert_eq!(bed.tm.needed(), MESSAGES as usize);
    let (me, md) = attached(&bed);
    assert_eq!(me, entry(&bed, match_bits(bed.tm.address().tmid, MatchCounter::UNSOLICITED)));
    assert_eq!(u64::from(md.max_size), MIN_RECEIVE_SIZE);
    expect_md(&bed, &md, BUFFER_BYTES, MESSAGES, MdOptions::OP_PUT | MdOptions::MAX_SIZE);
}

// Covers: S-413, MT-27, MT-207
#[test]
fn a_message_is_put_to_the_peers_queue() {
    let bed = bed().started(OperationKind::Send { length: 2000, to: peer() });
    assert_eq!(bed.tm.needed(), 1);
    let (md, put) = sent(&bed);
    let own = bed.tm.address();
    let expected = Put {
        source: Some(own.nid),
        md: put.md,
        ack: AckRequest::NoAck,
        target: ProcessId::lnet(peer().nid),
        portal: Portal::new(peer().portal).unwrap(),
        match_bits: match_bits(peer().tmid, MatchCounter::UNSOLICITED),
        offset: 0,
        hdr_data: HdrData { tmid: own.tmid.get(), portal: own.portal }.encode(),
    };
    assert_eq!((put, put.md), (expected, bed.spy.last_md()));
    expect_md(&bed, &md, 2000, 1, MdOptions::empty());
}

// Covers: S-413, MT-29, MT-31, MT-74, MT-207
#[test]
fn passive_buffers_are_attached_under_match_bits_of_their_own() {
    let bed = bed();
    let own = bed.tm.address();
    let steps = [
        (OperationKind::PassiveReceive, Queue::PassiveBulkReceive, BUFFER_BYTES, MdOptions::OP_PUT),
        (OperationKind::PassiveSend { length: 4097 }, Queue::PassiveBulkSend, 4097, MdOptions::OP_GET),
    ];
    for (counter, (kind, queue, length, options)) in (1..).zip(steps) {
        let Passive(said) = bed.expose(kind);
        let (me, md) = attached(&bed);
        let bits = match_bits(own.tmid, MatchCounter::new(counter).unwrap());
        assert_eq!(me, entry(&bed, bits));
        assert_eq!((said.address, said.match_bits, said.queue), (own, bits, queue));
        assert_eq!(said.length, length as u64);
        expect_md(&bed, &md, length, 1, options);
        bed.spy.take_calls();
    }
}

/// A threshold of two, one for the SEND and one for the REPLY.
// Covers: S-413, MT-33, MT-75, MT-207
#[test]
fn an_active_receive_gets_as_much_as_the_descriptor_says() {
    let bed = bed().started(active_receive(4095));
    let calls = bed.spy.take_calls();
    let [Call::BindGet { md, get }] = &calls[..] else { panic!("not a GET, but {calls:?}") };
    let expected = Get {
        source: Some(bed.tm.address().nid),
        md: get.md,
        target: ProcessId::lnet(peer().nid),
        portal: Portal::new(peer().portal).unwrap(),
        match_bits: match_bits(peer().tmid, MatchCounter::new(55).unwrap()),
        offset: 0,
    };
    assert_eq!(*get, expected);
    expect_md(&bed, md, 4095, 2, MdOptions::TAKES_REFUSALS);
}

/// The threshold is two: one for the SEND and one for the ACK.
// Covers: S-413, MT-40, MT-77, MT-207
#[test]
fn an_active_send_puts_to_the_described_buffer_and_names_no_sender() {
    let bed = bed();
    let descriptor = peers_descriptor(Queue::PassiveBulkReceive, 8192);
    bed.submit(OperationKind::ActiveSend { descriptor, length: 1 }).unwrap();
    let (md, put) = sent(&bed);
    assert_eq!((put.hdr_data, put.ack, put.offset), (HdrData::NONE, AckRequest::Ack, 0));
    assert_eq!(put.match_bits, match_bits(peer().tmid, MatchCounter::new(55).unwrap()));
    assert_eq!((put.source, put.portal.get()), (Some(bed.tm.address().nid), peer().portal));
    expect_md(&bed, &md, 1, 2, MdOptions::TAKES_REFUSALS);
}
