//! The connected peers, their connections, and what is outstanding.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::judge::frame::{Message, PAYLOAD_MAX};
use crate::judge::rules::Record;
use crate::judge::wire::{Hello, Nid, kind};

/// A stream that several threads write to.
pub(super) type Writer = Arc<Mutex<TcpStream>>;

/// Portals from this number on have no buffers: so that some messages are dropped.
const PORTALS: u32 = 60;

/// The state of the passive side.
#[derive(Default)]
pub(super) struct PassiveState {
    pub(super) record: Record,
    pub(super) peers: HashMap<Nid, Peer>,
    /// The peers that the judge is connecting to.
    pub(super) connecting: HashSet<Nid>,
    /// The peers that the judge has connected to because they connected to it.
    pub(super) raced: HashSet<Nid>,
    /// The connections that threads read, and their peers. A connection is read to its end even if
    /// another one of its peer has ended before.
    pub(super) reading: HashMap<usize, Nid>,
    /// Peers and handles of requests, and their answers.
    pub(super) asked: HashMap<(Nid, [u8; 16]), Option<Message>>,
    /// The peers that the judge has pushed back to, or is about to push back to.
    pub(super) pushed_back: HashSet<Nid>,
    /// The number of pushes back that are not answered yet.
    pub(super) pushing_back: usize,
    /// Received PUTs, by portal and match bits; they answer GETs.
    buffers: HashMap<(u32, u64), Vec<u8>>,
}

/// A connected peer.
pub(super) struct Peer {
    pub(super) version: u32,
    pub(super) incarnation: u64,
    pub(super) conns: Vec<Conn>,
    pub(super) discovered: bool,
    /// Set once the peer must have seen that its three connections are established.
    pub(super) settled: bool,
    /// Connection types, in the judge's view, that the peer has used.
    pub(super) used: HashSet<u32>,
    /// The number of keepalives received.
    pub(super) keepalives: usize,
    /// The arrival time of the last keepalive.
    pub(super) kept_alive: Option<Instant>,
    /// The first eight bytes of the peer's handles.
    pub(super) interface: Option<[u8; 8]>,
    /// Cookies without acknowledgement, and the type of connection that they were sent on.
    pub(super) outstanding: BTreeMap<u64, u32>,
    handles: u64,
    cookies: u64,
}

/// A connection of a peer.
pub(super) struct Conn {
    /// The connection's index among all connections.
    pub(super) number: usize,
    /// The connection's type in the judge's view.
    pub(super) kind: u32,
    pub(super) stream: Writer,
}

pub(super) fn not_connected(nid: Nid) -> String {
    format!("{nid} is not connected")
}

impl PassiveState {
    pub(super) fn peer(&mut self, nid: Nid) -> Result<&mut Peer, String> {
        self.peers.get_mut(&nid).ok_or_else(|| not_connected(nid))
    }

    /// Closes all connections of a peer, as a kernel does with the first that ends.
    pub(super) fn close_peer(&mut self, nid: Nid) {
        let Some(peer) = self.peers.remove(&nid) else { return };
        for conn in peer.conns {
            let _ = conn.stream.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Both);
        }
    }

    /// Adds a connection of a peer, which may be its first.
    pub(super) fn add_conn(&mut self, hello: &Hello, conn: Conn) -> &mut Peer {
        let new = || Peer::new(hello.version, hello.src_incarnation);
        self.reading.insert(conn.number, hello.src);
        let peer = self.peers.entry(hello.src).or_insert_with(new);
        peer.conns.push(conn);
        peer
    }

    /// Stores a PUT; returns whether there was a buffer for it.
    pub(super) fn store(&mut self, put: &Message) -> bool {
        let taken = put.portal() < PORTALS;
        if taken {
            self.buffers.insert((put.portal(), put.bits()), put.payload.clone());
        }
        taken
    }

    /// Returns the stored bytes that a GET requests.
    pub(super) fn stored(&self, get: &Message) -> Option<Vec<u8>> {
        let bytes = self.buffers.get(&(get.portal(), get.bits()))?;
        let length = bytes.len().min(get.sink().min(PAYLOAD_MAX) as usize);
        Some(bytes[..length].to_vec())
    }
}

impl Peer {
    pub(super) fn new(version: u32, incarnation: u64) -> Peer {
        Peer {
            version,
            incarnation,
            conns: Vec::new(),
            discovered: false,
            settled: false,
            used: HashSet::new(),
            keepalives: 0,
            kept_alive: None,
            interface: None,
            outstanding: BTreeMap::new(),
            handles: 0,
            cookies: 1,
        }
    }

    pub(super) fn has(&self, kind: u32) -> bool {
        self.conns.iter().any(|conn| conn.kind == kind)
    }

    pub(super) fn is_complete(&self) -> bool {
        [kind::CONTROL, kind::BULK_IN, kind::BULK_OUT].into_iter().all(|kind| self.has(kind))
    }

    /// Returns whether messages can be sent to it.
    pub(super) fn carries(&self) -> bool {
        self.choose(kind::CONTROL).is_some()
    }

    /// Returns the connection of this type, or else another one that may carry messages.
    pub(super) fn choose(&self, best: u32) -> Option<&Conn> {
        let of = |kind| self.conns.iter().find(move |conn| conn.kind == kind);
        of(best).or_else(|| of(kind::CONTROL)).or_else(|| of(kind::BULK_OUT))
    }

    pub(super) fn new_cookie(&mut self, on: u32) -> u64 {
        self.cookies += 1;
        self.outstanding.insert(self.cookies, on);
        self.cookies
    }

    pub(super) fn new_handle(&mut self, interface: u64) -> [u8; 16] {
        self.handles += 1;
        let mut handle = [0; 16];
        handle[..8].copy_from_slice(&interface.to_le_bytes());
        handle[8..].copy_from_slice(&(self.handles << 4 | 1).to_le_bytes());
        handle
    }
}
