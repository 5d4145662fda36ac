//! Every layout: emitting and parsing gives the same value, and malformed bytes are refused with
//! the name of the field.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::Ipv4Addr;

use common::flip;
use common::strategies::{any_nid, header_of, large_nid, small_nid};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::ping::{Features, NIS_MAX, NiStatus, PingInfo, PingInterface};
use lnet_proto::sock::{
    AcceptorRequest, AckQueue, Acks, ConnType, Decoder, Frame, Hello, InterfaceAddresses, Prefix, PrefixKind,
    RequestVersion, Version,
};
use lnet_proto::{Body, ByteOrder, Decoded, Header, MAX_PAYLOAD, MessageType, ProtoError, WireHandle};
use proptest::collection::vec;
use proptest::prelude::*;

fn any_hello() -> impl Strategy<Value = Hello> {
    let addresses = vec(1..=u32::MAX, 0..=InterfaceAddresses::MAX).prop_map(|addresses| {
        let addresses: Vec<_> = addresses.into_iter().map(Ipv4Addr::from).collect();
        InterfaceAddresses::new(&addresses).unwrap()
    });
    let small = (prop_oneof![Just(Version::V2), Just(Version::V3)], small_nid(), small_nid(), addresses);
    let large = (Just(Version::V4), any_nid(), any_nid(), Just(InterfaceAddresses::NONE));
    let numbers = (any::<[u32; 2]>(), any::<[u64; 2]>(), (-1..=3_i32));
    (prop_oneof![small.boxed(), large.boxed()], numbers).prop_map(
        |((version, src_nid, dst_nid, addresses), (pids, incarnations, conn_type))| Hello {
            version,
            src_nid,
            dst_nid,
            src_pid: Pid(pids[0]),
            dst_pid: Pid(pids[1]),
            src_incarnation: incarnations[0],
            dst_incarnation: incarnations[1],
            conn_type: ConnType::try_from(conn_type).unwrap(),
            addresses,
        },
    )
}

fn any_prefix() -> impl Strategy<Value = Prefix> {
    let kind = prop_oneof![Just(PrefixKind::Noop), Just(PrefixKind::Lnet)];
    (kind, any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(kind, csum, zc_req, zc_ack)| Prefix {
        kind,
        csum,
        zc_req,
        zc_ack,
    })
}

fn any_ping() -> impl Strategy<Value = PingInfo> {
    let ni = |nid: BoxedStrategy<Nid>| {
        (nid, any::<u32>()).prop_map(|(nid, status)| PingInterface { nid, status: NiStatus(status) })
    };
    let small = vec(ni(small_nid().boxed()), 0..20);
    let large = prop_oneof![Just(Vec::new()), vec(ni(large_nid().boxed()), 0..20)];
    (any::<u32>(), any::<[u32; 2]>(), small, large).prop_map(|(features, [pid, sequence], small, large)| {
        let mut features = Features(features & !Features::METADATA.0) | Features::NI_STATUS;
        if !large.is_empty() {
            features |= Features::LARGE_ADDR;
        }
        PingInfo { features, pid: Pid(pid), sequence, nis: [small, large].concat() }
    })
}

fn emit_ping(info: &PingInfo) -> Vec<u8> {
    let mut bytes = vec![0; info.encoded_len()];
    assert_eq!(info.emit(&mut bytes), Ok(bytes.len()));
    bytes
}

proptest! {
    #[test]
    fn small_headers_come_back(header in header_of(small_nid().boxed())) {
        let mut bytes = [0; Header::LEN];
        header.emit(&mut bytes).unwrap();
        prop_assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn large_headers_come_back(header in header_of(any_nid().boxed())) {
        let mut bytes = [0; Header::LARGE_LEN];
        header.emit_large(&mut bytes).unwrap();
        prop_assert_eq!(Header::parse_large(&bytes), Ok(header));
        let small = [header.dest.nid, header.src.nid].iter().all(|nid| nid.is_nid4());
        prop_assert_eq!(header.emit(&mut [0; Header::LEN]).is_ok(), small);
    }

    #[test]
    fn requests_come_back(nid in any_nid(), large in any::<bool>()) {
        let version = if large { RequestVersion::V2 } else { AcceptorRequest::new(nid).version };
        let request = AcceptorRequest { version, nid };
        let mut bytes = vec![0; request.encoded_len()];
        prop_assert_eq!(request.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(AcceptorRequest::decode(&bytes), Ok(Decoded::Done(bytes.len(), request)));
        for length in 0..bytes.len() {
            let Ok(Decoded::Need(total)) = AcceptorRequest::decode(&bytes[..length]) else { panic!("{length}") };
            prop_assert!(length < total && total <= bytes.len());
        }
    }

    #[test]
    fn hellos_come_back_in_both_byte_orders(hello in any_hello()) {
        let mut bytes = vec![0; hello.encoded_len()];
        prop_assert_eq!(hello.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(&hello.to_bytes().unwrap()[..], &bytes[..]);
        prop_assert_eq!(Hello::decode(&bytes), Ok(Decoded::Done(bytes.len(), (hello, ByteOrder::Little))));
        for length in 0..bytes.len() {
            let Ok(Decoded::Need(total)) = Hello::decode(&bytes[..length]) else { panic!("{length}") };
            prop_assert!(length < total && total <= bytes.len());
        }
        let mut fields = match hello.version {
            Version::V4 => vec![4, 4, -40, 4, 4, 8, 8, 4, 4],
            _ => vec![4, 4, 8, 8, 4, 4, 8, 8, 4, 4],
        };
        fields.extend(hello.addresses.iter().map(|_| 4));
        flip(&mut bytes, &fields);
        prop_assert_eq!(Hello::decode(&bytes), Ok(Decoded::Done(bytes.len(), (hello, ByteOrder::Big))));
    }

    #[test]
    fn prefixes_come_back_in_both_byte_orders(prefix in any_prefix()) {
        let mut bytes = [0; Prefix::LEN];
        prefix.emit(&mut bytes);
        prop_assert_eq!(Prefix::parse(&bytes, ByteOrder::Little), Ok(prefix));
        flip(&mut bytes, &[4, 4, 8, 8]);
        prop_assert_eq!(Prefix::parse(&bytes, ByteOrder::Big), Ok(prefix));
    }

    #[test]
    fn messages_are_found_once_they_are_whole(prefix in any_prefix(), header in header_of(small_nid().boxed()), v4 in any::<bool>()) {
        let version = if v4 { Version::V4 } else { Version::V3 };
        let decoder = Decoder::new(version, ByteOrder::Little);
        let prefix = Prefix { kind: PrefixKind::Lnet, ..prefix };
        let mut bytes = vec![0; decoder.frame_len()];
        let (head, tail) = bytes.split_first_chunk_mut().unwrap();
        prefix.emit(head);
        if v4 {
            header.emit_large(tail.try_into().unwrap()).unwrap();
        } else {
            header.emit(tail.try_into().unwrap()).unwrap();
        }
        for length in 0..bytes.len() {
            prop_assert_eq!(decoder.decode(&bytes[..length]), Ok(None));
        }
        bytes.extend([0x5a; 40]);
        prop_assert_eq!(decoder.decode(&bytes), Ok(Some((decoder.frame_len(), Frame::Lnet(prefix, header)))));
    }

    #[test]
    fn ping_infos_come_back_in_both_byte_orders(info in any_ping()) {
        let mut bytes = emit_ping(&info);
        prop_assert_eq!(PingInfo::parse(&bytes), Ok(info.clone()));
        for length in 0..bytes.len() {
            let Err(ProtoError::Truncated { needed, .. }) = PingInfo::parse(&bytes[..length]) else { panic!("{length}") };
            prop_assert!(length < needed && needed <= bytes.len());
        }
        let mut fields = vec![4, 4, 4, 4, 8, 4, 4];
        for ni in &info.nis {
            fields.extend(if ni.nid.is_nid4() { &[8, 4, 4][..] } else { &[4, -20] });
        }
        flip(&mut bytes, &fields);
        bytes.extend(b"what follows is not looked at");
        prop_assert_eq!(PingInfo::parse(&bytes), Ok(info));
    }

    /// The queue of acknowledgements agrees with a plain model, the set of cookies.
    #[test]
    fn every_cookie_is_acknowledged_once_and_in_the_fewest_noops(cookies in vec(0..60_u64, 0..60)) {
        let mut queue = AckQueue::new();
        let mut model = std::collections::BTreeSet::new();
        for cookie in cookies {
            queue.push(cookie).unwrap();
            if cookie > 1 {
                model.insert(cookie);
            }
        }
        let is_single = |cookie: &&u64| !model.contains(&(*cookie + 1)) && !model.contains(&(*cookie - 1));
        let singles = model.iter().filter(is_single).count();
        let starts = model.iter().filter(|cookie| !model.contains(&(*cookie - 1))).count();

        let mut noops = 0;
        let mut acknowledged = std::collections::BTreeSet::new();
        while let Some(noop) = queue.pop().to_noop() {
            noops += 1;
            let acks = noop.acks();
            let named: Vec<_> = (0..64).filter(|cookie| acks.contains(*cookie)).collect();
            prop_assert_eq!(named.len() as u64, acks.count());
            for cookie in named {
                prop_assert!(acknowledged.insert(cookie), "{} twice", cookie);
            }
        }
        prop_assert_eq!(noops, starts - singles + singles.div_ceil(2));
        prop_assert_eq!(acknowledged, model);
    }

    #[test]
    fn bytes_of_any_kind_are_parsed_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Hello::decode(&bytes);
        let _ = AcceptorRequest::decode(&bytes);
        let _ = PingInfo::parse(&bytes);
        for version in [Version::V2, Version::V3, Version::V4] {
            let _ = Decoder::new(version, ByteOrder::Little).decode(&bytes);
        }
    }
}

fn sample_header() -> [u8; Header::LEN] {
    let header = Header {
        dest: ProcessId::lnet("10.0.0.1@tcp".parse().unwrap()),
        src: ProcessId::lnet("10.0.0.2@tcp".parse().unwrap()),
        payload_length: 0,
        body: Body::Reply { dst_wmd: WireHandle::new(1, 2) },
    };
    let mut bytes = [0; Header::LEN];
    header.emit(&mut bytes).unwrap();
    bytes
}

fn patched<const N: usize>(mut bytes: [u8; N], offset: usize, patch: &[u8]) -> [u8; N] {
    bytes[offset..offset + patch.len()].copy_from_slice(patch);
    bytes
}

/// The rules for headers (lnet-wire 9, rows 1 to 3).
#[test]
fn headers_keep_to_the_rules_of_their_type() {
    let types = [MessageType::Ack, MessageType::Put, MessageType::Get, MessageType::Reply];
    for message in types {
        let limit = message.max_payload();
        let bytes = patched(sample_header(), 24, &(message as u32).to_le_bytes());
        for length in [limit, limit + 1, u32::MAX] {
            let parsed = Header::parse(&patched(bytes, 28, &length.to_le_bytes()));
            if length == limit {
                assert_eq!(parsed.unwrap().payload_length, length);
            } else {
                assert_eq!(parsed, Err(ProtoError::PayloadLength { message, value: length, limit }));
            }
        }
    }
    for value in [4, 5, u32::MAX] {
        let parsed = Header::parse(&patched(sample_header(), 24, &value.to_le_bytes()));
        assert_eq!(parsed, Err(ProtoError::MessageType { value }));
    }
    for (offset, field) in [(0, "dest_nid"), (8, "src_nid")] {
        let parsed = Header::parse(&patched(sample_header(), offset, &[1; 8]));
        assert!(matches!(parsed, Err(ProtoError::Nid { field: f, .. }) if f == field), "{parsed:?}");
    }
}

#[test]
fn a_header_that_cannot_be_sent_leaves_the_buffer_alone() {
    let mut header = Header::parse(&sample_header()).unwrap();
    header.payload_length = MAX_PAYLOAD + 1;
    let mut small = [0x5a; Header::LEN];
    let mut large = [0x5a; Header::LARGE_LEN];
    assert!(header.emit(&mut small).is_err() && header.emit_large(&mut large).is_err());
    header.payload_length = 0;
    header.src.nid = "fd00::1@tcp".parse().unwrap();
    let error = header.emit(&mut small).unwrap_err();
    assert_eq!(error.to_string(), "src_nid fd00::1@tcp has no 64-bit form");
    assert_eq!((small, large), ([0x5a; Header::LEN], [0x5a; Header::LARGE_LEN]));
}

/// Bytes that the type of message does not use are ignored.
#[test]
fn unused_bytes_of_a_header_are_ignored() {
    let reply = sample_header();
    assert_eq!(Header::parse(&patched(reply, 48, &[0xff; 24])), Header::parse(&reply));
}

#[test]
fn only_two_prefix_types_exist() {
    let mut bytes = [0; Prefix::LEN];
    Prefix::LNET.emit(&mut bytes);
    for value in [0, 0xbf, 0xc2, 0xc000_0000, u32::MAX] {
        let bytes = patched(bytes, 0, &value.to_le_bytes());
        for version in [Version::V2, Version::V3, Version::V4] {
            let decoded = Decoder::new(version, ByteOrder::Little).decode(&bytes);
            assert_eq!(decoded, Err(ProtoError::PrefixType { value }));
        }
    }
}

/// A NOOP has the checksum of no bytes, or none (lnet-wire 25.3).
#[test]
fn a_noop_has_the_checksum_of_no_bytes_or_none() {
    let decoder = Decoder::new(Version::V3, ByteOrder::Little);
    for (csum, good) in [(0, true), (u32::MAX, true), (1, false), (0x5a5a_5a5a, false)] {
        let mut bytes = [0; Prefix::LEN];
        Prefix { csum, ..Prefix::KEEPALIVE }.emit(&mut bytes);
        match decoder.decode(&bytes) {
            Ok(frame) => assert!(good && frame.is_some(), "{csum:#x}"),
            Err(error) => assert_eq!((good, error.errno()), (false, 5), "{csum:#x}: {error}"),
        }
    }
}

fn sample_ping() -> [u8; 72] {
    let info = PingInfo {
        features: Features(0x7e),
        pid: Pid::LNET,
        sequence: 2,
        nis: vec![
            PingInterface { nid: "10.0.0.1@tcp".parse().unwrap(), status: NiStatus::UP },
            PingInterface { nid: "fd00::1@tcp".parse().unwrap(), status: NiStatus::DOWN },
        ],
    };
    emit_ping(&info).try_into().unwrap()
}

/// Ping infos that fail one of the receiver's checks of lnet-wire 16 are refused.
#[test]
fn malformed_ping_infos_are_refused() {
    let sample = sample_ping();
    let info = PingInfo::parse(&sample).unwrap();
    assert_eq!(info.primary(), Some(info.nis[1].nid), "the features say that the primary NID is large");
    let loopback = Nid::LOOPBACK.to_nid4().unwrap();
    let features = |value, problem| ProtoError::PingFeatures { value, problem };
    let not_interface = |nid| ProtoError::NotInterface { field: "ping info entry", nid };
    let first: Nid = "10.0.0.1@tcp".parse().unwrap();
    let table: [(&str, usize, Vec<u8>, ProtoError); 11] = [
        ("magic", 0, vec![0; 4], ProtoError::Magic { object: "ping info", value: 0, expected: 0x7069_6e67 }),
        ("no status", 4, vec![0x7c], features(0x7c, "NI_STATUS is mandatory")),
        ("no entry", 12, vec![0], ProtoError::PingCount { value: 0, min: 1, limit: NIS_MAX }),
        ("4097 entries", 12, vec![1, 16], ProtoError::PingCount { value: 4097, min: 1, limit: NIS_MAX }),
        (
            "more than there is",
            12,
            vec![5],
            ProtoError::Truncated { object: "ping info", length: 72, needed: 96 },
        ),
        (
            "first entry",
            16,
            first.to_nid4().unwrap().to_le_bytes().to_vec(),
            ProtoError::PingFirst { nid: first },
        ),
        ("wildcard", 32, vec![0xff; 8], not_interface(Nid::ANY)),
        ("second loopback", 32, loopback.to_le_bytes().to_vec(), not_interface(Nid::LOOPBACK)),
        ("total too small", 28, vec![44], ProtoError::PingSize { value: 44, expected: 48 }),
        ("total inside an entry", 28, vec![68], ProtoError::PingSize { value: 68, expected: 72 }),
        (
            "total too great",
            28,
            vec![96],
            ProtoError::Truncated { object: "ping info", length: 72, needed: 96 },
        ),
    ];
    for (what, offset, patch, expected) in table {
        assert_eq!(PingInfo::parse(&patched(sample, offset, &patch)), Err(expected), "{what}");
    }
    let size_code = PingInfo::parse(&patched(sample, 52, &[7])).unwrap_err();
    assert!(matches!(size_code, ProtoError::Nid { .. }), "{size_code}");
    let small_in_large = patched(sample, 28, &[60]);
    let small_in_large = PingInfo::parse(&patched(small_in_large, 52, &[0])).unwrap_err();
    assert!(matches!(small_in_large, ProtoError::PingSmallNid { .. }), "{small_in_large}");
}

/// The size is rounded down to a multiple of 4 (lnet-wire 16).
#[test]
fn a_ragged_total_size_is_rounded_down() {
    let sample = sample_ping();
    for total in [73, 74, 75] {
        assert_eq!(PingInfo::parse(&patched(sample, 28, &[total])), PingInfo::parse(&sample));
    }
}

#[test]
fn a_ping_info_that_no_node_would_read_is_not_written() {
    let good = PingInfo::parse(&sample_ping()).unwrap();
    let mut out = vec![0; 128];
    let without_large = PingInfo { features: Features(0x1e), ..good.clone() };
    assert!(matches!(without_large.emit(&mut out), Err(ProtoError::PingFeatures { .. })));
    let without_status = PingInfo { features: Features::LARGE_ADDR, ..good.clone() };
    assert!(matches!(without_status.emit(&mut out), Err(ProtoError::PingFeatures { .. })));
    let metadata = PingInfo { features: good.features | Features::METADATA, ..good.clone() };
    assert!(matches!(metadata.emit(&mut out), Err(ProtoError::PingFeatures { .. })));
    let any = PingInterface { nid: Nid::ANY, status: NiStatus::UP };
    let wildcard = PingInfo { nis: vec![any], ..good.clone() };
    assert!(matches!(wildcard.emit(&mut out), Err(ProtoError::NotInterface { .. })));
    let crowd = PingInfo { nis: vec![good.nis[0]; NIS_MAX], ..good.clone() };
    assert!(matches!(crowd.emit(&mut vec![0; 1 << 17]), Err(ProtoError::PingCount { .. })));
    let short = ProtoError::Buffer { object: "ping info", length: 71, needed: 72 };
    assert_eq!(good.emit(&mut out[..71]), Err(short));
}

/// A user's ping reads the info of a node with newer features (lnet-wire 19, level A).
#[test]
fn metadata_behind_the_entries_is_not_looked_at() {
    let sample = patched(sample_ping(), 4, &[0xfe]);
    let info = PingInfo::parse(&[&sample[..], &[1, 0, 0, 0], &[0x5a; 40]].concat()).unwrap();
    assert!(info.features.contains(Features::METADATA));
    assert_eq!(info.nis, PingInfo::parse(&sample_ping()).unwrap().nis);
}

#[test]
fn an_empty_ack_queue_says_nothing() {
    assert_eq!((AckQueue::new().pop(), Acks::None.to_noop()), (Acks::None, None));
}
