//! The limits of the protocol. The limits of one client are in the [`crate::Welcome`].

use nlx_core::Limits;

/// The protocol version of this crate. Client and helper use the highest that both support.
pub const VERSION: u16 = 3;

/// Default path of the helper's socket.
pub const SOCKET_PATH: &str = "/run/nlx/nlxd.sock";

/// Bytes of the longest packet: a registration with one segment for each fragment of an LNet
/// message, and reserve.
pub const PACKET_MAX: usize = 8192;

/// Largest number of descriptors with one packet: those of the ring and its doorbell.
pub const DESCRIPTORS_MAX: usize = 2;

/// Segments of a buffer: LNet's limit of fragments of a message.
pub const SEGMENTS_MAX: usize = 256;

/// Bytes of a client's name, which is for the operator.
pub const NAME_MAX: usize = 32;

/// NIDs in a reply: more than a node has interfaces, far fewer than fit in a packet.
pub const NIDS_MAX: usize = 256;

/// Slots of a submission ring; further submissions wait for the helper.
pub const RING_SLOTS_MAX: u32 = 4096;

/// Buffers of one client, and so the range of indices in their names: as in a domain in one
/// process.
pub const BUFFERS_MAX: u32 = 1 << 20;

/// Bytes of one arena: the largest number of buffers of a client, each with LNet's longest payload.
pub const ARENA_BYTES_MAX: u64 = 1 << 40;

/// Events that the operations of one transfer machine may need together: the capacity of the
/// longest event queue, one of whose 2^20 slots is the divider.
pub const EVENTS_MAX: u32 = (1 << 20) - 1;

const _: () = {
    assert!(SEGMENTS_MAX == Limits::LNET.segments_max);
    assert!(BUFFERS_MAX as usize == Limits::LNET.buffers_max);
    assert!(ARENA_BYTES_MAX == BUFFERS_MAX as u64 * Limits::LNET.buffer_bytes_max as u64);
};
