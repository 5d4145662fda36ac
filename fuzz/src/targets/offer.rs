//! Offers of buffers, which peers send in messages of any length.

use nlx::{Descriptor, Error, Offer};
use nlx_core::{MatchBits, PassiveBuffer, Queue};

use super::{Outcome, same};

/// Position of the checksum in the header.
const CHECKSUM: std::ops::Range<usize> = 20..24;

/// Reads the bytes as they are, and with a recomputed checksum, as a malicious peer could write
/// them.
pub(super) fn offer(bytes: &[u8]) -> Outcome {
    Outcome::of((read(bytes), read(&mended(bytes))))
}

/// Reads an offer. An accepted offer has a descriptor for each of its parts, and is written back
/// with the same bytes.
fn read(bytes: &[u8]) -> (u64, u64) {
    let offer = match Offer::from_bytes(bytes) {
        Ok(offer) => offer,
        Err(error @ Error::Offer { field, .. }) => {
            assert!(!error.to_string().is_empty(), "{error:?}");
            return (Outcome::of(field).kind, 0);
        }
        Err(other) => panic!("an offer is refused for what it is: {other:?}"),
    };
    same(offer.as_bytes(), bytes, "the bytes of an offer");
    let parts = offer.descriptors().len();
    match Descriptor::from_bytes(bytes) {
        Ok(single) => same(offer.descriptor(0), single, "an offer that is a descriptor"),
        Err(_) => same(parts as u64, offer.length().div_ceil(offer.part_bytes()), "the number of parts"),
    }
    assert!((1..=Offer::PARTS_MAX).contains(&parts), "{parts} parts");
    for descriptor in offer.descriptors() {
        same(Ok(descriptor), Descriptor::from_bytes(descriptor.as_bytes()), "a descriptor of an offer");
    }
    same(offer.descriptor(parts), Descriptor::NONE, "the descriptor behind the last");
    (0, parts.min(8) as u64)
}

/// Returns the same bytes with the checksum recomputed.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= Offer::HEADER_LEN {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..CHECKSUM.start]);
        hasher.update(&bytes[CHECKSUM.end..]);
        let checksum = hasher.finalize();
        bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// Returns offers of 1 and of 3 parts, and a descriptor, in the form that the documentation
/// describes.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let address = "10.0.0.1@tcp:12345:31:7".parse().expect("it is an address");
    let descriptor = |number: u64| {
        let match_bits = MatchBits(7 << 52 | number);
        let passive = PassiveBuffer { address, match_bits, queue: Queue::PassiveBulkSend, length: 1 << 20 };
        Descriptor::encode(&passive).expect("it can be described")
    };
    let seed = |parts: u64| {
        let mut bytes = b"nlxL\x01\x30\0\0".to_vec();
        bytes.extend((parts << 20).to_le_bytes());
        bytes.extend((1u32 << 20).to_le_bytes());
        bytes.extend([0; 4]);
        for number in 1..=parts {
            bytes.extend(descriptor(number).as_bytes());
        }
        mended(&bytes)
    };
    vec![seed(1), seed(3), descriptor(1).as_bytes().to_vec()]
}
