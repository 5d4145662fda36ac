use crate::counts::counts;

counts! {
    /// Counts of the events on a simulated TCP network, and of its nodes.
    TcpSeen {
        /// Attempts to connect.
        connects: "attempts to connect",
        /// First segments that found no host.
        syns_lost: "connection segments lost",
        /// Attempts refused because there was no listener.
        refused: "connections refused",
        /// Attempts that found a full queue.
        backlog_full: "queues of listeners full",
        /// Connections put into a listener's queue.
        queued_to_accept: "connections queued to be accepted",
        /// Connections that were gone when they were accepted.
        gone: "connections gone before they were accepted",
        /// Calls that found no descriptor left.
        exhausted: "calls without a descriptor left",
        /// Attempts for which no privileged port was free.
        ports_exhausted: "privileged ports exhausted",
        /// Segments sent.
        segments: "segments",
        /// Segments of one byte.
        single_bytes: "segments of one byte",
        /// Sends that were accepted only partially.
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
        /// Successful LNet handshakes.
        handshakes: "handshakes",
        /// Handshakes that were refused with NONE.
        refusals: "handshakes refused",
        /// Pairs of nodes that opened connections to each other at once.
        races: "races",
        /// Keepalives that nodes sent.
        keepalives: "keepalives",
        /// Connections of peers that misbehave.
        misbehaving: "misbehaving",
    }
}
