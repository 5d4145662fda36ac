//! Memory descriptors: what they allow, when they are exhausted (lnet-semantics 3 and 5).

use lnet_api::{Md, MdOptions, Threshold, TxToken, Unlink};
use lnet_proto::MAX_PAYLOAD;
use lnet_region::IoVec;

use crate::list::List;
use crate::slab::NONE;

/// The list number of the responses expected for one MD.
pub(super) const BY_MD: usize = 4;

/// A memory descriptor in the engine's table.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) memory: IoVec,
    threshold: Threshold,
    /// Largest single incoming message; `None` without MAX_SIZE.
    max_size: Option<u32>,
    pub(super) options: MdOptions,
    pub(super) user_ptr: u64,
    /// Event queue, or [`NONE`].
    pub(super) eq: u32,
    /// Match entry it is attached to, or [`NONE`].
    pub(super) me: u32,
    /// Made by `md_bind` for one's own PUTs and GETs.
    pub(super) bound: bool,
    pub(super) auto_unlink: bool,
    /// For PUTs that wait already: others look past it until those have been asked.
    pub(super) reserved: bool,
    /// Unlinked: its handle names nothing any more, the memory goes with the last message.
    pub(super) dead: bool,
    /// Unlinked by its owner, or for a response that did not come, while messages were in flight.
    pub(super) aborted: bool,
    /// Where the next message goes if the offset is managed here.
    offset: u64,
    /// Messages in flight that use it; waiting for an ACK or REPLY does not count.
    pub(super) busy: u32,
    /// The message from it that was last left to wait, or to its LND, and may be over by now: to be taken back if the owner
    /// unlinks the MD. A bound MD seldom carries more than one at a time.
    pub(super) outgoing: Option<TxToken>,
    /// ACKs and REPLYs still expected.
    pub(super) responses: List<BY_MD>,
}

impl Descriptor {
    /// Takes over what its owner described.
    pub(super) fn new(md: Md, eq: u32, me: u32, unlink: Unlink) -> Descriptor {
        Descriptor {
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

    /// Bytes of memory.
    pub(super) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Whether it takes no further operation.
    pub(super) fn is_exhausted(&self) -> bool {
        let full = |max_size| self.offset.saturating_add(u64::from(max_size)) > self.len();
        self.threshold == Threshold::Limited(0) || self.max_size.is_some_and(full)
    }

    /// Whether the operations are used up, whatever room there is.
    pub(super) fn is_spent(&self) -> bool {
        self.threshold == Threshold::Limited(0)
    }

    /// Counts one operation.
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

    /// Where in the memory a message of `length` bytes would go, and how many bytes of it are taken; `None` if it is too
    /// long (lnet-semantics 9, rows 6 and 7). An offset beyond the end is too long (lnet-wire 13), and no answer to a
    /// GET is longer than a message can be.
    pub(super) fn place(&self, length: u32, header_offset: u32) -> Option<(u64, u32)> {
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
