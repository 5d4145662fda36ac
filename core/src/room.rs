//! Room for the events of operations: reserved before they start, so that no event is lost (S-407).

use crate::fit::check_messages;
use crate::{CoreError, Limits, Operation, OperationKind, Submitted};

/// The event queue of a transfer machine, as starting operations see it.
pub trait EventRoom {
    /// Reserves room for this number of further events. Returns false, and changes nothing, if
    /// there is not enough.
    fn provision(&self, events: u32) -> bool;

    /// Releases room of events that will not come.
    fn release(&self, events: u32);

    /// Returns the largest number of events for which there can be room.
    fn limit(&self) -> usize;

    /// Returns the limits of operations.
    fn limits(&self) -> &Limits;
}

/// Room for events that no operation has taken yet; dropping it releases the room.
struct ReservedRoom<'a, Q: EventRoom> {
    queue: &'a Q,
    events: u32,
}

impl<Q: EventRoom> ReservedRoom<'_, Q> {
    /// Reserves room for the events of an operation. A number of messages that no operation may
    /// have is refused as such, and not for lack of room.
    fn of<'a>(queue: &'a Q, operation: &Operation) -> Result<ReservedRoom<'a, Q>, CoreError> {
        if let OperationKind::Receive { max_messages, .. } = operation.kind {
            check_messages(max_messages, queue.limits())?;
        }
        ReservedRoom::make(queue, operation.kind.events_max().into())
    }

    /// Reserves room for this number of events.
    fn make(queue: &Q, events: u64) -> Result<ReservedRoom<'_, Q>, CoreError> {
        match u32::try_from(events).ok().filter(|&events| queue.provision(events)) {
            Some(events) => Ok(ReservedRoom { queue, events }),
            None => {
                Err(CoreError::TooMany { objects: "events of operations in flight", limit: queue.limit() })
            }
        }
    }
}

impl<Q: EventRoom> Drop for ReservedRoom<'_, Q> {
    fn drop(&mut self) {
        if self.events > 0 {
            self.queue.release(self.events);
        }
    }
}

/// Implements [`CoreTm::submit_all`](crate::CoreTm::submit_all) for transports that reserve room
/// for events. It reserves room for all operations at once or, if there is not enough, for each one
/// separately. `begin` checks and starts an operation, which takes over the room for its events if
/// it succeeds.
pub fn submit_in_room<Q: EventRoom>(
    queue: &Q,
    operations: &[Operation],
    mut begin: impl FnMut(&Operation) -> Result<Submitted, CoreError>,
    outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
) {
    let events = |operation: &Operation| operation.kind.events_max();
    let mut start = |operation: &Operation, room: &mut ReservedRoom<'_, Q>| {
        let begun = begin(operation)?;
        room.events -= events(operation);
        Ok(begun)
    };
    let mut all =
        ReservedRoom::make(queue, operations.iter().map(|operation| u64::from(events(operation))).sum()).ok();
    for (index, operation) in operations.iter().enumerate() {
        let begun = match &mut all {
            Some(room) => start(operation, room),
            None => ReservedRoom::of(queue, operation).and_then(|mut room| start(operation, &mut room)),
        };
        outcome(index, begun);
    }
}
