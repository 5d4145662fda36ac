//! Byte order of a sender, and the result of decoding input that may be incomplete.

/// The byte order of a peer, for the layouts that LNet leaves in the sender's order.
///
/// This crate emits little-endian only, as all deployed nodes do; it reads both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte first.
    #[default]
    Little,
    /// The most significant byte first.
    Big,
}

impl ByteOrder {
    /// Returns the order in which these four bytes are `magic`, if any.
    pub(crate) fn of_magic(bytes: [u8; 4], magic: u32) -> Option<ByteOrder> {
        match magic {
            _ if u32::from_le_bytes(bytes) == magic => Some(ByteOrder::Little),
            _ if u32::from_be_bytes(bytes) == magic => Some(ByteOrder::Big),
            _ => None,
        }
    }

    /// Returns the value of a 16-bit field that was read as little-endian.
    pub(crate) fn u16(self, read_as_le: u16) -> u16 {
        match self {
            ByteOrder::Little => read_as_le,
            ByteOrder::Big => read_as_le.swap_bytes(),
        }
    }

    /// Returns the value of a 32-bit field that was read as little-endian.
    pub(crate) fn u32(self, read_as_le: u32) -> u32 {
        match self {
            ByteOrder::Little => read_as_le,
            ByteOrder::Big => read_as_le.swap_bytes(),
        }
    }

    /// Returns the value of a 64-bit field that was read as little-endian.
    pub(crate) fn u64(self, read_as_le: u64) -> u64 {
        match self {
            ByteOrder::Little => read_as_le,
            ByteOrder::Big => read_as_le.swap_bytes(),
        }
    }
}

/// The result of decoding: a value, or the number of bytes that are needed to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// The input is too short. The number is the total length needed for the next step; that step
    /// may need more.
    Need(usize),
    /// The number of bytes consumed, and the value.
    Done(usize, T),
}

impl<T> Decoded<T> {
    /// Returns the same result with the value converted.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Decoded<U> {
        match self {
            Decoded::Need(total) => Decoded::Need(total),
            Decoded::Done(length, value) => Decoded::Done(length, change(value)),
        }
    }
}
