//! Memory descriptors: their limits and their exhaustion (lnet-semantics 3 and 5).

use lnet_api::{Md, MdOptions, Threshold, TxToken, Unlink};
use lnet_proto::MAX_PAYLOAD;
use lnet_region::IoVec;

use crate::list::List;
use crate::slab::NONE;

/// The list number of the responses expected for one MD.
pub(super) const BY_MD: usize = 4;

/// A memory descriptor in the engine's table.
#[derive(Debug)]
pub(super) struct MdState {
    pub(super) memory: IoVec,
    threshold: Threshold,
    /// Largest single incoming message; `None` without MAX_SIZE.
    max_size: Option<u32>,
    pub(super) options: MdOptions,
    pub(super) user_ptr: u64,
    /// Event queue, or [`NONE`].
    pub(super) eq: u32,
    /// Match entry to which it is attached, or [`NONE`].
    pub(super) me: u32,
    /// Created by `md_bind` for PUTs and GETs of this node.
    pub(super) bound: bool,
    pub(super) auto_unlink: bool,
    /// Reserved for PUTs that already wait: other messages skip the MD until the waiting ones have
    /// been tried.
    pub(super) reserved: bool,
    /// Unlinked: no handle names it any more, and the last message frees the memory.
    pub(super) dead: bool,
    /// Unlinked by its owner, or for a missing response, while messages were in flight.
    pub(super) aborted: bool,
    /// Offset of the next message, if the MD manages the offset (without `MANAGE_REMOTE`).
    offset: u64,
    /// Messages in flight that use it; an expected ACK or REPLY does not count.
    pub(super) busy: u32,
    /// Token of the MD's last message that waits or is with its LND; the message may have ended by
    /// now. It is withdrawn if the owner unlinks the MD. A bound MD rarely carries more than one
    /// message at a time.
    pub(super) outgoing: Option<TxToken>,
    /// Expected ACKs and REPLYs.
    pub(super) responses: List<BY_MD>,
}

impl MdState {
    /// Creates a descriptor from the owner's description.
    pub(super) fn new(md: Md, eq: u32, me: u32, unlink: Unlink) -> MdState {
        MdState {
            max_size: md.options.contains(MdOptions::MAX_SIZE).then_some(md.max_size),
            memory: md.memory,
            threshold: md.threshold,
            options: md.options,
            user_ptr: md.user_ptr,
            eq,
            me,
            bound: me == NONE,
            auto_unlink: unlink == Unlink::Auto,
            reserved: false,
            dead: false,
            aborted: false,
            offset: 0,
            busy: 0,
            outgoing: None,
            responses: List::new(),
        }
    }

    /// Returns the length of the MD's memory in bytes.
    pub(super) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns whether the MD takes no further operation.
    pub(super) fn is_exhausted(&self) -> bool {
        let full = |max_size| self.offset.saturating_add(u64::from(max_size)) > self.len();
        self.threshold == Threshold::Limited(0) || self.max_size.is_some_and(full)
    }

    /// Returns whether the MD's threshold is used up, whatever room there is.
    pub(super) fn is_spent(&self) -> bool {
        self.threshold == Threshold::Limited(0)
    }

    /// Counts one operation against the threshold.
    pub(super) fn consume(&mut self) {
        if let Threshold::Limited(left) = &mut self.threshold {
            *left = left.saturating_sub(1);
        }
    }

    /// Counts an incoming message that used these bytes.
    pub(super) fn consume_range(&mut self, offset: u64, mlength: u32) {
        self.consume();
        self.offset = offset + u64::from(mlength);
    }

    /// Returns the offset in the memory at which a message of `length` bytes is placed, and the
    /// number of bytes taken; `None` if it is too long (lnet-semantics 9, rows 6 and 7). An offset
    /// beyond the end is too long (lnet-wire 13), and no answer to a GET exceeds the maximum
    /// payload of a message.
    pub(super) fn locate(&self, length: u32, header_offset: u32) -> Option<(u64, u32)> {
        let remote = self.options.contains(MdOptions::MANAGE_REMOTE);
        let offset = if remote { u64::from(header_offset) } else { self.offset };
        let room = self.len().checked_sub(offset)?;
        let limit = u64::from(self.max_size.unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD));
        let allowed = room.min(limit) as u32;
        match length {
            length if length <= allowed => Some((offset, length)),
            _ if self.options.contains(MdOptions::TRUNCATE) => Some((offset, allowed)),
            _ => None,
        }
    }
}
