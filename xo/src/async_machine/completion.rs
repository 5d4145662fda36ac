//! The end of an operation, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nlx_core::Errno;

use super::slots::{CompletionSlots, TableSlot};
use crate::event::OpOwner;
use crate::{Buffer, Error, Event, Machine, Offer, Op, OpId, Refused, Started};

/// The result of an operation that succeeded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completed {
    /// The operation's buffer.
    pub buffer: Buffer,
    /// Bytes transferred, from the start of the buffer.
    pub length: usize,
    /// The time from the start of the operation to its last event.
    pub after: Duration,
}

/// The error of an operation that failed or was refused.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Failed {
    /// The operation's buffer; `None` only if it was lost with the machine.
    pub buffer: Option<Buffer>,
    /// The reason.
    pub error: Error,
}

impl Failed {
    /// Returns the errno that Motr reports: ECANCELED if the operation was cancelled, ETIMEDOUT if
    /// its timeout passed, else LNet's errno, or that of the refusal.
    #[must_use]
    pub fn errno(&self) -> Errno {
        self.error.errno()
    }
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed { buffer: Some(refused.buffer), error: refused.error }
    }
}

/// An operation in flight, as a future that is ready when it has ended.
///
/// The operation makes progress even if this is not polled. Dropping this cancels the operation
/// without waiting; its buffer is dropped at the operation's end (and so returned to its pool, if
/// it has one).
///
/// # Panics
/// If it is polled again after it was ready.
#[must_use = "the operation is cancelled when this is dropped"]
pub struct Completion(CompletionState);

enum CompletionState {
    InFlight(InFlight),
    /// The operation was refused; the result is still to be polled.
    Refused(Refused),
    Over,
}

struct InFlight {
    started: Started,
    machine: Arc<Machine>,
    slot: Arc<TableSlot<Event>>,
}

/// [`Completion::offer`] of an operation that has none.
static NO_OFFER: Offer = Offer::NONE;

impl Completion {
    /// Starts an operation with a slot as its owner. If it is refused, the future is ready at once.
    pub(crate) fn start(machine: &Arc<Machine>, slots: &Arc<CompletionSlots<Event>>, op: Op) -> Completion {
        let slot = slots.take();
        match machine.start(op.owned_by(slot.clone())) {
            Ok(started) => {
                Completion(CompletionState::InFlight(InFlight { started, machine: machine.clone(), slot }))
            }
            Err(refused) => {
                // No event will come, so the slot is released here.
                slot.unused();
                Completion::refused(refused)
            }
        }
    }

    pub(crate) fn refused(refused: Refused) -> Completion {
        Completion(CompletionState::Refused(refused))
    }

    /// Returns the offer of a passive operation, by which a peer can access the buffer at once. For
    /// any other operation, and if it was refused or has ended: [`Offer::NONE`], which names no
    /// buffer.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        match &self.0 {
            CompletionState::InFlight(in_flight) => &in_flight.started.offer,
            _ => &NO_OFFER,
        }
    }

    /// Returns the operation's id; `None` if it was refused or has ended.
    #[must_use]
    pub fn op(&self) -> Option<OpId> {
        match &self.0 {
            CompletionState::InFlight(in_flight) => Some(in_flight.started.op),
            _ => None,
        }
    }

    /// Requests the end of the operation without dropping this future, which then returns the
    /// buffer: with ECANCELED, or with the operation's result if that came first. Returns false,
    /// and does nothing, if the operation has ended.
    pub fn cancel(&self) -> bool {
        match &self.0 {
            CompletionState::InFlight(in_flight) => in_flight.machine.cancel(in_flight.started.op),
            _ => false,
        }
    }
}

impl Future for Completion {
    type Output = Result<Completed, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Completed, Failed>> {
        if let CompletionState::InFlight(in_flight) = &self.0 {
            let Poll::Ready(event) = in_flight.slot.poll(context.waker()) else { return Poll::Pending };
            let CompletionState::InFlight(InFlight { machine, .. }) =
                std::mem::replace(&mut self.0, CompletionState::Over)
            else {
                unreachable!("it was in flight a moment ago")
            };
            return Poll::Ready(match event {
                Some(event) => outcome(event),
                None => Err(Failed { buffer: None, error: Error::NotStarted { state: machine.state() } }),
            });
        }
        match std::mem::replace(&mut self.0, CompletionState::Over) {
            CompletionState::Refused(refused) => Poll::Ready(Err(refused.into())),
            _ => panic!("a completion polled again after it was ready"),
        }
    }
}

/// Returns the result of a future, from its operation's last event.
fn outcome(event: Event) -> Result<Completed, Failed> {
    let Event { queue, status, length, buffer, after, .. } = event;
    match (status, buffer) {
        (Ok(()), Some(buffer)) => Ok(Completed { buffer, length, after }),
        (status, buffer) => {
            let errno = status.err().unwrap_or(Errno::EIO);
            Err(Failed { buffer, error: Error::Operation { queue, errno } })
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let CompletionState::InFlight(InFlight { started, machine, slot }) = &self.0
            && slot.leave()
        {
            machine.cancel(started.op);
        }
    }
}

/// A slot takes its operation's last event; an event that it does not keep is dropped, with its
/// buffer.
impl OpOwner for TableSlot<Event> {
    fn event(&self, event: Event) -> Option<Event> {
        if event.is_last() {
            drop(self.deliver(event));
        }
        None
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            CompletionState::InFlight(in_flight) => write!(f, "Completion({})", in_flight.started.op),
            CompletionState::Refused(refused) => write!(f, "Completion(refused: {refused})"),
            CompletionState::Over => f.write_str("Completion(over)"),
        }
    }
}
