//! The helper's refusals as errors of the Core interface.

use nlx_core::{Address, CoreError, StartAddress};
use nlx_driver_proto::{Reason, Refusal};

/// Translates a refusal of `action`.
pub(crate) fn refused(action: &'static str, refusal: &Refusal) -> CoreError {
    let too_many = |objects| CoreError::TooMany { objects, limit: refusal.limit as usize };
    match refusal.reason {
        Reason::Tms | Reason::Buffers | Reason::Arenas | Reason::Bytes | Reason::Operations => {
            too_many(refusal.reason.text())
        }
        _ => CoreError::Transport { action, reason: refusal.to_string(), errno: refusal.errno },
    }
}

/// Translates a refusal of a start at this address.
pub(crate) fn refused_start(wanted: &StartAddress, refusal: &Refusal) -> CoreError {
    let StartAddress { nid, pid, portal, tmid } = *wanted;
    match (refusal.reason, tmid) {
        (Reason::PortalRange, _) => CoreError::PortalRange { portal },
        (Reason::NotLocal, _) => CoreError::NotLocal { nid, pid },
        (Reason::NoFreeTmId, _) => CoreError::NoFreeTmId { nid, pid, portal },
        (Reason::AddressInUse, Some(tmid)) => {
            CoreError::AddressInUse { address: Address { nid, pid, portal, tmid } }
        }
        _ => refused("start a transfer machine", refusal),
    }
}
