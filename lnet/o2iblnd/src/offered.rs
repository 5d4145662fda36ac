use crate::fabric::Request;
use std::sync::Arc;

use lnet_lnd::admission::Guest;
use lnet_proto::ib::Offer;

use crate::o2ib::Ni;

/// A request that this node can grant.
pub struct Offered {
    pub(crate) request: Box<dyn Request>,
    pub(crate) offer: Offer,
    pub(crate) ni: Arc<Ni>,
    pub(crate) guest: Guest,
}
