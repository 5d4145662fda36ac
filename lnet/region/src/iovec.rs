use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::lease::Access;
use crate::{Region, RegionError};

/// The most fragments of one buffer: LNet's maximum for a memory descriptor (lnet-wire 8).
pub const MAX_FRAGMENTS: usize = 256;

/// A stretch of a region: (region, offset, length) in bytes.
#[derive(Debug, Clone)]
pub struct Fragment {
    region: Region,
    offset: usize,
    length: usize,
}

impl Fragment {
    /// `length` bytes of `region` from `offset` on. Any alignment is fine.
    ///
    /// # Errors
    /// [`RegionError::Length`] for no bytes, [`RegionError::OutOfBounds`] beyond the region's end.
    pub fn new(region: Region, offset: usize, length: usize) -> Result<Fragment, RegionError> {
        if length == 0 {
            return Err(RegionError::Length { bytes: 0, max: region.len() });
        }
        match offset.checked_add(length) {
            Some(end) if end <= region.len() => Ok(Fragment { region, offset, length }),
            end => {
                let end = end.unwrap_or(usize::MAX);
                Err(RegionError::OutOfBounds { start: offset, end, length: region.len() })
            }
        }
    }

    /// The region it is a part of.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// First byte within the region.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes; never 0.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }
}

/// The shape of a buffer: fragments, of which the first `len()` bytes are used. Clones share the list (what Motr's core
/// keeps as `kb_kiov`, built once at registration; [`IoVec::trimmed`] is its trimming to a byte count).
#[derive(Debug, Clone)]
pub struct IoVec {
    fragments: Arc<[Fragment]>,
    length: usize,
}

impl IoVec {
    /// A buffer of these fragments, in this order.
    ///
    /// # Errors
    /// [`RegionError::Fragments`] for none or more than [`MAX_FRAGMENTS`].
    pub fn new(fragments: impl Into<Arc<[Fragment]>>) -> Result<IoVec, RegionError> {
        let fragments = fragments.into();
        if fragments.is_empty() || fragments.len() > MAX_FRAGMENTS {
            return Err(RegionError::Fragments { fragments: fragments.len(), max: MAX_FRAGMENTS });
        }
        let length = fragments.iter().map(Fragment::len).sum();
        Ok(IoVec { fragments, length })
    }

    /// A buffer over the whole of one region.
    pub fn whole(region: Region) -> IoVec {
        let length = region.len();
        IoVec { fragments: Arc::new([Fragment { region, offset: 0, length }]), length }
    }

    /// Bytes in use; 0 only after trimming to 0.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is trimmed to nothing.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The fragments, untrimmed.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// The same buffer, of which only the first `length` bytes are used.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`] if there are fewer.
    pub fn trimmed(&self, length: usize) -> Result<IoVec, RegionError> {
        if length > self.length {
            return Err(RegionError::OutOfBounds { start: 0, end: length, length: self.length });
        }
        Ok(IoVec { fragments: self.fragments.clone(), length })
    }

    /// A lease to read a range of bytes.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], or [`RegionError::InUse`] while somebody writes there.
    pub fn read(&self, range: Range<usize>) -> Result<ReadVec, RegionError> {
        Leased::take(self, range, Access::Read).map(ReadVec)
    }

    /// A lease to write a range of bytes, which nobody else can read or write meanwhile.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], or [`RegionError::InUse`] while somebody reads or writes there.
    pub fn write(&self, range: Range<usize>) -> Result<WriteVec, RegionError> {
        Leased::take(self, range, Access::Write).map(WriteVec)
    }

    /// The parts of the fragments that make up a byte range of the buffer, in order.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (&Region, Range<usize>)> {
        let mut at = 0;
        self.fragments.iter().filter_map(move |fragment| {
            let begin = at;
            at += fragment.length;
            let start = range.start.max(begin);
            let end = range.end.min(at);
            (start < end).then(|| {
                let shift = |position: usize| position - begin + fragment.offset;
                (&fragment.region, shift(start)..shift(end))
            })
        })
    }
}

/// A range of an [`IoVec`] on all of whose parts a lease is held; dropping it gives the leases back.
#[derive(Debug)]
struct Leased {
    vec: IoVec,
    range: Range<usize>,
    access: Access,
}

impl Leased {
    fn take(vec: &IoVec, range: Range<usize>, access: Access) -> Result<Leased, RegionError> {
        if range.start > range.end || range.end > vec.length {
            return Err(RegionError::OutOfBounds { start: range.start, end: range.end, length: vec.length });
        }
        let mut taken = range.start;
        for (region, part) in vec.parts(range.clone()) {
            let length = part.len();
            if let Err(error) = region.take(part, access) {
                release(vec, range.start..taken, access);
                return Err(error);
            }
            taken += length;
        }
        Ok(Leased { vec: vec.clone(), range, access })
    }

    /// The parts of the lease from its byte `skip` on.
    fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        let start = self.range.start.saturating_add(skip).min(self.range.end);
        self.vec.parts(start..self.range.end)
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        release(&self.vec, self.range.clone(), self.access);
    }
}

fn release(vec: &IoVec, range: Range<usize>, access: Access) {
    for (region, part) in vec.parts(range) {
        region.give_back(part, access);
    }
}

/// A lease to read a range of a buffer: what a transport sends from, and what a received message is. The memory stays
/// alive and unchanged as long as it does.
#[derive(Debug)]
pub struct ReadVec(Leased);

impl ReadVec {
    /// Bytes leased.
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// Whether no byte is leased.
    pub fn is_empty(&self) -> bool {
        self.0.range.is_empty()
    }

    /// The bytes, if they lie in one piece (always so for a buffer of one fragment).
    pub fn as_slice(&self) -> Option<&[u8]> {
        let mut chunks = self.chunks(0);
        let first = chunks.next().unwrap_or(&[]);
        chunks.next().is_none().then_some(first)
    }

    /// The bytes from `skip` on, piece by piece.
    pub fn chunks(&self, skip: usize) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the parts lie within their regions, and the read lease on them lives as long as `self`.
        self.0.parts(skip).map(|(region, part)| unsafe { region.bytes(part) })
    }

    /// Adds the bytes from `skip` on to a gather list, as far as `slices` has room for pieces (`limit` in all).
    pub fn gather<'a>(&'a self, skip: usize, slices: &mut impl Extend<IoSlice<'a>>, limit: usize) {
        slices.extend(self.chunks(skip).take(limit).map(IoSlice::new));
    }

    /// Copies bytes from `skip` on into `target`; gives how many.
    pub fn copy_to(&self, skip: usize, target: &mut [u8]) -> usize {
        let mut done = 0;
        for chunk in self.chunks(skip) {
            let count = chunk.len().min(target.len() - done);
            target[done..done + count].copy_from_slice(&chunk[..count]);
            done += count;
            if done == target.len() {
                break;
            }
        }
        done
    }

    /// All bytes, copied; for small messages and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        self.chunks(0).collect::<Vec<_>>().concat()
    }
}

/// A lease to write a range of a buffer, held by nobody else: what a transport receives into.
#[derive(Debug)]
pub struct WriteVec(Leased);

impl WriteVec {
    /// Bytes leased.
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// Whether no byte is leased.
    pub fn is_empty(&self) -> bool {
        self.0.range.is_empty()
    }

    /// The bytes as they are, if they lie in one piece (always so for a buffer of one fragment).
    pub fn as_slice(&self) -> Option<&[u8]> {
        // SAFETY: the parts lie within their regions; the write lease on them lives as long as `self` and is nobody
        // else's; slices to write them with borrow `self` mutably, so there are none while this one lives.
        let mut chunks = self.0.parts(0).map(|(region, part)| unsafe { region.bytes(part) });
        let first = chunks.next().unwrap_or(&[]);
        chunks.next().is_none().then_some(first)
    }

    /// The bytes, if they lie in one piece (always so for a buffer of one fragment).
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let mut chunks = self.chunks_mut(0);
        let first = chunks.next().unwrap_or(&mut []);
        chunks.next().is_none().then_some(first)
    }

    /// The bytes from `skip` on, piece by piece.
    pub fn chunks_mut(&mut self, skip: usize) -> impl Iterator<Item = &mut [u8]> {
        // SAFETY: the parts lie within their regions; the write lease on them lives as long as `self` and is nobody
        // else's; the parts of one lease are disjoint, because a lease that overlaps itself cannot be taken; `&mut
        // self` keeps a second set of slices away while these live.
        self.0.parts(skip).map(|(region, part)| unsafe { region.bytes_mut(part) })
    }

    /// Adds the bytes from `skip` on to a scatter list, `limit` pieces at the most.
    pub fn scatter<'a>(&'a mut self, skip: usize, slices: &mut impl Extend<IoSliceMut<'a>>, limit: usize) {
        slices.extend(self.chunks_mut(skip).take(limit).map(IoSliceMut::new));
    }

    /// Copies `source` to the bytes from `skip` on; gives how many found room.
    pub fn copy_from(&mut self, skip: usize, source: &[u8]) -> usize {
        let mut done = 0;
        for chunk in self.chunks_mut(skip) {
            let count = chunk.len().min(source.len() - done);
            chunk[..count].copy_from_slice(&source[done..done + count]);
            done += count;
            if done == source.len() {
                break;
            }
        }
        done
    }
}

/// Copies as many bytes as both have; gives how many.
pub fn copy(source: &ReadVec, target: &mut WriteVec) -> usize {
    let mut done = 0;
    for chunk in source.chunks(0) {
        let count = target.copy_from(done, chunk);
        done += count;
        if count < chunk.len() {
            break;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A buffer whose fragments have these (gap before, length) values within one region.
    fn buffer(shape: &[(usize, usize)]) -> (Region, IoVec) {
        let total = shape.iter().map(|(gap, length)| gap + length).sum::<usize>();
        let region = Region::heap(total).unwrap();
        let mut at = 0;
        let mut fragments = Vec::new();
        for &(gap, length) in shape {
            fragments.push(Fragment::new(region.clone(), at + gap, length).unwrap());
            at += gap + length;
        }
        (region, IoVec::new(fragments).unwrap())
    }

    fn shapes() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0usize..9, 1usize..40), 1..12)
    }

    proptest! {
        // MT-227: trimming at every byte count over mixed vectors, and copying between any two shapes (MT-190).
        #[test]
        fn bytes_survive_a_copy_between_buffers_of_any_shape(a in shapes(), b in shapes(), cut in 0usize..400) {
            let ((_, from), (_, to)) = (buffer(&a), buffer(&b));
            let length = cut.min(from.len());
            let pattern: Vec<u8> = (0..length).map(|i| (i * 31 + 7) as u8).collect();
            prop_assert_eq!(from.write(0..length).unwrap().copy_from(0, &pattern), length);
            let moved = copy(&from.trimmed(length).unwrap().read(0..length).unwrap(), &mut to.write(0..to.len()).unwrap());
            prop_assert_eq!(moved, length.min(to.len()));
            prop_assert_eq!(to.read(0..moved).unwrap().to_vec(), &pattern[..moved]);
            prop_assert!(to.read(moved..to.len()).unwrap().to_vec().iter().all(|&byte| byte == 0));
        }

        #[test]
        fn scatter_and_gather_lists_name_each_byte_once(shape in shapes(), skip in 0usize..500) {
            let (_, vec) = buffer(&shape);
            let mut lease = vec.write(0..vec.len()).unwrap();
            let mut scatter: Vec<IoSliceMut<'_>> = Vec::new();
            lease.scatter(skip, &mut scatter, MAX_FRAGMENTS);
            prop_assert_eq!(scatter.iter().map(|s| s.len()).sum::<usize>(), vec.len().saturating_sub(skip));
            for (number, piece) in scatter.iter_mut().enumerate() {
                piece.fill(number as u8 + 1);
            }
            drop(lease);
            let read = vec.read(0..vec.len()).unwrap();
            let mut gather: Vec<IoSlice<'_>> = Vec::new();
            read.gather(skip, &mut gather, MAX_FRAGMENTS);
            for (number, piece) in gather.iter().enumerate() {
                prop_assert!(piece.iter().all(|&byte| byte == number as u8 + 1));
            }
        }
    }

    #[test]
    fn a_lease_that_fails_half_way_leaves_nothing_behind() {
        let (region, vec) = buffer(&[(0, 10), (5, 10), (0, 10)]);
        let held = vec.read(15..16).unwrap();
        let error = vec.write(0..30).expect_err("a byte in the middle is lent out");
        assert_eq!(error, RegionError::InUse { start: 15, end: 25 });
        drop(held);
        assert!(region.is_idle());
        assert!(vec.write(0..30).is_ok());
    }

    #[test]
    fn a_buffer_that_names_a_byte_twice_can_be_read_but_not_written() {
        let region = Region::heap(16).unwrap();
        let twice =
            [Fragment::new(region.clone(), 0, 8).unwrap(), Fragment::new(region.clone(), 4, 8).unwrap()];
        let vec = IoVec::new(twice).unwrap();
        assert!(vec.read(0..16).is_ok());
        assert!(vec.write(0..16).is_err());
        assert!(region.is_idle());
    }

    #[test]
    fn ranges_and_fragments_beyond_the_end_are_refused() {
        let (region, vec) = buffer(&[(3, 7)]);
        assert!(matches!(vec.read(0..8), Err(RegionError::OutOfBounds { end: 8, length: 7, .. })));
        #[allow(clippy::reversed_empty_ranges, reason = "what is refused")]
        let backwards = vec.read(5..4);
        assert!(backwards.is_err());
        assert!(vec.trimmed(8).is_err());
        assert!(Fragment::new(region.clone(), usize::MAX, 2).is_err());
        assert!(Fragment::new(region.clone(), 10, 1).is_err());
        assert!(Fragment::new(region.clone(), 0, 0).is_err());
        let many = vec![Fragment::new(region, 0, 1).unwrap(); MAX_FRAGMENTS + 1];
        assert!(matches!(IoVec::new(many), Err(RegionError::Fragments { fragments: 257, max: 256 })));
        assert!(IoVec::new(Vec::new()).is_err());
    }

    #[test]
    fn memory_outlives_its_buffer_while_a_message_is_held() {
        let region = Region::heap(100).unwrap();
        let vec = IoVec::whole(region);
        vec.write(0..3).unwrap().copy_from(0, b"abc");
        let message = vec.read(0..3).unwrap();
        drop(vec);
        assert_eq!(message.as_slice(), Some(&b"abc"[..]));
    }
}
