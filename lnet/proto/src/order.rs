//! Byte order of a sender, and the outcome of decoding what may not be complete.

/// The byte order in which a peer writes what LNet leaves in the sender's order.
///
/// This crate emits little-endian alone, as all deployed nodes do; it reads both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order in which these four bytes spell `magic`, if any.
    pub(crate) fn of_magic(bytes: [u8; 4], magic: u32) -> Option<ByteOrder> {
        match magic {
            _ if u32::from_le_bytes(bytes) == magic => Some(ByteOrder::Little),
            _ if u32::from_be_bytes(bytes) == magic => Some(ByteOrder::Big),
            _ => None,
        }
    }

    /// The value of a field that was read as little-endian.
    pub(crate) fn u16(self, read_as_le: u16) -> u16 {
        match self {
            ByteOrder::Little => read_as_le,
            ByteOrder::Big => read_as_le.swap_bytes(),
        }
    }

    /// The value of a field that was read as little-endian.
    pub(crate) fn u32(self, read_as_le: u32) -> u32 {
        match self {
            ByteOrder::Little => read_as_le,
            ByteOrder::Big => read_as_le.swap_bytes(),
        }
    }

    /// The value of a field that was read as little-endian.
    pub(crate) fn u64(self, read_as_le: u64) -> u64 {
        match self {
            ByteOrder::Little => read_as_le,
            ByteOrder::Big => read_as_le.swap_bytes(),
        }
    }
}

/// What the bytes at hand give: a value, or how many there must be to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// Too short. The number is the total length needed for the next step; more may be asked for then.
    Need(usize),
    /// The value, and how many bytes of the input it took.
    Done(usize, T),
}

impl<T> Decoded<T> {
    /// The same with the value changed.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Decoded<U> {
        match self {
            Decoded::Need(total) => Decoded::Need(total),
            Decoded::Done(length, value) => Decoded::Done(length, change(value)),
        }
    }
}
