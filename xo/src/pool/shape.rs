//! The layout of a pool's buffers.

use lnet_region::{Fragment, IoVec, MAX_FRAGMENTS};
use nlx_core::Core;

use crate::Error;

/// Maximum number of colours of a pool: more than a portal has transfer machine ids. A colour costs
/// 8 bytes.
const COLOURS_MAX: usize = 1 << 16;

/// The strictest alignment: a page, which is the alignment of a buffer's memory.
const ALIGNMENT_MAX: usize = 4096;

/// The layout of a pool's buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) segments: usize,
    pub(super) segment_bytes: usize,
    pub(super) alignment: usize,
    pub(super) colours: u32,
}

impl Shape {
    pub(super) fn check(&self) -> Result<(), Error> {
        within("the number of segments of a pool's buffers", self.segments, 1, MAX_FRAGMENTS)?;
        within("the number of bytes of their segments", self.segment_bytes, 1, isize::MAX as usize)?;
        within("the number of colours of a pool", self.colours as usize, 0, COLOURS_MAX)?;
        within("the alignment of a pool's segments", self.alignment, 1, ALIGNMENT_MAX)?;
        let power = self.alignment.next_power_of_two();
        within("the alignment of a pool's segments, a power of two,", self.alignment, power, power)
    }

    /// Returns the length of a buffer; `usize::MAX`, which no allocation satisfies, on overflow.
    pub(super) fn bytes(&self) -> usize {
        self.segment_bytes.saturating_mul(self.segments)
    }

    /// Allocates memory for one buffer, which the transport can access.
    pub(super) fn memory(&self, core: &dyn Core) -> Result<IoVec, Error> {
        let stride = self.segment_bytes.next_multiple_of(self.alignment);
        // At least a page: shorter memory need not begin on a page boundary.
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
