//! The error type of LNet calls.

use lnet_nid::Nid;

use crate::{Errno, LndError};

/// The error of an LNet call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LNetError {
    /// The handle refers to no object, or to one that is gone.
    #[error("{object} {handle:#x} does not exist, or is exhausted or unlinked")]
    NoSuch {
        /// The kind of object: EQ, ME or MD.
        object: &'static str,
        /// The value of the handle.
        handle: u64,
    },
    /// A field of a call has an invalid value.
    #[error("{field} is {value}: {rule}")]
    Invalid {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: u64,
        /// The values that are allowed.
        rule: &'static str,
    },
    /// The match entry does not fit its portal's type.
    #[error("portal {portal}: {rule}")]
    PortalType {
        /// The portal's index.
        portal: u32,
        /// The rule of the portal's type that the entry breaks.
        rule: &'static str,
    },
    /// The object is in use.
    #[error("{object} {handle:#x} is in use")]
    Busy {
        /// The kind of object: EQ or ME.
        object: &'static str,
        /// The value of the handle.
        handle: u64,
    },
    /// A table is full.
    #[error("the limit of {limit} {objects} is reached")]
    TooMany {
        /// The kind of objects.
        objects: &'static str,
        /// The maximum number of these objects.
        limit: usize,
    },
    /// No network leads to the node.
    #[error("no network of this node reaches {nid}")]
    NoRoute {
        /// The NID of the node.
        nid: Nid,
    },
    /// The NID is not one of this node's.
    #[error("{nid} is not a NID of this node")]
    NotLocal {
        /// The NID that was given.
        nid: Nid,
    },
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The error of a network driver.
    #[error(transparent)]
    Lnd(#[from] LndError),
}

impl LNetError {
    /// Returns the errno that LNet users know (lnet-semantics 19).
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
