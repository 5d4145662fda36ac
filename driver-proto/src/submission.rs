//! Entries of the submission ring, as bytes.

use std::mem::offset_of;

use nlx_core::Descriptor;
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An entry of the ring as it lies there: 120 bytes, the whole of a slot.
///
/// The fields in use depend on `kind`; the others are 0. [`crate::Entry`] is its decoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Submission {
    /// 1 operate, 2 cancel, 3 register, 4 deregister.
    pub kind: U32,
    /// Operate: the [`nlx_core::Queue`].
    pub queue: U32,
    /// Operate, cancel: the transfer machine.
    pub tm: U64,
    /// All kinds: the handle of the buffer.
    pub buffer: U64,
    /// Operate, cancel: the operation's cookie.
    pub cookie: U64,
    /// Send, passive send, active send, register: length in bytes. Receive: the least room.
    pub length: U64,
    /// Passive operations: the lower 52 bits of the match bits. Register: the offset in the arena.
    pub counter_or_offset: U64,
    /// Receive: the largest number of messages. Register: the arena.
    pub count: U32,
    /// Bytes of `target` in use: 32 for an address, else the length of a descriptor.
    pub target_length: U32,
    /// Send: NID, PID, portal, id of the receiver. Active operations: the descriptor.
    pub target: [u8; Descriptor::MAX_LEN],
    /// Always 0.
    pub reserved: U64,
}

const_assert_eq!(size_of::<Submission>(), 120);
const_assert_eq!(offset_of!(Submission, kind), 0);
const_assert_eq!(offset_of!(Submission, queue), 4);
const_assert_eq!(offset_of!(Submission, tm), 8);
const_assert_eq!(offset_of!(Submission, buffer), 16);
const_assert_eq!(offset_of!(Submission, cookie), 24);
const_assert_eq!(offset_of!(Submission, length), 32);
const_assert_eq!(offset_of!(Submission, counter_or_offset), 40);
const_assert_eq!(offset_of!(Submission, count), 48);
const_assert_eq!(offset_of!(Submission, target_length), 52);
const_assert_eq!(offset_of!(Submission, target), 56);
const_assert_eq!(offset_of!(Submission, reserved), 112);

impl Submission {
    /// An entry with all fields 0.
    pub(crate) const ZERO: Submission = Submission {
        kind: U32::ZERO,
        queue: U32::ZERO,
        tm: U64::ZERO,
        buffer: U64::ZERO,
        cookie: U64::ZERO,
        length: U64::ZERO,
        counter_or_offset: U64::ZERO,
        count: U32::ZERO,
        target_length: U32::ZERO,
        target: [0; Descriptor::MAX_LEN],
        reserved: U64::ZERO,
    };

    /// Returns the entry with a target of at most 56 bytes.
    pub(crate) fn with_target(mut self, bytes: &[u8]) -> Submission {
        self.target_length = (bytes.len() as u32).into();
        self.target[..bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Returns the first field that differs from `other`, and its value here.
    pub(crate) fn first_difference(&self, other: &Submission) -> Option<(&'static str, u64)> {
        if self == other {
            return None;
        }
        let fields: [(&'static str, u64, u64); 8] = [
            ("the queue", self.queue.get().into(), other.queue.get().into()),
            ("the transfer machine", self.tm.get(), other.tm.get()),
            ("the cookie", self.cookie.get(), other.cookie.get()),
            ("the length", self.length.get(), other.length.get()),
            ("the counter or offset", self.counter_or_offset.get(), other.counter_or_offset.get()),
            ("the count", self.count.get().into(), other.count.get().into()),
            ("the length of the target", self.target_length.get().into(), other.target_length.get().into()),
            ("a reserved field", self.reserved.get(), other.reserved.get()),
        ];
        let field = fields.into_iter().find(|(_, value, expected)| value != expected);
        let byte = || self.target.iter().zip(&other.target).find(|(value, expected)| value != expected);
        field
            .map(|(name, value, _)| (name, value))
            .or_else(|| byte().map(|(&value, _)| ("a byte behind the target", value.into())))
    }
}
