//! Growing and shrinking the ring.

use core::ops::DerefMut;
use core::sync::atomic::Ordering::Relaxed;

use super::Consumer;
use crate::error::{Corruption, Error, PopError};
use crate::layout::{Event, MIN_SLOTS, SlotLink, Stamp};
use crate::memory::QueueMemory;
use crate::producer::Producer;
use crate::rules::GROW;
use nlx_sync::{AtomicU32, point};

impl<T: Event, M: QueueMemory> Consumer<T, M> {
    /// Links `more` slots into the ring, first those that [`shrink`](Consumer::shrink) has cut off.
    /// The producer gets all of them at once; waiting events keep their order.
    ///
    /// The new slots go behind the divider, and the last of them becomes the divider: the old
    /// divider and the others are then the last free slots. Only the link of a slot that the
    /// producer will not read is changed (motr-transport 6.3).
    ///
    /// # Errors
    ///
    /// [`Error::NoRoom`] when the memory does not hold enough slots, and [`Error::Corrupt`] when
    /// the spare slots lead out of it; nothing has changed then.
    pub fn grow(&mut self, more: u32) -> Result<(), Error> {
        let (slots, max) = (self.slots, self.max_slots());
        if more > max - slots {
            return Err(Error::NoRoom { slots, more, max });
        }
        if more == 0 {
            return Ok(());
        }
        let mut spare = self.spare;
        let first = self.fetch(&mut spare)?;
        let mut last = first;
        for _ in 1..more {
            let next = self.fetch(&mut spare)?;
            self.link(last)?.store(next, Relaxed);
            last = next;
        }
        self.link(last)?.store(self.front, Relaxed);
        point!(GrowStrung);
        self.link(self.divider)?.store(first, Relaxed);
        point!(GrowLinked);
        self.divider = last;
        self.slots = slots + more;
        self.spare = spare;
        self.publish_slots();
        point!(GrowPublished);
        Ok(())
    }

    /// Reduces the ring to `slots`, if it is larger. The other slots become spare, and their pages
    /// return to the system where the memory permits it ([`QueueMemory::discard`]).
    ///
    /// The producer must be notified before it pushes again, by
    /// [`Producer::accept_shrink`](crate::Producer::accept_shrink). Since nothing is provisioned,
    /// no operation is under way, so the caller that submits the next operation can notify it. A
    /// producer that was not notified may fill more slots than there are, and reports
    /// [`Corruption::Shrunk`] when it checks for room.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while something is provisioned or an event waits, [`Error::SlotCount`] if
    /// `slots` is too small, and [`Error::Corrupt`] when the ring leads out of its memory; nothing
    /// has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// let (mut producer, mut consumer) = nlx_bev_cqueue::heap::<u64>(1000)?;
    /// consumer.provision(500)?;
    /// consumer.release(500)?;
    /// assert_eq!(consumer.slots(), 501);
    /// consumer.shrink(8)?;
    /// producer.accept_shrink()?;
    /// assert_eq!(consumer.slots(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink(&mut self, slots: u32) -> Result<(), Error> {
        if let Some(cut) = self.find_cut(slots, self.needed > 0)? {
            self.close(&cut)?;
            self.discard(cut.count);
        }
        Ok(())
    }

    /// Reduces the ring although operations are under way, for a caller that can lock this queue's
    /// producer: `hold` locks the producer, which is notified and unlocked after a few stores,
    /// whatever the size of the ring. Provisioned room remains.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while an event waits or if the smaller ring would lack room for the
    /// provisioned events; otherwise as [`shrink`](Consumer::shrink). Nothing has changed then.
    /// [`Error::Corrupt`] also if the producer has found a corruption.
    ///
    /// # Examples
    ///
    /// ```
    /// let (mut producer, mut consumer) = nlx_bev_cqueue::heap::<u64>(1000)?;
    /// consumer.provision(500)?;
    /// consumer.release(497)?;
    /// consumer.shrink_with(8, || &mut producer)?;
    /// assert_eq!(producer.push_iter([1, 2, 3]), Ok(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shrink_with<P>(&mut self, slots: u32, hold: impl FnOnce() -> P) -> Result<(), Error>
    where
        P: DerefMut<Target = Producer<T, M>>,
    {
        let Some(cut) = self.find_cut(slots, self.needed >= slots)? else { return Ok(()) };
        let mut producer = hold();
        // Checked again: an event may have arrived since the first check.
        self.check_nothing_waits(false)?;
        self.close(&cut)?;
        producer.accept_shrink()?;
        drop(producer);
        self.discard(cut.count);
        Ok(())
    }

    /// Returns the slots to cut off, or `None` if the ring is not larger than `slots`.
    fn find_cut(&mut self, slots: u32, in_use: bool) -> Result<Option<Cut>, Error> {
        if slots < MIN_SLOTS {
            return Err(Error::SlotCount { slots, min: MIN_SLOTS, max: self.max_slots() });
        }
        self.check_nothing_waits(in_use)?;
        // A forgotten `Drain` may have left slots unpublished.
        self.publish();
        if slots >= self.slots {
            return Ok(None);
        }
        // All slots but the divider are free; the last remaining one is `slots - 2` steps after the
        // first.
        let count = self.slots - slots;
        let last = self.walk(self.front, slots - 2)?;
        let first_spare = self.next_of(last)?;
        let last_spare = self.walk(first_spare, count - 1)?;
        match self.next_of(last_spare)? {
            end if end == self.divider => Ok(Some(Cut { last, first_spare, last_spare, count })),
            astray => Err(self.nowhere(astray).into()),
        }
    }

    fn check_nothing_waits(&self, in_use: bool) -> Result<(), Error> {
        match self.front() {
            Err(PopError::Corrupt(corruption)) => Err(corruption.into()),
            Err(PopError::Empty) if !in_use => Ok(()),
            _ => Err(Error::InUse { needed: self.needed, waiting: self.ready() }),
        }
    }

    /// Removes the slots of `Cut` from the ring: the last free ones, before the divider, in which
    /// no event waits.
    fn close(&mut self, &Cut { last, first_spare, last_spare, count }: &Cut) -> Result<(), Error> {
        self.link(last)?.store(self.divider, Relaxed);
        point!(ShrinkClosed);
        self.link(last_spare)?.store(self.spare.first, Relaxed);
        point!(ShrinkPutAside);
        self.slots -= count;
        self.spare = Spare { first: first_spare, count: self.spare.count + count, ..self.spare };
        self.publish_slots();
        point!(ShrinkPublished);
        Ok(())
    }

    /// Discards the first `count` spare slots, in runs of consecutive indices that are as long as
    /// possible.
    fn discard(&self, count: u32) {
        let mut run = self.spare.first..self.spare.first;
        let mut index = self.spare.first;
        for _ in 0..count {
            // `grow` reports an invalid link.
            let Ok(next) = self.next_of(index) else { break };
            if index != run.end {
                self.memory.discard(core::mem::replace(&mut run, index..index));
            }
            run.end += 1;
            index = next;
        }
        self.memory.discard(run);
        point!(ShrinkDiscarded);
    }

    /// Removes a slot from `spare` and returns it.
    fn fetch(&self, spare: &mut Spare) -> Result<u32, Corruption> {
        // The stamp has a number that no later event has; see `MAX_SLOTS`.
        let old = Stamp::new(self.taken, 0).bits();
        let index = if spare.count == 0 {
            spare.fresh += 1;
            spare.fresh - 1
        } else {
            spare.count -= 1;
            let next = self.next_of(spare.first)?;
            core::mem::replace(&mut spare.first, next)
        };
        self.slot(index)?.stamp.store(old, Relaxed);
        Ok(index)
    }

    fn walk(&self, from: u32, steps: u32) -> Result<u32, Corruption> {
        (0..steps).try_fold(from, |index, _| self.next_of(index))
    }

    fn next_of(&self, index: u32) -> Result<u32, Corruption> {
        Ok(self.link(index)?.load(Relaxed))
    }

    fn link(&self, index: u32) -> Result<&AtomicU32, Corruption> {
        let link = self.memory.links().get(index as usize);
        link.map(|SlotLink(next)| next).ok_or_else(|| self.nowhere(index))
    }

    fn publish_slots(&self) {
        // SYNC bevq.grow: with Producer::update_room.
        self.memory.header().consumer.nr.store(self.slots, GROW.release());
    }
}

/// The slots to cut off the ring: free ones, the last before the divider.
struct Cut {
    /// The last slot that remains in the ring.
    last: u32,
    first_spare: u32,
    last_spare: u32,
    count: u32,
}

/// The slots of the memory that are outside of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    /// The first of the slots that were in the ring earlier. The link of each leads to the next.
    first: u32,
    /// The number of slots that were in the ring earlier.
    count: u32,
    /// The first slot that has never been in the ring; nor have those after it.
    fresh: u32,
}

impl Spare {
    /// Creates the spare slots of a new ring.
    pub(super) fn new() -> Spare {
        Spare { first: 0, count: 0, fresh: MIN_SLOTS }
    }
}
