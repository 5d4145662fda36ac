use lnet_proto::sock::ConnType;

use crate::lnd::Shared;

/// How many there are at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Peers with a connection.
    pub peers: usize,
    /// Connections in use; those whose handshake is under way do not count.
    pub connections: usize,
    /// The same by their type, in the view of this node.
    pub by_type: ConnectionsByType,
}

/// Connections by what they are for (lnet-wire 23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionsByType {
    /// Those of peers without typed connections, and of this node with itself.
    pub any: usize,
    /// For small messages.
    pub control: usize,
    /// On which the peer sends bulk.
    pub bulk_in: usize,
    /// On which this node sends bulk.
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

impl Census {
    pub(crate) fn of(shared: &Shared) -> Census {
        let mut census = Census::default();
        for peer in shared.peers.all(|_| true) {
            let state = peer.state.lock();
            census.peers += usize::from(!state.conns.is_empty());
            census.connections += state.conns.len();
            state.conns.iter().for_each(|conn| census.by_type.count(conn.conn_type));
        }
        census
    }
}
