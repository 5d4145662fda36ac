//! Message checksums (lnet-wire 32).
//!
//! Checksums are off by default, and should stay so: kernels disagree about the sign of a byte, and
//! may send sums that do not cover the payload. A receiver should report a mismatch, but not act on
//! it.

use zerocopy::FromBytes;

use crate::{ByteOrder, ProtoError};

use super::head::{OBJECT, RawHead, parse_start};

/// The sign of a byte above 127 in the sum of the sender's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CharSign {
    /// A byte is a negative number: Linux before 6.2 on x86.
    Signed,
    /// A byte is a positive number: Linux from 6.2 on.
    Unsigned,
}

/// Returns the checksum of a whole message as it is sent, with any value in its checksum field.
/// Never 0.
#[must_use]
pub fn checksum(message: &[u8], sign: CharSign) -> u32 {
    let field = RawHead::CHECKSUM_AT..RawHead::CHECKSUM_AT + size_of::<u32>();
    let sum = message.iter().enumerate().fold(0_u32, |sum, (at, byte)| {
        let byte = if field.contains(&at) { 0 } else { *byte };
        let addend = match sign {
            CharSign::Signed => i32::from(byte as i8) as u32,
            CharSign::Unsigned => u32::from(byte),
        };
        sum.rotate_left(1).wrapping_add(addend)
    });
    // A sum of 0 is sent as 1, because 0 means that there is no checksum.
    sum.max(1)
}

/// Checks the checksum of a received message. A message without one, or with that of either kind of
/// kernel, is accepted.
///
/// # Errors
/// [`ProtoError::Checksum`] with the sum of a recent kernel; for an invalid head the error of
/// [`super::Message::parse`].
pub fn verify_checksum(bytes: &[u8]) -> Result<(), ProtoError> {
    let (order, _): (ByteOrder, _) = parse_start(OBJECT, bytes)?;
    let truncated = |needed| ProtoError::Truncated { object: OBJECT, length: bytes.len(), needed };
    let (raw, _) = RawHead::ref_from_prefix(bytes).map_err(|_| truncated(size_of::<RawHead>()))?;
    let (value, nob) = (raw.checksum(order), raw.nob(order));
    let message = bytes.get(..nob).ok_or_else(|| truncated(nob))?;
    let expected = checksum(message, CharSign::Unsigned);
    if [0, expected, checksum(message, CharSign::Signed)].contains(&value) {
        return Ok(());
    }
    Err(ProtoError::Checksum { object: OBJECT, value, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected sums are computed by hand from the rule of lnet-wire 32.
    #[test]
    fn each_byte_is_added_after_a_turn() {
        assert_eq!(checksum(&[], CharSign::Unsigned), 1, "0 becomes 1");
        assert_eq!(checksum(&[1, 2, 3], CharSign::Unsigned), 2 * (2 + 2) + 3);
        assert_eq!(checksum(&[0x80], CharSign::Unsigned), 0x80);
        assert_eq!(checksum(&[0x80], CharSign::Signed), 0xffff_ff80);
        assert_eq!(checksum(&[0x80, 0], CharSign::Signed), 0xffff_ff01, "the top bit comes in at the bottom");
    }

    #[test]
    fn the_field_itself_counts_as_zero() {
        let mut message = [0x5a; 60];
        let before = checksum(&message, CharSign::Unsigned);
        message[12..16].fill(0xff);
        assert_eq!(checksum(&message, CharSign::Unsigned), before);
        message[16] ^= 1;
        assert_ne!(checksum(&message, CharSign::Unsigned), before);
    }
}
