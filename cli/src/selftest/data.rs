//! A transfer machine for data, and the handling of its events, with either delivery.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nlx::{Buffer, Domain, Event, Machine, Op, Queue, TransferMachine};

use super::command::{Delivery, Plan, Refusal, Status};
use super::service::Work;
use crate::failure::Failure;

/// The common interface of client and server: both are driven by events.
pub(super) trait Part: Send + 'static {
    /// Posts receive buffers and finds peers.
    fn prepare(&mut self, machine: &Machine) -> Result<(), Failure>;
    /// Handles START.
    fn start(&mut self, machine: &Machine) -> Result<(), Failure>;
    fn event(&mut self, machine: &Machine, event: Event) -> Result<(), Failure>;
    /// Sends together the operations that result from events. Called after one or several events.
    fn flush(&mut self, machine: &Machine) -> Result<(), Failure>;
    /// Handles timeouts. Called at intervals.
    fn tick(&mut self, machine: &Machine) -> Result<(), Failure>;
    fn status(&self, from: usize) -> Status;
}

/// Largest number of events that are handled before their operations are sent and commands are
/// received, so that a flood of events does not delay these.
const EVENTS_MAX: usize = 1024;

/// A client or server with its transfer machine. Dropping it cancels the operations in flight.
pub(super) struct Driven<P> {
    // Dropped first: no callback runs when the part is dropped.
    machine: TransferMachine,
    shared: Arc<Mutex<PartState<P>>>,
    delivery: Delivery,
}

struct PartState<P> {
    part: P,
    /// The error of a callback.
    failure: Option<Failure>,
}

fn lock<P>(shared: &Mutex<PartState<P>>) -> MutexGuard<'_, PartState<P>> {
    // A callback that panicked has made its machine fail, and every use of the machine reports
    // that.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Part> Driven<P> {
    pub(super) fn start(domain: &Domain, plan: &Plan, part: P) -> Result<Driven<P>, Failure> {
        let shared = Arc::new(Mutex::new(PartState { part, failure: None }));
        let builder = domain.machine();
        let machine = match plan.delivery {
            Delivery::Wait => builder.start(&plan.address)?,
            Delivery::Callback => {
                let shared = shared.clone();
                builder
                    .callbacks(move |machine, event| {
                        let shared = &mut *lock(&shared);
                        let part = &mut shared.part;
                        let outcome = part.event(machine, event).and_then(|()| part.flush(machine));
                        shared.failure = shared.failure.take().or(outcome.err());
                    })
                    .start(&plan.address)?
            }
        };
        lock(&shared).part.prepare(&machine)?;
        Ok(Driven { machine, shared, delivery: plan.delivery })
    }

    pub(super) fn address(&self) -> String {
        self.machine.address().to_string()
    }

    /// Handles all pending events, after waiting for the first.
    fn wait(&self, wait: Duration) -> Result<(), Failure> {
        let mut next = self.machine.wait(Some(wait))?;
        let part = &mut lock(&self.shared).part;
        for _ in 0..EVENTS_MAX {
            let Some(event) = next else { break };
            part.event(&self.machine, event)?;
            next = self.machine.take()?;
        }
        if let Some(event) = next {
            part.event(&self.machine, event)?;
        }
        part.flush(&self.machine)?;
        part.tick(&self.machine)
    }
}

impl<P: Part> Work for Driven<P> {
    fn step(&mut self, wait: Duration) -> Result<(), Failure> {
        if self.delivery == Delivery::Wait {
            return self.wait(wait);
        }
        // The event thread does the rest.
        std::thread::sleep(wait);
        let shared = &mut *lock(&self.shared);
        match shared.failure.take() {
            Some(failure) => Err(failure),
            None => shared.part.tick(&self.machine),
        }
    }

    fn start(&mut self) -> Result<(), Refusal> {
        let part = &mut lock(&self.shared).part;
        part.start(&self.machine).map_err(|failure| Refusal::new(nlx::Errno::EIO, failure.to_string()))
    }

    fn status(&mut self, from: usize) -> Result<Status, Refusal> {
        let status = lock(&self.shared).part.status(from);
        let queues = self.machine.statistics();
        let successes = |queue: Queue| queues[queue.index()].successes;
        Ok(Status {
            messages_sent: successes(Queue::MessageSend),
            messages_received: successes(Queue::MessageReceive),
            bulk_sent: successes(Queue::ActiveBulkSend) + successes(Queue::PassiveBulkSend),
            bulk_received: successes(Queue::ActiveBulkReceive) + successes(Queue::PassiveBulkReceive),
            ..status
        })
    }
}

/// The receive buffers of one side: more room than its peers can have in flight, posted again as
/// they fill.
pub(super) struct Receives {
    domain: Domain,
    /// Length of the longest message.
    message_bytes: usize,
    /// Number of these per buffer.
    messages: usize,
    buffers: usize,
}

impl Receives {
    /// Room for four times the messages in flight, so that buffers whose messages are being handled
    /// are not missed.
    const ROOM: usize = 4;

    /// Additional buffers: this number, or one for each message in flight if these are fewer. A
    /// buffer comes back with its last message, and one of its messages may still be arriving when
    /// all others have been answered long ago: a sender over the loopback that is not scheduled
    /// copies nothing, and a connection may be slow. The other buffers must suffice meanwhile.
    const SPARE_BUFFERS_MAX: usize = 16;

    pub(super) fn new(domain: &Domain, message_bytes: usize, plan: &Plan) -> Receives {
        let fitting = (super::BULK_BYTES / message_bytes).max(1);
        let messages = (plan.messages as usize).min(fitting);
        let in_flight = plan.in_flight as usize;
        let held_up = in_flight.min(Receives::SPARE_BUFFERS_MAX);
        Receives {
            domain: domain.clone(),
            message_bytes,
            messages,
            buffers: (Receives::ROOM * in_flight).div_ceil(messages) + held_up,
        }
    }

    pub(super) fn post(&self, machine: &Machine) -> Result<(), Failure> {
        let bytes = self.message_bytes * self.messages;
        (0..self.buffers).try_for_each(|_| self.repost(machine, Some(self.domain.allocate(bytes)?)))
    }

    /// Posts a buffer again that has come back with its last message.
    pub(super) fn repost(&self, machine: &Machine, buffer: Option<Buffer>) -> Result<(), Failure> {
        if let Some(buffer) = buffer {
            let receive = Op::receive(buffer).max_messages(self.messages as u32);
            machine.start(receive).map_err(|refused| Failure::from(refused.error))?;
        }
        Ok(())
    }
}
