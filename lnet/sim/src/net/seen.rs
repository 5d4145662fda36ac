use crate::counts::counts;

counts! {
    /// Counts of the events in a world.
    Seen {
        /// Messages handed to the network.
        messages: "messages",
        /// Connections opened.
        connections: "connections",
        /// Connections that broke.
        disconnects: "disconnects",
        /// The number of times that an end lost its last connection to a peer.
        peers_lost: "peers lost",
        /// Messages that failed to be sent at once.
        sends_failed: "sends failed",
        /// Messages finalised with an error later.
        messages_cut_off: "messages cut off",
        /// Payloads lost after their header.
        payloads_lost: "payloads lost",
        /// Payloads that came later than their header.
        payloads_late: "payloads late",
        /// Messages lost without an error.
        vanished: "vanished",
        /// Messages that arrived twice.
        doubled: "doubled",
        /// Messages that arrived before an earlier one of the same connection.
        overtook: "overtook",
        /// Messages that found no route, or no node.
        unreachable: "unreachable",
        /// Times that two nodes were disconnected.
        cuts: "cuts",
        /// Messages parsed after their sender was restarted.
        late_lives: "late lives",
        /// Messages that waited behind another one on their connection.
        blocked: "blocked",
        /// GETs answered by the network.
        direct_gets: "direct GETs",
        /// Direct GETs that failed.
        direct_failures: "direct GETs failed",
        /// PUTs received into a buffer.
        puts_matched: "PUTs matched",
        /// GETs answered.
        gets_matched: "GETs matched",
        /// PUTs and GETs that matched no buffer.
        unmatched: "unmatched",
        /// Messages too long for the buffer that matched.
        too_long: "too long",
        /// Messages truncated to fit.
        truncated: "truncated",
        /// Messages whose buffer was in use.
        in_use: "buffer in use",
        /// PUTs that waited on a lazy portal.
        delayed: "delayed",
        /// Delayed PUTs that found a buffer.
        resumed: "resumed",
        /// Delayed PUTs that were dropped.
        given_up: "given up",
        /// Delayed PUTs that were forgotten with their connection.
        forgotten: "delayed messages forgotten",
        /// ACKs received.
        acks: "ACKs",
        /// REPLYs received.
        replies: "REPLYs",
        /// ACKs and REPLYs that were not expected.
        stale_answers: "stale answers",
        /// ACKs and REPLYs that exceeded their timeout.
        timeouts: "answers late",
        /// ACKs and REPLYs that were lost with their peer.
        answers_lost: "answers lost",
        /// Messages that waited for a credit.
        waited: "waited for credits",
        /// Messages that ended while they waited.
        cancelled: "ended in the queue",
        /// Idle MDs that were unlinked.
        unlinked_idle: "unlinked idle",
        /// Busy MDs that were unlinked.
        unlinked_busy: "unlinked busy",
        /// MDs that were unlinked automatically.
        exhausted: "exhausted",
        /// Messages of a node to itself.
        looped_back: "looped back",
        /// Searches in another partition, after one without a match.
        looked_on: "looked in another partition",
        /// Messages that entries of two partitions would have taken, in the order of the portal's
        /// list.
        chosen_among_partitions: "chosen among partitions",
        /// Times that the search of a partition without buffers was stopped.
        rested: "partitions at rest",
        /// NIs whose peers belong to some partitions only.
        nis_bound: "NIs bound to partitions",
        /// Events taken from a queue that is polled.
        polled: "events polled",
        /// Events that were overwritten before they were polled.
        missed: "events missed",
        /// Entries inserted directly before or after another one.
        inserted: "entries inserted",
        /// Calls that were refused.
        refused: "refused",
        /// Nodes that died and came back.
        restarts: "restarts",
        /// NIs added while traffic ran.
        nis_added: "NIs added",
        /// NIs removed while traffic ran.
        nis_removed: "NIs removed",
    }
}
