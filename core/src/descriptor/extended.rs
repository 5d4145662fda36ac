//! nlx's own form: 56 bytes with a magic, a version, room for every NID, and a CRC.
//!
//! The magic is where Motr's form has the queue, so that an extended descriptor that was cut to 48
//! bytes is not taken for one of Motr's. The checksum is in the last four bytes and covers all
//! others, in this version and in every later one of this length: this distinguishes a corrupt
//! descriptor from one of a newer version.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Content, PassiveBuffer, broken};
use crate::{CoreError, Nid};

/// Bytes of a descriptor.
pub(super) const LEN: usize = 56;

const MAGIC: [u8; 3] = *b"nlx";
/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    match_bits: U64,
    length: U64,
    pid: U32,
    portal: U32,
    tmid: U16,
    queue: U16,
    magic: [u8; 3],
    version: u8,
    nid: [u8; Nid::WIRE_LEN],
    checksum: U32,
}

const _: () = {
    assert!(size_of::<Wire>() == LEN);
    assert!(offset_of!(Wire, match_bits) == 0);
    assert!(offset_of!(Wire, length) == 8);
    assert!(offset_of!(Wire, pid) == 16);
    assert!(offset_of!(Wire, portal) == 20);
    assert!(offset_of!(Wire, tmid) == 24);
    assert!(offset_of!(Wire, queue) == 26);
    assert!(offset_of!(Wire, magic) == 28);
    assert!(offset_of!(Wire, version) == 31);
    assert!(offset_of!(Wire, nid) == 32);
    assert!(offset_of!(Wire, checksum) == LEN - size_of::<U32>());
};

/// Encodes a buffer.
pub(super) fn write(passive: &PassiveBuffer) -> [u8; LEN] {
    let mut wire = Wire {
        match_bits: passive.match_bits.0.into(),
        length: passive.length.into(),
        pid: passive.address.pid.0.into(),
        portal: passive.address.portal.into(),
        // 12 bits and 3 bits.
        tmid: (passive.address.tmid.get() as u16).into(),
        queue: (passive.queue.value() as u16).into(),
        magic: MAGIC,
        version: VERSION,
        nid: passive.address.nid.to_wire(),
        checksum: U32::ZERO,
    };
    wire.checksum = checksum(&wire).into();
    zerocopy::transmute!(wire)
}

/// Decodes a descriptor.
pub(super) fn read(bytes: [u8; LEN]) -> Result<Content, CoreError> {
    let wire: Wire = zerocopy::transmute!(bytes);
    let (stored, computed) = (wire.checksum.get().into(), checksum(&wire).into());
    if stored != computed {
        return Err(CoreError::DescriptorChecksum { stored, computed });
    }
    if wire.magic != MAGIC {
        return Err(CoreError::DescriptorMagic { magic: wire.magic, known: MAGIC });
    }
    if wire.version != VERSION {
        return Err(CoreError::DescriptorVersion { version: wire.version, known: VERSION });
    }
    Ok(Content {
        match_bits: wire.match_bits.get(),
        nid: read_nid(&wire.nid),
        pid: wire.pid.get(),
        portal: wire.portal.get(),
        tmid: wire.tmid.get().into(),
        queue: wire.queue.get().into(),
        length: wire.length.get(),
    })
}

/// Decodes a NID; refuses bytes that this code would not write, so that each NID has one encoding.
fn read_nid(bytes: &[u8; Nid::WIRE_LEN]) -> Result<Nid, CoreError> {
    let nid = Nid::from_wire(bytes).map_err(|source| CoreError::DescriptorNid { source })?;
    match nid.to_wire().iter().zip(bytes).find(|(canonical, byte)| canonical != byte) {
        // Of the wildcard, which a later check refuses, unused bytes are 255; of all others 0.
        Some((255, &byte)) => Err(broken("unused byte of a NID", byte, "255")),
        Some((_, &byte)) => Err(broken("unused byte of a NID", byte, "0")),
        None => Ok(nid),
    }
}

/// Returns the CRC-32 (that of Ethernet) of all bytes before the checksum.
fn checksum(wire: &Wire) -> u32 {
    crc32fast::hash(&wire.as_bytes()[..offset_of!(Wire, checksum)])
}
