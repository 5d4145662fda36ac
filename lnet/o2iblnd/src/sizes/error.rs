//! What cannot be.

use lnet_api::{Errno, LndError};
use lnet_lnd::BadTunable;

/// Why there is no NI, or no connection, of such sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizesError {
    /// No release has this name.
    #[error("release '{text}': it must be nlx, or a version from 2.8 on, as 2.12 or 2.15.3")]
    Release {
        /// What was given.
        text: String,
    },
    /// No way to map memory has this name.
    #[error("mapping '{text}': it must be fastreg or fmr")]
    Mapping {
        /// What was given.
        text: String,
    },
    /// No tunable has this name.
    #[error("there is no tunable '{name}'; those that are computed with: {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// All that there are.
        known: String,
    },
    /// A tunable has a value that it cannot have.
    #[error(transparent)]
    Range(#[from] BadTunable),
    /// The NI does not start (lnet-semantics 31).
    #[error(
        "fmr_pool_size={value}: it must be at least ntx/4, {least} with ntx={ntx}: the NI does not start (EINVAL)"
    )]
    FmrPool {
        /// `fmr_pool_size`.
        value: u32,
        /// The smallest possible.
        least: u32,
        /// `ntx`.
        ntx: u32,
    },
    /// The device cannot have such a connection, however shallow.
    #[error(
        "{object}: {needed} entries for a connection of depth {depth} with {fragments} fragments; the device has {limit}: {hint}"
    )]
    Device {
        /// The queue.
        object: &'static str,
        /// What one connection needs, at the least that can be tried.
        needed: u64,
        /// What the device can.
        limit: u64,
        /// The depth that was tried last.
        depth: u16,
        /// The fragments.
        fragments: u16,
        /// What to change.
        hint: &'static str,
    },
    /// No connection is like that.
    #[error(
        "a connection of depth {depth} with {fragments} fragments: depth must be at least 1, fragments from 1 to {most}",
        most = lnet_proto::ib::RDMA_FRAGMENTS_MAX
    )]
    Shape {
        /// The depth.
        depth: u16,
        /// The fragments.
        fragments: u16,
    },
}

impl SizesError {
    /// The errno.
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
