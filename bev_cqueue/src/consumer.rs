use core::cell::Cell;
use core::iter::FusedIterator;
use core::marker::PhantomData;

mod resize;

use nlx_sync::point;

use self::resize::Spare;
use crate::error::{Corruption, Error, PopError};
use crate::layout::{Event, MIN_SLOTS, Slot, Stamp};
use crate::memory::{QueueMemory, producer_word, take_consumer};
use crate::rules::{GET, PUT};

/// The half that pops events, and provisions room for them.
///
/// It can be moved to another thread, but two threads cannot use it at the same time: it is
/// [`Send`] but neither [`Sync`] nor [`Clone`].
///
/// The consumer relies on a correct producer, but not on one that lives: a producer that is killed
/// during a push leaves the earlier events and nothing else.
///
/// ```compile_fail,E0277
/// let (producer, consumer) = nlx_bev_cqueue::heap::<u64>(8)?;
/// std::thread::scope(|scope| {
///     let consumer = &consumer; // error: `Consumer` cannot be shared between threads
///     scope.spawn(move || consumer.is_empty());
/// });
/// # Ok::<(), nlx_bev_cqueue::Error>(())
/// ```
///
/// ```compile_fail,E0599
/// let (producer, consumer) = nlx_bev_cqueue::heap::<u64>(8)?;
/// let another = consumer.clone(); // error: there is one consumer
/// # Ok::<(), nlx_bev_cqueue::Error>(())
/// ```
#[derive(Debug)]
pub struct Consumer<T, M> {
    memory: M,
    /// The slot of the event taken last, or one that has never held an event: the producer must not
    /// fill it.
    divider: u32,
    /// The slot of the event to take next. The producer has put this index into the stamp of the
    /// slot before.
    front: u32,
    /// The number of events taken since the start.
    taken: u64,
    /// The number of taken events that was published to the producer.
    published: u64,
    /// The number of slots in the ring.
    slots: u32,
    /// The slots outside of the ring.
    spare: Spare,
    /// The number of events that operations under way can still produce.
    needed: u32,
    _events: PhantomData<Cell<T>>,
}

impl<T: Event, M: QueueMemory> Consumer<T, M> {
    /// Creates the consumer of the queue in `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`] if the queue has or had a consumer already.
    pub fn new(memory: M) -> Result<Self, Error> {
        let () = T::FITS;
        take_consumer(&memory)?;
        Ok(Consumer {
            memory,
            divider: 1,
            front: 0,
            taken: 0,
            published: 0,
            slots: MIN_SLOTS,
            spare: Spare::new(),
            needed: 0,
            _events: PhantomData,
        })
    }

    /// Removes and returns the oldest event.
    ///
    /// # Errors
    ///
    /// [`PopError::Empty`] when there is none; [`PopError::Corrupt`], which is permanent, when the
    /// ring leads out of its memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use nlx_bev_cqueue::{PopError, heap};
    ///
    /// let (mut producer, mut consumer) = heap(8)?;
    /// assert_eq!(consumer.pop(), Err(PopError::Empty));
    /// producer.push(10)?;
    /// assert_eq!(consumer.pop(), Ok(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn pop(&mut self) -> Result<T, PopError> {
        let event = self.take()?;
        self.publish();
        Ok(event)
    }

    /// Returns an iterator that removes up to `max` events, oldest first. All their slots return to
    /// the producer when the iterator is dropped.
    ///
    /// An event belongs to the caller once the iterator has returned it; the others remain in the
    /// queue. The iterator ends early when no event waits, or when [`pop`](Consumer::pop) would
    /// return that the ring is corrupt. If the iterator is forgotten instead of dropped, the next
    /// call that takes an event or makes room returns the slots.
    ///
    /// # Examples
    ///
    /// ```
    /// let (mut producer, mut consumer) = nlx_bev_cqueue::heap(8)?;
    /// consumer.provision(3)?;
    /// for event in [10, 20, 30] {
    ///     producer.push(event)?;
    /// }
    /// assert_eq!(consumer.drain(2).collect::<Vec<_>>(), [10, 20]);
    /// assert_eq!(consumer.drain(2).collect::<Vec<_>>(), [30]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn drain(&mut self, max: usize) -> Drain<'_, T, M> {
        Drain { consumer: self, left: max }
    }

    /// Returns whether no event waits.
    ///
    /// Returns `false` when the ring is corrupt, so that a waiter calls [`pop`](Consumer::pop) and
    /// gets the error.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.front(), Err(PopError::Empty))
    }

    /// Returns the corruption, if the ring leads out of its memory at the next event.
    pub fn corruption(&self) -> Option<Corruption> {
        match self.front() {
            Err(PopError::Corrupt(corruption)) => Some(corruption),
            Err(PopError::Empty) | Ok(_) => None,
        }
    }

    /// Returns the number of waiting events. Reads the slot of each of them, so it is for tests and
    /// reports, and too slow for the path of an event.
    pub fn ready(&self) -> u32 {
        let slots = self.memory.slots();
        let (mut index, mut count) = (self.front, 0);
        // All slots but the divider hold events at most; this also bounds the loop if the links
        // form a shorter circle.
        while count < self.capacity() {
            let Some(slot) = slots.get(index as usize) else { break };
            let stamp = stamp_of(slot);
            if !stamp.is_of(self.taken + 1 + u64::from(count)) {
                break;
            }
            index = stamp.next;
            count += 1;
        }
        count
    }

    /// Returns the number of events that the ring can hold: its slots less the divider.
    pub fn capacity(&self) -> u32 {
        self.slots - 1
    }

    /// Returns the number of slots in the ring, including free ones and the divider.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of slots that the memory holds: the limit of the ring's growth.
    pub fn max_slots(&self) -> u32 {
        // The cast does not truncate, because `check_slot_count` limits the slots of every memory.
        self.memory.slots().len() as u32
    }

    /// Returns the number of events that operations under way can still produce: provisioned and
    /// not released.
    pub fn needed(&self) -> u32 {
        self.needed
    }

    /// Returns the number that the producer set last
    /// ([`Producer::set_word`](crate::Producer::set_word)), 0 at first.
    pub fn producer_word(&self) -> u64 {
        producer_word(&self.memory)
    }

    /// Returns the memory of the queue.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Provisions room for `events` more events, in addition to earlier provisions. Must be called
    /// before the operation that can produce them is started (S-407, motr-transport 6.4).
    ///
    /// The ring grows by exactly the slots that are missing, because a longer ring takes more of
    /// the cache.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`] when the memory does not hold enough slots; nothing has changed then.
    pub fn provision(&mut self, events: u32) -> Result<(), Error> {
        let needed = u64::from(self.needed) + u64::from(events);
        // One slot more than events, because the divider takes none.
        let missing = (needed + 1).saturating_sub(u64::from(self.slots));
        // A forgotten `Drain` may have left slots unpublished.
        self.publish();
        self.grow(u32::try_from(missing).unwrap_or(u32::MAX))?;
        // The cast does not truncate, because the value is less than the number of slots.
        self.needed = needed as u32;
        debug_assert!(
            self.needed < self.slots,
            "provisioned for {} events in {} slots",
            self.needed,
            self.slots
        );
        Ok(())
    }

    /// Releases room that [`provision`](Consumer::provision) reserved. Call it when the operation
    /// could not be started, or when its last event has been taken. The ring keeps its size; see
    /// [`shrink`](Consumer::shrink).
    ///
    /// # Errors
    ///
    /// [`Error::NotProvisioned`] when fewer events are provisioned; nothing has changed then.
    pub fn release(&mut self, events: u32) -> Result<(), Error> {
        let Some(needed) = self.needed.checked_sub(events) else {
            return Err(Error::NotProvisioned { released: events, needed: self.needed });
        };
        self.needed = needed;
        Ok(())
    }

    /// Returns the divider: the slot that the producer must not fill.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn divider(&self) -> u32 {
        self.divider
    }

    /// Makes a new queue behave as if `events` events had passed through it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn start_at(&mut self, events: u64) {
        use core::sync::atomic::Ordering::Relaxed;

        self.taken = events;
        self.publish();
        for slot in &self.memory.slots()[..MIN_SLOTS as usize] {
            slot.stamp.store(Stamp::new(events, 0).bits(), Relaxed);
        }
    }

    /// Copies the oldest event out and advances to the next slot; the producer does not see the
    /// free slot until `publish`.
    #[inline]
    fn take(&mut self) -> Result<T, PopError> {
        let (slot, stamp) = self.front()?;
        point!(StampSeen);
        let event = slot.payload.read();
        point!(Copied);
        self.divider = self.front;
        self.front = stamp.predicted_next(self.front);
        self.taken += 1;
        point!(Taken);
        Ok(event)
    }

    /// Returns the slot of the oldest event.
    #[inline]
    fn front(&self) -> Result<(&Slot, Stamp), PopError> {
        let slot = self.slot(self.front)?;
        let stamp = stamp_of(slot);
        if stamp.is_of(self.taken + 1) { Ok((slot, stamp)) } else { Err(PopError::Empty) }
    }

    #[inline]
    fn slot(&self, index: u32) -> Result<&Slot, Corruption> {
        self.memory.slots().get(index as usize).ok_or_else(|| self.nowhere(index))
    }

    #[cold]
    fn nowhere(&self, index: u32) -> Corruption {
        Corruption::Link { index, slots: self.max_slots() }
    }

    /// Publishes the count of taken events to the producer.
    #[inline]
    fn publish(&mut self) {
        if self.published != self.taken {
            self.published = self.taken;
            // SYNC bevq.get: with Producer::update_room.
            self.memory.header().consumer.consumed.store(self.taken, GET.release());
            point!(GivenBack);
        }
    }
}

#[inline]
fn stamp_of(slot: &Slot) -> Stamp {
    // SYNC bevq.put: with Producer::push.
    Stamp::from_bits(slot.stamp.load(PUT.acquire()))
}

/// The iterator that [`Consumer::drain`] returns.
#[derive(Debug)]
pub struct Drain<'a, T: Event, M: QueueMemory> {
    consumer: &'a mut Consumer<T, M>,
    left: usize,
}

impl<T: Event, M: QueueMemory> Iterator for Drain<'_, T, M> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let event = self.consumer.take().ok();
        if event.is_none() {
            self.left = 0;
        }
        point!(Drained);
        event
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

impl<T: Event, M: QueueMemory> FusedIterator for Drain<'_, T, M> {}

impl<T: Event, M: QueueMemory> Drop for Drain<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.publish();
    }
}
