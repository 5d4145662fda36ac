//! Each field of the TCP driver's layouts is checked, and the error names it (lnet-wire 7, 21, 22).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::sock::{AcceptorRequest, ConnType, Hello, InterfaceAddresses, Version};
use lnet_proto::{Body, Decoded, Header, MAX_PAYLOAD, MessageType, ProtoError, WireHandle};

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

fn hello(version: Version) -> Vec<u8> {
    let hello = Hello {
        version,
        src_nid: nid("10.0.0.1@tcp"),
        dst_nid: nid("10.0.0.2@tcp"),
        src_pid: Pid::LNET,
        dst_pid: Pid(0),
        src_incarnation: 1,
        dst_incarnation: 0,
        conn_type: ConnType::Control,
        addresses: InterfaceAddresses::NONE,
    };
    hello.to_bytes().unwrap().to_vec()
}

fn request(text: &str) -> Vec<u8> {
    let request = AcceptorRequest::new(nid(text));
    let mut bytes = vec![0; request.encoded_len()];
    request.emit(&mut bytes).unwrap();
    bytes
}

fn large_header() -> Vec<u8> {
    let header = Header {
        dest: ProcessId::lnet(nid("fd00::1@tcp")),
        src: ProcessId::lnet(nid("fd00::2@tcp")),
        payload_length: 0,
        body: Body::Reply { dst_wmd: WireHandle::NONE },
    };
    let mut bytes = [0; Header::LARGE_LEN];
    header.emit_large(&mut bytes).unwrap();
    bytes.to_vec()
}

/// Returns the error of `parse` for `bytes` with `patch` written over them at `offset`.
fn error<T: std::fmt::Debug>(
    bytes: &[u8],
    offset: usize,
    patch: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, ProtoError>,
) -> ProtoError {
    assert!(parse(bytes).is_ok(), "the bytes are good without the patch");
    let mut bytes = bytes.to_vec();
    bytes[offset..offset + patch.len()].copy_from_slice(patch);
    parse(&bytes).unwrap_err()
}

/// Checks that the error is that of an invalid NID in this field.
fn assert_nid(error: &ProtoError, name: &str) {
    assert!(matches!(error, ProtoError::Nid { field, .. } if *field == name), "{error} should name {name}");
}

/// An invalid NID: its bits 56 to 63, which must be clear, are set.
const NO_NID4: [u8; 8] = [1; 8];

#[test]
fn fields_of_a_connection_request() {
    let object = "connection request";
    let magic = ProtoError::Magic { object, value: 0xacce_7101, expected: 0xacce_7100 };
    for text in ["10.0.0.1@tcp", "fd00::1@tcp"] {
        assert_eq!(error(&request(text), 0, &[1], AcceptorRequest::decode), magic);
        for value in [0_u32, 3, u32::MAX] {
            let version = ProtoError::Version { object, value, min: 1, max: 2 };
            assert_eq!(error(&request(text), 4, &value.to_le_bytes(), AcceptorRequest::decode), version);
        }
    }
    assert_nid(&error(&request("10.0.0.1@tcp"), 8, &NO_NID4, AcceptorRequest::decode), "requested NID");
    for size_code in [1, 11, 13, 255] {
        let error = error(&request("fd00::1@tcp"), 8, &[size_code], AcceptorRequest::decode);
        assert_nid(&error, "requested NID");
    }
}

#[test]
fn fields_of_a_hello() {
    let object = "hello";
    for version in [Version::V2, Version::V3, Version::V4] {
        let bytes = hello(version);
        let wrong = |offset, patch: &[u8]| error(&bytes, offset, patch, Hello::decode);
        assert_eq!(wrong(0, &[0]), ProtoError::Magic { object, value: 0x4572_6900, expected: 0x4572_6963 });
        for value in [0_u32, 1, 5, u32::MAX] {
            let unknown = ProtoError::Version { object, value, min: 2, max: 4 };
            assert_eq!(wrong(4, &value.to_le_bytes()), unknown);
        }
        let type_at = if version == Version::V4 { 72 } else { 48 };
        for value in [-2, 4, i32::MIN, i32::MAX] {
            assert_eq!(wrong(type_at, &value.to_le_bytes()), ProtoError::ConnType { value });
        }
        let any = if version == Version::V4 { &[0xff; 20][..] } else { &[0xff; 8] };
        assert_eq!(wrong(8, any), ProtoError::NotInterface { field: "hello src_nid", nid: Nid::ANY });
        let no_nid = if version == Version::V4 { &[13][..] } else { &NO_NID4 };
        assert_nid(&wrong(8, no_nid), "hello src_nid");
        // The destination is not checked (lnet-wire 22.5).
        let dst_at = if version == Version::V4 { 28 } else { 16 };
        let mut unchecked = bytes.clone();
        unchecked[dst_at..dst_at + no_nid.len()].copy_from_slice(no_nid);
        let Ok(Decoded::Done(_, (read, _))) = Hello::decode(&unchecked) else { panic!("{version:?}") };
        assert_eq!(read.dst_nid, Nid::ANY);
        if version != Version::V4 {
            let count = ProtoError::AddressCount { value: 17, limit: 16 };
            assert_eq!(wrong(52, &17_u32.to_le_bytes()), count);
        }
    }
}

/// lnet-wire 22.1: the oldest hello is recognised by its magic number alone.
#[test]
fn a_version_one_hello_is_recognised_and_refused() {
    let old = ProtoError::Version { object: "hello", value: 1, min: 2, max: 4 };
    let mut bytes = vec![0xed, 0x0d, 0xbc, 0xee, 1, 0, 0, 0];
    for behind in [0, 64, 200] {
        bytes.resize(8 + behind, 0x5a);
        assert_eq!(Hello::decode(&bytes), Err(old.clone()));
    }
    bytes[4..8].copy_from_slice(&[9, 0, 9, 0]);
    assert_eq!(Hello::decode(&bytes), Err(old), "of other numbers too");
    for length in 0..8 {
        assert!(Hello::decode(&bytes[..length]).is_ok(), "{length} bytes do not tell");
    }
    bytes[..4].reverse();
    assert!(
        matches!(Hello::decode(&bytes), Err(ProtoError::Magic { .. })),
        "it is little-endian on all nodes"
    );
}

#[test]
fn fields_of_a_large_header() {
    let bytes = large_header();
    let parse = |bytes: &[u8]| Header::parse_large(bytes.try_into().unwrap());
    for (offset, name) in [(0, "dest_nid"), (20, "src_nid")] {
        for size_code in [1, 11, 13, 255] {
            assert_nid(&error(&bytes, offset, &[size_code], parse), name);
        }
    }
    for value in [4_u32, 5, u32::MAX] {
        assert_eq!(error(&bytes, 48, &value.to_le_bytes(), parse), ProtoError::MessageType { value });
    }
    let (message, limit) = (MessageType::Reply, MAX_PAYLOAD);
    let too_long = ProtoError::PayloadLength { message, value: limit + 1, limit };
    assert_eq!(error(&bytes, 52, &(limit + 1).to_le_bytes(), parse), too_long);
}
