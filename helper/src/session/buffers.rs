//! Registered buffers, by the client's own names: a table of its own, as the client chooses the places.

use lnet_region::{Fragment, IoVec};
use nlx_core::{BufferHandle, CoreError, Errno};
use nlx_driver_proto::{Reason, Refusal, Segment};
use nlx_fallible::{TryArc, try_push};
use nlx_kcore::Buffer;

use super::Session;
use super::refusing::{refusal_of, starved};
use crate::ClientQuotas;
use crate::accounts::CHUNK;
use crate::costs::{BUFFER_HEAP_BYTES, HEAP_CHUNK_BYTES, PLACE_HEAP_BYTES, SEGMENT_HEAP_BYTES};

/// Places without a buffer that are given up in one unit of work.
const PLACES_PER_UNIT: usize = 16;

/// A table of places. The client says which place a buffer has, and above it a generation that tells its tenants apart.
pub(super) struct Buffers {
    places: Vec<Option<Place>>,
    /// Buffers there are.
    pub(super) count: u32,
    most: u32,
    /// Segments beyond the first of each buffer.
    segments: u32,
    segments_max: u32,
}

struct Place {
    buffer: TryArc<Buffer>,
    /// Where its first segment lies.
    arena: u32,
    /// And the others, if there are any: most buffers have one.
    others: Vec<u32>,
}

impl Buffers {
    pub(super) fn new(quotas: &ClientQuotas) -> Buffers {
        Buffers {
            places: Vec::new(),
            count: 0,
            most: quotas.buffers,
            segments: 0,
            segments_max: quotas.segments,
        }
    }

    /// The buffer with this handle.
    pub(super) fn find(&self, handle: BufferHandle) -> Result<&TryArc<Buffer>, CoreError> {
        let place = self.places.get(place_of(handle)).and_then(Option::as_ref);
        let buffer = place.map(|place| &place.buffer).filter(|buffer| buffer.handle() == handle);
        buffer.ok_or(CoreError::NoSuchBuffer { buffer: handle })
    }

    /// How many buffers there are, and how many segments beyond the first of each.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.count.into(), self.segments.into())
    }

    /// Bytes of the heap that they are charged with.
    pub(super) fn heap_bytes(&self) -> u64 {
        heap_bytes(self.count.into(), self.segments.into(), self.places.len() as u64)
    }

    /// The same with one buffer more.
    fn heap_bytes_with(&self, handle: BufferHandle, segments: usize) -> u64 {
        let places = self.places.len().max(place_of(handle) + 1);
        let segments = u64::from(self.segments) + segments.saturating_sub(1) as u64;
        heap_bytes(u64::from(self.count) + 1, segments, places as u64)
    }

    /// Whether a new buffer may have this name, and so many segments.
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

    /// Makes room for a buffer with this name.
    fn reserve(&mut self, handle: BufferHandle) -> Result<(), Refusal> {
        let missing = (place_of(handle) + 1).saturating_sub(self.places.len());
        self.places.try_reserve(missing).map_err(starved)
    }

    /// Which has been checked, and has room.
    fn insert(&mut self, handle: BufferHandle, place: Place) {
        let index = place_of(handle);
        if index >= self.places.len() {
            self.places.resize_with(index + 1, || None);
        }
        self.segments += place.others.len() as u32;
        self.count += 1;
        self.places[index] = Some(place);
    }

    /// Drops buffers from the last place on, as many as so many units of work allow; gives the units. 0 once there is none.
    pub(super) fn let_go(&mut self, budget: usize) -> usize {
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

/// The lower half of a handle.
fn place_of(handle: BufferHandle) -> usize {
    handle.0 as u32 as usize
}

/// A list of what an iterator gives.
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
        // There is one, or there would be no memory.
        let Some(arena) = arenas.next() else { return Err(wrong) };
        let others = collect(arenas.map(Ok))?;
        let buffer = TryArc::try_new(Buffer::new(handle, memory)).map_err(starved)?;
        self.buffers.reserve(handle)?;
        self.buffers.insert(handle, Place { buffer, arena, others });
        segments.iter().for_each(|segment| self.arenas.hold(segment.arena));
        self.record.tally.buffers.add(1);
        Ok(())
    }

    /// Charges the user with one buffer more, in chunks. What a refusal has charged already, [`Session::trim`] gives back.
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
        let Buffers { places, count, segments, .. } = &mut self.buffers;
        if let Some(Place { arena, others, .. }) = places[place_of(handle)].take() {
            *count -= 1;
            *segments -= others.len() as u32;
            self.arenas.release(arena);
            others.into_iter().for_each(|arena| self.arenas.release(arena));
        }
        self.record.tally.buffers.sub(1);
        Ok(())
    }
}
