//! Why bytes are refused.

use nlx_core::Errno;

/// Why a packet or an entry of the ring is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtoError {
    /// There are fewer or more bytes than the packet has.
    #[error("{object} of {bytes} bytes: it has {expected}")]
    Length {
        /// Which packet, or part of it.
        object: &'static str,
        /// The bytes there are.
        bytes: usize,
        /// The bytes there should be; the most, if it has no fixed length.
        expected: usize,
    },
    /// No request or entry has this number.
    #[error("{object} of kind {kind}: there is none")]
    Kind {
        /// Packet or entry.
        object: &'static str,
        /// Its number.
        kind: u32,
    },
    /// A field says what it may not say.
    #[error("{object}: {field} is {value}, it must be {rule}")]
    Field {
        /// Which packet or entry.
        object: &'static str,
        /// Which field of it.
        field: &'static str,
        /// What it says.
        value: u64,
        /// What it may say.
        rule: &'static str,
    },
    /// There is no memory to read it.
    #[error("{object}: no memory to read it")]
    NoMemory {
        /// What is being read.
        object: &'static str,
    },
    /// The other side speaks another version.
    #[error("versions {min} to {max} of the protocol: this side speaks {own}")]
    Version {
        /// The lowest version of the other side.
        min: u16,
        /// Its highest.
        max: u16,
        /// Ours.
        own: u16,
    },
}

impl ProtoError {
    /// The errno, as Motr's driver gives it (motr-transport 7.3, 7.4): ENOTTY for what is no request, EBADR for one that
    /// makes no sense, EPROTONOSUPPORT for another version.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            ProtoError::Kind { .. } | ProtoError::Length { .. } => Errno::ENOTTY,
            ProtoError::Field { .. } => Errno::EBADR,
            ProtoError::Version { .. } => Errno::EPROTONOSUPPORT,
            ProtoError::NoMemory { .. } => Errno::ENOMEM,
        }
    }
}
