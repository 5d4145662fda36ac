//! Snapshots of an LND's connections, for statistics and tools.

use lnet_nid::Nid;
use lnet_proto::sock::ConnType;

use crate::SockLnd;
use crate::sock::Shared;
use crate::sys::TcpFacts;

/// The number of peers and connections at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnStats {
    /// Peers with a connection.
    pub peers: usize,
    /// Established connections; those in a handshake do not count.
    pub connections: usize,
    /// Established connections by type, as this node sees the type.
    pub by_type: ConnectionsByType,
}

/// Connections by type (lnet-wire 23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionsByType {
    /// Connections of type ANY: with peers that do not type them, and of this node with itself.
    pub any: usize,
    /// Connections of type CONTROL, for small messages.
    pub control: usize,
    /// Connections of type BULK_IN, for bulk data from the peer.
    pub bulk_in: usize,
    /// Connections of type BULK_OUT, for bulk data to the peer.
    pub bulk_out: usize,
}

impl ConnectionsByType {
    fn count(&mut self, conn_type: ConnType) {
        match conn_type {
            ConnType::Control => self.control += 1,
            ConnType::BulkIn => self.bulk_in += 1,
            ConnType::BulkOut => self.bulk_out += 1,
            ConnType::Any | ConnType::None => self.any += 1,
        }
    }
}

impl From<&Shared> for ConnStats {
    fn from(shared: &Shared) -> ConnStats {
        let mut conn_stats = ConnStats::default();
        let (peers, connections) = shared.for_each_peer(|state| {
            state.conns.iter().for_each(|conn| conn_stats.by_type.count(conn.conn_type));
        });
        ConnStats { peers, connections, ..conn_stats }
    }
}

/// An established connection, with the system's information about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnInfo {
    /// The NID of the peer.
    pub nid: Nid,
    /// The type of the connection, as this node sees it (lnet-wire 23).
    pub conn_type: ConnType,
    /// The system's information about the TCP connection.
    pub tcp: TcpFacts,
}

/// Connection details that only the TCP LND has.
pub trait Connections {
    /// Returns the connections to the peers with these NIDs. Takes each peer's lock briefly, and
    /// makes a system call for each connection returned.
    #[must_use]
    fn connections(&self, of: impl Fn(Nid) -> bool) -> Vec<ConnInfo>;
}

impl Connections for SockLnd {
    fn connections(&self, of: impl Fn(Nid) -> bool) -> Vec<ConnInfo> {
        let peers = self.shared().peers.all(|peer| of(peer.key.id.nid));
        let facts = peers.into_iter().flat_map(|peer| {
            let conns = peer.state.lock().conns.clone();
            let nid = peer.key.id.nid;
            conns.into_iter().filter_map(move |conn| {
                Some(ConnInfo { nid, conn_type: conn.conn_type, tcp: conn.stream.facts()? })
            })
        });
        facts.collect()
    }
}
