//! Whether an LND's counters say what the wire says.

use super::TcpWorld;

impl TcpWorld {
    /// Compares the counters of a life that is over with the bytes that went over the wire in it. What was sent is known
    /// exactly. What was received may have been read and thrown away with its connection: nothing is, if the node has lost
    /// no peer and no NI and was not `killed`.
    pub(super) fn check_counters(&mut self, node: usize, killed: bool) -> Result<(), String> {
        let wire = self.net.take_traffic(self.nodes[node].host);
        let counters = self.nodes[node].lnd.counters();
        let (tx, rx) = (counters.tx, counters.rx);
        let whole = !killed && !self.nodes[node].interrupted && rx.peers_lost == 0;
        let payload = rx.bytes_copied + rx.bytes_direct + rx.bytes_discarded;
        let turned_away = rx.refusals + rx.handshake_timeouts;
        // Who is still waited for when an NI goes is not counted.
        let engine = self.nodes[node].engine.counters();
        let taken_or_dropped = engine.recv_count + engine.drop_count;
        let settled = !killed && !self.nodes[node].interrupted;
        let table = [
            ("tx.bytes", tx.bytes, wire.sent.bytes, true),
            ("tx.messages", tx.messages, wire.sent.messages, true),
            // They count when they are made: their connection may break before they leave.
            ("NOOPs on the wire", wire.sent.noops, tx.zc_acks + tx.keepalives, whole),
            ("rx.accepts", rx.accepts, wire.welcomes, true),
            ("rx.messages", rx.messages, wire.received.begun, whole),
            // However long they were held: nothing is at the end.
            ("messages received or dropped", taken_or_dropped, rx.messages, whole),
            ("messages that ended", rx.messages, taken_or_dropped + engine.errors, false),
            ("rx.noops", rx.noops, wire.received.noops, whole),
            ("rx.bytes_...", payload, wire.received.payload, whole),
            ("rx.connects", rx.connects, wire.welcomed, whole),
            ("all who were accepted or turned away", rx.accepts + turned_away, wire.taken, settled),
            ("NONEs on the wire", wire.refusals, rx.refusals, false),
        ];
        for (what, counted, seen, exact) in table {
            if counted > seen || (exact && counted != seen) {
                let bound = if exact { "" } else { " at the most" };
                return Err(format!("node {node}: {what} is {counted}, but is to be{bound} {seen}"));
            }
        }
        Ok(())
    }
}
