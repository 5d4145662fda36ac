//! The verbs LND's data of an NI, and the state of its port.

use crate::o2ib::O2ib;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use lnet_cpt::PartitionMemory;
use lnet_lnd::{NiTable, RateLimitedLog};
use lnet_nid::Nid;
use lnet_proto::ib::{ConnParams, Destination, End, LocalInterface, MESSAGE_MAX};
use parking_lot::Mutex;

use crate::admission::BOUNDS;
use crate::depths::Depths;
use crate::fabric::Device;
use crate::memory::{Accessor, BouncePool};
use crate::o2ib::Ni;
use crate::sizes::Adjusted;
use lnet_lnd::admission::Admission;

/// The verbs LND's data of an NI.
pub struct NiData {
    pub(crate) ip: Ipv4Addr,
    /// The NID and the incarnation of the NI.
    pub(crate) end: End,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) tos: Option<u8>,
    pub(crate) adjusted: Adjusted,
    /// Bounce buffers from which payloads are written if their own memory cannot be used.
    pub(crate) pool: Arc<BouncePool>,
    /// Bounce buffers to which peers write if the sink's own memory cannot be described.
    pub(crate) sinks: Arc<BouncePool>,
    /// The limits on connections of peers, and their counters.
    pub(crate) admission: Arc<Admission>,
    /// The queue depths that the device accepts at this time.
    pub(crate) depths: Depths,
    /// Rate-limited warnings: memory cannot be registered; a transfer fails because of it; peers
    /// are rejected.
    pub(crate) refused_memory: RateLimitedLog,
    pub(crate) failed_transfers: RateLimitedLog,
    pub(crate) rejected_peers: RateLimitedLog,
    /// True if the port was up at the last query. Locked while the engine is notified, so that the
    /// engine's last notification is the current state.
    port: Mutex<bool>,
}

impl NiData {
    pub(crate) fn new(
        (ip, end): (Ipv4Addr, End),
        device: Arc<dyn Device>,
        tos: Option<u8>,
        adjusted: Adjusted,
        memory: &PartitionMemory,
    ) -> NiData {
        NiData {
            ip,
            end,
            device,
            tos,
            adjusted,
            pool: Arc::new(BouncePool::new(Accessor::Node, memory.clone())),
            sinks: Arc::new(BouncePool::new(Accessor::Peers, memory.clone())),
            admission: Arc::new(Admission::new(BOUNDS)),
            depths: Depths::default(),
            refused_memory: RateLimitedLog::default(),
            failed_transfers: RateLimitedLog::default(),
            rejected_peers: RateLimitedLog::default(),
            port: Mutex::new(true),
        }
    }

    /// Returns the NI's address with this port.
    pub(crate) fn address(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.ip, port)
    }

    /// Returns the parameters that the NI requests; it grants no larger ones.
    pub(crate) fn params(&self) -> ConnParams {
        ConnParams {
            queue_depth: self.adjusted.peer_credits,
            max_fragments: self.adjusted.fragments,
            max_message: MESSAGE_MAX as u32,
        }
    }
}

/// Queries whether the NI's port is up, and notifies the engine of a change.
pub(crate) fn update_port(ni: &Ni) -> bool {
    let mut known = ni.own.port.lock();
    let up = ni.own.device.is_up();
    if std::mem::replace(&mut *known, up) != up {
        let (nid, device) = (ni.id.nid, ni.own.device.name());
        match up {
            true => tracing::info!(%nid, device, "the port is up again"),
            false => tracing::warn!(%nid, device, "the port is down: is the link up (`rdma link`)?"),
        }
        ni.upcalls.link_changed(nid, up);
    }
    up
}

/// Returns whether connections can be made. A port that was down is queried again: another user of
/// the device in this process may have received the event.
pub(crate) fn can_connect(ni: &Ni) -> bool {
    let up = *ni.own.port.lock();
    up || update_port(ni)
}

/// Returns the NI of this node that a NID in a request to this address names, if there is one.
pub(crate) fn destination(nis: &NiTable<O2ib>, nid: Nid, at: Ipv4Addr) -> Destination {
    match nis.get(nid) {
        Some(ni) if ni.own.ip == at => {
            Destination::Ready(LocalInterface { end: ni.own.end, limits: ni.own.params() })
        }
        Some(_) => Destination::Unknown,
        None if nis.uses(at.into()) => Destination::Unknown,
        None => Destination::NotReady,
    }
}
