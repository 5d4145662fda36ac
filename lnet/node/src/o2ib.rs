//! The verbs LND of a node, created with its first network over RDMA.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

#[cfg(not(feature = "verbs"))]
use lnet_api::Errno;
use lnet_api::LndError;
use lnet_nid::Nid;
use lnet_o2iblnd::{O2ibConfig, O2ibLnd};
use lnet_socklnd::sys::Claim;
use parking_lot::Mutex;

use crate::NodeError;
use crate::drive::NodeDrive;

pub(crate) struct Verbs {
    config: O2ibConfig,
    lnd: OnceLock<Arc<O2ibLnd>>,
    /// The claims of the NIDs over RDMA, which exclude other nodes of the host.
    claims: Mutex<HashMap<Nid, Claim>>,
}

impl Verbs {
    pub(crate) fn new(config: O2ibConfig) -> Verbs {
        Verbs { config, lnd: OnceLock::new(), claims: Mutex::default() }
    }

    /// Returns the LND, if the node has had a network over RDMA.
    pub(crate) fn get(&self) -> Option<&Arc<O2ibLnd>> {
        self.lnd.get()
    }

    /// Claims a NID for this node, until [`Verbs::release`].
    pub(crate) fn claim(&self, nid: Nid) -> Result<(), LndError> {
        self.claims.lock().insert(nid, Claim::new(nid)?);
        Ok(())
    }

    pub(crate) fn release(&self, nid: Nid) {
        self.claims.lock().remove(&nid);
    }

    /// Returns the LND; creates it first, if this is the node's first network over RDMA. Calls must
    /// not overlap.
    ///
    /// # Errors
    /// [`NodeError::Rdma`] for a program or a host without RDMA.
    pub(crate) fn lnd(&self, nid: Nid, drive: &NodeDrive) -> Result<&Arc<O2ibLnd>, NodeError> {
        if let Some(lnd) = self.lnd.get() {
            return Ok(lnd);
        }
        let lnd = Arc::new(over_rdma(nid, self.config.clone())?);
        drive.add_lnd(lnd.clone());
        Ok(self.lnd.get_or_init(|| lnd))
    }
}

/// Checks whether this program and this host have the requirements of networks over RDMA, except
/// devices.
///
/// # Errors
/// The missing part, and the remedy.
pub(crate) fn ready() -> Result<(), LndError> {
    make(O2ibConfig::default()).map(drop)
}

/// Checks like [`ready`] that a node can use RDMA, for the network of an NI.
///
/// # Errors
/// [`NodeError::Rdma`].
pub(crate) fn check(nid: Nid) -> Result<(), NodeError> {
    over_rdma(nid, O2ibConfig::default()).map(drop)
}

fn over_rdma(nid: Nid, config: O2ibConfig) -> Result<O2ibLnd, NodeError> {
    let net = || nid.net().to_string();
    make(config).map_err(|LndError { what, errno }| NodeError::Rdma { net: net(), reason: what, errno })
}

#[cfg(feature = "verbs")]
fn make(config: O2ibConfig) -> Result<O2ibLnd, LndError> {
    O2ibLnd::new(config)
}

#[cfg(not(feature = "verbs"))]
fn make(_: O2ibConfig) -> Result<O2ibLnd, LndError> {
    let what = crate::rdma::BUILT_WITHOUT.unwrap_or_default().to_string();
    Err(LndError { what, errno: Errno::ENOSYS })
}
