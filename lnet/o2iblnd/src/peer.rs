use std::net::SocketAddrV4;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::Waiting;
use lnet_lnd::tables::{PeerKey, RemotePeer};
use lnet_nid::ProcessId;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::connection::Connection;
use crate::links::{LinkId, Links};
use crate::ni::Ni;
use crate::shard::Shard;
use crate::{Failure, Step};

/// A node this one talks to over one of its NIs.
pub(crate) struct Peer {
    pub(crate) key: PeerKey,
    pub(crate) ni: Arc<Ni>,
    /// All its connections are there.
    pub(crate) shard: Arc<Shard>,
    pub(crate) state: Mutex<PeerState>,
}

pub(crate) struct PeerState {
    /// Attempts are made and ended by its shard's driver alone.
    pub(crate) links: Links,
    pub(crate) conns: SmallVec<[Arc<Connection>; 2]>,
    /// Messages for which there is no connection yet, or no room on any.
    pub(crate) waiting: Waiting,
    /// The driver has been asked to connect.
    pub(crate) asked: bool,
    /// The entry has left the table: whoever still holds it must look again, or fail with this errno.
    pub(crate) retired: Option<Errno>,
    pub(crate) failure: Option<Failure>,
    /// How far the connection is that is being opened.
    pub(crate) step: Option<Step>,
}

impl RemotePeer for Peer {
    fn key(&self) -> PeerKey {
        self.key
    }
}

impl Peer {
    pub(crate) fn new(key: PeerKey, ni: Arc<Ni>, shard: Arc<Shard>, links: Links) -> Peer {
        let state = PeerState {
            links,
            conns: SmallVec::new(),
            waiting: Waiting::default(),
            asked: false,
            retired: None,
            failure: None,
            step: None,
        };
        Peer { key, ni, shard, state: Mutex::new(state) }
    }

    /// As LNet names it: the last hop.
    pub(crate) fn id(&self) -> ProcessId {
        self.key.id
    }

    /// A port at its NID's address, without which it would not have become a peer.
    pub(crate) fn address(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.key.id.nid.ipv4().unwrap_or(self.ni.ip), port)
    }

    /// Fails all messages that wait for a connection to it.
    pub(crate) fn fail_waiting(&self, errno: Errno) {
        let waiting = self.state.lock().waiting.take_all();
        waiting.fail(&*self.ni.upcalls, errno);
    }
}

impl PeerState {
    /// The connection for the next message: one that has room, if there is one. A peer that is slow on one holds up none of the
    /// others.
    pub(crate) fn choose(&mut self) -> Option<&Arc<Connection>> {
        let id = match &self.conns[..] {
            [] => return None,
            [only] => return Some(only),
            conns => {
                let has_room = |id| conns.iter().any(|conn| conn.id == id && conn.check_room().is_ok());
                self.links.pick(has_room).or_else(|| self.links.pick(|_| true))?
            }
        };
        self.conn(id)
    }

    fn conn(&self, id: LinkId) -> Option<&Arc<Connection>> {
        self.conns.iter().find(|conn| conn.id == id)
    }
}
