//! Match bits and portal indices.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::NidError;

/// The 64 bits by which a portal finds the buffer for a message.
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct MatchBits(pub u64);

impl MatchBits {
    /// The match bits of ping GETs and push PUTs on [`Portal::RESERVED`] (lnet-wire 15, 17).
    pub const PING: MatchBits = MatchBits(0x8000_0000_0000_0000);
    /// The match bits of probes of nlx nodes on [`Portal::PROBE`]: the text `nlxprobe`.
    pub const PROBE: MatchBits = MatchBits(u64::from_be_bytes(*b"nlxprobe"));
}

impl fmt::Display for MatchBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl fmt::Debug for MatchBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<u64> for MatchBits {
    fn from(bits: u64) -> MatchBits {
        MatchBits(bits)
    }
}

impl From<MatchBits> for u64 {
    fn from(bits: MatchBits) -> u64 {
        bits.0
    }
}

/// The index of a portal, 0 to 63 (lnet-wire 8).
///
/// A portal index on the wire may be any 32-bit number; one that [`Portal::new`] refuses matches
/// nothing (lnet-wire 9).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Portal(u8);

impl Portal {
    /// The number of portals of a node.
    pub const COUNT: usize = 64;
    /// Portal 0, reserved for ping and push.
    pub const RESERVED: Portal = Portal(0);
    /// Portal 61, for probes of nlx nodes. Lustre uses portals below 35, Motr's programs and nlx 39
    /// to 43, `lst` 50 to 52.
    pub const PROBE: Portal = Portal(61);
    /// Portal 50: requests to the data services of LNet's self-test, `lst`.
    pub const LST_DATA: Portal = Portal(50);
    /// Portal 51: requests to the framework services of `lst`.
    pub const LST_FRAMEWORK: Portal = Portal(51);
    /// Portal 52: replies and bulk data of `lst`.
    pub const LST_REPLY: Portal = Portal(52);

    /// Returns the portal with this index.
    ///
    /// # Errors
    /// [`NidError::Portal`] if `index` is not below [`Portal::COUNT`].
    pub const fn new(index: u32) -> Result<Portal, NidError> {
        if index < Portal::COUNT as u32 {
            Ok(Portal(index as u8))
        } else {
            Err(NidError::Portal { value: index, limit: Portal::COUNT as u32 })
        }
    }

    /// Returns the index as a number for the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// Returns the index into a table of [`Portal::COUNT`] entries.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl TryFrom<u32> for Portal {
    type Error = NidError;

    fn try_from(index: u32) -> Result<Portal, NidError> {
        Portal::new(index)
    }
}

impl From<Portal> for u32 {
    fn from(portal: Portal) -> u32 {
        portal.get()
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portals_below_the_count_and_no_others() {
        for index in 0..Portal::COUNT as u32 {
            let portal = Portal::new(index).unwrap();
            assert_eq!((portal.get(), portal.index()), (index, index as usize));
        }
        for index in [Portal::COUNT as u32, 255, 256, u32::MAX] {
            let error = Portal::new(index).unwrap_err();
            assert_eq!(error.to_string(), format!("portal {index} is not below 64"));
            assert_eq!(error.errno(), 22);
        }
    }

    #[test]
    fn match_bits_print_all_sixteen_digits() {
        assert_eq!(MatchBits(0x1f).to_string(), "0x000000000000001f");
        assert_eq!(format!("{:?}", MatchBits::PING), "0x8000000000000000");
    }
}
