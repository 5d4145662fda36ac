//! The tunables of the TCP LND, module `ksocklnd`.

use super::{ALONE, Effect, SOCKLND, Tunable};
use crate::NodeConfig;

/// The upper limit of times to wait, in seconds: a day.
const DAY_S: u32 = 86_400;
/// The largest size of a socket buffer, which the system stores in an `int`.
const BUFFER_MAX: i32 = i32::MAX;

/// The tunables of the TCP LND (lnet-semantics 28).
pub(super) const ROWS: &[Tunable] = &[
    number!(SOCKLND, tcp, "sock_timeout", timeout_s: u32, "s", 1..=DAY_S, "time without progress after which a connection is closed (a quarter of it while messages wait for credits of the NI), and time limit of an attempt to connect"),
    number!(SOCKLND, tcp, "credits", credits: u32, "messages", 1..=65_535, "maximum number in flight on an NI, to all peers together"),
    number!(SOCKLND, tcp, "peer_credits", peer_credits: u32, "messages", 1..=65_535, "maximum number in flight to one peer; at most `credits`, to which the default is reduced"),
    Tunable {
        agree: "both sides: a node refuses bulk connections beyond its own number",
        ..number!(SOCKLND, tcp, "conns_per_peer", conns_per_peer: u8, "connections", 0..=255, "number of connections of each bulk type to a peer; 0 chooses by the link's speed: 1 below 4 Gbit/s, 4 at 100 Gbit/s")
    },
    number!(SOCKLND, tcp, "min_reconnectms", min_reconnect_ms: u32, "ms", 1..=(DAY_S * 1000), "the pause after the first failed attempt to connect; doubled after each further one"),
    number!(SOCKLND, tcp, "max_reconnectms", max_reconnect_ms: u32, "ms", 1..=(DAY_S * 1000), "the longest pause between attempts to connect; at least `min_reconnectms`"),
    number!(SOCKLND, tcp, "min_bulk", min_bulk: u32, "bytes", 0..=u32::MAX, "messages of at least this size go on a bulk connection"),
    number!(SOCKLND, tcp, "tx_buffer_size", tx_buffer_size: u32, "bytes", 0..=BUFFER_MAX, "size of a socket's send buffer; 0 leaves it to the system"),
    number!(SOCKLND, tcp, "rx_buffer_size", rx_buffer_size: u32, "bytes", 0..=BUFFER_MAX, "size of a socket's receive buffer; 0 leaves it to the system"),
    number!(SOCKLND, tcp, "nconnds_max", nconnds_max: u16, "connections", 1..=65_535, "maximum number of connections being opened at a time; further peers wait"),
    switch!(SOCKLND, tcp, round_robin: "1: equally suitable connections carry messages in turn; 0: the first of them carries all"),
    number!(SOCKLND, tcp, "eager_ack", eager_ack: u32, "bits", 0..=15, "the connections on which TCP acknowledges at once: 2 CONTROL, 4 BULK_IN, 8 BULK_OUT"),
    tos!(SOCKLND, tcp),
    number!(SOCKLND, tcp, "nscheds", nscheds: usize, "threads", 0..=64, "maximum number of scheduler threads of a CPU partition, which has one, and one more for each further network device; 0 is half of its cores, and at least 3 if it has 3; a node has at most 64"),
    switch!(SOCKLND, tcp, nagle: "1: TCP delays small segments to merge them (Nagle's algorithm)"),
    number!(SOCKLND, tcp, "keepalive", keepalive_s: u32, "s", 0..=DAY_S, "time of a peer's silence after which it is sent LNet's own keepalive; 0 sends none"),
    number!(SOCKLND, tcp, "keepalive_idle", keepalive_idle_s: u32, "s", 0..=32_767, "time of silence after which TCP sends its first probe; 0 sends none"),
    number!(SOCKLND, tcp, "keepalive_count", keepalive_count: u32, "probes", 1..=127, "number of unanswered TCP probes after which the connection is closed"),
    number!(SOCKLND, tcp, "keepalive_intvl", keepalive_intvl_s: u32, "s", 1..=32_767, "the time between TCP's probes"),
    idle!(SOCKLND: "peer_buffer_credits", "0", "0", "nlx does not route"),
    idle!(SOCKLND: "peer_timeout", "180", "0", "only routers watch whether peers are alive, and nlx does not route"),
    idle!(SOCKLND: "nconnds", "4", "", "nlx has no threads for connecting: the thread that drives the network connects"),
    idle!(SOCKLND: "typed_conns", "1", "1", "peers demand typed connections (hello V3)"),
    idle!(SOCKLND: "enable_csum", "0", "0", "nlx sends no checksums; it verifies those of peers that speak hello V2"),
    idle!(SOCKLND: "inject_csum_error", "0", "0", "for tests of the kernel's LND"),
    idle!(SOCKLND: "enable_irq_affinity", "0", "0", "obsolete in LNet"),
    idle!(SOCKLND: "nonblk_zcack", "1", "1", "zero-copy acknowledgements leave on BULK_IN connections, where there are any"),
    idle!(SOCKLND: "zc_min_payload", "16384", "", "nlx requests no zero-copy acknowledgements; it sends those that peers request"),
    idle!(SOCKLND: "zc_recv", "0", "0", "obsolete in LNet"),
    idle!(SOCKLND: "zc_recv_min_nfrags", "16", "16", "obsolete in LNet"),
    idle!(SOCKLND: "skip_mr_route_setup", "0", "1", "nlx changes no routes of the host"),
    idle!(SOCKLND: "backoff_init", "3", "3", "for kernels with a special patch"),
    idle!(SOCKLND: "backoff_max", "3", "3", "for kernels with a special patch"),
    idle!(SOCKLND: "protocol", "3", "3", "nlx speaks hello V3 over IPv4 and V4 over IPv6"),
];
