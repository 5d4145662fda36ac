//! Leases on ranges of buffers, and what their holders can do with the bytes.

use std::ops::Range;

use crate::io::{Part, PartMut};
use crate::lease::Access;
use crate::{IoVec, Region, RegionError, shared};

/// What bytes are filled from, piece by piece.
const FILL_BYTES: usize = 4096;

/// A range of an [`IoVec`] on all of whose parts a lease is held; dropping it gives the leases back.
#[derive(Debug)]
pub(crate) struct Leased {
    vec: IoVec,
    range: Range<usize>,
    access: Access,
}

/// Bytes in one piece, which the holder of a [`Leased`] may touch as long as that lives.
#[derive(Clone, Copy)]
struct Piece {
    start: *mut u8,
    length: usize,
    /// No slice may be formed.
    shared: bool,
}

impl Leased {
    pub(crate) fn take(vec: &IoVec, range: Range<usize>, access: Access) -> Result<Leased, RegionError> {
        vec.check_bounds(&range)?;
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

    /// The parts of regions that the lease is on, from its byte `skip` on.
    fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        let start = self.range.start.saturating_add(skip).min(self.range.end);
        self.vec.parts(start..self.range.end)
    }

    /// The pieces of the lease from its byte `skip` on; none in a forked child, to which their memory may not have come.
    fn pieces(&self, skip: usize) -> impl Iterator<Item = Piece> {
        let parts = self.parts(skip);
        parts.filter(|(region, _)| region.fork_guard().in_owner_process()).map(|(region, part)| Piece {
            start: region.address(part.start),
            length: part.len(),
            shared: region.is_shared(),
        })
    }

    /// The one piece of private memory that a program's lease is; an empty one if it is no byte, or this a forked child.
    fn single(&self) -> Option<Piece> {
        if !self.access.is_programs() {
            return None;
        }
        let mut pieces = self.pieces(0);
        let nothing = Piece { start: std::ptr::dangling_mut(), length: 0, shared: false };
        let first = pieces.next().unwrap_or(nothing);
        (!first.shared && pieces.next().is_none()).then_some(first)
    }

    /// Keeps the first `at` bytes and gives the others away.
    fn split_off(&mut self, at: usize) -> Leased {
        let middle = self.range.start + at.min(self.range.len());
        self.vec.split(self.range.clone(), middle, self.access);
        let rest = middle..self.range.end;
        self.range.end = middle;
        Leased { vec: self.vec.clone(), range: rest, access: self.access }
    }

    fn downgrade(&mut self) {
        for (region, part) in self.vec.parts(self.range.clone()) {
            region.downgrade(part, self.access);
        }
        self.access = self.access.downgraded();
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

impl Piece {
    /// The bytes as a slice.
    ///
    /// # Safety
    /// They are private memory, under a program's lease for `'a`, and no `&mut` to them exists meanwhile.
    unsafe fn slice<'a>(self) -> &'a [u8] {
        debug_assert!(!self.shared);
        // SAFETY: a piece lies within its region, which began zeroed and which the lease keeps alive; the lease keeps
        // all others of this process that would write away, and other processes do not know private memory.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// The bytes as a slice to write to.
    ///
    /// # Safety
    /// They are private memory, under a program's write lease for `'a`, and no other reference to them exists meanwhile.
    unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        debug_assert!(!self.shared);
        // SAFETY: as in `slice`; the write lease keeps everybody else of this process away.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    /// Copies the first bytes out: all of `target`, which is no longer.
    ///
    /// # Safety
    /// The piece is under a lease now, and no `&mut` to its bytes exists.
    unsafe fn load(self, target: &mut [u8]) {
        debug_assert!(target.len() <= self.length);
        // SAFETY: the bytes lie within a region that is mapped while the lease lives. With it, others may write to them by
        // such copies or through the system only. `target` is the caller's alone.
        unsafe { shared::copy(self.start, target.as_mut_ptr(), target.len()) }
    }

    /// Copies `source`, which is no longer than the piece, to its first bytes.
    ///
    /// # Safety
    /// The piece is under a lease to write or receive now, and no reference to its bytes exists.
    unsafe fn store(self, source: &[u8]) {
        debug_assert!(source.len() <= self.length);
        // SAFETY: as in `load`; nor can anybody have a slice of bytes under such a lease.
        unsafe { shared::copy(source.as_ptr(), self.start, source.len()) }
    }

    /// The piece without its first bytes.
    fn skip(self, count: usize) -> Piece {
        Piece { start: self.start.wrapping_add(count), length: self.length - count, ..self }
    }
}

/// A lease to read a range of a buffer: a program's ([`IoVec::read`]), as which a received message is lent, or a
/// transport's, which sends from it ([`IoVec::outgoing`]). The memory stays alive as long as it does. Under a program's
/// lease nobody in this process writes to it; private memory is thereby unchanged. Under a transport's lease others may
/// be receiving into it.
#[derive(Debug)]
pub struct ReadVec(pub(crate) Leased);

impl ReadVec {
    /// Bytes leased.
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// Whether no byte is leased.
    pub fn is_empty(&self) -> bool {
        self.0.range.is_empty()
    }

    /// The bytes, if they lie in one piece (always so for a buffer of one fragment) of private memory; `None` for a
    /// transport's lease.
    pub fn as_slice(&self) -> Option<&[u8]> {
        // SAFETY: `single` gives private memory under a program's lease only. It lives as long as `self`, and while there
        // is one, nobody has a lease to write or receive, without which there is neither `&mut` nor store; nor does the
        // region become shared.
        self.0.single().map(|piece| unsafe { piece.slice() })
    }

    /// Adds the bytes from `skip` on to a gather list, as far as `parts` has room for pieces (`limit` in all).
    pub fn gather<'a>(&'a self, skip: usize, parts: &mut impl Extend<Part<'a>>, limit: usize) {
        // SAFETY: the pieces lie within their regions, and the lease on them lives as long as `self`.
        let part = |piece: Piece| unsafe { Part::leased(piece.start, piece.length) };
        parts.extend(self.0.pieces(skip).take(limit).map(part));
    }

    /// Where the bytes from `skip` on lie, in order: ranges of regions, for those who name memory to a device.
    pub fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        self.0.parts(skip)
    }

    /// Makes the lease two, atomically: this one keeps the first `at` bytes, or all if there are fewer.
    pub fn split_off(&mut self, at: usize) -> ReadVec {
        ReadVec(self.0.split_off(at))
    }

    /// Copies bytes from `skip` on into `target`; gives how many.
    pub fn copy_to(&self, skip: usize, target: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in self.0.pieces(skip) {
            if done == target.len() {
                break;
            }
            let count = piece.length.min(target.len() - done);
            // SAFETY: the lease lives as long as `self`; there is no `&mut` without a write lease, which excludes it.
            unsafe { piece.load(&mut target[done..done + count]) };
            done += count;
        }
        done
    }

    /// All bytes, copied; for small messages and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }
}

/// A lease to write a range of a buffer: a program's ([`IoVec::write`]), who has it alone, or a transport's, which receives
/// into it ([`IoVec::incoming`]). Under a transport's lease others may be sending from it and receiving into it.
#[derive(Debug)]
pub struct WriteVec(pub(crate) Leased);

impl WriteVec {
    /// Bytes leased.
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// Whether no byte is leased.
    pub fn is_empty(&self) -> bool {
        self.0.range.is_empty()
    }

    /// The bytes as they are, if they lie in one piece (always so for a buffer of one fragment) of private memory; `None`
    /// for a transport's lease.
    pub fn as_slice(&self) -> Option<&[u8]> {
        // SAFETY: `single` gives private memory under a program's lease only. It lives as long as `self`, and a write
        // lease is nobody else's; what writes through it borrows `self` mutably, so that there is no `&mut` while this one lives.
        self.0.single().map(|piece| unsafe { piece.slice() })
    }

    /// The bytes, if they lie in one piece (always so for a buffer of one fragment) of private memory; `None` for a
    /// transport's lease.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `as_slice`; `&mut self` keeps every other slice away while this one lives.
        self.0.single().map(|piece| unsafe { piece.slice_mut() })
    }

    /// Adds the bytes from `skip` on to a scatter list, `limit` pieces at the most.
    pub fn scatter<'a>(&'a mut self, skip: usize, parts: &mut impl Extend<PartMut<'a>>, limit: usize) {
        // SAFETY: the pieces lie within their regions, and the lease on them lives as long as `self`, which is borrowed
        // mutably: so there is no slice of them.
        let part = |piece: Piece| unsafe { PartMut::leased(piece.start, piece.length) };
        parts.extend(self.0.pieces(skip).take(limit).map(part));
    }

    /// Where the bytes from `skip` on lie, in order: ranges of regions, for those who name memory to a device.
    pub fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        self.0.parts(skip)
    }

    /// Copies `source` to the bytes from `skip` on; gives how many found room.
    pub fn copy_from(&mut self, skip: usize, source: &[u8]) -> usize {
        let mut done = 0;
        for piece in self.0.pieces(skip) {
            if done == source.len() {
                break;
            }
            let count = piece.length.min(source.len() - done);
            // SAFETY: the lease lives as long as `self`, which is borrowed mutably, so that there is no reference.
            unsafe { piece.store(&source[done..done + count]) };
            done += count;
        }
        done
    }

    /// Sets every byte to this value.
    pub fn fill(&mut self, byte: u8) {
        let bytes = [byte; FILL_BYTES];
        for piece in self.0.pieces(0) {
            for at in (0..piece.length).step_by(FILL_BYTES) {
                let rest = piece.skip(at);
                // SAFETY: as in `copy_from`.
                unsafe { rest.store(&bytes[..FILL_BYTES.min(rest.length)]) };
            }
        }
    }

    /// Makes the lease two, atomically: this one keeps the first `at` bytes, or all if there are fewer. So a message that
    /// has arrived can be lent while others are still to come behind it.
    ///
    /// ```
    /// use lnet_region::{IoVec, Region};
    ///
    /// let buffer = IoVec::whole(Region::heap(4096)?);
    /// let mut message = buffer.incoming(0..4096)?;
    /// let to_come = message.split_off(100);
    /// drop(message);
    /// assert!(buffer.read(0..100).is_ok());
    /// assert!(buffer.read(0..101).is_err());
    /// assert_eq!(to_come.len(), 3996);
    /// # Ok::<(), lnet_region::RegionError>(())
    /// ```
    pub fn split_off(&mut self, at: usize) -> WriteVec {
        WriteVec(self.0.split_off(at))
    }

    /// What has been written becomes a message to be read. Nobody can write to it in between, unless the lease is a
    /// transport's.
    pub fn into_read(mut self) -> ReadVec {
        self.0.downgrade();
        ReadVec(self.0)
    }
}

/// Copies as many bytes as both have; gives how many.
pub fn copy(source: &ReadVec, target: &mut WriteVec) -> usize {
    let (mut from, mut to) = (source.0.pieces(0), target.0.pieces(0));
    let (mut source, mut target) = (from.next(), to.next());
    let mut done = 0;
    while let (Some(here), Some(there)) = (source, target) {
        let count = here.length.min(there.length);
        // SAFETY: both leases live all the while, and the target's is borrowed mutably: there is no `&mut` to the bytes
        // of either, nor `&` to the target's. Both ranges lie within regions that the leases keep mapped.
        unsafe { shared::copy(here.start, there.start, count) };
        done += count;
        source = if count < here.length { Some(here.skip(count)) } else { from.next() };
        target = if count < there.length { Some(there.skip(count)) } else { to.next() };
    }
    done
}
