//! The error type of the crate.

use nlx_core::Errno;

/// A reason for which a packet or an entry of the ring is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The packet has a wrong length.
    #[error("{object} has {bytes} bytes instead of {expected}")]
    Length {
        /// The name of the packet, or of a part of it.
        object: &'static str,
        /// Length in bytes.
        bytes: usize,
        /// The expected length; the largest one, if the length varies.
        expected: usize,
    },
    /// Unknown kind of request or entry.
    #[error("{object} has the unknown kind {kind}")]
    Kind {
        /// Packet or entry.
        object: &'static str,
        /// The unknown number.
        kind: u32,
    },
    /// A field has an invalid value.
    #[error("{object}: {field} is {value}, it must be {rule}")]
    Field {
        /// The name of the packet or entry.
        object: &'static str,
        /// The name of the field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// The permitted values.
        rule: &'static str,
    },
    /// No memory for the content of the packet.
    #[error("out of memory while reading {object}")]
    NoMemory {
        /// The packet or entry that was read.
        object: &'static str,
    },
    /// The other side uses another version.
    #[error("the other side speaks versions {min} to {max} of the protocol, this side version {own}")]
    Version {
        /// The lowest version of the other side.
        min: u16,
        /// The highest version of the other side.
        max: u16,
        /// The version of this side.
        own: u16,
    },
}

impl PacketError {
    /// Returns the errno, as Motr's driver gives it (motr-transport 7.3, 7.4): ENOTTY for a packet
    /// that is not a request, EBADR for an invalid field, EPROTONOSUPPORT for another version.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            PacketError::Kind { .. } | PacketError::Length { .. } => Errno::ENOTTY,
            PacketError::Field { .. } => Errno::EBADR,
            PacketError::Version { .. } => Errno::EPROTONOSUPPORT,
            PacketError::NoMemory { .. } => Errno::ENOMEM,
        }
    }
}
