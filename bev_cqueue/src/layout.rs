//! What lies in the shared memory: a header, the links, the slots.
//!
//! | part | bytes | written by |
//! | --- | --- | --- |
//! | [`Header`] | 640 | a group of 128 bytes for the identity, one for the consumer's counters, two for sleeping, one for the producer's word |
//! | links | 4 per slot | the consumer, when it grows the ring |
//! | slots | 128 each, from the next multiple of 128 | the producer |
//!
//! Every word is an atomic, since the process at the other end may write any of them at any time; every bit pattern of
//! every word is valid. Words are in host order: both processes run on one machine.

use core::mem::size_of;
#[cfg(not(loom))]
use core::sync::atomic::Ordering::Relaxed;

use nlx_sync::{AtomicU32, AtomicU64, SleepWord};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The fewest slots a ring can have: the divider, and one to fill (motr-transport 6.2, `init`).
pub const MIN_SLOTS: u32 = 2;

/// The most slots a ring can have: a million events outstanding on one transfer machine, in 132 MiB. It must stay far
/// below 2^32, so that a stamp left over from an earlier round is never taken for a new one.
pub const MAX_SLOTS: u32 = 1 << 20;

/// The bytes of a slot that hold the event.
pub const PAYLOAD_BYTES: usize = 120;

/// The first word of every queue: "nlx bevq" in ASCII, read as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"nlx bevq");

/// The version of this layout.
pub(crate) const VERSION: u32 = 2;

/// Payload words in a slot.
const WORDS: usize = PAYLOAD_BYTES / size_of::<u64>();

/// A buffer event: plain data of at most [`PAYLOAD_BYTES`] bytes, aligned to 8 at most, without padding.
///
/// Implemented for every type that qualifies. One that is too large does not compile:
///
/// ```compile_fail
/// let _ = nlx_bev_cqueue::heap::<[u64; 16]>(8);
/// ```
pub trait Event: FromBytes + IntoBytes + KnownLayout + Immutable + Copy + 'static {
    /// Fails to compile when the event does not fit into a slot.
    const FITS: () = assert!(
        size_of::<Self>() <= PAYLOAD_BYTES && align_of::<Self>() <= align_of::<u64>(),
        "an event must fit into 120 bytes, aligned to 8"
    );
}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Copy + 'static> Event for T {}

/// The head of the shared memory. Each group has cache lines of its own, in pairs, because processors fetch pairs.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    pub(crate) identity: Identity,
    pub(crate) consumer: ConsumerLine,
    /// Of a thread that sleeps.
    pub(crate) wake: WakeLine,
    /// Of an event loop that sleeps on a descriptor; or of the producer, when it waits until the consumer has taken.
    pub(crate) loop_handle: WakeLine,
    pub(crate) producer: ProducerLine,
}

impl Header {
    pub(crate) fn word(&self, line: Line) -> &SleepWord {
        match line {
            Line::Thread => &self.wake.sleeping,
            Line::Loop => &self.loop_handle.sleeping,
        }
    }
}

/// Which of a queue's two sleepers: the thread that waits for its events, or an event loop that does so beside other things. In
/// a queue without such a loop, the second may be the producer, which waits until the consumer has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Thread,
    Loop,
}

/// What the memory is; written once, before it is shared, and checked when a peer attaches.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Identity {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) max_slots: AtomicU32,
    /// Not zero once there is, or was, a producer.
    pub(crate) producer_taken: AtomicU32,
    /// Not zero once there is, or was, a consumer.
    pub(crate) consumer_taken: AtomicU32,
}

/// What the consumer tells the producer.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ConsumerLine {
    /// Events taken since the start.
    pub(crate) consumed: AtomicU64,
    /// Slots in the ring.
    pub(crate) nr: AtomicU32,
}

/// What the producer tells the consumer beside events.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct ProducerLine {
    pub(crate) word: AtomicU64,
}

/// How the producer learns that the consumer sleeps. Apart from the counters, so that the producer's look at it after
/// each event stays in its own cache.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct WakeLine {
    /// 1 while the consumer sleeps or is about to; the futex word.
    pub(crate) sleeping: SleepWord,
}

/// The successor of a slot in the ring.
///
/// Links lie together rather than in the slots: thirty-two to a pair of cache lines, written only by growth, so both
/// processors keep them. With the link inside the slot the producer would have to wait for the slot's line to come back
/// from the consumer's cache before it knew the address of the one after.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(transparent)]
pub struct Link(pub(crate) AtomicU32);

/// One element of the ring: an event and its stamp.
///
/// The stamp comes last: the producer then writes the two cache lines in the order of their addresses, and the line
/// that a waiting consumer keeps looking at is taken from it once per event.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Slot {
    pub(crate) payload: Payload,
    /// A [`Stamp`], as bits.
    pub(crate) stamp: AtomicU64,
}

/// Says which event a slot holds, and where the next one will be.
///
/// One word, so that both become visible at once. The consumer needs no counter of the producer's: the event is there
/// when the slot has its number. That saves one cache line's journey per event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The low half of the event's number; the first event has number 1.
    pub(crate) number: u32,
    /// The slot that the producer fills next.
    pub(crate) next: u32,
}

impl Stamp {
    pub(crate) fn new(event_number: u64, next: u32) -> Self {
        // The low half is meant: `MAX_SLOTS` says why it is enough.
        Stamp { number: event_number as u32, next }
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Stamp { number: (bits >> 32) as u32, next: bits as u32 }
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.next)
    }

    /// Where the next event will be, if this is the stamp of slot `index`: `self.next`.
    ///
    /// Most slots lead to their neighbour. Asked as a question, the processor guesses the answer and fetches the next slots
    /// before this stamp has come; taken from the stamp, each slot would wait for the one before. `black_box` keeps the
    /// compiler from seeing that both ways give the same.
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
/// Copied word by word with relaxed atomics: ordering comes from the stamp, and a hostile peer that writes at the same
/// time spoils the event's value but causes no undefined behaviour. Measured, it costs the same as a plain copy; the
/// journey of the cache lines hides it.
///
/// An event fills the last of the words, so that one of up to 56 bytes shares a single cache line with its stamp.
#[cfg(not(loom))]
#[derive(Debug, zerocopy::FromZeros, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Payload([AtomicU64; WORDS]);

#[cfg(not(loom))]
impl Payload {
    #[inline]
    pub(crate) fn write<T: Event>(&self, event: &T) {
        // Whole words apart from what is left, so that the compiler knows all lengths.
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

    /// No underflow: `Event::FITS`.
    fn words_of<T: Event>(&self) -> &[AtomicU64] {
        &self.0[WORDS - size_of::<T>().div_ceil(size_of::<u64>())..]
    }
}

/// The bytes of an event, as loom wants to see them: a plain cell, so that loom reports any write that is not ordered
/// with a read. What holds for plain memory holds all the more for relaxed atomics.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Payload(nlx_sync::UnsafeCell<[u64; WORDS]>);

// SAFETY: only one thread writes a payload while no other touches it: that is what the queue promises and what loom
// checks at each access.
#[cfg(loom)]
unsafe impl Sync for Payload {}

#[cfg(loom)]
impl Payload {
    pub(crate) fn write<T: Event>(&self, event: &T) {
        let bytes = event.as_bytes();
        // SAFETY: loom has just checked that nobody else accesses the cell.
        self.0
            .with_mut(|words| unsafe { (&mut *words).as_mut_bytes()[..bytes.len()].copy_from_slice(bytes) });
    }

    pub(crate) fn read<T: Event>(&self) -> T {
        let mut event = T::new_zeroed();
        let bytes = event.as_mut_bytes();
        // SAFETY: loom has just checked that nobody writes the cell.
        self.0.with(|words| unsafe { bytes.copy_from_slice(&(&*words).as_bytes()[..bytes.len()]) });
        event
    }
}

/// Loom's types have no all-zero form that can be mapped, so its memory is built piece by piece.
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

    impl Link {
        pub(crate) fn zeroed() -> Self {
            Link(AtomicU32::new(0))
        }
    }

    impl Slot {
        pub(crate) fn zeroed() -> Self {
            Slot { payload: Payload(nlx_sync::UnsafeCell::new([0; WORDS])), stamp: AtomicU64::new(0) }
        }
    }
}

/// MT-220: the layout both processes rely on.
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

    const_assert_eq!(size_of::<Link>(), 4);
    const_assert_eq!(align_of::<Link>(), 4);

    const_assert_eq!(size_of::<Slot>(), 128);
    const_assert_eq!(align_of::<Slot>(), 128);
    const_assert_eq!(offset_of!(Slot, payload), 0);
    const_assert_eq!(offset_of!(Slot, stamp), 120);
    const_assert_eq!(size_of::<Payload>(), PAYLOAD_BYTES);
    const_assert_eq!(align_of::<Payload>(), 8);

    // Words that both processes write are whole, on every machine.
    const_assert!(cfg!(target_has_atomic = "32") && cfg!(target_has_atomic = "64"));
    const_assert_eq!(size_of::<AtomicU32>(), 4);
    const_assert_eq!(size_of::<AtomicU64>(), 8);
    const_assert_eq!(align_of::<AtomicU64>(), 8);

    const_assert!(MIN_SLOTS >= 2 && MAX_SLOTS < u32::MAX / 2);
}
