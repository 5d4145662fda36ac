//! Every limit of the protocol.

/// The version that this crate speaks. Client and helper use the highest that both know.
pub const VERSION: u16 = 1;

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
