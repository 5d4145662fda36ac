//! What a pool is like.

use std::fmt;
use std::sync::Arc;

use lnet_region::{Fragment, IoVec, MAX_FRAGMENTS};
use nlx_core::Core;

use super::BufferPool;
use crate::Error;

/// The most colours of a pool: more transfer machines than have an id at one portal. A colour costs 8 bytes.
const COLOURS_MAX: usize = 1 << 16;

/// The strictest alignment: that of the memory that a buffer gets, a page.
const ALIGNMENT_MAX: usize = 4096;

/// What a pool has too little of when nobody says how much that is (motr-transport 2.10).
const THRESHOLD: usize = 2;

/// Told of what happens in a pool, on the thread on which it happens and without any lock.
pub(super) type Told = Arc<dyn Fn(&BufferPool) + Send + Sync>;

/// What the buffers of a pool are like, and who is told when they run short.
#[derive(Clone)]
#[must_use = "it is made into a pool by `Domain::pool`"]
pub struct PoolOptions {
    segments: usize,
    segment_bytes: usize,
    alignment: usize,
    pub(super) colours: u32,
    pub(super) threshold: usize,
    pub(super) below_threshold: Option<Told>,
    pub(super) not_empty: Option<Told>,
}

impl PoolOptions {
    /// Buffers of this many bytes in one piece, without colours, and with a threshold of 2.
    pub fn new(bytes: usize) -> PoolOptions {
        PoolOptions {
            segments: 1,
            segment_bytes: bytes,
            alignment: 1,
            colours: 0,
            threshold: THRESHOLD,
            below_threshold: None,
            not_empty: None,
        }
    }

    /// Buffers of this many segments, each of the bytes given before. One that has several is read and written through
    /// [`crate::Buffer::memory`].
    pub fn segments(self, segments: usize) -> PoolOptions {
        PoolOptions { segments, ..self }
    }

    /// Segments begin at multiples of this many bytes, a power of two up to 4096. The first one always begins a page.
    pub fn alignment(self, alignment: usize) -> PoolOptions {
        PoolOptions { alignment, ..self }
    }

    /// This many colours ([`crate::Colour`]), at most 65536.
    pub fn colours(self, colours: u32) -> PoolOptions {
        PoolOptions { colours, ..self }
    }

    /// The pool runs short when it has fewer free buffers than this, and [`BufferPool::prune`] leaves so many.
    pub fn threshold(self, threshold: usize) -> PoolOptions {
        PoolOptions { threshold, ..self }
    }

    /// Called whenever a buffer was taken and fewer are left free than the threshold: the place for
    /// [`BufferPool::provision`]. Runs on the thread that took the buffer, without any lock of ours. While it runs, no other
    /// call begins; if it has made the pool grow, and that has run short again meanwhile, it is called once more.
    pub fn below_threshold(self, told: impl Fn(&BufferPool) + Send + Sync + 'static) -> PoolOptions {
        PoolOptions { below_threshold: Some(Arc::new(told)), ..self }
    }

    /// Called when a buffer came into a pool that had none free. Runs on the thread that let go of the buffer, without any
    /// lock of ours; transfer machines that want for buffers have been served before, and others may have taken it since.
    pub fn not_empty(self, told: impl Fn(&BufferPool) + Send + Sync + 'static) -> PoolOptions {
        PoolOptions { not_empty: Some(Arc::new(told)), ..self }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        within("the number of segments of a pool's buffers", self.segments, 1, MAX_FRAGMENTS)?;
        within("the number of bytes of their segments", self.segment_bytes, 1, isize::MAX as usize)?;
        within("the number of colours of a pool", self.colours as usize, 0, COLOURS_MAX)?;
        within("the alignment of a pool's segments", self.alignment, 1, ALIGNMENT_MAX)?;
        let power = self.alignment.next_power_of_two();
        within("the alignment of a pool's segments, a power of two,", self.alignment, power, power)
    }

    /// Bytes of a buffer; so many that no memory has them, if they cannot be counted.
    pub(super) fn bytes(&self) -> usize {
        self.segment_bytes.saturating_mul(self.segments)
    }

    /// Memory for one buffer, which the transport reaches.
    pub(super) fn memory(&self, core: &dyn Core) -> Result<IoVec, Error> {
        let stride = self.segment_bytes.next_multiple_of(self.alignment);
        // What is shorter than a page need not begin one.
        let region = core.allocate(stride.saturating_mul(self.segments).max(ALIGNMENT_MAX))?;
        if region.len() == self.segment_bytes {
            return Ok(IoVec::whole(region));
        }
        let segment = |number| Fragment::new(region.clone(), number * stride, self.segment_bytes);
        let segments = (0..self.segments).map(segment).collect::<Result<Vec<_>, _>>()?;
        Ok(IoVec::new(segments)?)
    }
}

/// Refuses a value out of bounds.
pub(crate) fn within(what: &'static str, value: usize, least: usize, most: usize) -> Result<(), Error> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(Error::PoolOption { what, value, least, most }) }
}

impl fmt::Debug for PoolOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOptions")
            .field("segments", &self.segments)
            .field("segment_bytes", &self.segment_bytes)
            .field("alignment", &self.alignment)
            .field("colours", &self.colours)
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}
