//! The table of the local NIs that are up, by NID.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::Upcalls;
use lnet_nid::{Nid, ProcessId};
use parking_lot::RwLock;

use crate::Protocol;

/// The hardware of an NI: the network device with its queues and interrupts. NIs on one device
/// share their shards (S-312).
#[derive(Debug, Clone, Default)]
pub struct Hardware(Option<Arc<str>>);

impl Hardware {
    /// Returns the device with this name. The default value is a separate device.
    #[must_use]
    pub fn named(name: &str) -> Hardware {
        Hardware(Some(name.into()))
    }

    /// Returns whether both are one device.
    #[must_use]
    pub fn is(&self, other: &Hardware) -> bool {
        self.0.is_some() && self.0 == other.0
    }
}

/// A local network interface that is up.
pub struct Ni<P: Protocol> {
    /// The NID and PID of the NI.
    pub id: ProcessId,
    /// The IP address in the NID.
    pub ip: IpAddr,
    /// The receiver of the upcalls: the engine.
    pub upcalls: Arc<dyn Upcalls>,
    /// The time limit for a message, whatever it waits for.
    pub timeout_ns: u64,
    /// The device that the NI uses.
    pub hardware: Hardware,
    /// Index of the NI's shard within each partition ([`Shards`](crate::shards::Shards)).
    pub sub: usize,
    /// Connections per peer; can change while the NI is up.
    conns_per_peer: AtomicU8,
    /// Additional state that the kind of network needs for an NI.
    pub own: P::NiData,
}

impl<P: Protocol> Ni<P> {
    /// Makes an NI with this NID and address; [`NiTable::insert`] publishes it.
    pub fn new(
        (id, ip): (ProcessId, IpAddr),
        upcalls: Arc<dyn Upcalls>,
        timeout_ns: u64,
        (hardware, sub): (Hardware, usize),
        conns_per_peer: u8,
        own: P::NiData,
    ) -> Ni<P> {
        Ni { id, ip, upcalls, timeout_ns, hardware, sub, conns_per_peer: AtomicU8::new(conns_per_peer), own }
    }

    /// Returns the NI's address with this port.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// Returns the current number of connections per peer.
    pub fn conns_per_peer(&self) -> u8 {
        self.conns_per_peer.load(Ordering::Relaxed)
    }

    /// Sets the number of connections per peer.
    pub(crate) fn set_conns_per_peer(&self, count: u8) {
        self.conns_per_peer.store(count, Ordering::Relaxed);
    }
}

/// The local NIs by NID, for handshakes and senders.
pub struct NiTable<P: Protocol>(RwLock<HashMap<Nid, Arc<Ni<P>>, RandomState>>);

impl<P: Protocol> Default for NiTable<P> {
    fn default() -> NiTable<P> {
        NiTable(RwLock::default())
    }
}

impl<P: Protocol> NiTable<P> {
    /// Returns the NI with this NID.
    pub fn get(&self, nid: Nid) -> Option<Arc<Ni<P>>> {
        self.0.read().get(&nid).cloned()
    }

    /// Inserts an NI; returns `false` if the NID is taken.
    pub fn insert(&self, ni: Arc<Ni<P>>) -> bool {
        self.0.write().try_insert(ni.id.nid, ni).is_ok()
    }

    /// Removes and returns the NI with this NID.
    pub fn remove(&self, nid: Nid) -> Option<Arc<Ni<P>>> {
        self.0.write().remove(&nid)
    }

    /// Returns all NIs, or the one with this NID.
    pub fn matching(&self, nid: Option<Nid>) -> Vec<Arc<Ni<P>>> {
        let found = |ni: &&Arc<Ni<P>>| nid.is_none_or(|nid| ni.id.nid == nid);
        let mut nis: Vec<_> = self.0.read().values().filter(found).cloned().collect();
        // Sorted, so that a simulated run can be repeated.
        nis.sort_by_key(|ni| ni.id.nid);
        nis
    }

    /// Returns the NIDs of all NIs, sorted.
    pub fn nids(&self) -> Vec<Nid> {
        let mut nids: Vec<_> = self.0.read().keys().copied().collect();
        nids.sort();
        nids
    }

    /// Returns the number of NIs.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Returns whether there is no NI.
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// Returns whether this NI object is in the table, and not another one with its NID.
    pub fn is_up(&self, ni: &Ni<P>) -> bool {
        self.0.read().get(&ni.id.nid).is_some_and(|listed| std::ptr::eq(&**listed, ni))
    }

    /// Returns whether `is_such` holds for any NI.
    pub fn any(&self, is_such: impl FnMut(&Arc<Ni<P>>) -> bool) -> bool {
        self.0.read().values().any(is_such)
    }

    /// Returns whether an NI has this address.
    pub fn uses(&self, ip: IpAddr) -> bool {
        self.any(|ni| ni.ip == ip)
    }

    /// Returns the number of different hardware interfaces, counting those of the NIs and
    /// `hardware`.
    pub fn interfaces_with(&self, hardware: &Hardware) -> usize {
        self.hardware(|_| true).len() + usize::from(self.sub_of(hardware).is_none())
    }

    /// Returns the sub for an NI on `hardware`, out of `subs`: the sub of the NIs that lie there
    /// already, else the first of those with the fewest hardware interfaces.
    pub fn sub_for(&self, hardware: &Hardware, subs: usize) -> usize {
        let emptiest = || (0..subs).min_by_key(|sub| self.hardware(|ni| ni.sub == *sub).len());
        self.sub_of(hardware).or_else(emptiest).unwrap_or(0)
    }

    fn sub_of(&self, hardware: &Hardware) -> Option<usize> {
        self.0.read().values().find(|ni| ni.hardware.is(hardware)).map(|ni| ni.sub)
    }

    /// Returns the distinct hardware of the NIs for which `is_such` is true.
    fn hardware(&self, is_such: impl Fn(&Ni<P>) -> bool) -> Vec<Hardware> {
        let mut all: Vec<Hardware> = Vec::new();
        for ni in self.0.read().values().filter(|ni| is_such(ni)) {
            if !all.iter().any(|known| known.is(&ni.hardware)) {
                all.push(ni.hardware.clone());
            }
        }
        all
    }
}
