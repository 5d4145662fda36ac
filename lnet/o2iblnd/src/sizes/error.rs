//! The errors of the sizes' arithmetic.

use lnet_api::{Errno, LndError};
use lnet_lnd::BadTunable;

/// The reason why an NI or a connection of such sizes is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// No release has this name.
    #[error("unknown release '{text}': it must be nlx, or a version from 2.8 on, as 2.12 or 2.15.3")]
    Release {
        /// Returns the largest depth, from `asked` downwards, for which `fits` is true.
        text: String,
    },
    /// No mapping of memory has this name.
    #[error("unknown mapping '{text}': it must be fastreg or fmr")]
    Mapping {
        /// The text given.
        text: String,
    },
    /// No tunable has this name.
    #[error("there is no tunable '{name}'; the sizes depend on: {known}")]
    Unknown {
        /// The name given.
        name: String,
        /// The names of all tunables.
        known: String,
    },
    /// A tunable's value is out of range.
    #[error(transparent)]
    Range(#[from] BadTunable),
    /// The NI does not start (lnet-semantics 31).
    #[error(
        "fmr_pool_size={value}: it must be at least ntx/4, {least} with ntx={ntx}: the NI does not start (EINVAL)"
    )]
    FmrPool {
        /// The configured value of `fmr_pool_size`.
        value: u32,
        /// The smallest value with which the NI starts.
        least: u32,
        /// The value of `ntx`.
        ntx: u32,
    },
    /// The device does not support such a connection at any depth.
    #[error(
        "{object}: {needed} entries for a connection of depth {depth} with {fragments} fragments; the device has {limit}: {hint}"
    )]
    Device {
        /// The name of the queue.
        object: &'static str,
        /// The entries that one connection needs, with the smallest depth that can be tried.
        needed: u64,
        /// The device's limit.
        limit: u64,
        /// The depth that was tried last.
        depth: u16,
        /// The number of fragments of a transfer.
        fragments: u16,
        /// The advice: which tunable to change.
        hint: &'static str,
    },
    /// The depth or the number of fragments is out of range.
    #[error(
        "a connection of depth {depth} with {fragments} fragments: depth must be at least 1, fragments from 1 to {most}",
        most = lnet_proto::ib::RDMA_FRAGMENTS_MAX
    )]
    Shape {
        /// The depth given.
        depth: u16,
        /// The number of fragments given.
        fragments: u16,
    },
}

impl SizesError {
    /// Returns the errno with which the NI or the connection fails.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            SizesError::Device { .. } => Errno::ENOMEM,
            _ => Errno::EINVAL,
        }
    }
}

impl From<SizesError> for LndError {
    fn from(error: SizesError) -> LndError {
        LndError { what: error.to_string(), errno: error.errno() }
    }
}
