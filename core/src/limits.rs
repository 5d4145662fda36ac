//! The limits of buffers and operations.

use crate::{CoreError, IoVec, RegionError};

/// The limits of a domain (motr-transport 12). They are the same for every transport today; clients
/// read them from their domain, so that they may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a buffer: LNet's largest payload.
    pub buffer_bytes_max: usize,
    /// Bytes of one segment of a buffer. Motr limits it to a page, because its vectors are lists of
    /// pages; nlx does not.
    pub segment_bytes_max: usize,
    /// Segments of a buffer: LNet's limit of fragments of a message.
    pub segments_max: usize,
    /// Bytes of the longest bulk descriptor. One that Motr reads has
    /// [`crate::Descriptor::COMPATIBLE_LEN`].
    pub descriptor_bytes_max: usize,
    /// Messages of one receive buffer. Event space for all of them is reserved when it is posted.
    pub messages_max: u32,
    /// Buffers that are registered with a domain at a time.
    pub buffers_max: usize,
}

impl Limits {
    /// The limits of LNet (MT-1).
    pub const LNET: Limits = Limits {
        buffer_bytes_max: 1 << 20,
        segment_bytes_max: 1 << 20,
        segments_max: lnet_region::MAX_FRAGMENTS,
        descriptor_bytes_max: crate::Descriptor::MAX_LEN,
        // A 1 MiB buffer of messages of 16 bytes each; smaller messages have no use.
        messages_max: 1 << 16,
        // A terabyte of buffers of 1 MiB each.
        buffers_max: 1 << 20,
    };

    /// Checks whether memory may be a buffer (MT-228).
    ///
    /// # Errors
    /// EINVAL for no bytes, EFBIG for too many, for a segment that is too long, and for too many
    /// segments.
    pub fn check(&self, memory: &IoVec) -> Result<(), CoreError> {
        let limit = self.buffer_bytes_max;
        if memory.is_empty() {
            return Err(CoreError::Range { field: "length of a buffer", value: 0, limit: limit as u64 });
        }
        if memory.len() > limit {
            return Err(CoreError::TooLong { object: "buffer", bytes: memory.len(), limit });
        }
        let (fragments, max) = (memory.fragments().len(), self.segments_max);
        if fragments > max {
            return Err(RegionError::Fragments { fragments, max }.into());
        }
        let limit = self.segment_bytes_max;
        match memory.fragments().iter().map(|fragment| fragment.len()).find(|&bytes| bytes > limit) {
            Some(bytes) => Err(CoreError::TooLong { object: "segment of a buffer", bytes, limit }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Motr's limits, except for the segment, which need not be a page here, and the descriptor,
    // which may be in nlx's own form.
    // Covers: MT-1
    #[test]
    fn the_limits_are_those_of_lnet() {
        assert_eq!(Limits::LNET.buffer_bytes_max, 1024 * 1024);
        assert_eq!(Limits::LNET.segments_max, 256);
        assert_eq!(Limits::LNET.descriptor_bytes_max, 56);
        assert_eq!(Limits::LNET.segment_bytes_max, Limits::LNET.buffer_bytes_max);
    }
}
