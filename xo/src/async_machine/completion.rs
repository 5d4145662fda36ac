//! The end of an operation, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nlx_core::Errno;

use super::slots::{Place, Slots};
use crate::event::Owner;
use crate::{Buffer, Error, Event, Machine, Offer, Op, OpId, Refused, Started};

/// An operation has ended well.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completed {
    /// Its buffer.
    pub buffer: Buffer,
    /// Bytes moved, from the start of the buffer.
    pub length: usize,
    /// From the start of the operation to its last event.
    pub after: Duration,
}

/// An operation has ended otherwise, or was not started.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Failed {
    /// Its buffer; `None` only if it was lost with the machine.
    pub buffer: Option<Buffer>,
    /// Why.
    pub error: Error,
}

impl Failed {
    /// The errno that a Motr user knows: ECANCELED if it was cancelled, ETIMEDOUT if its timeout passed, else LNet's, or that
    /// of the refusal.
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

/// An operation that has been started: a future that is ready when it has ended.
///
/// The operation goes on whether this is polled or not. Dropping it cancels the operation without waiting: its last event
/// then gives the buffer up (to its pool, if it has one).
///
/// # Panics
/// When it is polled again after it was ready.
#[must_use = "the operation is cancelled when this is dropped"]
pub struct Completion(State);

enum State {
    InFlight(InFlight),
    /// It was refused.
    Refused(Refused),
    Over,
}

struct InFlight {
    started: Started,
    machine: Arc<Machine>,
    place: Arc<Place<Event>>,
}

/// What an operation without an offer lends out.
static NO_OFFER: Offer = Offer::NONE;

impl Completion {
    /// Starts an operation, whose owner a slot is to be. One that is refused has ended already.
    pub(crate) fn start(machine: &Arc<Machine>, slots: &Arc<Slots<Event>>, op: Op) -> Completion {
        let place = slots.take();
        match machine.start(op.owned_by(place.clone())) {
            Ok(started) => Completion(State::InFlight(InFlight { started, machine: machine.clone(), place })),
            Err(refused) => {
                // It has no event, so nobody else gives the slot back.
                place.unused();
                Completion::refused(refused)
            }
        }
    }

    pub(crate) fn refused(refused: Refused) -> Completion {
        Completion(State::Refused(refused))
    }

    /// Of a passive operation: what the peer needs to reach the buffer, which can be reached already. [`Offer::NONE`], which leads
    /// nowhere, of any other, and if it was refused or is over.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        match &self.0 {
            State::InFlight(in_flight) => &in_flight.started.offer,
            _ => &NO_OFFER,
        }
    }

    /// The operation; `None` if it was refused, or is over.
    #[must_use]
    pub fn op(&self) -> Option<OpId> {
        match &self.0 {
            State::InFlight(in_flight) => Some(in_flight.started.op),
            _ => None,
        }
    }

    /// Asks for the end of the operation, without dropping this: it then gives the buffer back, with ECANCELED or as the
    /// operation would have ended if that was faster. False, without any effect, if the operation has ended.
    pub fn cancel(&self) -> bool {
        match &self.0 {
            State::InFlight(in_flight) => in_flight.machine.cancel(in_flight.started.op),
            _ => false,
        }
    }
}

impl Future for Completion {
    type Output = Result<Completed, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Completed, Failed>> {
        if let State::InFlight(in_flight) = &self.0 {
            let Poll::Ready(event) = in_flight.place.poll(context.waker()) else { return Poll::Pending };
            let State::InFlight(InFlight { machine, .. }) = std::mem::replace(&mut self.0, State::Over)
            else {
                unreachable!("it was in flight a moment ago")
            };
            return Poll::Ready(match event {
                Some(event) => outcome(event),
                None => Err(Failed { buffer: None, error: Error::NotStarted { state: machine.state() } }),
            });
        }
        match std::mem::replace(&mut self.0, State::Over) {
            State::Refused(refused) => Poll::Ready(Err(refused.into())),
            _ => panic!("a completion polled again after it was ready"),
        }
    }
}

/// What an operation's last event means to its task.
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
        if let State::InFlight(InFlight { started, machine, place }) = &self.0
            && place.leave()
        {
            machine.cancel(started.op);
        }
    }
}

/// The slot gets the events of its operation; what it does not keep is dropped, and its buffer with it.
impl Owner for Place<Event> {
    fn event(&self, event: Event) -> Option<Event> {
        if event.is_last() {
            drop(self.bring(event));
        }
        None
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::InFlight(in_flight) => write!(f, "Completion({})", in_flight.started.op),
            State::Refused(refused) => write!(f, "Completion(refused: {refused})"),
            State::Over => f.write_str("Completion(over)"),
        }
    }
}
