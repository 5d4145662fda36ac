//! Buffers of several fragments: [`IoVec`] is a list of parts of regions, and grants leases of its
//! bytes.

use std::ops::Range;

use nlx_fallible::{TryArc, unsize};

use crate::lease::LeaseAccess;
use crate::leased::{Leased, ReadVec, WriteVec};
use crate::{Region, RegionError};

/// Maximum number of fragments of one buffer: LNet's maximum for a memory descriptor (lnet-wire 8).
pub const MAX_FRAGMENTS: usize = 256;

/// A contiguous part of a region: (region, offset, length) in bytes.
#[derive(Debug, Clone)]
pub struct Fragment {
    region: Region,
    offset: usize,
    length: usize,
}

impl Fragment {
    /// Creates a fragment of `length` bytes of `region` from `offset` on. The offset needs no
    /// alignment.
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

    /// Returns the region that contains the fragment.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the offset of the fragment's first byte within the region.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of bytes in the fragment; never 0.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }
}

/// The shape of a buffer: fragments, of which the first `len()` bytes are used. Clones share the
/// list (Motr's core stores it in `kb_kiov`, built once at registration; [`IoVec::trimmed`]
/// corresponds to its trimming to a byte count).
#[derive(Debug, Clone)]
pub struct IoVec {
    fragments: TryArc<[Fragment]>,
    length: usize,
}

impl IoVec {
    /// Creates a buffer of these fragments, in this order.
    ///
    /// # Errors
    /// [`RegionError::Fragments`] for none or more than [`MAX_FRAGMENTS`]; [`RegionError::System`]
    /// with ENOMEM if there is no memory for the list.
    pub fn new(fragments: impl Into<Vec<Fragment>>) -> Result<IoVec, RegionError> {
        let fragments = fragments.into();
        if fragments.is_empty() || fragments.len() > MAX_FRAGMENTS {
            return Err(RegionError::Fragments { fragments: fragments.len(), max: MAX_FRAGMENTS });
        }
        let length = fragments.iter().map(Fragment::len).sum();
        Ok(IoVec { fragments: TryArc::try_from_vec(fragments)?, length })
    }

    /// Creates a buffer over the whole of one region.
    pub fn whole(region: Region) -> IoVec {
        let length = region.len();
        let fragments = unsize!(TryArc::new([Fragment { region, offset: 0, length }]) => [Fragment]);
        IoVec { fragments, length }
    }

    /// Returns the number of bytes in use; 0 only after trimming to 0.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the buffer is trimmed to nothing.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the fragments, untrimmed.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Returns the same buffer, trimmed to its first `length` bytes.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`] if there are fewer.
    pub fn trimmed(&self, length: usize) -> Result<IoVec, RegionError> {
        self.clone().into_trimmed(length)
    }

    /// Trims this buffer to its first `length` bytes.
    ///
    /// # Errors
    /// The errors of [`IoVec::trimmed`].
    pub fn into_trimmed(self, length: usize) -> Result<IoVec, RegionError> {
        if length > self.length {
            return Err(RegionError::OutOfBounds { start: 0, end: length, length: self.length });
        }
        Ok(IoVec { length, ..self })
    }

    /// Takes a program's lease to read a range of bytes, which do not change during the lease.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], or [`RegionError::InUse`] while a program writes there or a
    /// transport receives.
    pub fn read(&self, range: Range<usize>) -> Result<ReadVec, RegionError> {
        Leased::take(self, range, LeaseAccess::Read).map(ReadVec)
    }

    /// Takes a program's lease to write a range of bytes, which excludes all other leases.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], or [`RegionError::InUse`] while another lease has a byte
    /// there.
    pub fn write(&self, range: Range<usize>) -> Result<WriteVec, RegionError> {
        Leased::take(self, range, LeaseAccess::Write).map(WriteVec)
    }

    /// Checks that [`IoVec::read`] would be granted at this moment; takes no lease.
    ///
    /// # Errors
    /// The errors of [`IoVec::read`].
    pub fn check_read(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.check(range, LeaseAccess::Read)
    }

    /// Checks that [`IoVec::write`] would be granted at this moment; takes no lease.
    ///
    /// # Errors
    /// The errors of [`IoVec::write`].
    pub fn check_write(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.check(range, LeaseAccess::Write)
    }

    /// Checks that [`IoVec::outgoing`] would be granted at this moment; takes no lease.
    ///
    /// # Errors
    /// The errors of [`IoVec::outgoing`].
    pub fn check_outgoing(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.check(range, LeaseAccess::Send)
    }

    /// Checks that [`IoVec::incoming`] would be granted at this moment; takes no lease.
    ///
    /// # Errors
    /// The errors of [`IoVec::incoming`].
    pub fn check_incoming(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.check(range, LeaseAccess::Receive)
    }

    fn check(&self, range: Range<usize>, access: LeaseAccess) -> Result<(), RegionError> {
        self.check_bounds(&range)?;
        self.parts(range).try_for_each(|(region, part)| region.check(part, access))
    }

    pub(crate) fn check_bounds(&self, range: &Range<usize>) -> Result<(), RegionError> {
        let length = self.length;
        if range.start > range.end || range.end > length {
            return Err(RegionError::OutOfBounds { start: range.start, end: range.end, length });
        }
        Ok(())
    }

    /// Takes a transport's lease to send a range of bytes. Other transports may receive into the
    /// range at the same time: which bytes are sent then is the application's responsibility, as in
    /// LNet.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], or [`RegionError::InUse`] while a program writes there.
    pub fn outgoing(&self, range: Range<usize>) -> Result<ReadVec, RegionError> {
        Leased::take(self, range, LeaseAccess::Send).map(ReadVec)
    }

    /// Takes a transport's lease to receive into a range of bytes. Other transports may send the
    /// range, and receive into it, at the same time: its content is then the application's
    /// responsibility, as in LNet.
    ///
    /// # Errors
    /// [`RegionError::OutOfBounds`], or [`RegionError::InUse`] while a program reads or writes
    /// there.
    pub fn incoming(&self, range: Range<usize>) -> Result<WriteVec, RegionError> {
        Leased::take(self, range, LeaseAccess::Receive).map(WriteVec)
    }

    /// Splits the leases on a range: changes the one part that contains `middle`, if there is one.
    pub(crate) fn split(&self, range: Range<usize>, middle: usize, access: LeaseAccess) {
        let mut at = range.start;
        for (region, part) in self.parts(range) {
            let length = part.len();
            if at < middle && middle < at + length {
                let cut = part.start + (middle - at);
                region.split(part, cut, access);
            }
            at += length;
        }
    }

    /// Returns the parts of the fragments that make up a byte range of the buffer, in order.
    pub(crate) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (&Region, Range<usize>)> {
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
