//! Entries of the ring: round trips, arbitrary bytes, and each field with invalid values.

use nlx_core::{Errno, MatchCounter};
use nlx_driver_proto::{ARENA_BYTES_MAX, PacketError, Submission};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use crate::{any, document};

/// Returns the entry of the document with other bytes at an offset.
fn with(name: &str, at: usize, bytes: &[u8]) -> Submission {
    let mut entry = document::bytes(name);
    entry[at..at + bytes.len()].copy_from_slice(bytes);
    Submission::read_from_bytes(&entry).unwrap()
}

/// Returns the field that is refused; the errno is always EBADR.
fn refused(name: &str, at: usize, bytes: &[u8]) -> &'static str {
    match with(name, at, bytes).read() {
        Err(error @ PacketError::Field { field, .. }) if error.errno() == Errno::EBADR => field,
        other => panic!("{name} with {bytes:02x?} at {at}: {other:?}"),
    }
}

/// The fields that an example does not use: offset, length, name in errors.
const QUEUE: (usize, usize, &str) = (4, 4, "the queue");
const TM: (usize, usize, &str) = (8, 8, "the transfer machine");
const COOKIE: (usize, usize, &str) = (24, 8, "the cookie");
const LENGTH: (usize, usize, &str) = (32, 8, "the length");
const PLACE: (usize, usize, &str) = (40, 8, "the counter or offset");
const COUNT: (usize, usize, &str) = (48, 4, "the count");
const TARGET_LENGTH: (usize, usize, &str) = (52, 4, "the length of the target");
const TARGET: (usize, usize, &str) = (56, 56, "a byte behind the target");
const COUNTER: (usize, usize, &str) = (40, 8, "the match counter");

// Covers: MT-232
#[test]
fn fields_that_an_entry_does_not_use_must_be_0() {
    let examples: [(&str, &[_]); 9] = [
        ("entry-receive", &[COUNTER, TARGET_LENGTH, TARGET]),
        ("entry-send", &[COUNTER, COUNT, (88, 24, TARGET.2)]),
        ("entry-passive-receive", &[LENGTH, COUNT, TARGET_LENGTH, TARGET]),
        ("entry-passive-send", &[COUNT, TARGET_LENGTH, TARGET]),
        ("entry-active-receive", &[LENGTH, COUNTER, COUNT, (104, 8, TARGET.2)]),
        ("entry-active-send", &[COUNTER, COUNT]),
        ("entry-cancel", &[QUEUE, LENGTH, PLACE, COUNT, TARGET_LENGTH, TARGET]),
        ("entry-register", &[QUEUE, TM, COOKIE, TARGET_LENGTH, TARGET]),
        ("entry-deregister", &[QUEUE, TM, COOKIE, LENGTH, PLACE, COUNT, TARGET_LENGTH, TARGET]),
    ];
    for (name, unused) in examples {
        for &(at, bytes, field) in unused.iter().chain([&(112, 8, "a reserved field")]) {
            for byte in at..at + bytes {
                assert_eq!(refused(name, byte, &[1]), field, "{name}, byte {byte}");
                assert_eq!(refused(name, byte, &[0xff]), field, "{name}, byte {byte}");
            }
        }
    }
}

#[test]
fn kinds_and_queues_that_are_none() {
    for kind in [0, 5, 256, u32::MAX] {
        let error = with("entry-receive", 0, &kind.to_le_bytes()).read().unwrap_err();
        assert_eq!(error, PacketError::Kind { object: "an entry of the ring", kind });
        assert_eq!(error.errno(), Errno::ENOTTY);
    }
    for queue in [6, 256, u32::MAX] {
        assert_eq!(refused("entry-receive", 4, &queue.to_le_bytes()), "the queue");
    }
}

#[test]
fn match_counters_belong_to_passive_operations() {
    for name in ["entry-passive-receive", "entry-passive-send"] {
        for counter in [0, MatchCounter::LAST.get() + 1, u64::MAX] {
            assert_eq!(refused(name, 40, &counter.to_le_bytes()), "the match counter");
        }
        for counter in [1, MatchCounter::LAST.get()] {
            assert!(with(name, 40, &counter.to_le_bytes()).read().is_ok());
        }
    }
}

// Covers: MT-232
#[test]
fn targets() {
    for name in ["entry-send", "entry-active-receive", "entry-active-send"] {
        for length in [0u32, 31, 33, 47, 49, 55, 57, u32::MAX] {
            assert_eq!(
                refused(name, 52, &length.to_le_bytes()),
                "the length of the target",
                "{name}, {length}"
            );
        }
    }
    assert_eq!(refused("entry-send", 52, &[48]), "the length of the target");
    assert_eq!(refused("entry-active-receive", 52, &[32]), "the length of the target");
    assert_eq!(refused("entry-send", 56, &[0xff; 20]), "the NID");
    assert_eq!(refused("entry-send", 56, &[1]), "the NID");
    for id in [0, 4096, u32::MAX] {
        assert_eq!(refused("entry-send", 84, &id.to_le_bytes()), "the id");
    }
}

// Covers: MT-232
#[test]
fn buffers_to_be_registered() {
    for name in [0u64, 7, 1 << 52 | 1 << 20, u64::MAX] {
        assert_eq!(refused("entry-register", 16, &name.to_le_bytes()), "the buffer");
    }
    assert_eq!(refused("entry-register", 32, &[0; 8]), "a segment's length");
    for offset in [ARENA_BYTES_MAX, u64::MAX] {
        assert_eq!(refused("entry-register", 40, &offset.to_le_bytes()), "a segment's end");
    }
}

proptest! {
    // Covers: MT-214
    #[test]
    fn every_entry_survives_a_round_trip(entry in any::entry()) {
        prop_assert_eq!(entry.write().read(), Ok(entry));
    }

    #[test]
    fn what_any_bytes_say_is_written_as_it_was(
        kind in 0..6u32,
        queue in 0..7u32,
        zeroed in prop::collection::vec(any::<bool>(), 28),
        mut bytes in prop::collection::vec(any::<u8>(), size_of::<Submission>()),
    ) {
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&queue.to_le_bytes());
        for (word, zeroed) in bytes[8..].chunks_mut(4).zip(zeroed) {
            word.fill(if zeroed { 0 } else { word[0] });
        }
        let submission = Submission::read_from_bytes(&bytes).unwrap();
        match submission.read() {
            Ok(entry) => prop_assert_eq!(entry.write(), submission),
            Err(error) => prop_assert!(matches!(error.errno(), Errno::ENOTTY | Errno::EBADR)),
        }
    }

    /// A flipped bit in an entry gives another entry or an error, never the same entry.
    #[test]
    fn a_turned_bit_is_noticed(entry in any::entry(), at in 0..8 * size_of::<Submission>()) {
        let mut bytes = entry.write().as_bytes().to_vec();
        bytes[at / 8] ^= 1 << (at % 8);
        prop_assert_ne!(Submission::read_from_bytes(&bytes).unwrap().read(), Ok(entry));
    }
}
