use crate::counts::{Counts, counts};

counts! {
    /// Counts of the events of whole nodes and their programs.
    NodeSeen {
        /// Programs' operations.
        operations: "operations",
        /// Operations that ended well.
        succeeded: "operations that succeeded",
        /// Operations that ended with an error.
        failed: "operations that failed",
        /// Operations that were unlinked.
        unlinked: "operations unlinked in flight",
        /// Payloads delivered with the expected bytes.
        delivered: "payloads delivered",
        /// Cuts of one direction or both between two hosts.
        cuts: "cuts",
        /// Programs that died, their connections ended by the system.
        killed: "programs killed",
        /// Hosts that lost power.
        crashes: "hosts crashed",
        /// NIs removed.
        nis_removed: "NIs removed",
        /// NIs added.
        nis_added: "NIs added",
        /// Changes of the number of connections per peer.
        per_peer_changes: "changes of conns_per_peer",
        /// Drivers that slept longer than usual before a poll.
        sleepy: "drivers that slept",
        /// Operations begun inside an upcall.
        nested: "operations begun inside an upcall",
        /// Bursts of operations that were begun under a cork.
        corked: "bursts of operations under a cork",
        /// PUTs to a lazy portal whose buffers were not posted yet.
        expected_later: "PUTs whose buffers come later",
        /// Messages that were held when their buffer came.
        held_and_met: "held messages met by a buffer",
        /// Messages that were held when their portal ceased to be lazy.
        held_and_dropped: "held messages dropped",
        /// Messages that were held when their connection was lost.
        held_and_cut: "held messages cut with their connection",
        /// Messages that would have met a buffer, and were dropped as there was no memory to hold
        /// them.
        held_beyond: "messages dropped because the limit of held ones was reached",
        /// Messages that were held for several timeouts, with others behind them.
        held_for_long: "messages held for several timeouts",
        /// Polls of shards.
        polls: "polls",
    }
}

/// Counts of the events in worlds of whole nodes: of the network, and of the nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorldSeen<N> {
    /// The counts of the network.
    pub network: N,
    /// The counts of the nodes and their programs.
    pub nodes: NodeSeen,
}

impl<N: Counts> Counts for WorldSeen<N> {
    fn list(&self) -> Vec<(&'static str, u64)> {
        [self.network.list(), self.nodes.list()].concat()
    }

    fn add(&mut self, other: &WorldSeen<N>) {
        self.network.add(&other.network);
        self.nodes.add(&other.nodes);
    }
}
