use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::{Errno, Tx};
use lnet_nid::{Nid, ProcessId};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::choice::{Load, choose};
use crate::conn::Conn;
use crate::links::{Bounds, Links};
use crate::ni::Ni;
use crate::{Failure, Step};

/// The most messages that wait for one peer to be connected. An NI has 256 credits by default and seldom more than ten
/// times that; whoever queues more does not look at its results.
pub(crate) const WAITING_MAX: usize = 4096;

/// Names a peer: the local NI and the remote process (S-204). Connections hang directly on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey {
    pub(crate) ni: Nid,
    pub(crate) id: ProcessId,
}

/// A node this one talks to over one of its NIs.
pub(crate) struct Peer {
    pub(crate) key: PeerKey,
    pub(crate) ni: Arc<Ni>,
    pub(crate) state: Mutex<PeerState>,
}

pub(crate) struct PeerState {
    /// Changed by the driver alone.
    pub(crate) links: Links,
    pub(crate) conns: SmallVec<[Arc<Conn>; 4]>,
    /// Messages for which there is no connection yet.
    pub(crate) waiting: VecDeque<Tx>,
    /// The driver has been asked to connect.
    pub(crate) asked: bool,
    /// The entry has left the table: whoever still holds it must look again, or fail with this errno.
    pub(crate) retired: Option<Errno>,
    pub(crate) failure: Option<Failure>,
    /// How far the connection is that is being opened.
    pub(crate) step: Option<Step>,
    /// When a keepalive was last tried.
    pub(crate) keepalive_ns: u64,
}

impl Peer {
    pub(crate) fn new(ni: Arc<Ni>, id: ProcessId, bounds: Bounds) -> Peer {
        let links = Links::new(ni.id.nid, id.nid, id.pid.is_userspace(), bounds);
        let state = PeerState {
            links,
            conns: SmallVec::new(),
            waiting: VecDeque::new(),
            asked: false,
            retired: None,
            failure: None,
            step: None,
            keepalive_ns: 0,
        };
        Peer { key: PeerKey { ni: ni.id.nid, id }, ni, state: Mutex::new(state) }
    }

    /// Nothing can be sent to it any more: it is marked so, and what waits for a connection fails.
    pub(crate) fn retire(&self, errno: Errno) {
        self.state.lock().retired = Some(errno);
        self.fail_waiting(errno);
    }

    /// Fails all messages that wait for a connection to it.
    pub(crate) fn fail_waiting(&self, errno: Errno) {
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        for Tx { token, payload, .. } in waiting {
            drop(payload);
            self.ni.upcalls.finalize_tx(token, Err(errno));
        }
    }
}

impl PeerState {
    /// The connection for an LNet message of this payload length, or for a NOOP.
    pub(crate) fn choose(&self, load: impl Fn(&Conn) -> Load) -> Option<&Arc<Conn>> {
        let load = load(self.conns.first()?);
        let place =
            choose(self.conns.iter().map(|conn| (conn.conn_type, conn.version, conn.queued())), load)?;
        self.conns.get(place)
    }

    /// The connection for acks and keepalives.
    pub(crate) fn choose_for_noop(&self) -> Option<&Arc<Conn>> {
        self.choose(|_| Load::Noop)
    }
}

/// All peers of all NIs.
#[derive(Default)]
pub(crate) struct PeerTable(RwLock<HashMap<PeerKey, Arc<Peer>, RandomState>>);

impl PeerTable {
    pub(crate) fn get(&self, key: PeerKey) -> Option<Arc<Peer>> {
        self.0.read().get(&key).cloned()
    }

    pub(crate) fn get_or_insert(&self, key: PeerKey, make: impl FnOnce() -> Peer) -> Arc<Peer> {
        self.0.write().entry(key).or_insert_with(|| Arc::new(make())).clone()
    }

    /// Removes this peer; one that has come in its place stays.
    pub(crate) fn remove(&self, peer: &Arc<Peer>) {
        let mut peers = self.0.write();
        if peers.get(&peer.key).is_some_and(|listed| Arc::ptr_eq(listed, peer)) {
            peers.remove(&peer.key);
        }
    }

    /// All peers that `wanted` names, appended to a list.
    pub(crate) fn collect(&self, list: &mut Vec<Arc<Peer>>, wanted: impl Fn(&PeerKey) -> bool) {
        list.extend(self.0.read().iter().filter(|(key, _)| wanted(key)).map(|(_, peer)| peer.clone()));
    }
}
