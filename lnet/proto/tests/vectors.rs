//! Bytes recorded between kernel nodes: parsing and emitting gives the same bytes (S-207, S-417).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::{Item, Lnet, Stream, array, streams};
use lnet_nid::MatchBits;
use lnet_proto::ping::{NiStatus, PingInfo};
use lnet_proto::sock::{AcceptorRequest, Acks, Decoder, Frame, Hello, Prefix, Version};
use lnet_proto::{Body, ByteOrder, Decoded, Header, PING_PORTAL};

fn version_of(stream: &Stream) -> Version {
    match Hello::decode(stream.hello()).unwrap() {
        Decoded::Done(_, (hello, _)) => hello.version,
        Decoded::Need(total) => panic!("{}: the hello needs {total} bytes", stream.name),
    }
}

fn emit_header(header: &Header, version: Version) -> Vec<u8> {
    let mut bytes = vec![0; version.header_len()];
    match version {
        Version::V4 => header.emit_large(bytes.first_chunk_mut().unwrap()).unwrap(),
        _ => header.emit(bytes.first_chunk_mut().unwrap()).unwrap(),
    }
    bytes
}

fn emit_prefix(prefix: &Prefix) -> [u8; Prefix::LEN] {
    let mut bytes = [0; Prefix::LEN];
    prefix.emit(&mut bytes);
    bytes
}

// Covers: S-207
#[test]
fn requests_and_hellos_are_read_and_written_back() {
    let mut seen = BTreeMap::new();
    for stream in streams() {
        for item in &stream.items {
            let mut out = [0; 128];
            let (kind, length, bytes) = match item {
                Item::Request(bytes) => {
                    let Decoded::Done(length, request) = AcceptorRequest::decode(bytes).unwrap() else {
                        panic!("{}: short request", stream.name)
                    };
                    assert_eq!(request, AcceptorRequest::new(request.nid), "the oldest version that fits");
                    assert_eq!(request.emit(&mut out), Ok(length));
                    (format!("request {:?}", request.version), length, bytes)
                }
                Item::Hello(bytes) => {
                    let Decoded::Done(length, (hello, order)) = Hello::decode(bytes).unwrap() else {
                        panic!("{}: short hello", stream.name)
                    };
                    assert_eq!(order, ByteOrder::Little);
                    assert_eq!(hello.emit(&mut out), Ok(length));
                    (format!("hello {:?}", hello.version), length, bytes)
                }
                _ => continue,
            };
            assert_eq!(out[..length], bytes[..], "{}", stream.name);
            *seen.entry(kind).or_insert(0) += 1;
        }
    }
    let kinds: Vec<_> = seen.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["hello V3", "hello V4", "request V1", "request V2"]);
}

#[test]
fn messages_are_read_and_written_back() {
    let mut seen = BTreeMap::new();
    for stream in streams() {
        let version = version_of(&stream);
        let decoder = Decoder::new(version, ByteOrder::Little);
        for item in &stream.items {
            let kind = match item {
                Item::Noop(bytes) => {
                    let (length, Frame::Noop(prefix)) = decoder.decode(bytes).unwrap().unwrap() else {
                        panic!("{}: a NOOP was read as something else", stream.name)
                    };
                    assert_eq!(length, bytes.len());
                    assert_eq!(emit_prefix(&prefix)[..], bytes[..]);
                    assert_ne!(prefix.acks(), Acks::None);
                    "NOOP"
                }
                Item::Lnet(lnet) => {
                    check_message(&stream, decoder, version, lnet);
                    lnet.message_type.as_str()
                }
                _ => continue,
            };
            *seen.entry((kind.to_owned(), version)).or_insert(0) += 1;
        }
    }
    for kind in ["ACK", "GET", "PUT", "REPLY"] {
        for version in [Version::V3, Version::V4] {
            assert!(seen.contains_key(&(kind.to_owned(), version)), "{kind} over {version:?} is recorded");
        }
    }
}

fn check_message(stream: &Stream, decoder: Decoder, version: Version, lnet: &Lnet) {
    let bytes = [&lnet.prefix[..], &lnet.header].concat();
    let (length, Frame::Lnet(prefix, header)) = decoder.decode(&bytes).unwrap().unwrap() else {
        panic!("{}: a message was read as a NOOP", stream.name)
    };
    assert_eq!((length, length), (bytes.len(), decoder.frame_len()));
    assert_eq!(emit_prefix(&prefix)[..], lnet.prefix[..]);
    assert_eq!(emit_header(&header, version), lnet.header, "{}", stream.name);
    assert_eq!(header.message_type().to_string(), lnet.message_type);
    assert_eq!(u64::from(header.payload_length), lnet.payload_length);
    assert_eq!(prefix.wants_ack().is_some(), header.payload_length >= 16384, "lnet-wire 26");
    assert!(decoder.checksum(&bytes).is_none());
}

#[test]
fn ping_infos_are_read_and_written_back() {
    let mut large_entries = 0;
    let mut small_entries = 0;
    for stream in streams() {
        let items = stream.items.iter().filter_map(|item| match item {
            Item::Lnet(lnet) => lnet.payload.as_ref().filter(|bytes| bytes.starts_with(b"gnip")),
            _ => None,
        });
        for bytes in items {
            let info = PingInfo::parse(bytes).unwrap();
            let mut out = vec![0; info.encoded_len()];
            assert_eq!(info.emit(&mut out), Ok(bytes.len()));
            assert_eq!(&out, bytes, "{}", stream.name);
            assert!(info.nis.iter().all(|ni| ni.status == NiStatus::UP));
            large_entries += info.nis.iter().filter(|ni| !ni.nid.is_nid4()).count();
            small_entries += info.nis.iter().filter(|ni| ni.nid.is_nid4()).count();
            assert_eq!(info.primary(), info.nis.first().map(|ni| ni.nid));
        }
    }
    assert!(large_entries > 0 && small_entries > 0);
}

#[test]
fn the_first_recorded_message_is_a_ping() {
    for stream in streams() {
        let (Item::Request(_), Some(Item::Lnet(lnet))) = (&stream.items[0], stream.items.get(2)) else {
            continue;
        };
        if lnet.message_type != "GET" {
            continue;
        }
        let header = match version_of(&stream) {
            Version::V4 => Header::parse_large(array(&lnet.header)),
            _ => Header::parse(array(&lnet.header)),
        };
        let Ok(Header { body: Body::Get { match_bits, portal, src_offset, .. }, .. }) = header else {
            panic!("{}: {header:?}", stream.name)
        };
        assert_eq!((match_bits, portal, src_offset), (MatchBits::PING, PING_PORTAL.get(), 0));
    }
}
