//! Quotas of one client.

use nlx_core::Limits;

/// Quotas of one client (MT-237, D9). Requests beyond them are refused with ENOMEM, and counted.
///
/// Each is the most that one client can make the helper hold, so together they bound the total of
/// all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientQuotas {
    /// Transfer machines at a time. Each has an event queue of LNet, a queue of events and up to
    /// two descriptors.
    pub tms: u32,
    /// Registered buffers at a time, some 200 bytes of the helper each.
    pub buffers: u32,
    /// Segments of buffers beyond the first of each, 24 bytes of the helper each.
    pub segments: u32,
    /// Arenas at a time. Each takes a descriptor and a mapping.
    pub arenas: u32,
    /// Bytes of all arenas together: memory that is used when it is touched.
    pub bytes: u64,
    /// Bytes of one arena. A client can remove all pages of an arena by one call. A thread that
    /// touches one of them meanwhile waits until the system has freed them all: a sixth of a
    /// millisecond for each MiB, and longer the more often the client has mapped them. In that time
    /// a thread that receives into the arena serves no client.
    pub arena_bytes: u64,
    /// Operations in flight at a time, over all transfer machines.
    pub operations: u32,
    /// Events that the operations of one transfer machine may need together: 132 bytes of shared
    /// memory each, once used.
    pub events: u32,
    /// Slots of the submission ring: the entries that can be submitted while the helper is busy
    /// elsewhere.
    pub ring_slots: u32,
    /// Requests on the socket per second. Further requests wait.
    pub requests_per_second: u32,
}

impl Default for ClientQuotas {
    fn default() -> ClientQuotas {
        ClientQuotas {
            // Motr's processes have a few; a test with thousands sets its own quota.
            tms: 256,
            // 64 GiB of buffers of 1 MiB.
            buffers: 1 << 16,
            // 6 MiB: a thousand buffers of the maximum number of segments.
            segments: 1 << 18,
            // One for each 16 MiB of the bytes below.
            arenas: 256,
            bytes: 4 << 30,
            // The size that a client requests at a time. Removing all its pages takes some 5 ms.
            arena_bytes: 16 << 20,
            operations: 1 << 16,
            // A receive buffer of the maximum number of messages.
            events: Limits::LNET.messages_max,
            ring_slots: 256,
            // Most of them register buffers of several segments.
            requests_per_second: 10_000,
        }
    }
}

impl ClientQuotas {
    /// Returns the quotas clamped to valid values: at least one of everything, and no more than the
    /// tables can address.
    #[must_use]
    pub(crate) fn sane(self) -> ClientQuotas {
        ClientQuotas {
            tms: self.tms.clamp(1, 1 << 16),
            buffers: self.buffers.clamp(1, Limits::LNET.buffers_max as u32),
            segments: self.segments,
            arenas: self.arenas.clamp(1, 1 << 16),
            bytes: self.bytes,
            arena_bytes: self.arena_bytes,
            operations: self.operations.clamp(1, Limits::LNET.buffers_max as u32),
            events: self.events.clamp(1, nlx_bev_cqueue::MAX_SLOTS - 1),
            ring_slots: self.ring_slots.clamp(nlx_bev_cqueue::MIN_SLOTS, nlx_driver_proto::RING_SLOTS_MAX),
            requests_per_second: self.requests_per_second.max(1),
        }
    }
}
