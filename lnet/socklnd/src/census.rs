use crate::SockLnd;

/// How many there are at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// Peers with a connection.
    pub peers: usize,
    /// Connections in use; those whose handshake is under way do not count.
    pub connections: usize,
}

impl SockLnd {
    /// Counts peers and connections. Takes time linear in the peers, and the lock of each for a moment.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |_| true);
        let counts = peers.iter().map(|peer| peer.state.lock().conns.len()).filter(|&count| count > 0);
        counts.fold(Census::default(), |all, count| Census {
            peers: all.peers + 1,
            connections: all.connections + count,
        })
    }

    /// How many connections are being opened to peers that have some already: their sets are not complete yet. Waits for the
    /// polls that are under way.
    #[must_use]
    pub fn completing(&self) -> usize {
        self.shared.shards.iter().map(|slot| slot.driver.lock().completing()).sum()
    }
}
