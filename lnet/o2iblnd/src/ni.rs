use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::Upcalls;
use lnet_nid::{Nid, ProcessId};
use lnet_proto::ib::{ConnParams, Destination, End, Interface, MESSAGE_MAX};
use parking_lot::{Mutex, RwLock};

use crate::NiConfig;
use crate::admission::Admission;
use crate::driver::Depths;
use crate::fabric::Device;
use crate::memory::Pool;
use crate::seldom::Seldom;
use crate::sizes::Adjusted;

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
    pub(crate) fn has_address(&self, ip: Ipv4Addr) -> bool {
        self.0.read().values().any(|ni| ni.ip == ip)
    }

    /// What a NID means to a request that came to this address.
    pub(crate) fn destination(&self, nid: Nid, at: Ipv4Addr) -> Destination {
        let nis = self.0.read();
        match nis.get(&nid) {
            Some(ni) if ni.ip == at => Destination::Ready(Interface { end: ni.end, limits: ni.params() }),
            Some(_) => Destination::Unknown,
            None if nis.values().any(|ni| ni.ip == at) => Destination::Unknown,
            None => Destination::NotReady,
        }
    }
}
