//! Message checksums (lnet-wire 25.3).
//!
//! Nodes do not send checksums today. A non-zero one is checked as the receiving kernel node checks
//! it.

use crate::{ByteOrder, ProtoError};

use super::{Prefix, Version};

/// Reflected CRC-32 with polynomial 0xEDB88320, initial value all ones, not inverted at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32(u32);

impl Crc32 {
    /// The checksum of no bytes.
    pub const EMPTY: Crc32 = Crc32(0xffff_ffff);

    /// Adds bytes to the checksum.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |crc, byte| {
            let index = (crc as u8 ^ byte) as usize;
            crc >> 8 ^ TABLE[index]
        });
    }

    /// Returns the checksum so far.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The check of one message whose prefix has a checksum: feed the payload, then call
/// [`MessageChecksum::verify`].
#[derive(Clone, Copy, Debug)]
pub struct MessageChecksum {
    crc: Crc32,
    wanted: u32,
}

impl MessageChecksum {
    /// Starts the check of an LNet message; `None` if it has no checksum.
    ///
    /// `frame` is the prefix and header as received. In version 2 they are part of the sum, with
    /// the checksum itself as zero; in versions 3 and 4 only the payload counts, so a checksum made
    /// by the rule of version 2 fails there, as on a kernel node.
    #[must_use]
    pub fn start(version: Version, order: ByteOrder, frame: &[u8]) -> Option<MessageChecksum> {
        let (prefix, header) = frame.split_first_chunk::<{ Prefix::LEN }>()?;
        let wanted = Prefix::parse(prefix, order).ok()?.csum;
        if wanted == 0 {
            return None;
        }
        let mut crc = Crc32::EMPTY;
        if version == Version::V2 {
            let mut prefix = *prefix;
            prefix[Prefix::CSUM_FIELD].fill(0);
            crc.update(&prefix);
            crc.update(header);
        }
        Some(MessageChecksum { crc, wanted })
    }

    /// Adds a piece of the payload.
    pub fn update(&mut self, payload: &[u8]) {
        self.crc.update(payload);
    }

    /// Compares the checksum after the whole payload.
    ///
    /// # Errors
    /// [`ProtoError::Checksum`]: the message completes with `EIO` and the connection is closed.
    pub fn verify(self) -> Result<(), ProtoError> {
        let (value, expected) = (self.wanted, self.crc.get());
        if value == expected {
            Ok(())
        } else {
            Err(ProtoError::Checksum { object: "message", value, expected })
        }
    }
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc_of(bytes: &[u8]) -> u32 {
        let mut crc = Crc32::EMPTY;
        crc.update(bytes);
        crc.get()
    }

    #[test]
    fn the_published_check_value_without_its_inversion() {
        assert_eq!(!crc_of(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn version_two_sums_the_frame_and_version_three_the_payload() {
        let (mut frame, payload) = ([0x5a; 96], [7; 40]);
        Prefix::LNET.emit(frame.first_chunk_mut().unwrap());
        let whole = crc_of(&[&frame[..], &payload].concat());
        for (version, csum, good) in [
            (Version::V2, whole, true),
            (Version::V3, whole, false),
            (Version::V3, crc_of(&payload), true),
            (Version::V2, crc_of(&payload), false),
        ] {
            frame[4..8].copy_from_slice(&csum.to_le_bytes());
            let mut check = MessageChecksum::start(version, ByteOrder::Little, &frame).unwrap();
            check.update(&payload[..13]);
            check.update(&payload[13..]);
            assert_eq!(check.verify().is_ok(), good, "{version:?} {csum:#x}");
        }
        frame[4..8].fill(0);
        assert!(MessageChecksum::start(Version::V2, ByteOrder::Little, &frame).is_none());
    }
}
