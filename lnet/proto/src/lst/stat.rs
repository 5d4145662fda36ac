//! The statistics of a node (lst 8).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ByteOrder;

/// The counters of a STAT reply. Each wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Milliseconds since the session was made.
    pub session_ms: u32,
    /// Batches with a running test client.
    pub active_batches: u32,
    /// Sessions that have ended and still have RPCs in flight.
    pub zombie_sessions: u32,
    /// BRW errors of this session's test clients at this node.
    pub brw_errors: u32,
    /// PING errors, likewise.
    pub ping_errors: u32,
    /// Events of the RPC layer with an error other than "cancelled", since the node started.
    pub rpc_errors: u32,
    /// Requests sent.
    pub rpcs_sent: u32,
    /// Requests received, malformed ones included.
    pub rpcs_received: u32,
    /// Requests without a reply, or whose reply failed.
    pub rpcs_dropped: u32,
    /// Requests of this node that timed out.
    pub rpcs_expired: u32,
    /// Bytes that this node fetched as a server: data of WRITE tests, and lists of destinations.
    pub bulk_got: u64,
    /// Bytes that this node sent as a server: data of READ tests.
    pub bulk_put: u64,
    /// The counters of the node's LNet.
    pub lnet: LnetCounters,
}

/// The counters of a node's LNet, of all its traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LnetCounters {
    /// Messages in flight.
    pub messages: u32,
    /// The most messages that were ever in flight.
    pub messages_max: u32,
    /// Errors.
    pub errors: u32,
    /// Messages sent.
    pub sent: u32,
    /// Messages received.
    pub received: u32,
    /// Messages forwarded.
    pub routed: u32,
    /// Messages dropped.
    pub dropped: u32,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes forwarded.
    pub bytes_routed: u64,
    /// Bytes dropped.
    pub bytes_dropped: u64,
}

/// Bytes 44 to 160 of a STAT reply.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawStatistics {
    words: [U32; 10],
    bulk: [U64; 2],
    lnet: [U32; 7],
    lnet_bytes: [U64; 4],
}

impl RawStatistics {
    pub(super) fn new(from: &Statistics) -> RawStatistics {
        let lnet = &from.lnet;
        RawStatistics {
            words: [
                from.session_ms,
                from.active_batches,
                from.zombie_sessions,
                from.brw_errors,
                from.ping_errors,
                from.rpc_errors,
                from.rpcs_sent,
                from.rpcs_received,
                from.rpcs_dropped,
                from.rpcs_expired,
            ]
            .map(U32::new),
            bulk: [from.bulk_got, from.bulk_put].map(U64::new),
            lnet: [
                lnet.messages,
                lnet.messages_max,
                lnet.errors,
                lnet.sent,
                lnet.received,
                lnet.routed,
                lnet.dropped,
            ]
            .map(U32::new),
            lnet_bytes: [lnet.bytes_sent, lnet.bytes_received, lnet.bytes_routed, lnet.bytes_dropped]
                .map(U64::new),
        }
    }

    pub(super) fn parse(self, order: ByteOrder) -> Statistics {
        let u32 = |raw: U32| order.u32(raw.get());
        let u64 = |raw: U64| order.u64(raw.get());
        let [session_ms, active_batches, zombie_sessions, brw_errors, ping_errors, rest @ ..] =
            self.words.map(u32);
        let [rpc_errors, rpcs_sent, rpcs_received, rpcs_dropped, rpcs_expired] = rest;
        let [bulk_got, bulk_put] = self.bulk.map(u64);
        let [messages, messages_max, errors, sent, received, routed, dropped] = self.lnet.map(u32);
        let [bytes_sent, bytes_received, bytes_routed, bytes_dropped] = self.lnet_bytes.map(u64);
        Statistics {
            session_ms,
            active_batches,
            zombie_sessions,
            brw_errors,
            ping_errors,
            rpc_errors,
            rpcs_sent,
            rpcs_received,
            rpcs_dropped,
            rpcs_expired,
            bulk_got,
            bulk_put,
            lnet: LnetCounters {
                messages,
                messages_max,
                errors,
                sent,
                received,
                routed,
                dropped,
                bytes_sent,
                bytes_received,
                bytes_routed,
                bytes_dropped,
            },
        }
    }
}
