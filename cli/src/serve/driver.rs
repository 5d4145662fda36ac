//! The counters of a node's network drivers.

use lnet_node::{Node, O2ibCounters, SockCounters};

/// A count: in words, as a JSON key, and the number.
pub(super) type NamedCount = (&'static str, &'static str, u64);

/// Returns the counters of the TCP LND that matter to an operator.
pub(super) fn counts(tcp: &SockCounters) -> [NamedCount; 12] {
    let (tx, rx) = (&tcp.tx, &tcp.rx);
    [
        ("connections accepted", "accepts", rx.accepts),
        ("connections opened", "connects", rx.connects),
        ("attempts to connect that failed", "connect_failures", rx.connect_failures),
        ("connections refused", "refusals", rx.refusals),
        ("of these for lack of descriptors", "no_room", rx.no_room),
        ("handshakes not finished in time", "handshake_timeouts", rx.handshake_timeouts),
        ("protocol errors", "protocol_errors", rx.protocol_errors),
        ("timeouts", "timeouts", rx.timeouts),
        ("peers whose connections ended", "peers_lost", rx.peers_lost),
        ("keepalives sent", "keepalives", tx.keepalives),
        ("zero-copy requests acknowledged", "zc_acks", tx.zc_acks),
        ("bytes sent on the wire", "wire_bytes_sent", tx.bytes),
    ]
}

/// Returns the counters of the verbs LND that matter to an operator.
pub(super) fn verbs_counts(verbs: &O2ibCounters) -> [NamedCount; 14] {
    let (tx, rx) = (&verbs.tx, &verbs.rx);
    [
        ("connections accepted", "accepts", rx.accepts),
        ("connections opened", "connects", rx.connects),
        ("attempts to connect that failed", "connect_failures", rx.connect_failures),
        ("connections refused", "refusals", rx.refusals),
        ("protocol errors", "protocol_errors", rx.protocol_errors),
        ("wrong checksums", "checksum_errors", rx.checksum_errors),
        ("replies to GETs refused as too short", "short_replies", rx.short_replies),
        ("timeouts", "timeouts", rx.timeouts),
        ("peers whose connections ended", "peers_lost", rx.peers_lost),
        ("bytes written without a copy", "bytes_written", tx.bytes_direct),
        ("bytes received without a copy", "bytes_received_by_write", rx.bytes_direct),
        ("bytes copied with messages", "bytes_copied", tx.bytes_copied + rx.bytes_copied),
        ("bytes through bounce buffers", "bytes_bounced", tx.bytes_bounced + rx.bytes_bounced),
        ("empty messages sent", "noops", tx.noops),
    ]
}

/// Returns the verbs LND's counters of a node with networks over RDMA.
pub(super) fn verbs_of(node: &Node) -> Option<O2ibCounters> {
    node.o2ib().map(|lnd| lnd.counters())
}
