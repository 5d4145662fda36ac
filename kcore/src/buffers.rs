//! Registered buffers: the table of handles, and the operation that each buffer is associated with.

use lnet_region::IoVec;
use nlx_core::{BufferHandle, CoreError, Limits, OperationKind, RemoteTarget};
use nlx_fallible::TryArc;
use nlx_sync::{AtomicU64, Mutex, Ordering, SlotKey, Slots};

use crate::agreed::ASSOCIATION;
use crate::flight::FlightKey;
use crate::network::no_memory;

/// Association of a buffer without an operation.
const IDLE: u64 = 0;
/// Association of a deregistered buffer. No key has this value: its index would be above every
/// limit.
const GONE: u64 = u64::MAX;

/// A registered buffer.
pub struct RegisteredBuffer {
    handle: BufferHandle,
    /// Taken out at deregistration, so that a stale association does not keep the memory allocated.
    memory: Mutex<Option<IoVec>>,
    /// [`IDLE`], [`GONE`], or the key of the operation that has the buffer.
    association: AtomicU64,
}

impl RegisteredBuffer {
    /// Creates a buffer with this handle and memory, without an operation.
    #[must_use]
    pub fn new(handle: BufferHandle, memory: IoVec) -> RegisteredBuffer {
        RegisteredBuffer { handle, memory: Mutex::new(Some(memory)), association: AtomicU64::new(IDLE) }
    }

    /// Returns the buffer's handle.
    #[must_use]
    pub fn handle(&self) -> BufferHandle {
        self.handle
    }

    /// Checks an operation against the buffer. Returns the memory that the operation uses, and its
    /// remote target.
    ///
    /// # Errors
    /// ENOENT once the buffer is deregistered, and those of [`OperationKind::fit`].
    pub fn fit(
        &self,
        kind: &OperationKind,
        limits: &Limits,
    ) -> Result<(IoVec, Option<RemoteTarget>), CoreError> {
        let memory = self.memory()?;
        let (length, remote) = kind.fit(memory.len() as u64, limits)?;
        // `fit` has checked the length against the buffer.
        Ok((memory.into_trimmed(length as usize)?, remote))
    }

    /// Returns the buffer's memory, shared.
    ///
    /// # Errors
    /// ENOENT once the buffer is deregistered.
    fn memory(&self) -> Result<IoVec, CoreError> {
        self.memory.lock().clone().ok_or(CoreError::NoSuchBuffer { buffer: self.handle })
    }

    /// Associates the buffer with an operation.
    pub(crate) fn associate(&self, key: FlightKey) -> Result<(), CoreError> {
        self.take(key.value())
    }

    /// Ends the association with an operation.
    pub(crate) fn dissociate(&self) {
        self.association.store(IDLE, ASSOCIATION.release());
    }

    /// Returns the operation that the buffer is associated with.
    pub(crate) fn operation(&self) -> Option<FlightKey> {
        match self.association.load(Ordering::Acquire) {
            IDLE | GONE => None,
            value => Some(FlightKey::from_value(value)),
        }
    }

    /// Deregisters the buffer, so that no operation can use it any more. Returns its memory.
    ///
    /// # Errors
    /// EBUSY while an operation uses it, ENOENT if it is deregistered already.
    pub fn retire(&self) -> Result<Option<IoVec>, CoreError> {
        self.take(GONE)?;
        Ok(self.memory.lock().take())
    }

    /// Sets the association of an idle buffer. The new owner sees all accesses of the previous
    /// operation.
    fn take(&self, value: u64) -> Result<(), CoreError> {
        match self.association.compare_exchange(IDLE, value, ASSOCIATION.acquire(), Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(GONE) => Err(CoreError::NoSuchBuffer { buffer: self.handle }),
            Err(_) => Err(CoreError::BufferBusy { buffer: self.handle }),
        }
    }
}

/// All registered buffers of a domain. A handle has the slot's index in its low bits and the
/// generation above.
pub(crate) struct BufferTable {
    table: Mutex<Slots<TryArc<RegisteredBuffer>>>,
}

const INDEX_BITS: u32 = 32;

impl Default for BufferTable {
    fn default() -> BufferTable {
        BufferTable { table: Mutex::new(Slots::new(usize::MAX)) }
    }
}

impl BufferTable {
    /// Registers memory: checks its shape and returns its handle.
    pub(crate) fn register(&self, memory: &IoVec, limits: &Limits) -> Result<BufferHandle, CoreError> {
        limits.check(memory)?;
        let mut table = self.table.lock();
        let too_many = CoreError::TooMany { objects: "registered buffers", limit: limits.buffers_max };
        if table.len() >= limits.buffers_max {
            return Err(too_many);
        }
        table.reserve(1).map_err(no_memory)?;
        let handle = BufferHandle(table.next_key().to_bits(INDEX_BITS));
        let buffer = TryArc::new(RegisteredBuffer::new(handle, memory.clone()));
        table.insert(buffer).map(|_| handle).ok_or(too_many)
    }

    /// Returns the buffer with this handle.
    pub(crate) fn find(&self, handle: BufferHandle) -> Result<TryArc<RegisteredBuffer>, CoreError> {
        let table = self.table.lock();
        table.get(key_of(handle)).cloned().ok_or(CoreError::NoSuchBuffer { buffer: handle })
    }

    /// Deregisters a buffer that no operation uses.
    pub(crate) fn deregister(&self, handle: BufferHandle) -> Result<(), CoreError> {
        let mut table = self.table.lock();
        let buffer = table.get(key_of(handle)).ok_or(CoreError::NoSuchBuffer { buffer: handle })?;
        let memory = buffer.retire()?;
        let buffer = table.remove(key_of(handle));
        // Freed after the table is unlocked.
        drop(table);
        drop((buffer, memory));
        Ok(())
    }
}

fn key_of(handle: BufferHandle) -> SlotKey {
    SlotKey::from_bits(handle.0, INDEX_BITS)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use lnet_region::{Fragment, Region};
    use nlx_core::Errno;

    use super::*;

    // Unlike Motr's, a buffer need not be aligned to pages.
    // Covers: S-401, MT-4, MT-5, MT-228
    #[test]
    fn the_largest_buffer_of_most_segments_is_registered_at_any_alignment() {
        let buffers = BufferTable::default();
        let limits = Limits::LNET;
        for gap in [0, 1] {
            let bytes = limits.buffer_bytes_max / limits.segments_max;
            let region = Region::heap(limits.segments_max * (bytes + gap)).unwrap();
            let segment = |index| Fragment::new(region.clone(), index * (bytes + gap) + gap, bytes).unwrap();
            let memory = IoVec::new((0..limits.segments_max).map(segment).collect::<Vec<_>>()).unwrap();
            let handle = buffers.register(&memory, &limits).unwrap();
            assert_eq!(buffers.find(handle).unwrap().memory().unwrap().len(), limits.buffer_bytes_max);
        }
    }

    // Covers: MT-228
    #[test]
    fn a_buffer_of_no_bytes_or_too_many_is_refused() {
        let buffers = BufferTable::default();
        let long = IoVec::whole(Region::heap(Limits::LNET.buffer_bytes_max + 1).unwrap());
        assert_eq!(buffers.register(&long, &Limits::LNET).unwrap_err().errno(), Errno::EFBIG);
        let empty = long.trimmed(0).unwrap();
        assert_eq!(buffers.register(&empty, &Limits::LNET).unwrap_err().errno(), Errno::EINVAL);
    }

    // Covers: MT-6
    #[test]
    fn a_handle_of_old_does_not_name_the_next_buffer() {
        let buffers = BufferTable::default();
        let memory = IoVec::whole(Region::heap(1).unwrap());
        let old = buffers.register(&memory, &Limits::LNET).unwrap();
        buffers.deregister(old).unwrap();
        let new = buffers.register(&memory, &Limits::LNET).unwrap();
        assert_ne!(old, new);
        assert_eq!(buffers.find(old).err().map(|error| error.errno()), Some(Errno::ENOENT));
        assert_eq!(buffers.deregister(old).unwrap_err().errno(), Errno::ENOENT);
        assert!(buffers.find(new).is_ok());
        assert_eq!(
            buffers.find(BufferHandle(u64::MAX)).err().map(|error| error.errno()),
            Some(Errno::ENOENT)
        );
    }

    // Covers: MT-6, MT-111, MT-235
    #[test]
    fn a_buffer_in_flight_is_neither_given_away_twice_nor_deregistered() {
        let buffers = BufferTable::default();
        let memory = IoVec::whole(Region::heap(1).unwrap());
        let handle = buffers.register(&memory, &Limits::LNET).unwrap();
        let buffer = buffers.find(handle).unwrap();
        let key = FlightKey::from_value(1 << 32);
        buffer.associate(key).unwrap();
        assert_eq!(buffer.operation(), Some(key));
        assert_eq!(buffer.associate(key), Err(CoreError::BufferBusy { buffer: handle }));
        assert_eq!(buffers.deregister(handle).unwrap_err().errno(), Errno::EBUSY);
        buffer.dissociate();
        buffers.deregister(handle).unwrap();
        assert_eq!(buffer.associate(key).unwrap_err().errno(), Errno::ENOENT);
        assert!(buffer.memory().is_err());
    }

    // Covers: S-401
    #[test]
    fn no_more_buffers_than_the_limit_are_registered() {
        let buffers = BufferTable::default();
        let memory = IoVec::whole(Region::heap(1).unwrap());
        let mut limits = Limits::LNET;
        limits.buffers_max = 2;
        let first = buffers.register(&memory, &limits).unwrap();
        buffers.register(&memory, &limits).unwrap();
        assert_eq!(buffers.register(&memory, &limits).unwrap_err().errno(), Errno::ENOMEM);
        buffers.deregister(first).unwrap();
        assert!(buffers.register(&memory, &limits).is_ok());
    }
}
