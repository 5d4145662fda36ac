//! Registered buffers, by handles that the client chooses. The table is not `nlx_sync::Slots`,
//! because the client chooses the index.

use lnet_region::{Fragment, IoVec};
use nlx_core::{BufferHandle, CoreError, Errno};
use nlx_driver_proto::{Reason, Refusal, Segment};
use nlx_fallible::{TryArc, try_push};
use nlx_kcore::RegisteredBuffer;

use super::Session;
use super::refusing::{refusal_of, starved};
use crate::ClientQuotas;
use crate::accounts::CHUNK;
use crate::costs::{BUFFER_HEAP_BYTES, HEAP_CHUNK_BYTES, PLACE_HEAP_BYTES, SEGMENT_HEAP_BYTES};

/// Unused slots that are freed in one unit of work.
const PLACES_PER_UNIT: usize = 16;

/// A client's table of buffers. The client chooses each handle: its lower half is the index in the
/// table, its upper half the generation of the slot.
pub(super) struct BufferTable {
    places: Vec<Option<Place>>,
    /// Number of buffers.
    pub(super) count: u32,
    most: u32,
    /// Segments beyond the first of each buffer.
    segments: u32,
    segments_max: u32,
}

struct Place {
    buffer: TryArc<RegisteredBuffer>,
    /// The arena of its first segment.
    arena: u32,
    /// The arenas of its further segments: most buffers have none.
    others: Vec<u32>,
}

impl BufferTable {
    pub(super) fn new(quotas: &ClientQuotas) -> BufferTable {
        BufferTable {
            places: Vec::new(),
            count: 0,
            most: quotas.buffers,
            segments: 0,
            segments_max: quotas.segments,
        }
    }

    /// Returns the buffer with this handle.
    pub(super) fn find(&self, handle: BufferHandle) -> Result<&TryArc<RegisteredBuffer>, CoreError> {
        let place = self.places.get(place_of(handle)).and_then(Option::as_ref);
        let buffer = place.map(|place| &place.buffer).filter(|buffer| buffer.handle() == handle);
        buffer.ok_or(CoreError::NoSuchBuffer { buffer: handle })
    }

    /// Returns the number of buffers, and of segments beyond the first of each.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.count.into(), self.segments.into())
    }

    /// Returns the heap bytes that are charged for the buffers.
    pub(super) fn heap_bytes(&self) -> u64 {
        heap_bytes(self.count.into(), self.segments.into(), self.places.len() as u64)
    }

    /// Returns the heap bytes with a further buffer.
    fn heap_bytes_with(&self, handle: BufferHandle, segments: usize) -> u64 {
        let places = self.places.len().max(place_of(handle) + 1);
        let segments = u64::from(self.segments) + segments.saturating_sub(1) as u64;
        heap_bytes(u64::from(self.count) + 1, segments, places as u64)
    }

    /// Checks that a new buffer may have this handle and this number of segments.
    fn check_room(&self, handle: BufferHandle, segments: usize) -> Result<(), Refusal> {
        let place = place_of(handle);
        if place >= self.most as usize {
            return Err(Refusal::of(Errno::ENOMEM, Reason::Buffers, place as u64, self.most.into()));
        }
        if handle.0 >> 32 == 0 {
            return Err(Refusal::of(Errno::EBADR, Reason::NoBuffer, handle.0, 0));
        }
        if self.places.get(place).is_some_and(Option::is_some) {
            return Err(Refusal::of(Errno::EEXIST, Reason::BufferExists, handle.0, 0));
        }
        let more = segments.saturating_sub(1);
        if more > (self.segments_max - self.segments) as usize {
            let wanted = u64::from(self.segments) + more as u64;
            return Err(Refusal::of(Errno::ENOMEM, Reason::Buffers, wanted, self.segments_max.into()));
        }
        Ok(())
    }

    /// Reserves room for a buffer with this handle.
    fn reserve(&mut self, handle: BufferHandle) -> Result<(), Refusal> {
        let missing = (place_of(handle) + 1).saturating_sub(self.places.len());
        self.places.try_reserve(missing).map_err(starved)
    }

    /// Inserts a buffer that has been checked, and for which room is reserved.
    fn insert(&mut self, handle: BufferHandle, place: Place) {
        let index = place_of(handle);
        if index >= self.places.len() {
            self.places.resize_with(index + 1, || None);
        }
        self.segments += place.others.len() as u32;
        self.count += 1;
        self.places[index] = Some(place);
    }

    /// Drops buffers from the last slot on, within `budget` units of work. Returns the units used;
    /// 0 once the table is empty.
    pub(super) fn drop_some(&mut self, budget: usize) -> usize {
        let mut units = 0;
        while units < budget && !self.places.is_empty() {
            let unused =
                self.places.iter().rev().take(PLACES_PER_UNIT).take_while(|place| place.is_none()).count();
            self.places.truncate(self.places.len() - unused.max(1));
            units += 1;
        }
        units
    }
}

fn heap_bytes(buffers: u64, segments: u64, places: u64) -> u64 {
    buffers * BUFFER_HEAP_BYTES + segments * SEGMENT_HEAP_BYTES + places * PLACE_HEAP_BYTES
}

/// Returns the lower half of a handle: the index.
fn place_of(handle: BufferHandle) -> usize {
    handle.0 as u32 as usize
}

/// Collects the values of an iterator.
fn collect<T>(values: impl Iterator<Item = Result<T, Refusal>>) -> Result<Vec<T>, Refusal> {
    let mut all = Vec::new();
    all.try_reserve_exact(values.size_hint().0).map_err(starved)?;
    for value in values {
        try_push(&mut all, value?).map_err(starved)?;
    }
    Ok(all)
}

impl Session {
    pub(super) fn register(&mut self, handle: BufferHandle, segments: &[Segment]) -> Result<(), Refusal> {
        self.buffers.check_room(handle, segments.len())?;
        self.charge_buffer(handle, segments.len())?;
        let fragments = segments.iter().map(|segment| self.arenas.fragment(segment));
        let fragments: Vec<Fragment> = collect(fragments)?;
        let wrong = Refusal::of(Errno::EFBIG, Reason::Segment, segments.len() as u64, 0);
        let memory = IoVec::new(fragments).map_err(|error| match error.errno() {
            Errno::ENOMEM => starved(error),
            _ => wrong,
        })?;
        self.host.network.limits().check(&memory).map_err(|error| refusal_of(&error))?;
        let mut arenas = segments.iter().map(|segment| segment.arena);
        // There is at least one segment: `IoVec::new` refuses an empty list.
        let Some(arena) = arenas.next() else { return Err(wrong) };
        let others = collect(arenas.map(Ok))?;
        let buffer = TryArc::try_new(RegisteredBuffer::new(handle, memory)).map_err(starved)?;
        self.buffers.reserve(handle)?;
        self.buffers.insert(handle, Place { buffer, arena, others });
        segments.iter().for_each(|segment| self.arenas.hold(segment.arena));
        self.record.counters.buffers.add(1);
        Ok(())
    }

    /// Charges the user for a further buffer, in chunks. [`Session::trim`] releases the part that
    /// was charged before a refusal.
    fn charge_buffer(&mut self, handle: BufferHandle, segments: usize) -> Result<(), Refusal> {
        let (Some(charges), buffers) = (&mut self.charges, &self.buffers) else { return Ok(()) };
        let (count, others) = buffers.counts();
        charges.buffers.cover(count + 1, CHUNK)?;
        charges.segments.cover(others + segments.saturating_sub(1) as u64, CHUNK)?;
        charges.heap.cover(buffers.heap_bytes_with(handle, segments), HEAP_CHUNK_BYTES)
    }

    pub(super) fn deregister(&mut self, handle: BufferHandle) -> Result<(), Refusal> {
        let refused = |error: CoreError| refusal_of(&error);
        self.buffers.find(handle).map_err(refused)?.retire().map_err(refused)?;
        let BufferTable { places, count, segments, .. } = &mut self.buffers;
        if let Some(Place { arena, others, .. }) = places[place_of(handle)].take() {
            *count -= 1;
            *segments -= others.len() as u32;
            self.arenas.release(arena);
            others.into_iter().for_each(|arena| self.arenas.release(arena));
        }
        self.record.counters.buffers.sub(1);
        Ok(())
    }
}
