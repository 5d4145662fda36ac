//! The tunables of the verbs LND, module `ko2iblnd`.

use super::{ALONE, Effect, O2IBLND, Tunable};
use crate::NodeConfig;

/// The upper limit of times to wait, in seconds: a day.
const DAY_S: u32 = 86_400;
/// The largest number of retries: the device has three bits for it.
const RETRIES_MAX: u8 = 7;
/// The largest number of credits: an NI has 16 bits for it.
const CREDITS_MAX: u16 = u16::MAX;
/// The largest number of connections to a peer, as in the kernel's LND (lnet-semantics 29).
const CONNS_MAX: u8 = 127;
/// The largest number of pieces of memory: above the limit of any device.
const PIECES_MAX: u8 = u8::MAX;

/// Both sides of a connection are sized for the depth of its queues: the smaller depth applies.
const NEGOTIATED: &str = "the smaller of both sides counts";
const ONCE_REGISTERED: &str = "nlx registers memory once, not for each transfer";

/// The tunables of the verbs LND (lnet-semantics 29).
pub(super) const ROWS: &[Tunable] = &[
    Tunable {
        agree: "all nodes of a net",
        ..number!(O2IBLND, o2ib, "service", service: u16, "port", 1..=u16::MAX, "the connection manager's port to listen on, and on which peers are expected to listen")
    },
    switch!(O2IBLND, o2ib, cksum: "whether own messages carry a checksum, and those of peers are looked at"),
    number!(O2IBLND, o2ib, "timeout", timeout_s: u32, "s", 0..=DAY_S, "how long a message may wait, be on its way, or wait for its completion, before its connection is closed (a quarter without progress while messages wait for credits of the NI); 0 is 50"),
    number!(O2IBLND, o2ib, "nscheds", nscheds: usize, "threads", 0..=64, "how many scheduler threads a CPU partition may have: one, and one more for each further network device; 0 goes by its cores: half of them, and at least 3 if there are so many; a node has at most 64"),
    number!(O2IBLND, o2ib, "conns_per_peer", conns_per_peer: u8, "connections", 1..=CONNS_MAX, "how many connections this node opens to a peer"),
    number!(O2IBLND, o2ib, "credits", credits: u32, "messages", 1..=CREDITS_MAX, "how many may be in flight on an NI, all peers together"),
    Tunable {
        agree: NEGOTIATED,
        ..number!(O2IBLND, o2ib, "peer_credits", peer_credits: u32, "messages", 1..=CREDITS_MAX, "how many may be in flight to one peer, and how deep a connection's queues are; comes to 8 to 255, and to `credits` at the most")
    },
    number!(O2IBLND, o2ib, "peer_credits_hiw", peer_credits_hiw: u32, "messages", 0..=CREDITS_MAX, "how many credits may be owed to a peer before they are returned by a message of their own; whatever it says, it comes to half of `peer_credits`"),
    number!(O2IBLND, o2ib, "concurrent_sends", concurrent_sends: u32, "messages", 0..=CREDITS_MAX, "how many sends may be posted on a connection; comes to between half and twice `peer_credits`; 0 is `peer_credits`"),
    number!(O2IBLND, o2ib, "retry_count", retry_count: u8, "", 0..=RETRIES_MAX, "how often the device sends again what is lost"),
    number!(O2IBLND, o2ib, "rnr_retry_count", rnr_retry_count: u8, "", 0..=RETRIES_MAX, "how often the device tries a peer that has no receive buffer; 7 is for ever"),
    number!(O2IBLND, o2ib, "keepalive", keepalive_s: u32, "s", 0..=DAY_S, "how long a peer may go without a message before it is sent an empty one; 0 for never"),
    switch!(O2IBLND, o2ib, require_privileged_port: "whether peers must connect from a port below 1024"),
    switch!(O2IBLND, o2ib, use_privileged_port: "whether this node connects from such a port, where it may"),
    number!(O2IBLND, o2ib, "wrq_sge", wrq_sge: u32, "pieces", 1..=PIECES_MAX, "how many pieces of memory one work request gathers, as far as the device can"),
    tos!(O2IBLND, o2ib),
    idle!(O2IBLND: "peer_buffer_credits", "0", "0", "nlx does not route"),
    idle!(O2IBLND: "peer_timeout", "180", "0", "only routers watch whether peers are alive, and nlx does not route"),
    idle!(O2IBLND: "ipif_name", "ib0", "", "networks name their interfaces"),
    idle!(O2IBLND: "ntx", "512", "", "each connection has message buffers of its own, as many as its depth asks for"),
    idle!(O2IBLND: "ib_mtu", "0", "0", "the connection manager takes the largest MTU that the path has"),
    idle!(O2IBLND: "map_on_demand", "1", "1|0|256", "obsolete in LNet; nlx takes up to 257 fragments"),
    idle!(O2IBLND: "fmr_pool_size", "512", "", ONCE_REGISTERED),
    idle!(O2IBLND: "fmr_flush_trigger", "384", "", ONCE_REGISTERED),
    idle!(O2IBLND: "fmr_cache", "1", "", ONCE_REGISTERED),
    idle!(O2IBLND: "use_fastreg_gaps", "0", "1", "registered memory of nlx may have gaps"),
    idle!(O2IBLND: "dev_failover", "0", "0", "a bonded device fails over by itself"),
];
