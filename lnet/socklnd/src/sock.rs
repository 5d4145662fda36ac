//! State shared by all shards of the TCP LND, and the LND skeleton's types for it.

use std::sync::Arc;

use lnet_lnd::Network;
use lnet_lnd::admission::Admission;

use crate::AcceptPolicy;
use crate::attempts::Attempts;
use crate::sys::{Options, TcpStack};

/// The TCP LND: all `tcp` networks of a node.
pub type SockLnd = Network<Sock>;

lnet_lnd::names!(Sock);

/// The socket protocol, with the state shared by all shards of its LND.
pub struct Sock {
    pub(crate) policy: AcceptPolicy,
    pub(crate) net: Arc<dyn TcpStack>,
    pub(crate) options: Options,
    /// Identity of the LND, shared by all its shards.
    pub(crate) identity: Arc<()>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) attempts: Arc<Attempts>,
}
