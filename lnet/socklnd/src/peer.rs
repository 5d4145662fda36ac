use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::Errno;
use lnet_lnd::Waiting;
use lnet_lnd::tables::{PeerKey, RemotePeer};
use lnet_nid::ProcessId;
use lnet_proto::sock::Keepalive;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::attempts::Claim;
use crate::choice::{Load, choose};
use crate::conn::Conn;
use crate::links::{Bounds, Links};
use crate::ni::Ni;
use crate::shard::Shard;
use crate::{Failure, Step};

/// A node this one talks to over one of its NIs.
pub(crate) struct Peer {
    pub(crate) key: PeerKey,
    pub(crate) ni: Arc<Ni>,
    /// All its connections are there.
    pub(crate) shard: Arc<Shard>,
    pub(crate) claim: Claim,
    pub(crate) state: Mutex<PeerState>,
}

pub(crate) struct PeerState {
    /// Changed by its shard's driver alone.
    pub(crate) links: Links,
    pub(crate) conns: SmallVec<[Arc<Conn>; 4]>,
    /// Messages given to one of them, where they take turns.
    uses: u64,
    /// Messages for which there is no connection yet.
    pub(crate) waiting: Waiting,
    /// The driver has been asked to connect.
    pub(crate) asked: bool,
    /// A connection has shown that it is there under its NID's address: it came from there, or this side opened it. A privileged
    /// source port proves that root has opened the connection on some host, not on which.
    pub(crate) proven: bool,
    /// The entry has left the table: whoever still holds it must look again, or fail with this errno.
    pub(crate) retired: Option<Errno>,
    pub(crate) failure: Option<Failure>,
    /// How far the connection is that is being opened.
    pub(crate) step: Option<Step>,
    /// Of its live connections; `None` until they are first looked at.
    pub(crate) keepalive: Option<Keepalive>,
}

impl RemotePeer for Peer {
    fn key(&self) -> PeerKey {
        self.key
    }
}

impl Peer {
    pub(crate) fn new(ni: Arc<Ni>, id: ProcessId, shard: Arc<Shard>, bounds: Bounds) -> Peer {
        let links = Links::new(ni.id.nid, id.nid, id.pid.is_userspace(), bounds);
        let state = PeerState {
            links,
            conns: SmallVec::new(),
            uses: 0,
            waiting: Waiting::default(),
            asked: false,
            proven: false,
            retired: None,
            failure: None,
            step: None,
            keepalive: None,
        };
        Peer {
            key: PeerKey { ni: ni.id.nid, id },
            ni,
            shard,
            claim: Claim::default(),
            state: Mutex::new(state),
        }
    }

    /// A port at its NID's address, without which it would not have become a peer.
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.key.id.nid.ip().unwrap_or(self.ni.ip), port)
    }

    /// Fails all messages that wait for a connection to it.
    pub(crate) fn fail_waiting(&self, errno: Errno) {
        let waiting = self.state.lock().waiting.take_all();
        waiting.fail(&*self.ni.upcalls, errno);
    }
}

impl PeerState {
    /// The connection for an LNet message of this payload length, or for a NOOP; they take turns if `in_turn`.
    pub(crate) fn choose(&mut self, in_turn: bool, load: impl Fn(&Conn) -> Load) -> Option<&Arc<Conn>> {
        let load = load(self.conns.first()?);
        let place = choose(self.conns.iter().map(|conn| conn.candidate()), load)?;
        let conn = self.conns.get(place)?;
        if in_turn {
            self.uses += 1;
            conn.used.store(self.uses, Ordering::Relaxed);
        }
        Some(conn)
    }

    /// The connection for acks and keepalives.
    pub(crate) fn choose_for_noop(&mut self) -> Option<&Arc<Conn>> {
        self.choose(false, |_| Load::Noop)
    }
}
