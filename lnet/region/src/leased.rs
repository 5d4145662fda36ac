//! Leases on ranges of buffers, and the operations of their holders.

use std::ops::Range;

use crate::io::{Part, PartMut};
use crate::lease::LeaseAccess;
use crate::{IoVec, Region, RegionError, shared};

/// Length of the block with which bytes are filled, piece by piece.
const FILL_BYTES: usize = 4096;

/// A range of an [`IoVec`] with a lease on all its parts; dropping it gives the leases back.
#[derive(Debug)]
pub(crate) struct Leased {
    vec: IoVec,
    range: Range<usize>,
    access: LeaseAccess,
}

/// Contiguous bytes that the holder of a [`Leased`] may access while that exists.
#[derive(Clone, Copy)]
struct Piece {
    start: *mut u8,
    length: usize,
    /// True if slices are forbidden.
    shared: bool,
}

impl Leased {
    pub(crate) fn take(vec: &IoVec, range: Range<usize>, access: LeaseAccess) -> Result<Leased, RegionError> {
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

    /// Returns the parts of regions under the lease, from its byte `skip` on.
    fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        let start = self.range.start.saturating_add(skip).min(self.range.end);
        self.vec.parts(start..self.range.end)
    }

    /// Returns the pieces of the lease from its byte `skip` on; none in a forked child, in which
    /// the memory may not be mapped.
    fn pieces(&self, skip: usize) -> impl Iterator<Item = Piece> {
        let parts = self.parts(skip);
        parts.filter(|(region, _)| region.fork_guard().in_owner_process()).map(|(region, part)| Piece {
            start: region.address(part.start),
            length: part.len(),
            shared: region.is_shared(),
        })
    }

    /// Returns the piece of a program's lease if it is a single one in private memory; an empty one
    /// if the lease has no byte, or in a forked child.
    fn single(&self) -> Option<Piece> {
        if !self.access.is_programs() {
            return None;
        }
        let mut pieces = self.pieces(0);
        let nothing = Piece { start: std::ptr::dangling_mut(), length: 0, shared: false };
        let first = pieces.next().unwrap_or(nothing);
        (!first.shared && pieces.next().is_none()).then_some(first)
    }

    /// Keeps the first `at` bytes under this lease and returns a lease on the others.
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

fn release(vec: &IoVec, range: Range<usize>, access: LeaseAccess) {
    for (region, part) in vec.parts(range) {
        region.give_back(part, access);
    }
}

impl Piece {
    /// Returns the bytes as a slice.
    ///
    /// # Safety
    /// They are private memory, under a program's lease for `'a`, and no `&mut` to them exists
    /// meanwhile.
    unsafe fn slice<'a>(self) -> &'a [u8] {
        debug_assert!(!self.shared);
        // SAFETY: a piece lies within its region, which was zeroed at the start and which the lease
        // keeps alive; the lease excludes all other writers of this process, and other processes
        // have no access to private memory.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    /// Returns the bytes as a mutable slice.
    ///
    /// # Safety
    /// They are private memory, under a program's write lease for `'a`, and no other reference to
    /// them exists meanwhile.
    unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        debug_assert!(!self.shared);
        // SAFETY: as in `slice`; the write lease excludes all others in this process.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    /// Copies the first bytes to all of `target`, which is no longer than the piece.
    ///
    /// # Safety
    /// The piece is under a lease now, and no `&mut` to its bytes exists.
    unsafe fn load(self, target: &mut [u8]) {
        debug_assert!(target.len() <= self.length);
        // SAFETY: the bytes lie within a region that is mapped while the lease exists. During the
        // lease others write to them only by such copies or through the system. `target` is the
        // caller's alone.
        unsafe { shared::copy(self.start, target.as_mut_ptr(), target.len()) }
    }

    /// Copies `source`, which is no longer than the piece, to its first bytes.
    ///
    /// # Safety
    /// The piece is under a lease to write or receive now, and no reference to its bytes exists.
    unsafe fn store(self, source: &[u8]) {
        debug_assert!(source.len() <= self.length);
        // SAFETY: as in `load`; and no slice of bytes under such a lease can exist.
        unsafe { shared::copy(source.as_ptr(), self.start, source.len()) }
    }

    /// Returns the piece without its first bytes.
    fn skip(self, count: usize) -> Piece {
        Piece { start: self.start.wrapping_add(count), length: self.length - count, ..self }
    }
}

/// A lease to read a range of a buffer: a program's ([`IoVec::read`]), to access a received
/// message, or a transport's, to send the bytes ([`IoVec::outgoing`]). The lease keeps the memory
/// alive. Under a program's lease no other code of this process writes the bytes, so private memory
/// does not change. Under a transport's lease other transports may be receiving into it.
#[derive(Debug)]
pub struct ReadVec(pub(crate) Leased);

impl ReadVec {
    /// Returns the number of leased bytes.
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// Returns whether no byte is leased.
    pub fn is_empty(&self) -> bool {
        self.0.range.is_empty()
    }

    /// Returns the bytes, if they are contiguous (always so for a buffer of one fragment) in
    /// private memory; `None` for a transport's lease.
    pub fn as_slice(&self) -> Option<&[u8]> {
        // SAFETY: `single` returns private memory under a program's lease only. The lease exists as
        // long as `self`, and excludes leases to write or receive, without which there is neither
        // `&mut` nor store; nor can the region become shared while the lease exists.
        self.0.single().map(|piece| unsafe { piece.slice() })
    }

    /// Adds the bytes from `skip` on to a gather list, at most `limit` pieces.
    pub fn gather<'a>(&'a self, skip: usize, parts: &mut impl Extend<Part<'a>>, limit: usize) {
        // SAFETY: the pieces lie within their regions, and `self` keeps the lease on them.
        let part = |piece: Piece| unsafe { Part::leased(piece.start, piece.length) };
        parts.extend(self.0.pieces(skip).take(limit).map(part));
    }

    /// Returns the ranges of regions with the bytes from `skip` on, in order, for callers that pass
    /// memory to a device.
    pub fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        self.0.parts(skip)
    }

    /// Splits the lease atomically: this one keeps the first `at` bytes, or all if there are fewer.
    pub fn split_off(&mut self, at: usize) -> ReadVec {
        ReadVec(self.0.split_off(at))
    }

    /// Copies bytes from `skip` on into `target`; returns their number.
    pub fn copy_to(&self, skip: usize, target: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in self.0.pieces(skip) {
            if done == target.len() {
                break;
            }
            let count = piece.length.min(target.len() - done);
            // SAFETY: `self` keeps the lease; there is no `&mut` without a write lease, which
            // excludes it.
            unsafe { piece.load(&mut target[done..done + count]) };
            done += count;
        }
        done
    }

    /// Returns a copy of all bytes; for small messages and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }
}

/// A lease to write a range of a buffer: a program's ([`IoVec::write`]), which is exclusive, or a
/// transport's, to receive bytes ([`IoVec::incoming`]). Under a transport's lease other transports
/// may send from the range and receive into it at the same time.
#[derive(Debug)]
pub struct WriteVec(pub(crate) Leased);

impl WriteVec {
    /// Returns the number of leased bytes.
    pub fn len(&self) -> usize {
        self.0.range.len()
    }

    /// Returns whether no byte is leased.
    pub fn is_empty(&self) -> bool {
        self.0.range.is_empty()
    }

    /// Returns the present bytes, if they are contiguous (always so for a buffer of one fragment)
    /// in private memory; `None` for a transport's lease.
    pub fn as_slice(&self) -> Option<&[u8]> {
        // SAFETY: `single` returns private memory under a program's lease only. The lease exists as
        // long as `self`, and a write lease is exclusive; every write through it borrows `self`
        // mutably, so that there is no `&mut` during the borrow of this one.
        self.0.single().map(|piece| unsafe { piece.slice() })
    }

    /// Returns the bytes, if they are contiguous (always so for a buffer of one fragment) in
    /// private memory; `None` for a transport's lease.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as in `as_slice`; `&mut self` excludes every other slice during the borrow of
        // this one.
        self.0.single().map(|piece| unsafe { piece.slice_mut() })
    }

    /// Adds the bytes from `skip` on to a scatter list, at most `limit` pieces.
    pub fn scatter<'a>(&'a mut self, skip: usize, parts: &mut impl Extend<PartMut<'a>>, limit: usize) {
        // SAFETY: the pieces lie within their regions, and `self`, which is borrowed mutably, keeps
        // the lease on them: so there is no slice of them.
        let part = |piece: Piece| unsafe { PartMut::leased(piece.start, piece.length) };
        parts.extend(self.0.pieces(skip).take(limit).map(part));
    }

    /// Returns the ranges of regions with the bytes from `skip` on, in order, for callers that pass
    /// memory to a device.
    pub fn parts(&self, skip: usize) -> impl Iterator<Item = (&Region, Range<usize>)> {
        self.0.parts(skip)
    }

    /// Copies `source` to the bytes from `skip` on; returns the number of copied bytes.
    pub fn copy_from(&mut self, skip: usize, source: &[u8]) -> usize {
        let mut done = 0;
        for piece in self.0.pieces(skip) {
            if done == source.len() {
                break;
            }
            let count = piece.length.min(source.len() - done);
            // SAFETY: `self` keeps the lease and is borrowed mutably, so that there is no
            // reference.
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

    /// Splits the lease atomically: this one keeps the first `at` bytes, or all if there are fewer.
    /// So a message that has arrived can be lent while others are still to arrive behind it.
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

    /// Turns the lease into one to read the written bytes. No other writer can write in between,
    /// unless the lease is a transport's.
    pub fn into_read(mut self) -> ReadVec {
        self.0.downgrade();
        ReadVec(self.0)
    }
}

/// Copies bytes from the start of `source` to the start of `target`, as many as both hold; returns
/// their number.
pub fn copy(source: &ReadVec, target: &mut WriteVec) -> usize {
    let (mut from, mut to) = (source.0.pieces(0), target.0.pieces(0));
    let (mut source, mut target) = (from.next(), to.next());
    let mut done = 0;
    while let (Some(here), Some(there)) = (source, target) {
        let count = here.length.min(there.length);
        // SAFETY: both leases exist throughout, and the target's is borrowed mutably: there is no
        // `&mut` to the bytes of either, nor `&` to the target's. Both ranges lie within regions
        // that the leases keep mapped.
        unsafe { shared::copy(here.start, there.start, count) };
        done += count;
        source = if count < here.length { Some(here.skip(count)) } else { from.next() };
        target = if count < there.length { Some(there.skip(count)) } else { to.next() };
    }
    done
}
