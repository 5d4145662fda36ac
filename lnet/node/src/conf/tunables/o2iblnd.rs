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
    switch!(O2IBLND, o2ib, cksum: "1: this node's messages carry a checksum, and the checksums of peers' messages are verified"),
    number!(O2IBLND, o2ib, "timeout", timeout_s: u32, "s", 0..=DAY_S, "time after which the connection of a message is closed that still waits to be sent, is in flight, or waits for its completion (a quarter of it without progress while messages wait for credits of the NI); 0 is 50"),
    number!(O2IBLND, o2ib, "nscheds", nscheds: usize, "threads", 0..=64, "maximum number of scheduler threads of a CPU partition, which has one, and one more for each further network device; 0 is half of its cores, and at least 3 if it has 3; a node has at most 64"),
    number!(O2IBLND, o2ib, "conns_per_peer", conns_per_peer: u8, "connections", 1..=CONNS_MAX, "number of connections that this node opens to a peer"),
    number!(O2IBLND, o2ib, "credits", credits: u32, "messages", 1..=CREDITS_MAX, "maximum number in flight on an NI, to all peers together"),
    Tunable {
        agree: NEGOTIATED,
        ..number!(O2IBLND, o2ib, "peer_credits", peer_credits: u32, "messages", 1..=CREDITS_MAX, "maximum number in flight to one peer, and the depth of a connection's queues; adjusted to 8 to 255, and to at most `credits`")
    },
    number!(O2IBLND, o2ib, "peer_credits_hiw", peer_credits_hiw: u32, "messages", 0..=CREDITS_MAX, "number of credits that may be owed to a peer before a separate message returns them; always adjusted to half of `peer_credits`"),
    number!(O2IBLND, o2ib, "concurrent_sends", concurrent_sends: u32, "messages", 0..=CREDITS_MAX, "maximum number of sends posted on a connection; adjusted to between half and twice `peer_credits`; 0 is `peer_credits`"),
    number!(O2IBLND, o2ib, "retry_count", retry_count: u8, "", 0..=RETRIES_MAX, "number of times that the device retransmits a lost packet"),
    number!(O2IBLND, o2ib, "rnr_retry_count", rnr_retry_count: u8, "", 0..=RETRIES_MAX, "number of times that the device retries a peer that has no receive buffer; 7 retries without limit"),
    number!(O2IBLND, o2ib, "keepalive", keepalive_s: u32, "s", 0..=DAY_S, "time without a message to a peer after which it is sent an empty one; 0 sends none"),
    switch!(O2IBLND, o2ib, require_privileged_port: "1: peers must connect from a port below 1024"),
    switch!(O2IBLND, o2ib, use_privileged_port: "1: this node connects from a port below 1024, if it has the privilege"),
    number!(O2IBLND, o2ib, "wrq_sge", wrq_sge: u32, "pieces", 1..=PIECES_MAX, "number of pieces of memory that one work request gathers, as far as the device supports it"),
    tos!(O2IBLND, o2ib),
    idle!(O2IBLND: "peer_buffer_credits", "0", "0", "nlx does not route"),
    idle!(O2IBLND: "peer_timeout", "180", "0", "only routers watch whether peers are alive, and nlx does not route"),
    idle!(O2IBLND: "ipif_name", "ib0", "", "networks name their interfaces"),
    idle!(O2IBLND: "ntx", "512", "", "each connection has separate message buffers; their number follows from its depth"),
    idle!(O2IBLND: "ib_mtu", "0", "0", "the connection manager uses the largest MTU of the path"),
    idle!(O2IBLND: "map_on_demand", "1", "1|0|256", "obsolete in LNet; nlx takes up to 257 fragments"),
    idle!(O2IBLND: "fmr_pool_size", "512", "", ONCE_REGISTERED),
    idle!(O2IBLND: "fmr_flush_trigger", "384", "", ONCE_REGISTERED),
    idle!(O2IBLND: "fmr_cache", "1", "", ONCE_REGISTERED),
    idle!(O2IBLND: "use_fastreg_gaps", "0", "1", "registered memory of nlx may have gaps"),
    idle!(O2IBLND: "dev_failover", "0", "0", "a bonded device fails over by itself"),
];
