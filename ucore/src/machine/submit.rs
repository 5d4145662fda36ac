//! Starting operations: checked on this side, carried out by the helper.

use std::sync::atomic::Ordering;

use nlx_core::{
    CoreError, Descriptor, EventRoom, Limits, MatchCounter, Operation, Queue, Submitted, submit_in_room,
};
use nlx_driver_proto::Entry;

use super::UcoreTm;
use crate::buffers::{InFlight, place_of};
use crate::ucore::now_ns;

impl EventRoom for UcoreTm {
    fn provision(&self, events: u32) -> bool {
        let mut consumer_state = self.consumer_state.lock();
        point!(RoomDue);
        point!(QueueShort if consumer_state.consumer.slots() - consumer_state.consumer.needed() <= events);
        let is_there = consumer_state.consumer.provision(events).is_ok();
        point!(RoomMade if is_there);
        is_there
    }

    fn release(&self, events: u32) {
        let released = self.consumer_state.lock().consumer.release(events);
        debug_assert!(released.is_ok(), "{released:?}");
    }

    fn limit(&self) -> usize {
        self.consumer_state.lock().consumer.max_slots() as usize - 1
    }

    fn limits(&self) -> &Limits {
        &self.link.welcome.limits
    }
}

impl UcoreTm {
    /// Starts operations one by one, and wakes the helper once. When this returns, passive buffers
    /// are visible to peers (motr-transport 4.3), however a peer learns of them.
    pub(super) fn submit_in_order(
        &self,
        started_ns: Option<u64>,
        operations: &[Operation],
        outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
    ) {
        if let Err(error) = self.domain.check_here() {
            return (0..operations.len()).for_each(|place| outcome(place, Err(error.clone())));
        }
        let started_ns = started_ns.unwrap_or_else(now_ns);
        let mut exposed = false;
        let begin = |operation: &Operation| {
            let begun = self.begin(operation, started_ns);
            exposed |= begun.is_ok() && is_exposed(operation.kind.queue());
            begun
        };
        submit_in_room(self, operations, begin, outcome);
        self.link.wake_helper();
        if exposed {
            self.link.settle();
        }
    }

    /// Starts an operation whose events have room.
    fn begin(&self, operation: &Operation, started_ns: u64) -> Result<Submitted, CoreError> {
        let (Operation { buffer: handle, kind, .. }, link) = (operation, &*self.link);
        link.check()?;
        let queue = kind.queue();
        // Taken before the buffer's lock, because it may read other slots. A number that is not
        // used then is skipped.
        let counter = self.counter(operation, queue)?;
        let place = self.domain.buffers.slot(*handle)?;
        let mut slot = place.lock();
        if slot.buffer(*handle)?.unknown().is_some() {
            drop(slot);
            self.domain.make_known(*handle)?;
            slot = place.lock();
        }
        let buffer = slot.buffer(*handle)?;
        let (length, _) = kind.fit(buffer.len(), &link.welcome.limits)?;
        // The check is reliable here: with room for its events reserved, the machine cannot be
        // stopped.
        if self.stopped.load(Ordering::Relaxed) {
            return Err(CoreError::Stopped { address: self.address });
        }
        let descriptor = Descriptor::of_operation(self.descriptors, self.address, (queue, counter), length)?;
        link.enter()?;
        let in_flight = InFlight::new(operation, self.number, counter, started_ns);
        // At most the buffer's length.
        buffer.begin(in_flight, length as usize).inspect_err(|_| link.leave())?;
        // Under the buffer's lock, so that neither its end nor a cancel precedes the entry.
        link.push(&Entry::Operate { tm: self.tm, operation: *operation, counter }).inspect_err(|_| {
            buffer.end();
            link.leave();
        })?;
        Ok(Submitted { descriptor })
    }

    /// Returns the lower part of the match bits of a passive operation.
    fn counter(&self, operation: &Operation, queue: Queue) -> Result<MatchCounter, CoreError> {
        if !queue.is_passive() {
            return Ok(MatchCounter::UNSOLICITED);
        }
        match &self.random {
            // A buffer has one operation, so its index distinguishes the operations in flight.
            Some(random) => Ok(random.number()?.counter(place_of(operation.buffer) & PLACE_MASK)),
            None => {
                let in_use = || self.domain.buffers.counters(self.number);
                Ok(self.counters.lock().next(in_use))
            }
        }
    }
}

/// Returns whether operations of this queue wait for peers that use their buffer.
fn is_exposed(queue: Queue) -> bool {
    queue == Queue::MessageReceive || queue.is_passive()
}

/// An unknown handle may have any index; it is refused later.
const PLACE_MASK: u32 = nlx_driver_proto::BUFFERS_MAX - 1;
const _: () = assert!(nlx_driver_proto::BUFFERS_MAX.is_power_of_two());
