//! The crate's error type, for invalid texts and numbers.

use thiserror::Error;

use crate::{NetType, printable};

/// The errno of every [`NidError`].
const EINVAL: i32 = 22;

/// The reason why a text or a wire value is not a NID, network, process id or portal.
///
/// Texts in errors are cut to the maximum accepted length, so an error never carries more than the
/// caller's first few dozen bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NidError {
    /// The text is longer than any NID's text.
    #[error("\"{}...\" has {length} bytes, a NID has at most {limit}", printable(text))]
    TooLong {
        /// The first bytes of the text that was parsed.
        text: String,
        /// Length of the whole text in bytes.
        length: usize,
        /// The maximum accepted length in bytes.
        limit: usize,
    },
    /// The part before `@` is not an address in the form of the network type.
    #[error("address \"{}\" in \"{}\" is not {expected}", printable(address), printable(text))]
    Address {
        /// The whole text that was parsed.
        text: String,
        /// The part before `@`.
        address: String,
        /// The valid form for this network type.
        expected: &'static str,
    },
    /// The network part does not start with a known network name.
    #[error("network \"{}\" in \"{}\" has no known type: these are {}", printable(net), printable(text), NetType::names().collect::<Vec<_>>().join(", "))]
    NetType {
        /// The whole text that was parsed.
        text: String,
        /// The part after `@`.
        net: String,
    },
    /// The number after the network name is not a decimal number within the limit.
    #[error(
        "network number \"{}\" in \"{}\" is not a decimal number of 0 to {limit}",
        printable(number),
        printable(text)
    )]
    NetNumber {
        /// The whole text that was parsed.
        text: String,
        /// The part after the network name.
        number: String,
        /// The maximum number for this network type.
        limit: u32,
    },
    /// The process id is not a decimal number within the limit.
    #[error(
        "process id \"{}\" in \"{}\" is not a decimal number of 0 to {limit}",
        printable(pid),
        printable(text)
    )]
    Pid {
        /// The whole text that was parsed.
        text: String,
        /// The part before `-`.
        pid: String,
        /// The maximum number in this place.
        limit: u32,
    },
    /// The text has no `-` between process id and NID.
    #[error("\"{}\" is not <pid>-<nid>", printable(text))]
    NoPid {
        /// The whole text that was parsed.
        text: String,
    },
    /// The size code in a 20-byte NID is neither 0 (4-byte address) nor 12 (16-byte address).
    #[error("NID size code is {value}, not 0 or {limit}")]
    SizeCode {
        /// The size code read.
        value: u8,
        /// The greatest valid size code.
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
        /// The highest valid bit.
        limit: u32,
    },
    /// A part of a list of NIDs is invalid in a NID or range.
    #[error(
        "\"{}\" at byte {position} of the NID list, in \"{}\", is not {expected}",
        printable(value),
        printable(text)
    )]
    Expression {
        /// The invalid expression, or its first bytes.
        text: String,
        /// The position of the part in the list, in bytes.
        position: usize,
        /// The invalid part, or its first bytes.
        value: String,
        /// The valid form, with its limits.
        expected: &'static str,
    },
    /// A list of NIDs exceeds a limit.
    #[error("more than {limit} {what} at byte {position} of the NID list")]
    ListTooLong {
        /// The name of the items of which there are too many.
        what: &'static str,
        /// The position in the list of the first item above the limit, in bytes.
        position: usize,
        /// The maximum number of these items.
        limit: usize,
    },
    /// The NIDs of a list cannot be listed one by one.
    #[error("\"{}\" contains more NIDs than the {limit} that can be listed one by one", printable(text))]
    Members {
        /// The expression at which the limit is exceeded, or its first bytes.
        text: String,
        /// The maximum number of NIDs.
        limit: usize,
    },
    /// A portal index out of range.
    #[error("portal {value} is not below {limit}")]
    Portal {
        /// The index that was given.
        value: u32,
        /// The number of portals.
        limit: u32,
    },
}

impl NidError {
    /// Returns the errno that LNet reports for this error: always `EINVAL`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        EINVAL
    }
}
