use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lnet_api::Upcalls;
use lnet_lnd::tables::{LocalNi, NiTable};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::sock::{LocalInterface, LocalNode};
use parking_lot::Mutex;

use crate::sys::Options;

/// A local network interface that is up.
pub(crate) struct Ni {
    pub(crate) id: ProcessId,
    pub(crate) ip: IpAddr,
    pub(crate) incarnation: u64,
    pub(crate) upcalls: Arc<dyn Upcalls>,
    pub(crate) timeout_ns: u64,
    /// What its connections are set to.
    pub(crate) options: Options,
    /// Connections of each bulk type to a peer; can change.
    pub(crate) conns_per_peer: AtomicU8,
    /// Its peers are on this shard of their partition.
    pub(crate) sub: usize,
    /// Holds the NID on this host; given back when the NI has ended, whoever still knows of it.
    pub(crate) claim: Mutex<Option<Box<dyn Send + Sync>>>,
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
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    pub(crate) fn conns_per_peer(&self) -> u8 {
        self.conns_per_peer.load(Ordering::Relaxed)
    }
}

/// The table as a handshake sees it.
#[derive(Clone)]
pub(crate) struct Locals(pub(crate) Arc<NiTable<Ni>>);

impl LocalNode for Locals {
    fn interface(&self, nid: Nid) -> Option<LocalInterface> {
        let ni = self.0.get(nid)?;
        Some(LocalInterface { pid: ni.id.pid, incarnation: ni.incarnation })
    }
}
