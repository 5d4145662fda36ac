//! What all shards of the TCP LND share, and the names of the LND skeleton's types here.

use std::sync::Arc;

use lnet_lnd::Network;
use lnet_lnd::admission::Admission;

use crate::AcceptPolicy;
use crate::attempts::Attempts;
use crate::sys::{Net, Options};

/// The TCP LND: all `tcp` networks of a node.
pub type SockLnd = Network<Sock>;

/// What senders, drivers and everybody else share.
pub(crate) type Shared = lnet_lnd::Shared<Sock>;

/// A local network interface that is up.
pub(crate) type Ni = lnet_lnd::Ni<Sock>;

/// A node this one talks to over one of its NIs.
pub(crate) type Peer = lnet_lnd::Peer<Sock>;

/// What of it changes.
pub(crate) type PeerState = lnet_lnd::PeerState<Sock>;

/// What senders and the driver of one shard share.
pub(crate) type Shard = lnet_lnd::Shard<Sock>;

/// What is asked of its driver.
pub(crate) type Request = lnet_lnd::Request<Sock>;

/// The time, and what everybody shares, for the length of one call.
pub(crate) type Turn<'a> = lnet_lnd::Turn<'a, Sock>;

/// The socket protocol, and what all shards of its LND share.
pub struct Sock {
    pub(crate) policy: AcceptPolicy,
    pub(crate) net: Arc<dyn Net>,
    pub(crate) options: Options,
    /// What all shards have in common.
    pub(crate) identity: Arc<()>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) attempts: Arc<Attempts>,
}
