use lnet_nid::Nid;

use crate::{Errno, LndError};

/// Why an LNet call was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LNetError {
    /// The handle names nothing (any more).
    #[error("{object} {handle:#x} does not exist, or is exhausted or unlinked")]
    NoSuch {
        /// EQ, ME or MD.
        object: &'static str,
        /// The handle's value.
        handle: u64,
    },
    /// A field of a call has a value that cannot be.
    #[error("{field} is {value}: {rule}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        rule: &'static str,
    },
    /// The match entry does not fit its portal's type.
    #[error("portal {portal}: {rule}")]
    PortalType {
        /// The portal's index.
        portal: u32,
        /// What its type demands.
        rule: &'static str,
    },
    /// The object is in use.
    #[error("{object} {handle:#x} is in use")]
    Busy {
        /// EQ or ME.
        object: &'static str,
        /// The handle's value.
        handle: u64,
    },
    /// A table is full.
    #[error("there are {limit} {objects} already")]
    TooMany {
        /// What there are too many of.
        objects: &'static str,
        /// The limit.
        limit: usize,
    },
    /// There is no way to the node.
    #[error("no network leads to {nid}")]
    NoRoute {
        /// The node.
        nid: Nid,
    },
    /// The NID is not one of this node's.
    #[error("{nid} is not a NID of this node")]
    NotLocal {
        /// The NID.
        nid: Nid,
    },
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// A network driver refused.
    #[error(transparent)]
    Lnd(#[from] LndError),
}

impl LNetError {
    /// The errno that LNet users know (lnet-semantics 19).
    pub fn errno(&self) -> Errno {
        match self {
            LNetError::NoSuch { .. } => Errno::ENOENT,
            LNetError::Invalid { .. } => Errno::EINVAL,
            LNetError::PortalType { .. } => Errno::EPERM,
            LNetError::Busy { .. } => Errno::EBUSY,
            LNetError::TooMany { .. } => Errno::ENOMEM,
            LNetError::NoRoute { .. } => Errno::EHOSTUNREACH,
            LNetError::NotLocal { .. } => Errno::EADDRNOTAVAIL,
            LNetError::ShuttingDown => Errno::ESHUTDOWN,
            LNetError::Lnd(error) => error.errno,
        }
    }
}
