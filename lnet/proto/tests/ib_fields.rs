//! Each field of the RDMA driver's messages is checked, and the error names it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::flip;
use common::ib::{emit, get, sample};
use lnet_nid::Nid;
use lnet_proto::ib::{
    Body, CharSign, ConnParams, Cookie, End, Head, IMMEDIATE_MAX, Link, MESSAGE_MAX, Message, MessageKind,
    RdmaDescriptor, RdmaFragment, Reject, RejectReason, TransferStatus, Version, checksum, emit_immediate,
    verify_checksum,
};
use lnet_proto::{Header, MessageType, ProtoError};

/// lnet-wire 32, the receive-time checks: the error names each field that is out of range.
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
    // lnet-wire 33: a version 1 record has no parameters, even if the connection manager pads it.
    let mut old = good;
    old[4] = 0x11;
    assert_eq!(Reject::parse(&old).unwrap().params, None);
    let short = ProtoError::Buffer { object, length: 23, needed: 24 };
    assert_eq!(Reject::parse(&good).unwrap().emit(&mut good[..23]), Err(short));
}

#[test]
fn messages_of_the_other_end_are_distinguished() {
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
        let fragments = vec![RdmaFragment { length: 1, address: 1 }; count];
        assert_eq!(
            RdmaDescriptor::new(1, &fragments).unwrap_err(),
            ProtoError::Fragments { value: count, limit: 257 }
        );
    }
}

/// The sum is the length that a source writes (lnet-wire 35.2), and no peer's numbers overflow it.
#[test]
fn the_fragments_of_a_descriptor_are_summed() {
    let fragments = vec![RdmaFragment { length: u32::MAX, address: 0 }; 257];
    let descriptor = RdmaDescriptor::new(1, &fragments).unwrap();
    assert_eq!((descriptor.count(), descriptor.total_len()), (257, 257 * u64::from(u32::MAX)));
    assert_eq!(descriptor.fragments().len(), 257);
}

#[test]
fn a_status_is_a_length_or_an_errno() {
    let outcome = |status| TransferStatus { cookie: Cookie::new(0), status }.outcome();
    assert_eq!([outcome(0), outcome(1_048_576)], [Ok(0), Ok(1_048_576)]);
    assert_eq!([outcome(-61), outcome(i32::MIN)], [Err(61), Err(1 << 31)]);
}

/// lnet-wire 32: the checksums of both kinds of kernels are accepted, and a wrong one is reported.
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
        // Bytes behind the message are not part of the checksum.
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
