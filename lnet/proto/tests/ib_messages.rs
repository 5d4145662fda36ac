//! The RDMA driver's messages: what is emitted is parsed as the same value, and what is malformed is refused by name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::strategies::{header_of, small_nid};
use common::{flip, rdma_items};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::ib::{
    Body, CharSign, Completion, ConnParams, Cookie, Descriptor, End, Fragment, Head, IMMEDIATE_MAX, Link,
    MESSAGE_MAX, Message, MessageKind, RDMA_FRAGMENTS_MAX, Reject, RejectReason, Version, checksum,
    emit_immediate, verify_checksum,
};
use lnet_proto::{Header, MessageType, ProtoError, WireHandle};
use proptest::collection::vec;
use proptest::prelude::*;

/// A message's values, without borrows.
#[derive(Clone, Debug)]
struct Sample {
    kind: MessageKind,
    head: Head,
    header: Header,
    params: ConnParams,
    completion: Completion,
    cookie: Cookie,
    key: u32,
    fragments: Vec<Fragment>,
    payload: Vec<u8>,
}

impl Sample {
    fn message(&self) -> Message<'_> {
        let Sample { header, params, completion, cookie, .. } = *self;
        let descriptor = Descriptor::new(self.key, &self.fragments).unwrap();
        let body = match self.kind {
            MessageKind::ConnReq => Body::ConnReq(params),
            MessageKind::ConnAck => Body::ConnAck(params),
            MessageKind::Noop => Body::Noop,
            MessageKind::Immediate => Body::Immediate { header, payload: &self.payload },
            MessageKind::PutReq => Body::PutReq { header, cookie },
            MessageKind::PutNak => Body::PutNak(completion),
            MessageKind::PutAck => Body::PutAck { source: completion.cookie, sink: cookie, descriptor },
            MessageKind::PutDone => Body::PutDone(completion),
            MessageKind::GetReq => Body::GetReq { header, cookie, descriptor },
            MessageKind::GetDone => Body::GetDone(completion),
        };
        Message { head: self.head, body }
    }

    /// The fields behind the head as a big-endian node swaps them: see [`flip`].
    fn fields(&self) -> Vec<isize> {
        let mut fields = vec![4, 2, 1, 1, 4, 4, 8, 8, 8, 8];
        let descriptor = || [4, 4].into_iter().chain(self.fragments.iter().flat_map(|_| [4, 8]));
        match self.kind {
            MessageKind::ConnReq | MessageKind::ConnAck => fields.extend([2, 2, 4]),
            MessageKind::Noop => {}
            MessageKind::Immediate => fields.extend([-72, -(self.payload.len() as isize)]),
            MessageKind::PutReq => fields.extend([-72, -8]),
            MessageKind::PutNak | MessageKind::PutDone | MessageKind::GetDone => fields.extend([-8, 4]),
            MessageKind::PutAck => fields.extend([-8, -8].into_iter().chain(descriptor())),
            MessageKind::GetReq => fields.extend([-72, -8].into_iter().chain(descriptor())),
        }
        fields
    }
}

const KINDS: [MessageKind; 10] = [
    MessageKind::ConnReq,
    MessageKind::ConnAck,
    MessageKind::Noop,
    MessageKind::Immediate,
    MessageKind::PutReq,
    MessageKind::PutNak,
    MessageKind::PutAck,
    MessageKind::PutDone,
    MessageKind::GetReq,
    MessageKind::GetDone,
];

fn any_head() -> impl Strategy<Value = Head> {
    let end = || (small_nid(), any::<u64>()).prop_map(|(nid, stamp)| End { nid, stamp });
    let version = prop_oneof![Just(Version::V1), Just(Version::V2)];
    (version, any::<u8>(), any::<u32>(), end(), end())
        .prop_map(|(version, credits, checksum, src, dst)| Head { version, credits, checksum, src, dst })
}

fn any_params() -> impl Strategy<Value = ConnParams> {
    any::<(u16, u16, u32)>().prop_map(|(queue_depth, max_fragments, max_message)| ConnParams {
        queue_depth,
        max_fragments,
        max_message,
    })
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let cookie = || any::<[u8; 8]>().prop_map(Cookie);
    let completion = (cookie(), any::<i32>()).prop_map(|(cookie, status)| Completion { cookie, status });
    let fragment = any::<(u32, u64)>().prop_map(|(length, address)| Fragment { length, address });
    let fragments = vec(fragment, 1..=usize::from(RDMA_FRAGMENTS_MAX));
    let payload = vec(any::<u8>(), 0..=IMMEDIATE_MAX);
    let kind = proptest::sample::select(&KINDS[..]);
    let rest = (any_params(), completion, cookie(), any::<u32>(), fragments, payload);
    (kind, any_head(), header_of(small_nid().boxed()), rest).prop_map(
        |(kind, head, mut header, (params, completion, cookie, key, fragments, mut payload))| {
            // The LNet message that this kind carries.
            match kind {
                MessageKind::GetReq => header.body = get(),
                MessageKind::PutReq if header.message_type().max_payload() == 0 => header.body = reply(),
                _ => {}
            }
            if kind == MessageKind::Immediate {
                payload.truncate(header.message_type().max_payload() as usize);
                header.payload_length = payload.len() as u32;
            } else {
                header.payload_length = header.payload_length.min(header.message_type().max_payload());
            }
            Sample { kind, head, header, params, completion, cookie, key, fragments, payload }
        },
    )
}

fn get() -> lnet_proto::Body {
    lnet_proto::Body::Get {
        return_wmd: WireHandle::new(1, 2),
        match_bits: lnet_nid::MatchBits(3),
        portal: 4,
        src_offset: 5,
        sink_length: 6,
    }
}

fn reply() -> lnet_proto::Body {
    lnet_proto::Body::Reply { dst_wmd: WireHandle::new(1, 2) }
}

fn emit(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.encoded_len()];
    assert_eq!(message.emit(&mut bytes), Ok(bytes.len()));
    bytes
}

proptest! {
    #[test]
    fn messages_come_back_in_both_byte_orders(sample in any_sample()) {
        let message = sample.message();
        let mut bytes = emit(&message);
        prop_assert!(bytes.len() <= MESSAGE_MAX);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        let padded = [&bytes[..], &[0; 100]].concat();
        prop_assert_eq!(Message::parse(&padded), Ok(message), "the connection manager pads");
        flip(&mut bytes, &sample.fields());
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        prop_assert_eq!(emit(&Message::parse(&bytes).unwrap()), emit(&message), "little-endian is sent");
    }

    #[test]
    fn a_message_cut_short_is_refused(sample in any_sample()) {
        let bytes = emit(&sample.message());
        for length in 0..bytes.len() {
            let Err(ProtoError::Truncated { length: there, needed, .. }) = Message::parse(&bytes[..length]) else {
                panic!("{length} bytes of {} are no message", bytes.len())
            };
            prop_assert!(there == length && length < needed && needed <= bytes.len());
        }
    }

    #[test]
    fn a_message_that_admits_to_be_short_is_refused(sample in any_sample()) {
        let bytes = emit(&sample.message());
        for nob in (0..bytes.len()).rev().take(300) {
            let mut bytes = bytes.clone();
            bytes[8..12].copy_from_slice(&(nob as u32).to_le_bytes());
            let Err(ProtoError::MessageLength { kind, value, min, .. }) = Message::parse(&bytes) else {
                panic!("{nob} bytes of {} are no message", bytes.len())
            };
            prop_assert!(kind == sample.kind && value == nob && nob < min && min <= bytes.len());
        }
    }

    #[test]
    fn rejections_come_back_in_both_byte_orders(
        v1 in any::<bool>(), reason in 1..=9_u8, stamp in any::<u64>(), params in proptest::option::of(any_params())
    ) {
        let (version, params) = if v1 { (Version::V1, None) } else { (Version::V2, params) };
        let reject = Reject { version, reason: RejectReason::try_from(reason).unwrap(), stamp, params };
        let mut bytes = vec![0; reject.encoded_len()];
        prop_assert_eq!(reject.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(bytes.len(), if params.is_some() { 24 } else { 16 });
        prop_assert_eq!(Reject::parse(&bytes), Ok(reject));
        for length in 0..16 {
            let parsed = Reject::parse(&bytes[..length]);
            prop_assert!(matches!(parsed, Err(ProtoError::Truncated { .. })), "{:?}", parsed);
        }
        let short = Reject { params: None, ..reject };
        for length in 16..bytes.len() {
            prop_assert_eq!(Reject::parse(&bytes[..length]), Ok(short), "lnet-wire 33: shorter than 24 bytes");
        }
        let fields = [4, 2, 1, 1, 8, 2, 2, 4];
        flip(&mut bytes, if params.is_some() { &fields } else { &fields[..5] });
        prop_assert_eq!(Reject::parse(&bytes), Ok(reject));
    }

    #[test]
    fn bytes_of_any_kind_are_parsed_or_refused(bytes in vec(any::<u8>(), 0..300), kind in any::<u8>(), nob in any::<u16>()) {
        let _ = (Message::parse(&bytes), Reject::parse(&bytes), verify_checksum(&bytes));
        // The same behind a start that is believed.
        let mut bytes = [&[0x91, 0x1b, 0xe9, 0x0b, 0x12, 0, kind, 0][..], &bytes].concat();
        let _ = (Message::parse(&bytes), Reject::parse(&bytes), verify_checksum(&bytes));
        if bytes.len() > 12 {
            bytes[8..12].copy_from_slice(&u32::from(nob).to_le_bytes());
            let _ = (Message::parse(&bytes), verify_checksum(&bytes));
        }
    }

    #[test]
    fn mutated_recordings_are_parsed_or_refused(at in any::<prop::sample::Index>(), patch in vec(any::<u8>(), 1..9)) {
        for item in rdma_items() {
            let mut bytes = item.bytes;
            let at = at.index(bytes.len());
            for (slot, byte) in bytes[at..].iter_mut().zip(&patch) {
                *slot = *byte;
            }
            if let Ok(message) = Message::parse(&bytes) {
                let again = emit(&message);
                prop_assert_eq!(Message::parse(&again), Ok(message));
            }
        }
    }
}

fn sample(kind: MessageKind) -> Sample {
    let end = |text: &str, stamp| End { nid: text.parse().unwrap(), stamp };
    let (src, dst) = (end("10.0.0.1@o2ib", 11), end("10.0.0.2@o2ib", 22));
    Sample {
        kind,
        head: Head { version: Version::V2, credits: 3, checksum: 0, src, dst },
        header: Header {
            dest: ProcessId::lnet(dst.nid),
            src: ProcessId::lnet(src.nid),
            payload_length: 0,
            body: if kind == MessageKind::GetReq { get() } else { reply() },
        },
        params: ConnParams::DEFAULT,
        completion: Completion { cookie: Cookie::new(7), status: -5 },
        cookie: Cookie::new(8),
        key: 9,
        fragments: vec![Fragment { length: 4096, address: 0x1234_5678_9abc_def0 }; 3],
        payload: Vec::new(),
    }
}

/// lnet-wire 32, the receive-time checks: each field out of its range is named.
#[test]
fn every_field_is_checked() {
    let object = "o2iblnd message";
    let magic = |value| ProtoError::Magic { object, value, expected: 0x0be9_1b91 };
    let version = |value| ProtoError::Version { object, value, min: 0x11, max: 0x12 };
    let length = |kind, value, min| ProtoError::MessageLength { kind, value, min, limit: MESSAGE_MAX };
    let truncated = |length, needed| ProtoError::Truncated { object, length, needed };
    let fragments = |value| ProtoError::Fragments { value, limit: 257 };
    let embedded = |kind, message| ProtoError::Embedded { kind, message };
    let not_interface = |nid| ProtoError::NotInterface { field: "srcnid", nid };
    let loopback = Nid::LOOPBACK.to_nid4().unwrap();
    let le32 = |value: u32| value.to_le_bytes().to_vec();
    let table = [
        (MessageKind::Noop, 0, le32(0x4572_6963), magic(0x4572_6963)),
        (MessageKind::Noop, 4, vec![0x10], version(0x10)),
        (MessageKind::Noop, 4, vec![0x13], version(0x13)),
        (MessageKind::Noop, 5, vec![1], version(0x112)),
        (MessageKind::Noop, 6, vec![0xcf], ProtoError::MessageKind { value: 0xcf }),
        (MessageKind::Noop, 6, vec![0xd8], ProtoError::MessageKind { value: 0xd8 }),
        (MessageKind::Noop, 6, vec![0xd1], length(MessageKind::Immediate, 48, 120)),
        (MessageKind::Noop, 8, le32(47), length(MessageKind::Noop, 47, 48)),
        (MessageKind::Noop, 8, le32(49), truncated(48, 49)),
        (MessageKind::Noop, 8, le32(4097), length(MessageKind::Noop, 4097, 48)),
        (MessageKind::Noop, 8, le32(u32::MAX), length(MessageKind::Noop, u32::MAX as usize, 48)),
        (MessageKind::Noop, 16, vec![0xff; 8], not_interface(Nid::ANY)),
        (MessageKind::Noop, 16, loopback.to_le_bytes().to_vec(), not_interface(Nid::LOOPBACK)),
        (MessageKind::ConnReq, 8, le32(55), length(MessageKind::ConnReq, 55, 56)),
        (MessageKind::ConnAck, 8, le32(48), length(MessageKind::ConnAck, 48, 56)),
        (MessageKind::Immediate, 76, le32(1), length(MessageKind::Immediate, 120, 121)),
        (MessageKind::Immediate, 76, le32(1 << 20), length(MessageKind::Immediate, 120, 120 + (1 << 20))),
        (MessageKind::Immediate, 72, le32(4), ProtoError::MessageType { value: 4 }),
        (MessageKind::PutReq, 72, le32(0), embedded(MessageKind::PutReq, MessageType::Ack)),
        (MessageKind::PutReq, 72, le32(2), embedded(MessageKind::PutReq, MessageType::Get)),
        (MessageKind::PutNak, 8, le32(59), length(MessageKind::PutNak, 59, 60)),
        (MessageKind::PutAck, 68, le32(0), fragments(0)),
        (MessageKind::PutAck, 68, le32(4), length(MessageKind::PutAck, 108, 120)),
        (MessageKind::PutAck, 68, le32(257), length(MessageKind::PutAck, 108, 72 + 257 * 12)),
        (MessageKind::PutAck, 68, le32(258), fragments(258)),
        (MessageKind::PutAck, 68, le32(u32::MAX), fragments(u32::MAX as usize)),
        (MessageKind::PutDone, 8, le32(0), length(MessageKind::PutDone, 0, 60)),
        (MessageKind::GetReq, 72, le32(1), embedded(MessageKind::GetReq, MessageType::Put)),
        (MessageKind::GetReq, 72, le32(3), embedded(MessageKind::GetReq, MessageType::Reply)),
        (MessageKind::GetReq, 132, le32(0), fragments(0)),
        (MessageKind::GetReq, 132, le32(4), length(MessageKind::GetReq, 172, 184)),
        (MessageKind::GetDone, 8, le32(52), length(MessageKind::GetDone, 52, 60)),
    ];
    for (kind, offset, patch, expected) in table {
        let mut bytes = emit(&sample(kind).message());
        bytes[offset..offset + patch.len()].copy_from_slice(&patch);
        assert_eq!(Message::parse(&bytes), Err(expected), "{kind} with {patch:x?} at {offset}");
    }
    for (offset, field) in [(16, "srcnid"), (32, "dstnid")] {
        let mut bytes = emit(&sample(MessageKind::Noop).message());
        bytes[offset..offset + 8].fill(1);
        let error = Message::parse(&bytes).unwrap_err();
        assert!(matches!(error, ProtoError::Nid { field: named, .. } if named == field), "{error}");
    }
}

#[test]
fn every_field_of_a_rejection_is_checked() {
    let mut good = [0; Reject::LEN];
    let (version, reason, params) = (Version::V2, RejectReason::Early, Some(ConnParams::DEFAULT));
    Reject { version, reason, stamp: 5, params }.emit(&mut good).unwrap();
    let object = "reject record";
    for (offset, byte, expected) in [
        (0, 0x90, ProtoError::Magic { object, value: 0x0be9_1b90, expected: 0x0be9_1b91 }),
        (4, 0x13, ProtoError::Version { object, value: 0x13, min: 0x11, max: 0x12 }),
        (6, 0, ProtoError::RejectReason { value: 0 }),
        (6, 10, ProtoError::RejectReason { value: 10 }),
    ] {
        let mut bytes = good;
        bytes[offset] = byte;
        assert_eq!(Reject::parse(&bytes), Err(expected), "{byte:#x} at {offset}");
    }
    // lnet-wire 33: a version 1 record has no parameters, however long the connection manager makes it.
    let mut old = good;
    old[4] = 0x11;
    assert_eq!(Reject::parse(&old).unwrap().params, None);
    let short = ProtoError::Buffer { object, length: 23, needed: 24 };
    assert_eq!(Reject::parse(&good).unwrap().emit(&mut good[..23]), Err(short));
}

#[test]
fn the_other_ends_messages_are_told_apart() {
    let Head { src: peer, dst: local, .. } = sample(MessageKind::Noop).head;
    let link = Link { version: Version::V2, local, peer };
    let good = Link { version: Version::V2, local: peer, peer: local }.head(0);
    assert_eq!(link.check(&good), Ok(()));
    let other = "10.0.0.9@o2ib".parse().unwrap();
    let nid = |field, wanted: End| (ProtoError::WrongEnd { field, got: other, wanted: wanted.nid }, 71);
    let stamp = |field, wanted: End| (ProtoError::Stale { field, got: 99, wanted: wanted.stamp }, 116);
    for (head, (error, errno)) in [
        (Head { src: End { nid: other, ..peer }, ..good }, nid("srcnid", peer)),
        (Head { dst: End { nid: other, ..local }, ..good }, nid("dstnid", local)),
        (Head { src: End { stamp: 99, ..peer }, ..good }, stamp("srcstamp", peer)),
        (Head { dst: End { stamp: 99, ..local }, ..good }, stamp("dststamp", local)),
    ] {
        assert_eq!(link.check(&head), Err(error.clone()));
        assert_eq!(error.errno(), errno);
    }
}

#[test]
fn what_no_node_would_read_is_not_written() {
    let good = sample(MessageKind::Immediate);
    let mut out = [0x5a; MESSAGE_MAX];
    let mut refused = |message: Message<'_>| message.emit(&mut out).unwrap_err();
    let head = good.head;
    let large: Nid = "fd00::1@o2ib".parse().unwrap();
    let large_src = Head { src: End { nid: large, stamp: 1 }, ..head };
    let large_dst = Head { dst: End { nid: large, stamp: 1 }, ..head };
    let from_any = Head { src: End { nid: Nid::ANY, stamp: 1 }, ..head };
    let noop = |head| Message { head, body: Body::Noop };
    assert_eq!(refused(noop(large_src)), ProtoError::LargeNid { field: "srcnid", nid: large });
    assert_eq!(refused(noop(large_dst)), ProtoError::LargeNid { field: "dstnid", nid: large });
    assert_eq!(refused(noop(from_any)), ProtoError::NotInterface { field: "srcnid", nid: Nid::ANY });

    let kind = MessageKind::Immediate;
    let payload = [7; IMMEDIATE_MAX + 1];
    let header = Header { payload_length: 9, ..good.header };
    let lie = Message { head, body: Body::Immediate { header, payload: &payload[..8] } };
    assert_eq!(refused(lie), ProtoError::MessageLength { kind, value: 128, min: 129, limit: 129 });
    let header = Header { payload_length: payload.len() as u32, ..good.header };
    let long = Message { head, body: Body::Immediate { header, payload: &payload } };
    let too_long = ProtoError::MessageLength { kind, value: 4097, min: 120, limit: 4096 };
    assert_eq!(refused(long), too_long);
    let ack = Header { body: get(), payload_length: 0, ..good.header };
    let put_req = Message { head, body: Body::PutReq { header: ack, cookie: good.cookie } };
    let wrong = ProtoError::Embedded { kind: MessageKind::PutReq, message: MessageType::Get };
    assert_eq!(refused(put_req), wrong);
    assert_eq!(emit_immediate(&head, &header, &mut out), Err(too_long));
    assert_eq!(out, [0x5a; MESSAGE_MAX], "the buffer is left alone");

    let fits = sample(MessageKind::PutAck);
    let short = ProtoError::Buffer { object: "o2iblnd message", length: 107, needed: 108 };
    assert_eq!(fits.message().emit(&mut out[..107]), Err(short));
    for count in [0, 258] {
        let fragments = vec![Fragment { length: 1, address: 1 }; count];
        assert_eq!(
            Descriptor::new(1, &fragments).unwrap_err(),
            ProtoError::Fragments { value: count, limit: 257 }
        );
    }
}

/// The sum is what a source writes (lnet-wire 35.2), and no peer's numbers overflow it.
#[test]
fn the_fragments_of_a_descriptor_are_summed() {
    let fragments = vec![Fragment { length: u32::MAX, address: 0 }; 257];
    let descriptor = Descriptor::new(1, &fragments).unwrap();
    assert_eq!((descriptor.count(), descriptor.total_len()), (257, 257 * u64::from(u32::MAX)));
    assert_eq!(descriptor.fragments().len(), 257);
}

#[test]
fn a_status_is_a_length_or_an_errno() {
    let outcome = |status| Completion { cookie: Cookie::new(0), status }.outcome();
    assert_eq!([outcome(0), outcome(1_048_576)], [Ok(0), Ok(1_048_576)]);
    assert_eq!([outcome(-61), outcome(i32::MIN)], [Err(61), Err(1 << 31)]);
}

/// lnet-wire 32: either kind of kernel is believed, and a wrong sum is told.
#[test]
fn checksums_are_those_of_either_kernel() {
    let mut sample = sample(MessageKind::Immediate);
    sample.payload = (0..=255).collect();
    sample.header.payload_length = 256;
    let plain = emit(&sample.message());
    let sums = [CharSign::Signed, CharSign::Unsigned].map(|sign| checksum(&plain, sign));
    assert_ne!(sums[0], sums[1]);
    for (value, good) in [(0, true), (sums[0], true), (sums[1], true), (sums[0] ^ 1, false), (1, false)] {
        sample.head.checksum = value;
        let mut bytes = emit(&sample.message());
        let wrong = ProtoError::Checksum { object: "o2iblnd message", value, expected: sums[1] };
        assert_eq!(verify_checksum(&bytes), if good { Ok(()) } else { Err(wrong) });
        assert_eq!(Message::parse(&bytes).unwrap().head.checksum, value, "parsing accepts without a check");
        // What stands behind the message is not summed.
        bytes.push(1);
        assert_eq!(verify_checksum(&bytes).is_ok(), good);
        assert_eq!(verify_checksum(&bytes[..60]).unwrap_err().errno(), 71);
    }
    // A big-endian sender sums the bytes as it sends them.
    let mut bytes = emit(&sample.message());
    flip(&mut bytes, &sample.fields());
    let sum = checksum(&bytes, CharSign::Unsigned);
    bytes[12..16].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(verify_checksum(&bytes), Ok(()));
}
