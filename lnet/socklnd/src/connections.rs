use lnet_nid::Nid;
use lnet_proto::sock::ConnType;

use crate::SockLnd;
use crate::sys::TcpFacts;

/// A connection in use, and what the system knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The peer.
    pub nid: Nid,
    /// What it is for, in the view of this node (lnet-wire 23).
    pub conn_type: ConnType,
    /// Its TCP.
    pub tcp: TcpFacts,
}

/// What the TCP LND alone tells of its connections.
pub trait Connections {
    /// The connections to the peers of these NIDs. Takes the lock of each peer for a moment, and a system call for each
    /// connection that is given.
    #[must_use]
    fn connections(&self, of: impl Fn(Nid) -> bool) -> Vec<Connection>;

    /// How many connections are being opened to peers that have some already: their sets are not complete yet. Waits for the
    /// polls that are under way.
    #[must_use]
    fn completing(&self) -> usize;
}

impl Connections for SockLnd {
    fn connections(&self, of: impl Fn(Nid) -> bool) -> Vec<Connection> {
        let peers = self.shared().peers.all(|peer| of(peer.key.id.nid));
        let facts = peers.into_iter().flat_map(|peer| {
            let conns = peer.state.lock().conns.clone();
            let nid = peer.key.id.nid;
            conns.into_iter().filter_map(move |conn| {
                Some(Connection { nid, conn_type: conn.conn_type, tcp: conn.stream.facts()? })
            })
        });
        facts.collect()
    }

    fn completing(&self) -> usize {
        self.shared().shards.iter().map(|slot| slot.driver.lock().completing()).sum()
    }
}
