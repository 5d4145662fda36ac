//! Starting operations: checked here, carried out by the helper.

use nlx_core::{CoreError, Descriptor, MatchCounter, Operation, Queue, Submitted, submit_in_room};
use nlx_driver_proto::Entry;

use super::Machine;
use crate::buffers::{InFlight, place_of};
use crate::ucore::now_ns;

/// Room for events that no operation has taken yet: it is given back when this is dropped.
struct Room<'a> {
    machine: &'a Machine,
    events: u32,
    /// The transfer machine was stopped when it was made.
    stopped: bool,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.events > 0 {
            let released = self.machine.side.lock().consumer.release(self.events);
            debug_assert!(released.is_ok(), "{released:?}");
        }
    }
}

impl Machine {
    /// Starts operations one by one; the helper is woken once. Buffers that others are to find are there when this returns
    /// (motr-transport 4.3), whoever hears of them in whatever way.
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
        let begin = |operation: &Operation, room: &mut Room<'_>| {
            let begun = self.begin(operation, started_ns, room);
            exposed |= begun.is_ok() && is_exposed(operation.kind.queue());
            begun
        };
        submit_in_room(operations, |events| self.provision(events), begin, outcome);
        self.link.hurry();
        if exposed {
            self.link.settle();
        }
    }

    /// Makes sure that there is room for this many more events.
    fn provision(&self, events: u64) -> Result<Room<'_>, CoreError> {
        let mut side = self.side.lock();
        point!(RoomDue);
        point!(QueueShort if u64::from(side.consumer.slots() - side.consumer.needed()) <= events);
        let stopped = side.stopped;
        let limit = side.consumer.max_slots() as usize - 1;
        match u32::try_from(events).ok().filter(|&events| side.consumer.provision(events).is_ok()) {
            Some(events) => {
                point!(RoomMade);
                Ok(Room { machine: self, events, stopped })
            }
            None => Err(CoreError::TooMany { objects: "events of operations in flight", limit }),
        }
    }

    /// Starts an operation, whose events take of this room.
    fn begin(
        &self,
        operation: &Operation,
        started_ns: u64,
        room: &mut Room<'_>,
    ) -> Result<Submitted, CoreError> {
        let (Operation { buffer: handle, kind, .. }, link) = (operation, &*self.link);
        link.check()?;
        let queue = kind.queue();
        // Before the buffer's lock: it may look at others. A number that is not used then is passed over.
        let counter = self.counter(operation, queue)?;
        let place = self.domain.buffers.slot(*handle)?;
        let mut slot = place.lock();
        if slot.buffer(*handle)?.unknown().is_some() {
            drop(slot);
            self.domain.make_known(*handle)?;
            slot = place.lock();
        }
        let buffer = slot.buffer(*handle)?;
        let length = kind.fit(buffer.len(), &link.welcome.limits)?.length;
        if room.stopped {
            return Err(CoreError::Stopped { address: self.address });
        }
        let descriptor = Descriptor::of_operation(self.descriptors, self.address, (queue, counter), length)?;
        link.enter()?;
        let in_flight = InFlight::new(operation, self.number, counter, started_ns);
        // No more than the buffer has.
        buffer.begin(in_flight, length as usize).inspect_err(|_| link.leave())?;
        // Under the buffer's lock, so that neither its end nor a cancel comes before it.
        link.push(&Entry::Operate { tm: self.tm, operation: *operation, counter }).inspect_err(|_| {
            buffer.end();
            link.leave();
        })?;
        room.events -= kind.events_max();
        Ok(Submitted { descriptor })
    }

    /// The lower part of the match bits of a passive operation.
    fn counter(&self, operation: &Operation, queue: Queue) -> Result<MatchCounter, CoreError> {
        if !queue.is_passive() {
            return Ok(MatchCounter::UNSOLICITED);
        }
        match &self.random {
            // A buffer has one operation: its place tells the operations in flight apart.
            Some(random) => Ok(random.number()?.counter(place_of(operation.buffer) & PLACE_MASK)),
            None => {
                let in_use = || self.domain.buffers.counters(self.number);
                Ok(self.counters.lock().next(in_use))
            }
        }
    }
}

/// Whether operations of this queue wait for others to find their buffer.
fn is_exposed(queue: Queue) -> bool {
    queue == Queue::MessageReceive || queue.is_passive()
}

/// A handle that names no buffer may name any place; it is refused later.
const PLACE_MASK: u32 = nlx_driver_proto::BUFFERS_MAX - 1;
const _: () = assert!(nlx_driver_proto::BUFFERS_MAX.is_power_of_two());
