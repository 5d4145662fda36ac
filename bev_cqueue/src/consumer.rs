use core::cell::Cell;
use core::iter::FusedIterator;
use core::marker::PhantomData;

mod resize;

use nlx_sync::point;

use self::resize::Spare;
use crate::error::{Corruption, Error, PopError};
use crate::layout::{Event, MIN_SLOTS, Slot, Stamp};
use crate::memory::{Memory, take_consumer, told};
use crate::rules::{GET, PUT};

/// The half that takes events out, and makes room for them.
///
/// It can be moved to another thread, but not be used by two at once: it is [`Send`] but neither [`Sync`] nor [`Clone`].
///
/// The consumer relies on the producer to be right, but not to live: a producer that is killed in the middle of a push
/// leaves the events before it and nothing else.
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
    /// The slot of the event taken last, or one that never held any: not to be filled by the producer.
    divider: u32,
    /// The slot of the event to take next. Its successor is in its stamp, put there by the producer.
    front: u32,
    /// Events taken since the start.
    taken: u64,
    /// Events taken that the producer has been told of.
    published: u64,
    /// Slots in the ring.
    slots: u32,
    /// The others.
    spare: Spare,
    /// Events that operations under way can still produce.
    needed: u32,
    _events: PhantomData<Cell<T>>,
}

impl<T: Event, M: Memory> Consumer<T, M> {
    /// Takes the consumer's half of the queue in `memory`.
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

    /// Takes the oldest event out.
    ///
    /// # Errors
    ///
    /// [`PopError::Empty`] when there is none, and [`PopError::Corrupt`], from then on for ever, when the ring leads out
    /// of its memory.
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

    /// Takes up to `max` events out, oldest first, and gives their slots back to the producer all at once when the
    /// iterator is dropped.
    ///
    /// An event belongs to the caller once the iterator has returned it; those it has not returned stay in the queue. The
    /// iterator ends early when no event is waiting, or when [`pop`](Consumer::pop) would say that the ring is corrupt.
    /// Should the iterator be forgotten rather than dropped, the slots are given back by the next call that takes an
    /// event or makes room.
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

    /// Whether no event is waiting.
    ///
    /// False when the ring is corrupt, so that whoever waits for events comes and hears of it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.front(), Err(PopError::Empty))
    }

    /// Where the ring leads out of its memory, if that is why nothing more comes out of it.
    pub fn corruption(&self) -> Option<Corruption> {
        match self.front() {
            Err(PopError::Corrupt(corruption)) => Some(corruption),
            Err(PopError::Empty) | Ok(_) => None,
        }
    }

    /// How many events are waiting. Looks at each of them: for tests and reports, not for the way of an event.
    pub fn ready(&self) -> u32 {
        let slots = self.memory.slots();
        let (mut index, mut count) = (self.front, 0);
        // At most all slots but the divider hold events, even if the links form a shorter circle.
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

    /// How many events the ring can hold: its slots, less the divider.
    pub fn capacity(&self) -> u32 {
        self.slots - 1
    }

    /// The slots in the ring, free ones and the divider included.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The slots that the memory holds: the most that the ring can grow to.
    pub fn max_slots(&self) -> u32 {
        // No memory has more: `check_slot_count`.
        self.memory.slots().len() as u32
    }

    /// The events that operations under way can still produce: what was provisioned and has not been released.
    pub fn needed(&self) -> u32 {
        self.needed
    }

    /// The number that the producer has told last ([`Producer::tell`](crate::Producer::tell)), 0 at first.
    pub fn told(&self) -> u64 {
        told(&self.memory)
    }

    /// The memory the queue lives in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Makes sure that `events` more events find room, whatever else is under way: to be called before the operation is
    /// started that can produce them (S-407, motr-transport 6.4).
    ///
    /// Grows the ring by as many slots as are missing, never by more: a longer ring takes more of the cache.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`] when the memory does not hold so many slots; nothing has changed then.
    pub fn provision(&mut self, events: u32) -> Result<(), Error> {
        let needed = u64::from(self.needed) + u64::from(events);
        // One more than the events: nothing is put into the divider.
        let missing = (needed + 1).saturating_sub(u64::from(self.slots));
        // A forgotten `Drain` may still hold slots back.
        self.publish();
        self.grow(u32::try_from(missing).unwrap_or(u32::MAX))?;
        // Less than the slots there are now, so no cast cuts it.
        self.needed = needed as u32;
        debug_assert!(
            self.needed < self.slots,
            "provisioned for {} events in {} slots",
            self.needed,
            self.slots
        );
        Ok(())
    }

    /// Gives back what [`provision`](Consumer::provision) reserved: when the operation could not be started, or when its
    /// last event has been taken. The ring stays as large as it is; see [`shrink`](Consumer::shrink).
    ///
    /// # Errors
    ///
    /// [`Error::NotProvisioned`] when less than that is provisioned; nothing has changed then.
    pub fn release(&mut self, events: u32) -> Result<(), Error> {
        let Some(needed) = self.needed.checked_sub(events) else {
            return Err(Error::NotProvisioned { released: events, needed: self.needed });
        };
        self.needed = needed;
        Ok(())
    }

    /// The slot that the producer must not fill.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn divider(&self) -> u32 {
        self.divider
    }

    /// Pretends that so many events have passed through the new queue.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn start_at(&mut self, events: u64) {
        use core::sync::atomic::Ordering::Relaxed;

        self.taken = events;
        self.publish();
        for slot in &self.memory.slots()[..MIN_SLOTS as usize] {
            slot.stamp.store(Stamp::new(events, 0).bits(), Relaxed);
        }
    }

    /// Copies the oldest event out and steps on to the next, without telling the producer yet.
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

    /// The slot of the oldest event.
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

    /// Tells the producer what has been taken.
    #[inline]
    fn publish(&mut self) {
        if self.published != self.taken {
            self.published = self.taken;
            // SYNC bevq.get: with Producer::reckon.
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

/// The events that [`Consumer::drain`] takes out.
#[derive(Debug)]
pub struct Drain<'a, T: Event, M: Memory> {
    consumer: &'a mut Consumer<T, M>,
    left: usize,
}

impl<T: Event, M: Memory> Iterator for Drain<'_, T, M> {
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

impl<T: Event, M: Memory> FusedIterator for Drain<'_, T, M> {}

impl<T: Event, M: Memory> Drop for Drain<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.publish();
    }
}
