//! The tunables of the TCP LND, module `ksocklnd`.

use super::{ALONE, Effect, SOCKLND, Tunable};
use crate::NodeConfig;

/// The upper limit of times to wait, in seconds: a day.
const DAY_S: u32 = 86_400;
/// The largest size of a socket buffer, which the system stores in an `int`.
const BUFFER_MAX: i32 = i32::MAX;

/// The tunables of the TCP LND (lnet-semantics 28).
pub(super) const ROWS: &[Tunable] = &[
    number!(SOCKLND, tcp, "sock_timeout", timeout_s: u32, "s", 1..=DAY_S, "how long a connection may go without progress before it is closed (a quarter while messages wait for credits of the NI), and an attempt to connect may take"),
    number!(SOCKLND, tcp, "credits", credits: u32, "messages", 1..=65_535, "how many may be in flight on an NI, all peers together"),
    number!(SOCKLND, tcp, "peer_credits", peer_credits: u32, "messages", 1..=65_535, "how many may be in flight to one peer; at most `credits`, to which the default gives way"),
    Tunable {
        agree: "both sides: a node refuses bulk connections beyond its own number",
        ..number!(SOCKLND, tcp, "conns_per_peer", conns_per_peer: u8, "connections", 0..=255, "how many connections of each bulk type a peer has; 0 goes by the link: 1 below 4 Gbit/s, 4 at 100 Gbit/s")
    },
    number!(SOCKLND, tcp, "min_reconnectms", min_reconnect_ms: u32, "ms", 1..=(DAY_S * 1000), "the first wait after a failed attempt to connect; it doubles"),
    number!(SOCKLND, tcp, "max_reconnectms", max_reconnect_ms: u32, "ms", 1..=(DAY_S * 1000), "the longest wait; at least `min_reconnectms`"),
    number!(SOCKLND, tcp, "min_bulk", min_bulk: u32, "bytes", 0..=u32::MAX, "messages of at least this size go on a bulk connection"),
    number!(SOCKLND, tcp, "tx_buffer_size", tx_buffer_size: u32, "bytes", 0..=BUFFER_MAX, "a socket's send buffer; 0 leaves it to the system"),
    number!(SOCKLND, tcp, "rx_buffer_size", rx_buffer_size: u32, "bytes", 0..=BUFFER_MAX, "a socket's receive buffer; 0 leaves it to the system"),
    number!(SOCKLND, tcp, "nconnds_max", nconnds_max: u16, "connections", 1..=65_535, "how many may be on their way at a time; peers beyond that wait their turn"),
    switch!(SOCKLND, tcp, round_robin: "whether connections that suit a message alike take turns, or the first takes it"),
    number!(SOCKLND, tcp, "eager_ack", eager_ack: u32, "bits", 0..=15, "the connections on which TCP acknowledges at once: 2 CONTROL, 4 BULK_IN, 8 BULK_OUT"),
    tos!(SOCKLND, tcp),
    number!(SOCKLND, tcp, "nscheds", nscheds: usize, "threads", 0..=64, "how many scheduler threads a CPU partition may have: one, and one more for each further network device; 0 goes by its cores: half of them, and at least 3 if there are so many; a node has at most 64"),
    switch!(SOCKLND, tcp, nagle: "whether small segments wait for each other"),
    number!(SOCKLND, tcp, "keepalive", keepalive_s: u32, "s", 0..=DAY_S, "how long a peer may be silent before it is sent LNet's own keepalive; 0 for none"),
    number!(SOCKLND, tcp, "keepalive_idle", keepalive_idle_s: u32, "s", 0..=32_767, "how long TCP waits in silence before its first probe; 0 for none"),
    number!(SOCKLND, tcp, "keepalive_count", keepalive_count: u32, "probes", 1..=127, "how many of TCP's probes go unanswered before the connection breaks"),
    number!(SOCKLND, tcp, "keepalive_intvl", keepalive_intvl_s: u32, "s", 1..=32_767, "the time between TCP's probes"),
    idle!(SOCKLND: "peer_buffer_credits", "0", "0", "nlx does not route"),
    idle!(SOCKLND: "peer_timeout", "180", "0", "only routers watch whether peers are alive, and nlx does not route"),
    idle!(SOCKLND: "nconnds", "4", "", "nlx has no threads that connect: who drives the network does"),
    idle!(SOCKLND: "typed_conns", "1", "1", "peers demand typed connections (hello V3)"),
    idle!(SOCKLND: "enable_csum", "0", "0", "nlx sends no checksums; it verifies those of peers that speak hello V2"),
    idle!(SOCKLND: "inject_csum_error", "0", "0", "for tests of the kernel's LND"),
    idle!(SOCKLND: "enable_irq_affinity", "0", "0", "obsolete in LNet"),
    idle!(SOCKLND: "nonblk_zcack", "1", "1", "zero-copy acknowledgements leave on BULK_IN connections, where there are any"),
    idle!(SOCKLND: "zc_min_payload", "16384", "", "nlx sends without asking for zero-copy acknowledgements; it answers those asked of it"),
    idle!(SOCKLND: "zc_recv", "0", "0", "obsolete in LNet"),
    idle!(SOCKLND: "zc_recv_min_nfrags", "16", "16", "obsolete in LNet"),
    idle!(SOCKLND: "skip_mr_route_setup", "0", "1", "nlx changes no routes of the host"),
    idle!(SOCKLND: "backoff_init", "3", "3", "for kernels with a patch of their own"),
    idle!(SOCKLND: "backoff_max", "3", "3", "for kernels with a patch of their own"),
    idle!(SOCKLND: "protocol", "3", "3", "nlx speaks hello V3 over IPv4 and V4 over IPv6"),
];
