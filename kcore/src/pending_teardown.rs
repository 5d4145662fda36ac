//! Leftovers of a transfer machine that was dropped in use, until LNet releases its last MD.

use std::sync::Arc;

use lnet_api::{EqHandle, LNetError};
use nlx_core::Address;

use crate::network::SharedNetwork;

/// An event queue and its address. The address must not be assigned again while the queue exists: a
/// message for it may be on its way.
pub(crate) struct PendingTeardown {
    network: Arc<SharedNetwork>,
    eq: EqHandle,
    address: Address,
}

impl PendingTeardown {
    pub(crate) fn new(network: Arc<SharedNetwork>, eq: EqHandle, address: Address) -> PendingTeardown {
        PendingTeardown { network, eq, address }
    }

    /// Frees the queue and the address, if LNet has released them. Of all attempts one succeeds,
    /// once.
    pub(crate) fn clear(&self) -> Result<(), LNetError> {
        self.network.lnet.eq_free(self.eq)?;
        self.network.give_back(&self.address);
        Ok(())
    }
}
