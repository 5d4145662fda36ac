//! The data that all shards of the verbs LND share, and this crate's aliases of the LND skeleton's
//! types.

use std::sync::Arc;

use lnet_lnd::Network;

use crate::fabric::Fabric;

/// The verbs LND: all `o2ib` networks of a node.
pub type O2ibLnd = Network<O2ib>;

lnet_lnd::names!(O2ib);

/// The verbs protocol, with the state that all shards of its LND share.
pub struct O2ib {
    pub(crate) fabric: Arc<dyn Fabric>,
}
