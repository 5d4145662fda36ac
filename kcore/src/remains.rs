//! What a transfer machine that was dropped in use leaves behind, until LNet lets go of its last MD.

use std::sync::Arc;

use lnet_api::{EqHandle, LNetError};
use nlx_core::Address;

use crate::network::Network;

/// An event queue, and the address that must not be given again as long as the queue exists: a message for it may be on its
/// way.
pub(crate) struct Remains {
    network: Arc<Network>,
    eq: EqHandle,
    address: Address,
}

impl Remains {
    pub(crate) fn new(network: Arc<Network>, eq: EqHandle, address: Address) -> Remains {
        Remains { network, eq, address }
    }

    /// Frees the queue and gives the address back, if LNet lets go. Of all who try one succeeds, once.
    pub(crate) fn clear(&self) -> Result<(), LNetError> {
        self.network.lnet.eq_free(self.eq)?;
        self.network.give_back(&self.address);
        Ok(())
    }
}
