use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use nlx_sync::point;

use crate::error::{Corruption, Error, PushError};
use crate::layout::{Event, MIN_SLOTS, Stamp};
use crate::memory::{QueueMemory, take_producer};
use crate::rules::{GET, GROW, PUT};

/// The half that pushes events.
///
/// It can be moved to another thread, but two threads cannot use it at the same time: it is
/// [`Send`] but neither [`Sync`] nor [`Clone`].
///
/// The producer relies on nothing that the other half can write. Whatever the consumer's process
/// does to the shared memory, a push ends after a bounded number of steps, touches only the queue's
/// memory, and either succeeds or returns the corruption. A link changed to another slot of the
/// same queue corrupts the consumer's events and nothing else.
///
/// ```compile_fail,E0277
/// let (mut producer, consumer) = nlx_bev_cqueue::heap::<u64>(8)?;
/// std::thread::scope(|scope| {
///     let producer = &producer; // error: `Producer` cannot be shared between threads
///     scope.spawn(move || producer.max_slots());
/// });
/// # Ok::<(), nlx_bev_cqueue::Error>(())
/// ```
///
/// ```compile_fail,E0599
/// let (producer, consumer) = nlx_bev_cqueue::heap::<u64>(8)?;
/// let another = producer.clone(); // error: there is one producer
/// # Ok::<(), nlx_bev_cqueue::Error>(())
/// ```
#[derive(Debug)]
pub struct Producer<T, M> {
    memory: M,
    position: Position,
    /// The number of slots known to be free.
    room: u64,
    /// The consumer's counters as last read.
    consumed: u64,
    slots: u32,
    corruption: Option<Corruption>,
    _events: PhantomData<Cell<T>>,
}

impl<T: Event, M: QueueMemory> Producer<T, M> {
    /// Creates the producer of the queue in `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`] if the queue has or had a producer already. A hostile peer can provoke this
    /// error for a queue that it shares, so create the half before the memory is shared.
    pub fn new(memory: M) -> Result<Self, Error> {
        let () = T::FITS;
        take_producer(&memory)?;
        Ok(Producer {
            memory,
            position: Position { fill: 0, produced: 0 },
            room: u64::from(MIN_SLOTS - 1),
            consumed: 0,
            slots: MIN_SLOTS,
            corruption: None,
            _events: PhantomData,
        })
    }

    /// Pushes an event. It is visible to the consumer when this returns.
    ///
    /// The call takes no lock, makes no system call and never waits for the consumer.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] when every slot but the divider holds an event. [`PushError::Corrupt`],
    /// which is permanent, when the consumer's words contradict themselves. In both cases the event
    /// was not pushed.
    ///
    /// # Examples
    ///
    /// ```
    /// use nlx_bev_cqueue::{PushError, heap};
    ///
    /// let (mut producer, mut consumer) = heap(8)?;
    /// assert_eq!(producer.push(10), Ok(()));
    /// assert_eq!(producer.push(20), Err(PushError::Full { slots: 2, capacity: 1 }));
    /// consumer.grow(1)?;
    /// assert_eq!(producer.push(20), Ok(()));
    /// # Ok::<(), nlx_bev_cqueue::Error>(())
    /// ```
    #[inline]
    pub fn push(&mut self, event: T) -> Result<(), PushError> {
        if self.room == 0 {
            self.find_room()?;
        }
        match self.position.put(&self.memory, &event) {
            Some(next) => {
                point!(PushStamped);
                self.position = next;
                self.room -= 1;
                Ok(())
            }
            None => Err(self.lost()),
        }
    }

    /// Pushes `events` until there are no more or the ring is full, and returns the number pushed.
    /// Each event becomes visible at once. One call is faster than single pushes.
    ///
    /// When the ring is full, no more events are taken from the iterator: pass `events.by_ref()` to
    /// continue later.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] when there is no room for any event; [`PushError::Corrupt`] as in
    /// [`push`](Producer::push), possibly after some events.
    ///
    /// # Examples
    ///
    /// ```
    /// let (mut producer, mut consumer) = nlx_bev_cqueue::heap(8)?;
    /// consumer.provision(2)?;
    /// let mut events = [10, 20, 30].into_iter();
    /// assert_eq!(producer.push_iter(events.by_ref()), Ok(2));
    /// assert_eq!(consumer.drain(8).collect::<Vec<_>>(), [10, 20]);
    /// assert_eq!(producer.push_iter(events), Ok(1));
    /// # Ok::<(), nlx_bev_cqueue::Error>(())
    /// ```
    #[inline]
    pub fn push_iter(&mut self, events: impl IntoIterator<Item = T>) -> Result<usize, PushError> {
        let mut pushed = 0;
        let mut events = events.into_iter();
        loop {
            if self.room == 0 {
                match self.find_room() {
                    Err(PushError::Full { .. }) if pushed > 0 => return Ok(pushed),
                    result => result?,
                }
            }
            // A copy of the position: the loop writes only slots. `BatchPush` stores it back when
            // dropped, since the iterator may panic.
            let mut batch = BatchPush { position: self.position, room: self.room, producer: self };
            while batch.room > 0 {
                let Some(event) = events.next() else { return Ok(pushed) };
                let Some(next) = batch.position.put(&batch.producer.memory, &event) else {
                    drop(batch);
                    return Err(self.lost());
                };
                point!(PushIterStamped);
                batch.position = next;
                batch.room -= 1;
                pushed += 1;
            }
        }
    }

    /// Returns a lower bound of the number of events that can be pushed now.
    ///
    /// # Errors
    ///
    /// [`Corruption`] as in [`push`](Producer::push).
    pub fn free(&mut self) -> Result<u32, Corruption> {
        self.refresh()?;
        // The cast does not truncate, because the room is less than the number of slots of the
        // ring.
        Ok(self.room as u32)
    }

    /// Accepts a smaller ring ([`Consumer::shrink`](crate::Consumer::shrink)).
    ///
    /// Must be called after the consumer's call has returned and before any event of a later
    /// operation is pushed. The producer is notified, instead of detecting the change, so that a
    /// push needs no extra work.
    ///
    /// # Errors
    ///
    /// [`Corruption`] as in [`push`](Producer::push), and [`Corruption::ShrunkInUse`] when not all
    /// events have been taken.
    ///
    /// # Examples
    ///
    /// ```
    /// let (mut producer, mut consumer) = nlx_bev_cqueue::heap(8)?;
    /// consumer.grow(6)?;
    /// producer.push(10)?;
    /// assert_eq!(consumer.pop(), Ok(10));
    /// consumer.shrink(3)?;
    /// producer.accept_shrink()?;
    /// assert_eq!(producer.push_iter([20, 30, 40]), Ok(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_shrink(&mut self) -> Result<(), Corruption> {
        self.update_room(MIN_SLOTS)
    }

    /// Returns the number of events pushed since the start.
    pub fn pushed(&self) -> u64 {
        self.position.produced
    }

    /// Returns the number of slots that the memory holds: the limit of the ring's growth.
    pub fn max_slots(&self) -> u32 {
        // The cast does not truncate, because `check_slot_count` limits the slots of every memory.
        self.memory.slots().len() as u32
    }

    /// Sets a number for the consumer that is not an event, such as a counter. The caller must wake
    /// a consumer that waits for it.
    pub fn set_word(&self, word: u64) {
        // Relaxed, because no other data depends on the order of this word except the wake-up: the
        // word is independent of the events, and only increases.
        self.memory.header().producer.word.store(word, Relaxed);
    }

    /// Returns the memory of the queue.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the slot to fill next.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn fill(&self) -> u32 {
        self.position.fill
    }

    /// Makes a new queue behave as if `events` events had passed through it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn start_at(&mut self, events: u64) {
        (self.position.produced, self.consumed) = (events, events);
    }

    #[cold]
    fn find_room(&mut self) -> Result<(), PushError> {
        self.refresh()?;
        match self.room {
            0 => Err(PushError::Full { slots: self.slots, capacity: self.slots - 1 }),
            _ => Ok(()),
        }
    }

    /// Reads the consumer's counters again, which can only have increased.
    fn refresh(&mut self) -> Result<(), Corruption> {
        self.update_room(self.slots)
    }

    /// Computes the room from the consumer's counters. The ring has at least `fewest` slots.
    fn update_room(&mut self, fewest: u32) -> Result<(), Corruption> {
        if let Some(corruption) = self.corruption {
            return Err(corruption);
        }
        let line = &self.memory.header().consumer;
        // SYNC bevq.get: with Consumer::publish.
        let consumed = line.consumed.load(GET.acquire());
        // SYNC bevq.grow: with Consumer::grow and Consumer::shrink.
        let slots = line.nr.load(GROW.acquire());
        point!(CountersRead);
        self.check(consumed, slots, fewest).map_err(|corruption| self.set_corrupt(corruption))?;
        self.consumed = consumed;
        self.slots = slots;
        // The subtraction does not underflow: before, at most `slots - 1` events waited; `consumed`
        // has not decreased, and `slots` has decreased only if no event waits.
        self.room = u64::from(slots - 1) - (self.position.produced - consumed);
        point!(RoomUpdated);
        Ok(())
    }

    fn check(&self, consumed: u64, slots: u32, fewest: u32) -> Result<(), Corruption> {
        let max = self.max_slots();
        if consumed > self.position.produced {
            return Err(Corruption::ConsumedTooMany { consumed, produced: self.position.produced });
        }
        if consumed < self.consumed {
            return Err(Corruption::ConsumedFewer { consumed, before: self.consumed });
        }
        if slots < fewest {
            return Err(Corruption::Shrunk { slots, before: self.slots });
        }
        if slots < self.slots && consumed != self.position.produced {
            return Err(Corruption::ShrunkInUse { slots, waiting: self.position.produced - consumed });
        }
        if slots > max {
            return Err(Corruption::Outgrown { slots, max });
        }
        Ok(())
    }

    #[cold]
    fn lost(&mut self) -> PushError {
        let corruption = Corruption::Link { index: self.position.fill, slots: self.max_slots() };
        PushError::Corrupt(self.set_corrupt(corruption))
    }

    /// Records the corruption, so that every later push, which checks for room, returns it.
    fn set_corrupt(&mut self, corruption: Corruption) -> Corruption {
        self.room = 0;
        self.corruption = Some(corruption);
        corruption
    }
}

/// The local state of a producer that pushes several events.
struct BatchPush<'a, T, M> {
    producer: &'a mut Producer<T, M>,
    position: Position,
    room: u64,
}

impl<T, M> Drop for BatchPush<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        (self.producer.position, self.producer.room) = (self.position, self.room);
    }
}

/// The producer's position in the ring.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// The slot to fill next.
    ///
    /// The index is read from the link of a slot right after that slot was filled and before it is
    /// published. Until then the slot cannot become the divider, whose link the consumer changes
    /// when it grows the ring. (If the link of the last slot were read only when needed, it could
    /// by then lead to the new divider itself.)
    fill: u32,
    /// The number of events pushed since the start.
    produced: u64,
}

impl Position {
    /// Fills the slot at this position, which must be free, and returns the next position. Returns
    /// `None` if the memory has no such slot.
    ///
    /// The stores to a slot follow each other in the order of their addresses: processors drain
    /// stores in order and prefetch the lines of only a few, so a store to another line in between
    /// would delay the next slot.
    #[inline]
    fn put<T: Event, M: QueueMemory>(self, memory: &M, event: &T) -> Option<Position> {
        let index = self.fill as usize;
        let (slot, link) = (memory.slots().get(index)?, memory.links().get(index)?);
        // Relaxed, because the load that showed the slot to be free (bevq.get, bevq.grow) also
        // ordered its link. An invalid link is detected when it is followed.
        let next = Position { fill: link.0.load(Relaxed), produced: self.produced + 1 };
        point!(LinkRead);
        slot.payload.write(event);
        point!(Filled);
        // SYNC bevq.put: with Consumer::front.
        slot.stamp.store(Stamp::new(next.produced, next.fill).bits(), PUT.release());
        Some(next)
    }
}
