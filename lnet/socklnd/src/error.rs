//! The error type for starting NIs and listening.

use std::net::SocketAddr;

use lnet_api::{Errno, LndError};
use lnet_nid::Nid;

/// Errors that prevent the TCP LND, or one of its NIs, from starting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SockError {
    /// The NID has no IP address, or its network is not of type `tcp`.
    #[error("{nid} names no IP address on a network of type tcp")]
    NotTcp {
        /// The NID that was to be claimed.
        nid: Nid,
    },
    /// A process of this host, possibly this one, already uses the NID.
    #[error("{nid} is held by {holder}")]
    NidTaken {
        /// The NID that is taken.
        nid: Nid,
        /// Program name and process id of the holder.
        holder: String,
    },
    /// A program that is not nlx listens on the address and port.
    #[error(
        "{address} is in use by a program that is not nlx, perhaps the kernel's LNet: stop it, or choose another \
         accept_port on all nodes"
    )]
    PortTaken {
        /// The address and port that are in use.
        address: SocketAddr,
    },
    /// The port needs privileges that this process lacks.
    #[error(
        "listening on {address} needs privileges: run as root, give the program CAP_NET_BIND_SERVICE, or choose an \
         accept_port above 1023 on all nodes"
    )]
    PortPrivileged {
        /// The address and port to listen on.
        address: SocketAddr,
    },
    /// The host does not have the NID's address.
    #[error("this host has no interface with the address {}: see 'ip address'", address.ip())]
    NoSuchAddress {
        /// The address that the host lacks.
        address: SocketAddr,
    },
    /// Any other error of the system.
    #[error("{what}: {errno}")]
    System {
        /// The failed operation and its object.
        what: String,
        /// The errno that the system returned.
        errno: Errno,
    },
}

impl SockError {
    /// Returns the errno with which LNet reports the error.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            SockError::NotTcp { .. } => Errno::EINVAL,
            SockError::NidTaken { .. } | SockError::PortTaken { .. } => Errno::EADDRINUSE,
            SockError::PortPrivileged { .. } => Errno::EACCES,
            SockError::NoSuchAddress { .. } => Errno::EADDRNOTAVAIL,
            SockError::System { errno, .. } => *errno,
        }
    }
}

impl From<SockError> for LndError {
    fn from(error: SockError) -> LndError {
        let errno = error.errno();
        match error {
            SockError::System { what, .. } => LndError { what, errno },
            other => LndError { what: other.to_string(), errno },
        }
    }
}
