use crate::counts::counts;

counts! {
    /// How often each kind of thing has happened in worlds of TCP nodes.
    TcpSeen {
        /// Attempts to connect.
        connects: "attempts to connect",
        /// First segments that met nobody.
        syns_lost: "connection segments lost",
        /// Attempts refused, for nobody listened.
        refused: "connections refused",
        /// Attempts that met a full queue.
        backlog_full: "queues of listeners full",
        /// Connections that came to stand in a listener's queue.
        queued_to_accept: "connections queued to be accepted",
        /// Connections that were gone when they were accepted.
        gone: "connections gone before they were accepted",
        /// Calls that found no descriptor left.
        exhausted: "calls without a descriptor left",
        /// Attempts for which no privileged port was free.
        ports_exhausted: "privileged ports exhausted",
        /// Segments.
        segments: "segments",
        /// Segments of one byte.
        single_bytes: "segments of one byte",
        /// Sends that were not taken whole.
        sends_partial: "partial sends",
        /// Connections reset by the network.
        resets: "resets",
        /// Ends of a stream that arrived.
        ends: "ends of streams",
        /// Connections broken because nothing was acknowledged.
        user_timeouts: "connections broken by TCP's timeout",
        /// TCP's own keepalive probes.
        probes: "probes",
        /// Events reported though nothing had changed.
        spurious: "spurious events",
        /// Handshakes of LNet that ended well.
        handshakes: "handshakes",
        /// Handshakes that were refused with NONE.
        refusals: "handshakes refused",
        /// Pairs of nodes that opened connections to each other at once.
        races: "races",
        /// Programs' operations.
        operations: "operations",
        /// Operations that ended well.
        succeeded: "operations that succeeded",
        /// Operations that ended with an error.
        failed: "operations that failed",
        /// Operations that were unlinked.
        unlinked: "operations unlinked in flight",
        /// Payloads delivered and found as they were sent.
        delivered: "payloads delivered",
        /// Cuts of one direction or both between two hosts.
        cuts: "cuts",
        /// Programs that died, their sockets closed by the system.
        killed: "programs killed",
        /// Hosts that lost power.
        crashes: "hosts crashed",
        /// NIs removed.
        nis_removed: "NIs removed",
        /// NIs added.
        nis_added: "NIs added",
        /// Changes of the number of connections per peer.
        per_peer_changes: "changes of conns_per_peer",
        /// Drivers that were slow to poll.
        sleepy: "drivers that slept",
        /// Operations begun inside an upcall.
        nested: "operations begun inside an upcall",
        /// Bursts of operations that were begun under a cork.
        corked: "bursts of operations under a cork",
        /// PUTs to a lazy portal whose buffers were not there yet.
        expected_later: "PUTs whose buffers come later",
        /// Messages that were held when their buffer came.
        held_and_met: "held messages met by a buffer",
        /// Messages that were held when their portal ceased to be lazy.
        held_and_dropped: "held messages dropped",
        /// Messages that were held when their connection was lost.
        held_and_cut: "held messages cut with their connection",
        /// Polls.
        polls: "polls",
        /// Keepalives that nodes sent.
        keepalives: "keepalives",
        /// Strangers who connected and did not behave.
        strangers: "strangers",
    }
}
