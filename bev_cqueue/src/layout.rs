//! The layout of the shared memory: a header, the links, the slots.
//!
//! | part | bytes | written by |
//! | --- | --- | --- |
//! | [`Header`] | 640 | a group of 128 bytes for the identity, one for the consumer's counters, two for sleeping, one for the producer's word |
//! | links | 4 per slot | the consumer, when it grows the ring |
//! | slots | 128 each, from the next multiple of 128 | the producer |
//!
//! Every word is an atomic, since the other process may write any of them at any time; every bit
//! pattern of every word is valid. Words are in host order: both processes run on one machine.

use core::mem::size_of;
#[cfg(not(loom))]
use core::sync::atomic::Ordering::Relaxed;

use nlx_sync::{AtomicU32, AtomicU64, SleepWord};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The minimum number of slots of a ring: the divider, and one to fill (motr-transport 6.2,
/// `init`).
pub const MIN_SLOTS: u32 = 2;

/// The maximum number of slots of a ring: a million events outstanding on one transfer machine, in
/// 132 MiB. It must be far below 2^32, so that a stamp of an earlier round is never mistaken for a
/// new one.
pub const MAX_SLOTS: u32 = 1 << 20;

/// The bytes of a slot that hold the event.
pub const PAYLOAD_BYTES: usize = 120;

/// The first word of every queue: "nlx bevq" in ASCII, read as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"nlx bevq");

/// The version of this layout.
pub(crate) const VERSION: u32 = 2;

/// The number of payload words in a slot.
const WORDS: usize = PAYLOAD_BYTES / size_of::<u64>();

/// A buffer event: plain data of at most [`PAYLOAD_BYTES`] bytes, aligned to 8 at most, without
/// padding.
///
/// Implemented for every type that qualifies. A type that is too large does not compile:
///
/// ```compile_fail
/// let _ = nlx_bev_cqueue::heap::<[u64; 16]>(8);
/// ```
pub trait Event: FromBytes + IntoBytes + KnownLayout + Immutable + Copy + 'static {
    /// Fails to compile if the event does not fit into a slot.
    const FITS: () = assert!(
        size_of::<Self>() <= PAYLOAD_BYTES && align_of::<Self>() <= align_of::<u64>(),
        "an event must fit into 120 bytes, aligned to 8"
    );
}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Copy + 'static> Event for T {}

/// The header of the shared memory. No two groups share a pair of cache lines, because processors
/// fetch lines in pairs.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    pub(crate) identity: Identity,
    pub(crate) consumer: ConsumerLine,
    /// The sleep word of a thread.
    pub(crate) wake: WakeLine,
    /// The sleep word of an event loop that sleeps on a descriptor, or of the producer while it
    /// waits until the consumer has taken events.
    pub(crate) loop_handle: WakeLine,
    pub(crate) producer: ProducerLine,
}

impl Header {
    pub(crate) fn word(&self, side: SleepSide) -> &SleepWord {
        match side {
            SleepSide::Thread => &self.wake.sleeping,
            SleepSide::Loop => &self.loop_handle.sleeping,
        }
    }
}

/// Selects one of a queue's two sleep words: that of the thread that waits for the queue's events,
/// or that of an event loop, which also waits for other descriptors. In a queue without an event
/// loop, the producer may use the second one while it waits until the consumer has taken events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SleepSide {
    Thread,
    Loop,
}

/// Identifies the memory; written once, before it is shared, and checked when a peer attaches.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Identity {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) max_slots: AtomicU32,
    /// Nonzero once a producer has been created.
    pub(crate) producer_taken: AtomicU32,
    /// Nonzero once a consumer has been created.
    pub(crate) consumer_taken: AtomicU32,
}

/// Words of the consumer for the producer.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ConsumerLine {
    /// The number of events taken since the start.
    pub(crate) consumed: AtomicU64,
    /// The number of slots in the ring.
    pub(crate) nr: AtomicU32,
}

/// The producer's word for the consumer, separate from the events.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ProducerLine {
    pub(crate) word: AtomicU64,
}

/// Announces to the producer that the consumer sleeps. The word is in another pair of lines than
/// the counters, so that the producer's read of it after each event hits the producer's cache.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct WakeLine {
    /// 1 while the consumer sleeps or is about to; the futex word.
    pub(crate) sleeping: SleepWord,
}

/// The successor of a slot in the ring.
///
/// Links are in an array and not in the slots: thirty-two share a pair of cache lines, which only
/// growth writes, so both processors keep them cached. With the link inside the slot, the producer
/// would have to wait for the slot's line to return from the consumer's cache before it knew the
/// address of the next slot.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(transparent)]
pub struct SlotLink(pub(crate) AtomicU32);

/// One element of the ring: an event and its stamp.
///
/// The stamp comes last: the producer then writes the two cache lines in the order of their
/// addresses, and takes the line that a waiting consumer polls from it once per event.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Slot {
    pub(crate) payload: Payload,
    /// The bits of the slot's [`Stamp`].
    pub(crate) stamp: AtomicU64,
}

/// The number of the event in a slot, and the index of the next slot.
///
/// Both are in one word, so that they become visible together. The consumer needs no counter of the
/// producer's, because an event is present when its slot has the expected number. That saves the
/// transfer of one cache line per event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The low half of the event's number; the first event has number 1.
    pub(crate) number: u32,
    /// The index of the slot that the producer fills next.
    pub(crate) next: u32,
}

impl Stamp {
    pub(crate) fn new(event_number: u64, next: u32) -> Self {
        // The truncation is intended: the doc of `MAX_SLOTS` has the reason why the low half is
        // enough.
        Stamp { number: event_number as u32, next }
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Stamp { number: (bits >> 32) as u32, next: bits as u32 }
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.next)
    }

    /// Returns `self.next`, for the stamp of slot `index`.
    ///
    /// Most slots lead to their neighbour. With a comparison, the processor predicts the branch and
    /// fetches the next slots before this stamp has arrived; with the value from the stamp alone,
    /// each slot would wait for the one before. `black_box` hides from the compiler that both
    /// branches give the same value.
    #[inline]
    pub(crate) fn predicted_next(self, index: u32) -> u32 {
        let neighbour = index.wrapping_add(1);
        if self.next == neighbour { core::hint::black_box(neighbour) } else { self.next }
    }

    pub(crate) fn is_of(self, event_number: u64) -> bool {
        self.number == event_number as u32
    }
}

/// The bytes of an event.
///
/// Copied word by word with relaxed atomics: the stamp orders them, and a hostile peer that writes
/// at the same time corrupts the event's value but causes no undefined behaviour. Measured, it
/// costs the same as a plain copy: the transfer of the cache lines hides it.
///
/// An event fills the last of the words, so that an event of up to 56 bytes shares a single cache
/// line with its stamp.
#[cfg(not(loom))]
#[derive(Debug, zerocopy::FromZeros, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Payload([AtomicU64; WORDS]);

#[cfg(not(loom))]
impl Payload {
    #[inline]
    pub(crate) fn write<T: Event>(&self, event: &T) {
        // Whole words are copied separately from the rest, so that all lengths are constants for
        // the compiler.
        let (whole, rest) = event.as_bytes().as_chunks();
        let (words, last) = self.words_of::<T>().split_at(whole.len());
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        if let Some(last) = last.first() {
            let mut padded = [0; size_of::<u64>()];
            padded[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_ne_bytes(padded), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn read<T: Event>(&self) -> T {
        let mut event = T::new_zeroed();
        let (whole, rest) = event.as_mut_bytes().as_chunks_mut();
        let (words, last) = self.words_of::<T>().split_at(whole.len());
        for (word, bytes) in words.iter().zip(whole) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        if let Some(last) = last.first() {
            rest.copy_from_slice(&last.load(Relaxed).to_ne_bytes()[..rest.len()]);
        }
        event
    }

    /// Returns the words that hold the event: the last ones. The subtraction does not underflow,
    /// because of `Event::FITS`.
    fn words_of<T: Event>(&self) -> &[AtomicU64] {
        &self.0[WORDS - size_of::<T>().div_ceil(size_of::<u64>())..]
    }
}

/// The bytes of an event under loom: a plain cell, so that loom reports any write that is not
/// ordered with a read. A proof for plain memory holds for relaxed atomics, too.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Payload(nlx_sync::UnsafeCell<[u64; WORDS]>);

// SAFETY: a thread writes a payload only while no other thread accesses it: the queue guarantees
// this, and loom checks it at each access.
#[cfg(loom)]
unsafe impl Sync for Payload {}

#[cfg(loom)]
impl Payload {
    pub(crate) fn write<T: Event>(&self, event: &T) {
        let bytes = event.as_bytes();
        // SAFETY: loom has just checked that no other thread accesses the cell.
        self.0
            .with_mut(|words| unsafe { (&mut *words).as_mut_bytes()[..bytes.len()].copy_from_slice(bytes) });
    }

    pub(crate) fn read<T: Event>(&self) -> T {
        let mut event = T::new_zeroed();
        let bytes = event.as_mut_bytes();
        // SAFETY: loom has just checked that no other thread writes the cell.
        self.0.with(|words| unsafe { bytes.copy_from_slice(&(&*words).as_bytes()[..bytes.len()]) });
        event
    }
}

/// Zeroed forms of loom's types, whose all-zero bytes are not valid: the memory is built field by
/// field.
#[cfg(loom)]
mod zeroed {
    use super::*;

    impl Header {
        pub(crate) fn zeroed() -> Self {
            Header {
                identity: Identity {
                    magic: AtomicU64::new(0),
                    version: AtomicU32::new(0),
                    max_slots: AtomicU32::new(0),
                    producer_taken: AtomicU32::new(0),
                    consumer_taken: AtomicU32::new(0),
                },
                consumer: ConsumerLine { consumed: AtomicU64::new(0), nr: AtomicU32::new(0) },
                wake: WakeLine { sleeping: SleepWord::new() },
                loop_handle: WakeLine { sleeping: SleepWord::new() },
                producer: ProducerLine { word: AtomicU64::new(0) },
            }
        }
    }

    impl SlotLink {
        pub(crate) fn zeroed() -> Self {
            SlotLink(AtomicU32::new(0))
        }
    }

    impl Slot {
        pub(crate) fn zeroed() -> Self {
            Slot { payload: Payload(nlx_sync::UnsafeCell::new([0; WORDS])), stamp: AtomicU64::new(0) }
        }
    }
}

/// MT-220: assertions on the layout, which both processes must share.
#[cfg(not(loom))]
mod assertions {
    use core::mem::offset_of;

    use static_assertions::{const_assert, const_assert_eq};

    use super::*;

    const_assert_eq!(size_of::<Header>(), 640);
    const_assert_eq!(align_of::<Header>(), 128);
    const_assert_eq!(offset_of!(Header, identity), 0);
    const_assert_eq!(offset_of!(Header, consumer), 128);
    const_assert_eq!(offset_of!(Header, wake), 256);
    const_assert_eq!(offset_of!(Header, loop_handle), 384);
    const_assert_eq!(offset_of!(Header, producer), 512);

    const_assert_eq!(size_of::<Identity>(), 128);
    const_assert_eq!(offset_of!(Identity, magic), 0);
    const_assert_eq!(offset_of!(Identity, version), 8);
    const_assert_eq!(offset_of!(Identity, max_slots), 12);
    const_assert_eq!(offset_of!(Identity, producer_taken), 16);
    const_assert_eq!(offset_of!(Identity, consumer_taken), 20);

    const_assert_eq!(size_of::<ConsumerLine>(), 128);
    const_assert_eq!(offset_of!(ConsumerLine, consumed), 0);
    const_assert_eq!(offset_of!(ConsumerLine, nr), 8);

    const_assert_eq!(size_of::<WakeLine>(), 128);
    const_assert_eq!(offset_of!(WakeLine, sleeping), 0);

    const_assert_eq!(size_of::<ProducerLine>(), 128);
    const_assert_eq!(offset_of!(ProducerLine, word), 0);

    const_assert_eq!(size_of::<SlotLink>(), 4);
    const_assert_eq!(align_of::<SlotLink>(), 4);

    const_assert_eq!(size_of::<Slot>(), 128);
    const_assert_eq!(align_of::<Slot>(), 128);
    const_assert_eq!(offset_of!(Slot, payload), 0);
    const_assert_eq!(offset_of!(Slot, stamp), 120);
    const_assert_eq!(size_of::<Payload>(), PAYLOAD_BYTES);
    const_assert_eq!(align_of::<Payload>(), 8);

    // Both processes write these words, so each access must be a single instruction on every
    // machine.
    const_assert!(cfg!(target_has_atomic = "32") && cfg!(target_has_atomic = "64"));
    const_assert_eq!(size_of::<AtomicU32>(), 4);
    const_assert_eq!(size_of::<AtomicU64>(), 8);
    const_assert_eq!(align_of::<AtomicU64>(), 8);

    const_assert!(MIN_SLOTS >= 2 && MAX_SLOTS < u32::MAX / 2);
}
