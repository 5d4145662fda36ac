use crate::O2ibLnd;

/// How many there are at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Peers with a connection.
    pub peers: usize,
    /// Connections in use; those that are being opened do not count.
    pub connections: usize,
    /// Operations under way or queued on them, of both sides.
    pub operations: usize,
    /// The queue depths of all connections, summed; what follows adds up to them when nothing goes on.
    pub depth: usize,
    /// Messages that may be sent on them.
    pub credits: usize,
    /// Transfers that may be begun on them.
    pub reserved: usize,
    /// Credits owed to peers.
    pub owed: usize,
    /// Messages that wait for a connection.
    pub waiting: usize,
    /// Receives that the engine can still name: GETs to be answered, messages that it holds back.
    pub receives: usize,
    /// Bounce buffers in use.
    pub bounces: usize,
}

impl O2ibLnd {
    /// Counts peers, connections and what goes on. Takes time linear in the peers and in what their connections may hold.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |_| true);
        let mut census = Census::default();
        for peer in peers {
            let state = peer.state.lock();
            census.peers += usize::from(!state.conns.is_empty());
            census.connections += state.conns.len();
            census.waiting += state.waiting.len();
            for conn in &state.conns {
                let Some(counts) = conn.state.lock().live.as_ref().map(|live| live.machine.counts()) else {
                    continue;
                };
                census.operations += counts.operations;
                census.depth += usize::from(conn.params.queue_depth);
                census.credits += usize::from(counts.credits);
                census.reserved += usize::from(counts.reserved);
                census.owed += usize::from(counts.outstanding);
            }
        }
        census.receives = self.shared.shards.iter().map(|slot| slot.shard.receives.lock().len()).sum();
        census.bounces =
            self.shared.nis.matching(None).iter().map(|ni| ni.pool.in_use() + ni.sinks.in_use()).sum();
        census
    }
}
