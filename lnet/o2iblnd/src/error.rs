use lnet_api::{Errno, LndError};
use lnet_nid::Nid;

use crate::fabric::FabricError;
use crate::sizes::SizesError;

/// Why the verbs LND, or one of its NIs, could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum O2ibError {
    /// A tunable, or the device, does not fit the arithmetic of queues.
    #[error(transparent)]
    Sizes(#[from] SizesError),
    /// The NID has no IPv4 address, or its network is not of type `o2ib`.
    #[error(
        "{nid} names no IPv4 address on a network of type o2ib: the protocol knows no other (lnet-wire 31)"
    )]
    NotO2ib {
        /// The NID.
        nid: Nid,
    },
    /// This node has an NI of this NID.
    #[error("{nid} is up already")]
    NidTaken {
        /// The NID.
        nid: Nid,
    },
    /// This host has no devices, or not for this user.
    #[error("{}", .0.what)]
    Host(FabricError),
    /// The fabric refuses.
    #[error("{nid}: {error}")]
    Fabric {
        /// The NID that was to come up.
        nid: Nid,
        /// What, and what to do.
        error: FabricError,
    },
}

impl O2ibError {
    /// The errno that LNet users know.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            O2ibError::NotO2ib { .. } => Errno::EINVAL,
            O2ibError::Sizes(error) => error.errno(),
            O2ibError::NidTaken { .. } => Errno::EADDRINUSE,
            O2ibError::Host(error) | O2ibError::Fabric { error, .. } => error.errno,
        }
    }
}

impl From<O2ibError> for LndError {
    fn from(error: O2ibError) -> LndError {
        let errno = error.errno();
        match error {
            // The errno stands behind it already.
            O2ibError::Fabric { nid, error } => LndError { what: format!("{nid}: {}", error.what), errno },
            other => LndError { what: other.to_string(), errno },
        }
    }
}
