use lnet_api::{Errno, LNetError};
use lnet_nid::Nid;

/// Why a node could not be configured or started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A network's text cannot be read.
    #[error("network '{text}': {reason}")]
    Network {
        /// The text.
        text: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// There is no such interface, or it has no address that can be used.
    #[error("interface '{name}': {reason}")]
    Interface {
        /// The interface's name, or the address.
        name: String,
        /// What is wrong, and what there is instead.
        reason: String,
    },
    /// No network is configured, and none can be chosen.
    #[error("no network: no interface but loopback is up; name one, for instance 'tcp(127.0.0.1)'")]
    NoNetwork,
    /// The same NID is configured twice.
    #[error("{nid} is configured twice")]
    Twice {
        /// The NID.
        nid: Nid,
    },
    /// More interfaces than a node can have.
    #[error("{count} interfaces are configured; a node has {max} at the most")]
    TooMany {
        /// How many are configured.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// LNet refused, most often because an address or a NID is in use.
    #[error("{nid} cannot be started: {source}")]
    Start {
        /// The NID.
        nid: Nid,
        /// LNet's reason.
        source: LNetError,
    },
    /// The system refused something else.
    #[error("{what}: {errno}")]
    System {
        /// What was attempted, or what is wrong.
        what: String,
        /// The errno.
        errno: Errno,
    },
}

impl NodeError {
    /// The errno that LNet users know.
    pub fn errno(&self) -> Errno {
        match self {
            NodeError::Network { .. } | NodeError::Twice { .. } | NodeError::TooMany { .. } => Errno::EINVAL,
            NodeError::Interface { .. } => Errno::ENODEV,
            NodeError::NoNetwork => Errno::ENETDOWN,
            NodeError::Start { source, .. } => source.errno(),
            NodeError::System { errno, .. } => *errno,
        }
    }
}
