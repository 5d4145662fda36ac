//! What all shards of the verbs LND share, and the names of the LND skeleton's types here.

use std::sync::Arc;

use lnet_lnd::Network;

use crate::fabric::Fabric;

/// The verbs LND: all `o2ib` networks of a node.
pub type O2ibLnd = Network<O2ib>;

/// What senders, drivers and everybody else share.
pub(crate) type Shared = lnet_lnd::Shared<O2ib>;

/// A local network interface that is up.
pub(crate) type Ni = lnet_lnd::Ni<O2ib>;

/// A node this one talks to over one of its NIs.
pub(crate) type Peer = lnet_lnd::Peer<O2ib>;

/// What of it changes.
pub(crate) type PeerState = lnet_lnd::PeerState<O2ib>;

/// What senders and the driver of one shard share.
pub(crate) type Shard = lnet_lnd::Shard<O2ib>;

/// What is asked of its driver.
pub(crate) type Request = lnet_lnd::Request<O2ib>;

/// The time, and what everybody shares, for the length of one call.
pub(crate) type Turn<'a> = lnet_lnd::Turn<'a, O2ib>;

/// The verbs protocol, and what all shards of its LND share.
pub struct O2ib {
    pub(crate) fabric: Arc<dyn Fabric>,
}
