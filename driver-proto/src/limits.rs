//! Every limit of the protocol. What one client may have of it, the welcome says ([`crate::Welcome`]).

use nlx_core::Limits;

/// The version that this crate speaks. Client and helper use the highest that both know.
pub const VERSION: u16 = 2;

/// Where the helper listens unless it is told otherwise.
pub const SOCKET_PATH: &str = "/run/nlx/nlxd.sock";

/// Bytes of the longest packet: a registration of as many segments as a message of LNet has, and some room.
pub const PACKET_MAX: usize = 8192;

/// Descriptors that travel with one packet, at the most: the ring and its doorbell.
pub const DESCRIPTORS_MAX: usize = 2;

/// Segments of a buffer, as LNet has fragments of a message.
pub const SEGMENTS_MAX: usize = 256;

/// Bytes of a client's name, by which an operator sees it.
pub const NAME_MAX: usize = 32;

/// NIDs that a reply lists: more than a node has interfaces, far fewer than a packet has room for.
pub const NIDS_MAX: usize = 256;

/// Slots of a submission ring: what is submitted beyond that waits for the helper.
pub const RING_SLOTS_MAX: u32 = 4096;

/// Buffers of one client, and with it the places of their names: those of a domain in one process.
pub const BUFFERS_MAX: u32 = 1 << 20;

/// Bytes of one arena: as many buffers as a client may have, each as long as LNet's longest payload.
pub const ARENA_BYTES_MAX: u64 = 1 << 40;

/// Events that the operations of one transfer machine may need together: what the longest queue of events holds, one of its
/// 2^20 slots being the divider.
pub const EVENTS_MAX: u32 = (1 << 20) - 1;

const _: () = {
    assert!(SEGMENTS_MAX == Limits::LNET.segments_max);
    assert!(BUFFERS_MAX as usize == Limits::LNET.buffers_max);
    assert!(ARENA_BYTES_MAX == BUFFERS_MAX as u64 * Limits::LNET.buffer_bytes_max as u64);
};
