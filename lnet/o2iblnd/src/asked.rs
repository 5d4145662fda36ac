//! What is asked of the driver of a shard.

use std::sync::Arc;

use lnet_lnd::admission::Guest;
use lnet_proto::ib::Offer;

use crate::conn::Key as OpKey;
use crate::connection::Connection;
use crate::fabric::Request;
use crate::item::PendingGet;
use crate::o2ib::Ni;

/// What is asked of a shard's driver over verbs alone.
pub enum Asked {
    /// A peer of this shard has asked another one's listener.
    Offered(Box<Offered>),
    /// There is a bounce buffer for this operation.
    Prepare(Arc<Connection>, OpKey),
    /// There is a bounce buffer for this GET.
    BeginGet(Box<PendingGet>),
}

/// A request that this node can grant.
pub struct Offered {
    pub(crate) request: Box<dyn Request>,
    pub(crate) offer: Offer,
    pub(crate) ni: Arc<Ni>,
    pub(crate) guest: Guest,
}
