use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::Upcalls;
use lnet_nid::{Nid, ProcessId};
use lnet_proto::sock::{LocalInterface, LocalNode};
use parking_lot::{Mutex, RwLock};

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

impl Ni {
    /// Its address with this port.
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }
}

impl Ni {
    pub(crate) fn conns_per_peer(&self) -> u8 {
        self.conns_per_peer.load(Ordering::Relaxed)
    }
}

/// The local NIs by NID, as handshakes and senders look them up.
#[derive(Default)]
pub(crate) struct NiTable(RwLock<HashMap<Nid, Arc<Ni>, RandomState>>);

impl NiTable {
    pub(crate) fn get(&self, nid: Nid) -> Option<Arc<Ni>> {
        self.0.read().get(&nid).cloned()
    }

    /// Adds one; `false` if there is one of this NID.
    pub(crate) fn insert(&self, ni: Arc<Ni>) -> bool {
        self.0.write().try_insert(ni.id.nid, ni).is_ok()
    }

    pub(crate) fn remove(&self, nid: Nid) -> Option<Arc<Ni>> {
        self.0.write().remove(&nid)
    }

    /// All NIs, or the one of this NID.
    pub(crate) fn matching(&self, nid: Option<Nid>) -> Vec<Arc<Ni>> {
        self.0.read().values().filter(|ni| nid.is_none_or(|nid| ni.id.nid == nid)).cloned().collect()
    }

    pub(crate) fn nids(&self) -> Vec<Nid> {
        self.0.read().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Whether this very NI is up, and not only one of its NID.
    pub(crate) fn is_up(&self, ni: &Arc<Ni>) -> bool {
        self.0.read().get(&ni.id.nid).is_some_and(|listed| Arc::ptr_eq(listed, ni))
    }

    /// The sub among so many that has the fewest NIs, the first of these.
    pub(crate) fn emptiest_sub(&self, subs: usize) -> usize {
        let nis = self.0.read();
        (0..subs).min_by_key(|sub| nis.values().filter(|ni| ni.sub == *sub).count()).unwrap_or(0)
    }

    /// Whether another NI has this address.
    pub(crate) fn has_address(&self, ip: IpAddr) -> bool {
        self.0.read().values().any(|ni| ni.ip == ip)
    }
}

/// The table as a handshake sees it.
#[derive(Clone)]
pub(crate) struct Locals(pub(crate) Arc<NiTable>);

impl LocalNode for Locals {
    fn interface(&self, nid: Nid) -> Option<LocalInterface> {
        let ni = self.0.get(nid)?;
        Some(LocalInterface { pid: ni.id.pid, incarnation: ni.incarnation })
    }
}
