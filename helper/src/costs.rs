//! What the objects of clients cost the helper: the estimates that users are charged with.
//!
//! The estimates are upper bounds for what one object adds, LNet's part included, in the allocator's blocks. The test
//! `costs` measures the objects and compares.

use std::sync::Arc;

use nlx_core::Errno;
use nlx_driver_proto::{Reason, Refusal};
use nlx_fallible::TryArc;

use super::accounts::{Accounts, CHUNK, Charge, Payer, Resource};
use super::portal_shares::IdCharge;

/// Bytes of the heap for a client: its session, its record, its place among the clients, and a kept answer.
pub const CLIENT_HEAP_BYTES: u64 = 16 << 10;

/// Mappings for a client: its ring, and three tables that may grow so large that the allocator maps them apart.
pub const CLIENT_MAPPINGS: u64 = 4;

/// Bytes of the heap for a transfer machine: what LNet's callback sees, LNet's event queue with its place in each of 16
/// partitions, the address, and the first operations.
pub const TM_HEAP_BYTES: u64 = 8 << 10;

/// Mappings for a transfer machine: its event queue, and two tables of operations that may be mapped apart.
pub const TM_MAPPINGS: u64 = 3;

/// Bytes of the heap for an operation: its slot in tables that double when they are full, LNet's match entry with its MD,
/// and a message in progress.
pub const OPERATION_HEAP_BYTES: u64 = 1 << 10;

/// Bytes of the heap for a registered buffer of one segment, without its place in the table.
pub const BUFFER_HEAP_BYTES: u64 = 256;

/// Bytes of the heap for each further segment.
pub const SEGMENT_HEAP_BYTES: u64 = 32;

/// Bytes of the heap for a place in the table of buffers, which doubles when it is full and is copied then.
pub const PLACE_HEAP_BYTES: u64 = 192;

/// Bytes of the heap for an arena: its region, what devices keep with it, and its leases.
pub const ARENA_HEAP_BYTES: u64 = 2 << 10;

/// Bytes of the heap are charged in chunks of this many, so that few registrations need the accounts.
pub const HEAP_CHUNK_BYTES: u64 = CHUNK * OPERATION_HEAP_BYTES;

/// What a queue's memory is charged with, as long as it may be mapped: longer than what it belongs to if its client never seals it.
#[derive(Clone)]
pub(super) struct QueueCharges {
    _both: TryArc<[Charge; 2]>,
}

impl QueueCharges {
    /// Those of a queue of so many bytes.
    pub(super) fn new(accounts: &Arc<Accounts>, payer: Payer, bytes: u64) -> Result<Self, Refusal> {
        let mapping = accounts.charge(payer, Resource::Mappings, 1)?;
        let both = TryArc::try_new([mapping, accounts.charge(payer, Resource::QueueBytes, bytes)?]);
        let starved = |_| Refusal::new(Errno::ENOMEM, Reason::System);
        Ok(QueueCharges { _both: both.map_err(starved)? })
    }
}

/// What a session is charged with, over all of its objects that come and go often.
pub(super) struct SessionCharges {
    pub(super) heap: Charge,
    pub(super) buffers: Charge,
    pub(super) segments: Charge,
    pub(super) operations: Charge,
    _mappings: Charge,
    _queue: QueueCharges,
}

impl SessionCharges {
    /// Those of a client with this ring.
    pub(super) fn new(accounts: &Arc<Accounts>, payer: Payer, ring: QueueCharges) -> Result<Self, Refusal> {
        Ok(SessionCharges {
            heap: accounts.open(payer, Resource::HeapBytes),
            buffers: accounts.open(payer, Resource::Buffers),
            segments: accounts.open(payer, Resource::Segments),
            operations: accounts.open(payer, Resource::Operations),
            _mappings: accounts.charge(payer, Resource::Mappings, CLIENT_MAPPINGS - 1)?,
            _queue: ring,
        })
    }
}

/// What a transfer machine is charged with until LNet has let go of it.
pub(super) struct TmCharges {
    /// For the operations that it had at once.
    heap: Charge,
    _machine: Charge,
    _mappings: Charge,
    _queue: QueueCharges,
    _id: IdCharge,
}

impl TmCharges {
    /// Those of a transfer machine with this id and this event queue.
    pub(super) fn new(
        accounts: &Arc<Accounts>,
        payer: Payer,
        id: IdCharge,
        queue: QueueCharges,
    ) -> Result<Self, Refusal> {
        Ok(TmCharges {
            _id: id,
            heap: accounts.charge(payer, Resource::HeapBytes, TM_HEAP_BYTES)?,
            _machine: accounts.charge(payer, Resource::Machines, 1)?,
            _mappings: accounts.charge(payer, Resource::Mappings, TM_MAPPINGS - 1)?,
            _queue: queue,
        })
    }

    /// Makes sure that this many operations at once are charged. They stay charged: the tables do not shrink.
    pub(super) fn cover_operations(&mut self, operations: u64) -> Result<(), Refusal> {
        self.heap.cover(TM_HEAP_BYTES + operations * OPERATION_HEAP_BYTES, HEAP_CHUNK_BYTES)
    }
}

/// What an arena is charged with until the last message has let go of its memory.
pub(super) struct ArenaCharges {
    _arena: Charge,
    _bytes: Charge,
    _mapping: Charge,
    _descriptor: Charge,
    _heap: Charge,
}

impl ArenaCharges {
    /// Those of an arena of so many bytes.
    pub(super) fn new(accounts: &Arc<Accounts>, payer: Payer, bytes: u64) -> Result<Self, Refusal> {
        Ok(ArenaCharges {
            _arena: accounts.charge(payer, Resource::Arenas, 1)?,
            _bytes: accounts.charge(payer, Resource::ArenaBytes, bytes)?,
            _mapping: accounts.charge(payer, Resource::Mappings, 1)?,
            _descriptor: accounts.charge(payer, Resource::Descriptors, 1)?,
            _heap: accounts.charge(payer, Resource::HeapBytes, ARENA_HEAP_BYTES)?,
        })
    }
}
