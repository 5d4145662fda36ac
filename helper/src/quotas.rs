//! How much of everything one client may have.

use nlx_core::Limits;

/// How much of everything one client may have (MT-237, D9). What is beyond is refused with ENOMEM, and counted.
///
/// Each is what one client can make the helper hold at the most, so together they bound what all clients can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientQuotas {
    /// Transfer machines at a time. Each has an event queue of LNet, a queue of events and up to two descriptors.
    pub tms: u32,
    /// Registered buffers at a time, some 200 bytes of the helper each.
    pub buffers: u32,
    /// Segments of buffers beyond the first of each, 24 bytes of the helper each.
    pub segments: u32,
    /// Arenas at a time. Each takes a descriptor and a mapping.
    pub arenas: u32,
    /// Bytes of all arenas together: memory that is used when it is touched.
    pub bytes: u64,
    /// Bytes of one arena. A client can take all pages of an arena away by one call, and whoever touches one of them meanwhile
    /// waits until the system has freed them all, a sixth of a millisecond for each MiB, and longer the more often the client has
    /// mapped them: so long a thread that receives into the arena serves nobody.
    pub arena_bytes: u64,
    /// Operations in flight at a time, over all transfer machines.
    pub operations: u32,
    /// Events that the operations of one transfer machine may need together: 132 bytes of shared memory each, once used.
    pub events: u32,
    /// Slots of the submission ring: what can be submitted while the helper is busy elsewhere.
    pub ring_slots: u32,
    /// Requests on the socket per second. Who sends more waits.
    pub requests_per_second: u32,
}

impl Default for ClientQuotas {
    fn default() -> ClientQuotas {
        ClientQuotas {
            // Motr's processes have a few; a test of thousands says so.
            tms: 256,
            // 64 GiB of buffers of 1 MiB.
            buffers: 1 << 16,
            // 6 MiB: a thousand buffers of as many segments as there can be.
            segments: 1 << 18,
            // As many as there are chunks of 16 MiB in the bytes below.
            arenas: 256,
            bytes: 4 << 30,
            // What a client asks for at once. To take all pages of it away lasts some 5 ms.
            arena_bytes: 16 << 20,
            operations: 1 << 16,
            // A receive buffer of as many messages as there can be.
            events: Limits::LNET.messages_max,
            ring_slots: 256,
            // Registrations of buffers of several segments are the many ones.
            requests_per_second: 10_000,
        }
    }
}

impl ClientQuotas {
    /// The same, with what could not work mended: at least one of everything, and no more than the tables can name.
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
