//! The memory of a queue.
//!
//! The two halves access it only through [`QueueMemory`], so that the same algorithm runs on the heap,
//! in memory shared with another process, and under a model checker.

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use nlx_sync::SleepWord;

use crate::consumer::Consumer;
use crate::error::Error;
use crate::layout::{Header, MAGIC, MAX_SLOTS, MIN_SLOTS, SleepSide, Slot, SlotLink, VERSION};
use crate::producer::Producer;
use crate::rules::GET;

mod heap;
#[cfg(all(feature = "std", not(loom)))]
mod mapping;
#[cfg(all(feature = "std", not(loom)))]
mod shared;

pub use heap::{Heap, heap};
#[cfg(all(feature = "std", not(loom)))]
pub use mapping::unmap_by;
#[cfg(all(feature = "std", not(loom)))]
pub use shared::SharedMemory;

/// Memory that holds one queue.
///
/// Each call returns the same references, and there is one link per slot. An implementation that
/// violates this gets a queue that loses events, reports corruption or panics, but no undefined
/// behaviour: the lengths of the slices bound every index that the halves follow, and all words in
/// them are atomic.
pub trait QueueMemory: Debug {
    /// Returns the shared words of both sides.
    fn header(&self) -> &Header;

    /// Returns the link of each slot to its successor.
    fn links(&self) -> &[SlotLink];

    /// Returns the slots, including those outside of the ring.
    fn slots(&self) -> &[Slot];

    /// Discards the contents of these slots, which have left the ring: the memory may return their
    /// pages to the system. Their bytes may change to any value.
    fn discard(&self, slots: Range<u32>) {
        let _ = slots;
    }
}

/// Returns the number of events, according to the consumer, whose slots it has returned since the
/// start. For a thread that waits until an event ([`Producer::pushed`]) has been taken.
/// [`Consumer::drain`] returns slots when its iterator is dropped. A thread that sees the number
/// also sees what the consumer did before it returned the slots.
pub fn taken(memory: &impl QueueMemory) -> u64 {
    // SYNC bevq.get: with Consumer::publish.
    memory.header().consumer.consumed.load(GET.acquire())
}

/// Returns the number set by [`Producer::set_word`] or [`raise_producer_word`], 0 at first. Needs no
/// half of the queue, so a thread that is not the consumer can read it without a lock.
pub fn producer_word(memory: &impl QueueMemory) -> u64 {
    memory.header().producer.word.load(Relaxed)
}

/// Sets a number for the consumer that only increases, as [`Producer::set_word`] does. For threads
/// that do not have the producer; several may call this at a time. The greatest number set remains.
pub fn raise_producer_word(memory: &impl QueueMemory, word: u64) {
    // No other data depends on the order of this word.
    memory.header().producer.word.fetch_max(word, Relaxed);
}

/// A word of a queue's memory by which one side announces that it sleeps, for an
/// [`nlx_sync::Sleeper`] and its wakers.
///
/// # Examples
///
/// ```
/// use nlx_bev_cqueue::{Consumer, Heap, Producer, QueueWord};
/// use nlx_sync::{Sleeper, Waker};
///
/// let memory = Heap::new(8)?;
/// let word = QueueWord::consumer(memory.clone());
/// let (waker, sleeper) = (Waker::futex(word.clone()), Sleeper::futex(word));
/// let (mut producer, mut consumer) = (Producer::new(memory.clone())?, Consumer::new(memory)?);
///
/// let thread = std::thread::spawn(move || {
///     producer.push(10)?;
///     waker.wake()?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// while consumer.is_empty() {
///     sleeper.sleep(None, || !consumer.is_empty())?;
/// }
/// assert_eq!(consumer.pop(), Ok(10));
/// # thread.join().unwrap().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueueWord<M> {
    memory: M,
    side: SleepSide,
}

impl<M: QueueMemory> QueueWord<M> {
    /// Creates the word of a thread that waits for events. The producer's side wakes the thread
    /// after [`push`](Producer::push).
    pub fn consumer(memory: M) -> Self {
        QueueWord { memory, side: SleepSide::Thread }
    }

    /// Creates a second word of the consumer, for an event loop that sleeps on a descriptor among
    /// others, while a thread may sleep by the first one.
    pub fn event_loop(memory: M) -> Self {
        QueueWord { memory, side: SleepSide::Loop }
    }

    /// Creates the word of the producer, which sleeps until the consumer has taken the events in
    /// the queue ([`taken`]). The consumer's side wakes it after it has returned slots. This word
    /// is also that of the event loop, so a queue can use it for only one of the two.
    pub fn producer(memory: M) -> Self {
        QueueWord { memory, side: SleepSide::Loop }
    }
}

#[cfg(feature = "std")]
impl<M: QueueMemory> nlx_sync::FutexWord for QueueWord<M> {}

impl<M: QueueMemory> AsRef<SleepWord> for QueueWord<M> {
    #[inline]
    fn as_ref(&self) -> &SleepWord {
        self.memory.header().word(self.side)
    }
}

/// Producer and consumer of one queue.
pub type Halves<T, M> = (Producer<T, M>, Consumer<T, M>);

/// Checks the number of slots of a queue, and returns it as a `usize`.
pub(crate) fn check_slot_count(slots: u32) -> Result<usize, Error> {
    if (MIN_SLOTS..=MAX_SLOTS).contains(&slots) {
        Ok(slots as usize)
    } else {
        Err(Error::SlotCount { slots, min: MIN_SLOTS, max: MAX_SLOTS })
    }
}

/// Creates an empty ring of [`MIN_SLOTS`] in zeroed memory that is not shared yet: slot 0 is the
/// first to be filled, slot 1 is the divider (motr-transport 6.2, `init`).
pub(crate) fn format(memory: &impl QueueMemory) {
    let (header, links) = (memory.header(), memory.links());
    links[0].0.store(1, Relaxed);
    links[1].0.store(0, Relaxed);
    header.consumer.nr.store(MIN_SLOTS, Relaxed);
    // The cast does not truncate, because `check_slot_count` limits the slots of every memory.
    header.identity.max_slots.store(memory.slots().len() as u32, Relaxed);
    header.identity.version.store(VERSION, Relaxed);
    header.identity.magic.store(MAGIC, Relaxed);
}

/// Ensures that a queue gets at most one producer in its life.
pub(crate) fn take_producer(memory: &impl QueueMemory) -> Result<(), Error> {
    match memory.header().identity.producer_taken.swap(1, AcqRel) {
        0 => Ok(()),
        _ => Err(Error::Taken { half: "producer" }),
    }
}

/// Ensures that a queue gets at most one consumer in its life.
pub(crate) fn take_consumer(memory: &impl QueueMemory) -> Result<(), Error> {
    match memory.header().identity.consumer_taken.swap(1, AcqRel) {
        0 => Ok(()),
        _ => Err(Error::Taken { half: "consumer" }),
    }
}
