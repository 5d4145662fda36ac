use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Relaxed;

use nlx_sync::point;

use crate::error::{Corruption, Error, PushError};
use crate::layout::{Event, MIN_SLOTS, Stamp};
use crate::memory::{Memory, take_producer};
use crate::rules::{GET, GROW, PUT};

/// The half that puts events in.
///
/// It can be moved to another thread, but not be used by two at once: it is [`Send`] but neither [`Sync`] nor [`Clone`].
///
/// The producer relies on nothing that the other half can write. Whatever the consumer's process does to the shared
/// memory, a push ends after a bounded number of steps, touches no memory but the queue's, and either succeeds or says
/// what is wrong; a link bent to another slot of the same queue spoils the consumer's own events and nothing else.
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
    place: Place,
    /// Slots known to be free.
    room: u64,
    /// The consumer's counters when they were last read.
    consumed: u64,
    slots: u32,
    corruption: Option<Corruption>,
    _events: PhantomData<Cell<T>>,
}

impl<T: Event, M: Memory> Producer<T, M> {
    /// Takes the producer's half of the queue in `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`] if the queue has or had a producer already. (A hostile peer can provoke this, for its own queue;
    /// take the half before the memory is shared.)
    pub fn new(memory: M) -> Result<Self, Error> {
        let () = T::FITS;
        take_producer(&memory)?;
        Ok(Producer {
            memory,
            place: Place { fill: 0, produced: 0 },
            room: u64::from(MIN_SLOTS - 1),
            consumed: 0,
            slots: MIN_SLOTS,
            corruption: None,
            _events: PhantomData,
        })
    }

    /// Puts an event in. It is visible to the consumer when this returns.
    ///
    /// Takes no lock and makes no system call; never waits for the consumer.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] when every slot but the divider holds an event, and [`PushError::Corrupt`], from then on for
    /// ever, when the consumer's words contradict themselves. The event was not put in.
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
        match self.place.put(&self.memory, &event) {
            Some(next) => {
                point!(PushStamped);
                self.place = next;
                self.room -= 1;
                Ok(())
            }
            None => Err(self.lost()),
        }
    }

    /// Puts `events` in until there are no more or the ring is full, and returns how many those were. Each becomes visible
    /// as soon as it is in. Faster than pushing them one by one.
    ///
    /// When the ring is full, nothing more is taken from the iterator: pass `events.by_ref()` to go on later.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] when there is no room for even one event, and [`PushError::Corrupt`] as
    /// [`push`](Producer::push), even after some events.
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
            // Kept apart from `self` on the way, so that nothing but slots is written; put back when it is dropped, since the
            // iterator may panic.
            let mut walk = Walk { place: self.place, room: self.room, producer: self };
            while walk.room > 0 {
                let Some(event) = events.next() else { return Ok(pushed) };
                let Some(next) = walk.place.put(&walk.producer.memory, &event) else {
                    drop(walk);
                    return Err(self.lost());
                };
                point!(PushIterStamped);
                walk.place = next;
                walk.room -= 1;
                pushed += 1;
            }
        }
    }

    /// How many events can be pushed now, at least.
    ///
    /// # Errors
    ///
    /// [`Corruption`] as in [`push`](Producer::push).
    pub fn free(&mut self) -> Result<u32, Corruption> {
        self.refresh()?;
        // Less than the slots of the ring.
        Ok(self.room as u32)
    }

    /// Takes note that the consumer has made the ring smaller ([`Consumer::shrink`](crate::Consumer::shrink)).
    ///
    /// To be called after the consumer's call has returned and before anything is pushed for an operation that is started
    /// later. It is told rather than seen, so that a push costs nothing for it.
    ///
    /// # Errors
    ///
    /// [`Corruption`] as in [`push`](Producer::push), and [`Corruption::ShrunkInUse`] when not all events have been taken.
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
        self.reckon(MIN_SLOTS)
    }

    /// Events put in since the start.
    pub fn pushed(&self) -> u64 {
        self.place.produced
    }

    /// The slots that the memory holds: the most that the ring can grow to.
    pub fn max_slots(&self) -> u32 {
        // No memory has more: `check_slot_count`.
        self.memory.slots().len() as u32
    }

    /// Tells the consumer a number that is no event: a counter, say. Whoever waits for it must be woken.
    pub fn tell(&self, word: u64) {
        // Beside the wake-up, nothing hangs on its order: a word of its own, which only grows newer.
        self.memory.header().producer.word.store(word, Relaxed);
    }

    /// The memory the queue lives in.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The slot to fill next.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn fill(&self) -> u32 {
        self.place.fill
    }

    /// Pretends that so many events have passed through the new queue.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn start_at(&mut self, events: u64) {
        (self.place.produced, self.consumed) = (events, events);
    }

    #[cold]
    fn find_room(&mut self) -> Result<(), PushError> {
        self.refresh()?;
        match self.room {
            0 => Err(PushError::Full { slots: self.slots, capacity: self.slots - 1 }),
            _ => Ok(()),
        }
    }

    /// Reads the consumer's counters again, which can only have grown.
    fn refresh(&mut self) -> Result<(), Corruption> {
        self.reckon(self.slots)
    }

    /// Reckons the room from the consumer's counters. There are at least `fewest` slots.
    fn reckon(&mut self, fewest: u32) -> Result<(), Corruption> {
        if let Some(corruption) = self.corruption {
            return Err(corruption);
        }
        let line = &self.memory.header().consumer;
        // SYNC bevq.get: with Consumer::publish.
        let consumed = line.consumed.load(GET.acquire());
        // SYNC bevq.grow: with Consumer::grow and Consumer::shrink.
        let slots = line.nr.load(GROW.acquire());
        point!(CountersRead);
        self.check(consumed, slots, fewest).map_err(|corruption| self.condemn(corruption))?;
        self.consumed = consumed;
        self.slots = slots;
        // Not negative: before, at most `slots - 1` events waited; `consumed` has not gone back, and `slots` has shrunk only
        // if nothing waits.
        self.room = u64::from(slots - 1) - (self.place.produced - consumed);
        point!(RoomReckoned);
        Ok(())
    }

    fn check(&self, consumed: u64, slots: u32, fewest: u32) -> Result<(), Corruption> {
        let max = self.max_slots();
        if consumed > self.place.produced {
            return Err(Corruption::ConsumedTooMany { consumed, produced: self.place.produced });
        }
        if consumed < self.consumed {
            return Err(Corruption::ConsumedFewer { consumed, before: self.consumed });
        }
        if slots < fewest {
            return Err(Corruption::Shrunk { slots, before: self.slots });
        }
        if slots < self.slots && consumed != self.place.produced {
            return Err(Corruption::ShrunkInUse { slots, waiting: self.place.produced - consumed });
        }
        if slots > max {
            return Err(Corruption::Outgrown { slots, max });
        }
        Ok(())
    }

    #[cold]
    fn lost(&mut self) -> PushError {
        let corruption = Corruption::Link { index: self.place.fill, slots: self.max_slots() };
        PushError::Corrupt(self.condemn(corruption))
    }

    /// From now on every push looks for room, and finds this.
    fn condemn(&mut self, corruption: Corruption) -> Corruption {
        self.room = 0;
        self.corruption = Some(corruption);
        corruption
    }
}

/// A producer on its way through several slots.
struct Walk<'a, T, M> {
    producer: &'a mut Producer<T, M>,
    place: Place,
    room: u64,
}

impl<T, M> Drop for Walk<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        (self.producer.place, self.producer.room) = (self.place, self.room);
    }
}

/// Where the producer stands in the ring.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The slot to fill next.
    ///
    /// Read from the link of a slot right after that slot was filled and before it is published: until then it cannot
    /// become the divider, whose link the consumer changes when it grows the ring. (Read only when needed, the link of
    /// the last slot could meanwhile lead to the new divider itself.)
    fill: u32,
    /// Events put in since the start.
    produced: u64,
}

impl Place {
    /// Fills the slot here, which must be free, and returns the place after it; none if there is no such slot.
    ///
    /// The stores to a slot stand together and in the order of their addresses: processors drain stores in order and fetch
    /// the lines of only a few ahead, so a store to another line in between would hold the next slot up.
    #[inline]
    fn put<T: Event, M: Memory>(self, memory: &M, event: &T) -> Option<Place> {
        let index = self.fill as usize;
        let (slot, link) = (memory.slots().get(index)?, memory.links().get(index)?);
        // Relaxed: whatever made the slot known to be free (bevq.get, bevq.grow) ordered its link before as well. A link
        // that leads nowhere is found when it is followed.
        let next = Place { fill: link.0.load(Relaxed), produced: self.produced + 1 };
        point!(LinkRead);
        slot.payload.write(event);
        point!(Filled);
        // SYNC bevq.put: with Consumer::front.
        slot.stamp.store(Stamp::new(next.produced, next.fill).bits(), PUT.release());
        Some(next)
    }
}
