//! The current connection statistics of the LND.

use crate::o2ib::Shared;

/// The current numbers of connections, operations and credits of the LND.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnStats {
    /// Peers with a connection.
    pub peers: usize,
    /// Connections in use, without those that are being opened.
    pub connections: usize,
    /// Operations under way or queued on the connections, of both sides.
    pub operations: usize,
    /// Sum of all connections' queue depths. While nothing is under way, `reserved` is equal to it,
    /// and so is the sum of this node's `credits` and the credits that its peers owe.
    pub depth: usize,
    /// Messages that may be sent on the connections.
    pub credits: usize,
    /// Transfers that may be begun on the connections.
    pub reserved: usize,
    /// Credits owed to peers.
    pub owed: usize,
    /// Messages that wait for a connection.
    pub waiting: usize,
    /// Receives that the engine can still name: GETs to be answered, and held messages.
    pub receives: usize,
    /// Bounce buffers in use.
    pub bounces: usize,
}

impl From<&Shared> for ConnStats {
    /// Counts all connections. Takes time linear in the number of peers and in the capacity of
    /// their connections.
    fn from(shared: &Shared) -> ConnStats {
        let mut conn_stats = ConnStats::default();
        (conn_stats.peers, conn_stats.connections) = shared.for_each_peer(|state| {
            conn_stats.waiting += state.waiting.len();
            for conn in &state.conns {
                let Some(counts) = conn.state.lock().live.as_ref().map(|live| live.machine.counts()) else {
                    continue;
                };
                conn_stats.operations += counts.operations;
                conn_stats.depth += usize::from(conn.params.queue_depth);
                conn_stats.credits += usize::from(counts.credits);
                conn_stats.reserved += usize::from(counts.reserved);
                conn_stats.owed += usize::from(counts.outstanding);
            }
        });
        conn_stats.receives =
            shared.shards.iter().map(|slot| slot.shard.own.gets.lock().len() + slot.shard.held()).sum();
        conn_stats.bounces =
            shared.nis.matching(None).iter().map(|ni| ni.own.pool.in_use() + ni.own.sinks.in_use()).sum();
        conn_stats
    }
}
