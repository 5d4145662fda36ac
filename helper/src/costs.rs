//! The cost of clients' objects to the helper: the estimates with which users are charged.
//!
//! The estimates are upper bounds of what one object adds, LNet's part included, in the allocator's
//! blocks. The test `costs` measures the objects and compares.

use std::sync::Arc;

use nlx_core::Errno;
use nlx_driver_proto::{Reason, Refusal};
use nlx_fallible::TryArc;

use super::accounts::{Accounts, CHUNK, Charge, Payer, Resource};
use super::portal_shares::IdCharge;

/// Heap bytes of a client: its session, its record, its entry among the clients, and a kept answer.
pub const CLIENT_HEAP_BYTES: u64 = 16 << 10;

/// Mappings of a client: its ring, and three tables that may grow large enough for the allocator to
/// map them separately.
pub const CLIENT_MAPPINGS: u64 = 4;

/// Heap bytes of a transfer machine: the state of LNet's callback, LNet's event queue with its
/// entry in each of 16 partitions, the address, and the first operations.
pub const TM_HEAP_BYTES: u64 = 8 << 10;

/// Mappings of a transfer machine: its event queue, and two tables of operations that may be mapped
/// separately.
pub const TM_MAPPINGS: u64 = 3;

/// Heap bytes of an operation: its slot in tables that double when they are full, LNet's match
/// entry with its MD, and a message in progress.
pub const OPERATION_HEAP_BYTES: u64 = 1 << 10;

/// Heap bytes of a registered buffer of one segment, without its slot in the table.
pub const BUFFER_HEAP_BYTES: u64 = 256;

/// Heap bytes of each further segment.
pub const SEGMENT_HEAP_BYTES: u64 = 32;

/// Heap bytes of a slot in the table of buffers, which doubles when it is full and is copied then.
pub const PLACE_HEAP_BYTES: u64 = 192;

/// Heap bytes of an arena: its region, what devices keep with it, and its leases.
pub const ARENA_HEAP_BYTES: u64 = 2 << 10;

/// Heap bytes are charged in chunks of this size, so that few registrations use the accounts.
pub const HEAP_CHUNK_BYTES: u64 = CHUNK * OPERATION_HEAP_BYTES;

/// The charges for a queue's memory while it may be mapped. That outlasts the queue's object if the
/// client never seals the memory.
#[derive(Clone)]
pub(super) struct QueueCharges {
    _both: TryArc<[Charge; 2]>,
}

impl QueueCharges {
    /// Charges a queue of `bytes` bytes.
    pub(super) fn new(accounts: &Arc<Accounts>, payer: Payer, bytes: u64) -> Result<Self, Refusal> {
        let mapping = accounts.charge(payer, Resource::Mappings, 1)?;
        let both = TryArc::try_new([mapping, accounts.charge(payer, Resource::QueueBytes, bytes)?]);
        let starved = |_| Refusal::new(Errno::ENOMEM, Reason::System);
        Ok(QueueCharges { _both: both.map_err(starved)? })
    }
}

/// The charges of a session for all of its frequently changing objects.
pub(super) struct SessionCharges {
    pub(super) heap: Charge,
    pub(super) buffers: Charge,
    pub(super) segments: Charge,
    pub(super) operations: Charge,
    _mappings: Charge,
    _queue: QueueCharges,
}

impl SessionCharges {
    /// Opens the charges of a client with this ring.
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

/// The charges of a transfer machine until LNet has released it.
pub(super) struct TmCharges {
    /// For the largest number of operations that it had at one time.
    heap: Charge,
    _machine: Charge,
    _mappings: Charge,
    _queue: QueueCharges,
    _id: IdCharge,
}

impl TmCharges {
    /// Charges a transfer machine with this id and this event queue.
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

    /// Ensures that this number of concurrent operations is charged. They stay charged: the tables
    /// do not shrink.
    pub(super) fn cover_operations(&mut self, operations: u64) -> Result<(), Refusal> {
        self.heap.cover(TM_HEAP_BYTES + operations * OPERATION_HEAP_BYTES, HEAP_CHUNK_BYTES)
    }
}

/// The charges of an arena until the last message has released its memory.
pub(super) struct ArenaCharges {
    _arena: Charge,
    _bytes: Charge,
    _mapping: Charge,
    _descriptor: Charge,
    _heap: Charge,
}

impl ArenaCharges {
    /// Charges an arena of `bytes` bytes.
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
