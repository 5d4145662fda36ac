//! What all shards of the TCP LND share, and the names of the LND skeleton's types here.

use std::sync::Arc;

use lnet_lnd::Network;
use lnet_lnd::admission::Admission;

use crate::AcceptPolicy;
use crate::attempts::Attempts;
use crate::sys::{Net, Options};

/// The TCP LND: all `tcp` networks of a node.
pub type SockLnd = Network<Sock>;

lnet_lnd::names!(Sock);

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
