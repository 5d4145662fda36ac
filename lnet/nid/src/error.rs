//! The crate's one error: a text or a number that is no LNet name.

use thiserror::Error;

use crate::{NetType, printable};

/// The errno every [`NidError`] stands for.
const EINVAL: i32 = 22;

/// Why a text or a wire value is not a NID, network, process id or portal.
///
/// Texts in errors are cut to the longest text that is accepted, so an error never carries more than the caller's
/// first few dozen bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NidError {
    /// The text is longer than any NID's text.
    #[error("\"{}...\" has {length} bytes, a NID has at most {limit}", printable(text))]
    TooLong {
        /// The first bytes of the text.
        text: String,
        /// Length of the whole text in bytes.
        length: usize,
        /// The longest accepted text in bytes.
        limit: usize,
    },
    /// The part before `@` is not an address of the kind the network type uses.
    #[error("address \"{}\" in \"{}\" is not {expected}", printable(address), printable(text))]
    Address {
        /// The whole text.
        text: String,
        /// The part before `@`.
        address: String,
        /// What this network type takes.
        expected: &'static str,
    },
    /// The network part starts with no known network name.
    #[error("network \"{}\" in \"{}\" has no known type: these are {}", printable(net), printable(text), NetType::names().collect::<Vec<_>>().join(", "))]
    NetType {
        /// The whole text.
        text: String,
        /// The network part.
        net: String,
    },
    /// The number behind the network name is no decimal number within the limit.
    #[error(
        "network number \"{}\" in \"{}\" is not a decimal number of 0 to {limit}",
        printable(number),
        printable(text)
    )]
    NetNumber {
        /// The whole text.
        text: String,
        /// The part behind the network name.
        number: String,
        /// The greatest number this network type takes.
        limit: u32,
    },
    /// The process id is no decimal number within the limit.
    #[error(
        "process id \"{}\" in \"{}\" is not a decimal number of 0 to {limit}",
        printable(pid),
        printable(text)
    )]
    Pid {
        /// The whole text.
        text: String,
        /// The part before `-`.
        pid: String,
        /// The greatest number in this place.
        limit: u32,
    },
    /// The text has no `-` between process id and NID.
    #[error("\"{}\" is not <pid>-<nid>", printable(text))]
    NoPid {
        /// The whole text.
        text: String,
    },
    /// The size code in a 20-byte NID is neither 0 (4-byte address) nor 12 (16-byte address).
    #[error("NID size code is {value}, not 0 or {limit}")]
    SizeCode {
        /// The size code read.
        value: u8,
        /// The greatest size code.
        limit: u8,
    },
    /// A loopback NID with a network number or an address; there is only `0@lo`.
    #[error("loopback NID {value:#x} is not 0@lo")]
    Loopback {
        /// Network number and leading address bytes, `number << 32 | address`.
        value: u64,
    },
    /// A 64-bit NID with bits set above its 8-bit network type.
    #[error("NID {value:#018x} has bits set above bit {limit}")]
    Nid4Bits {
        /// The 64-bit NID read.
        value: u64,
        /// The highest bit in use.
        limit: u32,
    },
    /// A part of a list of NIDs is not what stands there in a NID or range.
    #[error(
        "\"{}\" at byte {position} of the NID list, in \"{}\", is not {expected}",
        printable(value),
        printable(text)
    )]
    Expression {
        /// The expression, or its first bytes.
        text: String,
        /// Where in the list the part stands, in bytes.
        position: usize,
        /// The part, or its first bytes.
        value: String,
        /// What could stand there, with its limits.
        expected: &'static str,
    },
    /// A list of NIDs has more of something than is ever looked at.
    #[error("more than {limit} {what} at byte {position} of the NID list")]
    ListTooLong {
        /// What there are too many of.
        what: &'static str,
        /// Where in the list the first one too many stands, in bytes.
        position: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The NIDs of a list cannot be named one by one.
    #[error("\"{}\" stands for more NIDs than the {limit} that can be named one by one", printable(text))]
    Members {
        /// The expression with which they became too many, or its first bytes.
        text: String,
        /// How many there may be.
        limit: usize,
    },
    /// A portal index that no node has.
    #[error("portal {value} is not below {limit}")]
    Portal {
        /// The index.
        value: u32,
        /// The number of portals.
        limit: u32,
    },
}

impl NidError {
    /// The errno an LNet user knows for this error: always `EINVAL`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        EINVAL
    }
}
