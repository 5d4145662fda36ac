//! The form compatible with Motr: 48 bytes, without magic or version.

use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Content, PassiveBuffer};
use crate::{CoreError, Nid};

/// Bytes of a descriptor.
pub(super) const LEN: usize = 48;

/// Number of 8-byte words that the checksum covers: all but the checksum itself.
const CHECKED_WORDS: usize = 5;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    match_bits: U64,
    nid: U64,
    pid: U32,
    portal: U32,
    tmid: U32,
    queue: U32,
    length: U64,
    checksum: U64,
}

const _: () = {
    assert!(size_of::<Wire>() == LEN);
    assert!(offset_of!(Wire, match_bits) == 0);
    assert!(offset_of!(Wire, nid) == 8);
    assert!(offset_of!(Wire, pid) == 16);
    assert!(offset_of!(Wire, portal) == 20);
    assert!(offset_of!(Wire, tmid) == 24);
    assert!(offset_of!(Wire, queue) == 28);
    assert!(offset_of!(Wire, length) == 32);
    assert!(offset_of!(Wire, checksum) == 8 * CHECKED_WORDS);
};

/// Encodes a buffer whose NID in the 8-byte form is `nid4`.
pub(super) fn write(passive: &PassiveBuffer, nid4: u64) -> [u8; LEN] {
    let mut wire = Wire {
        match_bits: passive.match_bits.0.into(),
        nid: nid4.into(),
        pid: passive.address.pid.0.into(),
        portal: passive.address.portal.into(),
        tmid: passive.address.tmid.get().into(),
        queue: passive.queue.value().into(),
        length: passive.length.into(),
        checksum: U64::ZERO,
    };
    wire.checksum = checksum(&wire).into();
    zerocopy::transmute!(wire)
}

/// Decodes a descriptor.
pub(super) fn read(bytes: [u8; LEN]) -> Result<Content, CoreError> {
    let wire: Wire = zerocopy::transmute!(bytes);
    let (stored, computed) = (wire.checksum.get(), checksum(&wire));
    if stored != computed {
        return Err(CoreError::DescriptorChecksum { stored, computed });
    }
    Ok(Content {
        match_bits: wire.match_bits.get(),
        nid: Nid::try_from_nid4(wire.nid.get()).map_err(|source| CoreError::DescriptorNid { source }),
        pid: wire.pid.get(),
        portal: wire.portal.get(),
        tmid: wire.tmid.get(),
        queue: wire.queue.get(),
        length: wire.length.get(),
    })
}

/// Returns the exclusive or of the words before the checksum.
fn checksum(wire: &Wire) -> u64 {
    let (words, _) = wire.as_bytes().as_chunks::<8>();
    words[..CHECKED_WORDS].iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
}
