//! MT-232, MT-46: packets of the document with one field changed. Permitted values are accepted;
//! all others are refused with their errno and the name of the field.

use std::num::NonZeroU32;

use nlx_core::Errno;
use nlx_driver_proto::{
    ARENA_BYTES_MAX, BUFFERS_MAX, EVENTS_MAX, Header, PacketError, Reason, Refusal, Reply, Request,
    SEGMENTS_MAX,
};

use crate::document;

/// Offset of the body of a request, and of the body of a reply behind its outcome.
const BODY: usize = Header::LEN;
const TOLD: usize = Header::LEN + 24;

/// Returns the packet of the document with other bytes at an offset.
fn with(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut packet = document::bytes(name);
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}

/// Returns the field that is refused, and the errno.
fn refused<T: std::fmt::Debug>(read: Result<T, PacketError>) -> (&'static str, Errno) {
    let error = read.unwrap_err();
    let field = match error {
        PacketError::Field { field, .. } => field,
        PacketError::Kind { .. } => "kind",
        PacketError::Length { .. } => "length",
        PacketError::Version { .. } => "versions",
        _ => "memory",
    };
    (field, error.errno())
}

fn request(name: &str, at: usize, bytes: &[u8]) -> (&'static str, Errno) {
    refused(Request::read(&with(name, at, bytes)))
}

fn reply(name: &str, at: usize, bytes: &[u8]) -> (&'static str, Errno) {
    refused(Reply::read(&with(name, at, bytes)))
}

const ANY_NID: [u8; 20] = [0xff; 20];
const RESERVED: (&str, Errno) = ("a reserved field", Errno::EBADR);

// Covers: MT-46
#[test]
fn headers() {
    for name in document::names().into_iter().filter(|name| !name.starts_with('e')) {
        let is_reply = document::bytes(name)[1] == 0x80;
        let read =
            |at, bytes: &[u8]| if is_reply { reply(name, at, bytes) } else { request(name, at, bytes) };
        assert_eq!(read(2, &[1]), ("the flags", Errno::EBADR), "{name}");
        assert_eq!(read(3, &[0x80]), ("the flags", Errno::EBADR), "{name}");
        for length in [0, 15, u32::MAX] {
            assert_eq!(read(4, &length.to_le_bytes()), ("length", Errno::ENOTTY), "{name}");
        }
        // Kind 0, one beyond the last, and those of the other direction.
        if name != "refused" {
            let side = if is_reply { Header::REPLY } else { 0 };
            for kind in [side, side | 11, side | 0x50, side | 0x7fff] {
                assert_eq!(read(0, &kind.to_le_bytes()), ("kind", Errno::ENOTTY), "{name}");
            }
        }
        let other = if is_reply { 0 } else { 0x80 };
        assert_eq!(read(1, &[other]), ("kind", Errno::ENOTTY), "{name}");
    }
}

// Covers: MT-46, MT-232
#[test]
fn hello() {
    let read = |at, bytes: &[u8]| request("hello", BODY + at, bytes);
    for at in 0..8 {
        assert_eq!(read(at, &[0]), ("the magic", Errno::EBADR));
    }
    for versions in [[0u8, 0, 2, 0], [4, 0, 5, 0], [4, 0, 3, 0], [0xff; 4]] {
        assert_eq!(read(8, &versions), ("versions", Errno::EPROTONOSUPPORT));
        // A different version is reported before fields that it may have changed.
        assert_eq!(read(8, &[&versions[..], &[1]].concat()).1, Errno::EPROTONOSUPPORT);
    }
    for at in 12..16 {
        assert_eq!(read(at, &[1]), RESERVED);
    }
    for at in 28..56 {
        assert_eq!(read(at, &[1]), ("a byte behind the end of the name", Errno::EBADR));
    }
    // Features of a later version, and a name of any bytes, are accepted.
    let expected = Request::read(&document::bytes("hello")).unwrap();
    assert_eq!(Request::read(&with("hello", BODY + 16, &[0xff; 8])), Ok(expected));
    let full = Request::read(&with("hello", BODY + 24, &[0xf0; 32])).unwrap();
    assert!(matches!(full, (1, Request::Hello(hello)) if hello.name() == "?".repeat(32)));
}

#[test]
fn versions_that_include_ours_are_spoken() {
    for versions in [[0u8, 0, 3, 0], [3, 0, 9, 0], [0, 0, 0xff, 0xff]] {
        assert!(Request::read(&with("hello", BODY + 8, &versions)).is_ok());
    }
    let error = Request::read(&with("hello", BODY + 8, &[4, 0, 5, 0])).unwrap_err();
    assert_eq!(error, PacketError::Version { min: 4, max: 5, own: 3 });
    assert_eq!(Refusal::from(&error), Refusal::of(Errno::EPROTONOSUPPORT, Reason::Version, 5, 3));
}

// Covers: MT-232
#[test]
fn arenas() {
    let create = |at, bytes: &[u8]| request("create-arena", BODY + at, bytes);
    for bytes in [0, ARENA_BYTES_MAX + 1, u64::MAX] {
        assert_eq!(create(0, &bytes.to_le_bytes()), ("the bytes", Errno::EBADR));
    }
    for bytes in [1, ARENA_BYTES_MAX] {
        assert!(Request::read(&with("create-arena", BODY, &bytes.to_le_bytes())).is_ok());
    }
    assert_eq!(create(8, &[2]), ("huge", Errno::EBADR));
    assert_eq!(create(8, &[0, 1]), ("huge", Errno::EBADR));
    for near in [0, 1, u32::MAX] {
        let read = Request::read(&with("create-arena", BODY + 12, &near.to_le_bytes()));
        let expected = Request::CreateArena { bytes: 16 << 20, huge: true, near: NonZeroU32::new(near) };
        assert_eq!(read, Ok((2, expected)));
    }
    assert_eq!(request("release-arena", BODY + 4, &[1]), RESERVED);
    assert_eq!(request("release-arena", BODY + 7, &[1]), RESERVED);
}

// Covers: MT-232
#[test]
fn registrations() {
    let read = |at, bytes: &[u8]| request("register", BODY + at, bytes);
    let (place, generation) = ((1u64 << 32) | u64::from(BUFFERS_MAX), 5u64);
    for name in [0, generation, place, u64::MAX] {
        assert_eq!(read(0, &name.to_le_bytes()), ("the buffer", Errno::EBADR));
    }
    for count in [0, SEGMENTS_MAX as u32 + 1, u32::MAX] {
        assert_eq!(read(8, &count.to_le_bytes()), ("the segments", Errno::EBADR));
    }
    for count in [1u32, 3, SEGMENTS_MAX as u32] {
        assert_eq!(read(8, &count.to_le_bytes()), ("length", Errno::ENOTTY));
    }
    assert_eq!(read(12, &[1]), RESERVED);
    for segment in [16, 40] {
        assert_eq!(read(segment + 4, &[1]), RESERVED);
        assert_eq!(read(segment + 7, &[1]), RESERVED);
        assert_eq!(read(segment + 16, &[0; 8]), ("a segment's length", Errno::EBADR));
        for far in [ARENA_BYTES_MAX, u64::MAX] {
            assert_eq!(read(segment + 8, &far.to_le_bytes()), ("a segment's end", Errno::EBADR));
            let length = far - (far & 1);
            assert_eq!(read(segment + 8, &[&[1; 8], &length.to_le_bytes()[..]].concat()).1, Errno::EBADR);
        }
        let last = [(ARENA_BYTES_MAX - 1).to_le_bytes(), 1u64.to_le_bytes()].concat();
        assert!(Request::read(&with("register", BODY + segment + 8, &last)).is_ok());
    }
}

// Covers: MT-232
#[test]
fn starts() {
    let read = |at, bytes: &[u8]| request("start-tm", BODY + at, bytes);
    assert_eq!(read(0, &ANY_NID), ("the NID", Errno::EBADR));
    nids(|nid| read(0, nid));
    for id in [4096, u32::MAX] {
        assert_eq!(read(28, &u32::to_le_bytes(id)), ("the id", Errno::EBADR));
    }
    for events in [0, EVENTS_MAX + 1, u32::MAX] {
        assert_eq!(read(32, &events.to_le_bytes()), ("the events", Errno::EBADR));
    }
    for events in [1, EVENTS_MAX] {
        assert!(Request::read(&with("start-tm", BODY + 32, &events.to_le_bytes())).is_ok());
    }
    assert_eq!(read(36, &[2]), ("lazy", Errno::EBADR));
    assert_eq!(read(39, &[1]), ("lazy", Errno::EBADR));
}

/// Checks that invalid NIDs, and other encodings of valid ones, are refused.
fn nids(read: impl Fn(&[u8]) -> (&'static str, Errno)) {
    let tcp = |size, net_type, at: usize, byte| {
        let mut nid = [0; 20];
        nid[..8].copy_from_slice(&[size, net_type, 0, 0, 10, 0, 0, 1]);
        nid[at] = byte;
        nid
    };
    let size_code = tcp(1, 2, 19, 0);
    let behind_address = tcp(0, 2, 8, 1);
    let wildcard = tcp(0, 0xff, 19, 0);
    let another_loopback = tcp(0, 9, 19, 0);
    for nid in [size_code, behind_address, wildcard, another_loopback] {
        assert_eq!(read(&nid), ("the NID", Errno::EBADR), "{nid:02x?}");
    }
}

// Covers: MT-232
#[test]
fn outcomes() {
    // A success has no reason and no value.
    for (name, at) in
        [("done", 0), ("done", 4), ("welcome", 8), ("arena", 15), ("started", 16), ("nids-reply", 23)]
    {
        assert_eq!(reply(name, Header::LEN + at, &[1]), RESERVED, "{name} {at}");
    }
    // A refusal with a body.
    assert_eq!(reply("arena", Header::LEN, &[0xff; 4]), ("length", Errno::ENOTTY));
    let unknown = Reply::read(&with("refused", Header::LEN, &[0, 0, 0, 0x80, 99])).unwrap();
    let expected = Refusal { errno: Errno::EIO, reason: Reason::Other, value: 30, limit: 0 };
    assert_eq!(unknown, (6, Reply::Refused(expected)));
}

// Covers: MT-232
#[test]
fn what_replies_tell() {
    for version in [0, 1, 2, 4, 0xff] {
        assert_eq!(reply("welcome", TOLD, &[version]), ("versions", Errno::EPROTONOSUPPORT));
    }
    for at in 2..8 {
        assert_eq!(reply("welcome", TOLD + at, &[1]), RESERVED);
    }
    assert_eq!(reply("arena", TOLD + 4, &[2]), ("huge", Errno::EBADR));
    for bytes in [0, ARENA_BYTES_MAX + 1] {
        assert_eq!(reply("arena", TOLD + 8, &bytes.to_le_bytes()), ("the bytes", Errno::EBADR));
    }
    assert_eq!(reply("started", TOLD + 8, &ANY_NID), ("the NID", Errno::EBADR));
    nids(|nid| reply("started", TOLD + 8, nid));
    for id in [0, 4096] {
        assert_eq!(reply("started", TOLD + 36, &u32::to_le_bytes(id)), ("the id", Errno::EBADR));
    }
    for at in 44..48 {
        assert_eq!(reply("started", TOLD + at, &[1]), RESERVED);
    }
    for place in 0..3 {
        assert_eq!(reply("nids-reply", TOLD + 20 * place, &ANY_NID), ("the NID", Errno::EBADR));
        nids(|nid| reply("nids-reply", TOLD + 20 * place, nid));
    }
}

#[test]
fn limits_beyond_lnets_are_lnets() {
    let Ok((_, Reply::Welcome(welcome))) = Reply::read(&with("welcome", TOLD + 24, &[0xff; 32])) else {
        panic!("no welcome")
    };
    assert_eq!(welcome.limits, nlx_core::Limits::LNET);
}
