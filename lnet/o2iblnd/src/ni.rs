use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lnet_api::Upcalls;
use lnet_lnd::tables::{LocalNi, NiTable};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::ib::{ConnParams, Destination, End, Interface, MESSAGE_MAX};
use parking_lot::Mutex;

use crate::NiConfig;
use crate::admission::Admission;
use crate::driver::Depths;
use crate::fabric::Device;
use crate::memory::Pool;
use crate::sizes::Adjusted;
use lnet_lnd::Seldom;

/// A local network interface that is up.
pub(crate) struct Ni {
    pub(crate) id: ProcessId,
    pub(crate) ip: Ipv4Addr,
    /// Its NID and incarnation.
    pub(crate) end: End,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) upcalls: Arc<dyn Upcalls>,
    pub(crate) config: NiConfig,
    pub(crate) adjusted: Adjusted,
    /// Connections to a peer; can change.
    pub(crate) conns_per_peer: AtomicU8,
    /// Its peers are on this shard of their partition.
    pub(crate) sub: usize,
    /// What cannot be written from its place goes through it.
    pub(crate) pool: Arc<Pool>,
    /// Where peers write what they cannot write to its place.
    pub(crate) sinks: Arc<Pool>,
    /// Who may connect to it.
    pub(crate) admission: Arc<Admission>,
    /// How deep queues can be at this time.
    pub(crate) depths: Depths,
    /// What is said seldom: that memory cannot be registered, that a transfer fails for it, that peers are turned away.
    pub(crate) refused_memory: Seldom,
    pub(crate) failed_transfers: Seldom,
    pub(crate) turned_away: Seldom,
    /// The port was up when it was last asked. Locked while the engine is told, so that what it hears last is true.
    pub(crate) port: Mutex<bool>,
}

impl LocalNi for Ni {
    fn nid(&self) -> Nid {
        self.id.nid
    }

    fn sub(&self) -> usize {
        self.sub
    }
}

impl Ni {
    /// Its address with this port.
    pub(crate) fn address(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.ip, port)
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        self.config.timeout_ns()
    }

    pub(crate) fn conns_per_peer(&self) -> u8 {
        self.conns_per_peer.load(Ordering::Relaxed)
    }

    /// Asks the device whether its port is up, and tells the engine if that has changed.
    pub(crate) fn look_at_port(&self) -> bool {
        let mut known = self.port.lock();
        let up = self.device.is_up();
        if std::mem::replace(&mut *known, up) != up {
            let (nid, device) = (self.id.nid, self.device.name());
            match up {
                true => tracing::info!(%nid, device, "the port is up again"),
                false => tracing::warn!(%nid, device, "the port is down: is the link up (`rdma link`)?"),
            }
            self.upcalls.link_changed(nid, up);
        }
        up
    }

    /// Whether connections can be made. A port that was down is asked again: what a device tells of it, another program's
    /// part of this process may have heard.
    pub(crate) fn can_connect(&self) -> bool {
        let up = *self.port.lock();
        up || self.look_at_port()
    }

    /// What it asks for, and the most that it grants.
    pub(crate) fn params(&self) -> ConnParams {
        ConnParams {
            queue_depth: self.adjusted.peer_credits,
            max_fragments: self.adjusted.fragments,
            max_message: MESSAGE_MAX as u32,
        }
    }
}

/// What a NID means to a request that came to this address.
pub(crate) fn destination(nis: &NiTable<Ni>, nid: Nid, at: Ipv4Addr) -> Destination {
    match nis.get(nid) {
        Some(ni) if ni.ip == at => Destination::Ready(Interface { end: ni.end, limits: ni.params() }),
        Some(_) => Destination::Unknown,
        None if nis.any(|ni| ni.ip == at) => Destination::Unknown,
        None => Destination::NotReady,
    }
}
