use lnet_node::SockCounters;

/// A count: in words, for programs, and how many.
pub(super) type Count = (&'static str, &'static str, u64);

/// The counters of the TCP LND that tell how it went.
pub(super) fn counts(tcp: &SockCounters) -> [Count; 12] {
    let (tx, rx) = (&tcp.tx, &tcp.rx);
    [
        ("connections accepted", "accepts", rx.accepts),
        ("connections opened", "connects", rx.connects),
        ("attempts to connect that failed", "connect_failures", rx.connect_failures),
        ("connections refused", "refusals", rx.refusals),
        ("of these for want of descriptors", "no_room", rx.no_room),
        ("handshakes not finished in time", "handshake_timeouts", rx.handshake_timeouts),
        ("protocol errors", "protocol_errors", rx.protocol_errors),
        ("timeouts", "timeouts", rx.timeouts),
        ("peers whose connections ended", "peers_lost", rx.peers_lost),
        ("keepalives sent", "keepalives", tx.keepalives),
        ("zero-copy requests acknowledged", "zc_acks", tx.zc_acks),
        ("bytes sent on the wire", "wire_bytes_sent", tx.bytes),
    ]
}
