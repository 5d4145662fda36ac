//! Names of buffers, and their memory.

use crate::layout::SegmentLayout;
use crate::object::Object;
use crate::{ARENA_BYTES_MAX, BUFFERS_MAX, PacketError};

/// A client's name for a buffer: an index in the tables of both sides, and a generation that
/// distinguishes successive buffers at that index.
///
/// ```
/// use nlx_driver_proto::BufferName;
///
/// let name = BufferName { index: 7, generation: 3 };
/// assert_eq!(name.value(), 0x0000_0003_0000_0007);
/// assert_eq!(BufferName::of_value(name.value()), Some(name));
/// assert_eq!(BufferName::of_value(7), None); // a name without a generation
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferName {
    /// The index: below [`BUFFERS_MAX`], and below the client's limit,
    /// [`nlx_core::Limits::buffers_max`] of the welcome.
    pub index: u32,
    /// The generation, not 0.
    pub generation: u32,
}

impl BufferName {
    /// Returns the name as it travels.
    #[must_use]
    pub const fn value(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the name with this value, if it is valid.
    #[must_use]
    pub const fn of_value(value: u64) -> Option<BufferName> {
        let name = BufferName { index: value as u32, generation: (value >> 32) as u32 };
        if name.index < BUFFERS_MAX && name.generation != 0 { Some(name) } else { None }
    }
}

/// A range of memory in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of the arena.
    pub arena: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, 1 or more.
    pub length: u64,
}

impl Segment {
    /// Returns whether it can lie in an arena: it is not empty and ends within the largest arena.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        match self.offset.checked_add(self.length) {
            Some(end) => self.length > 0 && end <= ARENA_BYTES_MAX,
            None => false,
        }
    }

    pub(crate) fn layout(self) -> SegmentLayout {
        SegmentLayout {
            arena: self.arena.into(),
            reserved: 0.into(),
            offset: self.offset.into(),
            length: self.length.into(),
        }
    }
}

impl Object {
    pub(crate) fn buffer_name(self, value: u64) -> Result<(), PacketError> {
        match BufferName::of_value(value) {
            Some(_) => Ok(()),
            None => Err(self.field("the buffer", value, "an index below 2^20 and a generation")),
        }
    }

    pub(crate) fn segment(self, segment: Segment) -> Result<Segment, PacketError> {
        if segment.is_valid() {
            Ok(segment)
        } else if segment.length == 0 {
            Err(self.field("a segment's length", 0u32, "1 or more"))
        } else {
            let end = segment.offset.saturating_add(segment.length);
            Err(self.field("a segment's end", end, "at most 2^40"))
        }
    }
}
