//! Refusals in the protocol's terms, counted by reason.

use nlx_bev_cqueue::Error as QueueError;
use nlx_core::{CoreError, Errno, RegionError};
use nlx_driver_proto::{Reason, Refusal};

use super::Session;

/// Translates an error of the Core.
pub(super) fn refusal_of(error: &CoreError) -> Refusal {
    let errno = error.errno();
    match *error {
        CoreError::PortalRange { portal } => Refusal::of(errno, Reason::PortalRange, portal.into(), 63),
        CoreError::NotLocal { .. } => Refusal::new(errno, Reason::NotLocal),
        CoreError::AddressInUse { .. } => Refusal::new(errno, Reason::AddressInUse),
        CoreError::NoFreeTmId { .. } => Refusal::new(errno, Reason::NoFreeTmId),
        CoreError::TmBusy { needed, .. } => Refusal::of(errno, Reason::TmBusy, needed as u64, 0),
        CoreError::TooLong { bytes, limit, .. } => {
            Refusal::of(errno, Reason::Segment, bytes as u64, limit as u64)
        }
        CoreError::NoSuchBuffer { buffer } => Refusal::of(errno, Reason::NoBuffer, buffer.0, 0),
        CoreError::BufferBusy { buffer } => Refusal::of(errno, Reason::Other, buffer.0, 0),
        CoreError::Transport { .. } => Refusal::new(errno, Reason::Network),
        CoreError::Memory { .. } => Refusal::new(errno, Reason::System),
        _ => Refusal::new(errno, Reason::Other),
    }
}

/// Translates an error of shared memory.
pub(super) fn no_memory(error: &RegionError) -> Refusal {
    Refusal::new(error.errno(), Reason::System)
}

/// Returns the refusal for want of memory of the helper itself.
pub(super) fn starved<E>(_: E) -> Refusal {
    Refusal::new(Errno::ENOMEM, Reason::System)
}

/// Translates an error of a queue in shared memory.
pub(super) fn no_queue(error: &QueueError) -> Refusal {
    Refusal::new(error.errno(), Reason::System)
}

/// Translates an error of creating a descriptor.
pub(super) fn no_descriptor(errno: Errno) -> Refusal {
    Refusal::new(errno, Reason::System)
}

impl Session {
    /// Counts a refusal by its reason.
    pub(super) fn count(&self, refusal: &Refusal) {
        let counters = &self.record.counters;
        match refusal.reason {
            Reason::Portal | Reason::Nid | Reason::Lazy => counters.refused_by_policy.add(1),
            Reason::Tms | Reason::Buffers | Reason::Arenas | Reason::Bytes | Reason::Operations
                if refusal.errno == Errno::ENOMEM =>
            {
                counters.refused_by_quota.add(1);
            }
            Reason::Share => counters.refused_by_quota.add(1),
            _ => counters.refused.add(1),
        }
    }

    pub(super) fn count_refusal<T>(&self, outcome: &Result<T, Refusal>) {
        if let Err(refusal) = outcome {
            self.count(refusal);
        }
    }
}
