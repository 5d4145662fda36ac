//! Starting operations.

use std::sync::Arc;
use std::time::Duration;

use nlx_core::{CoreError, Descriptor, Operation, OperationKind, Submitted};

use crate::machine::{State, after};
use crate::operations::Op;
use crate::owner::Owner;
use crate::quotas::Object;
use crate::{Buffer, EndPoint, Error, Machine, OpId, Refused, TmState};

/// How a receive buffer takes messages (S-403).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receive {
    /// The buffer comes back once less room than this is left, in bytes; longer messages do not match it. At least 1, at most
    /// the whole buffer.
    pub min_receive_size: usize,
    /// The buffer comes back after this many messages; at least 1.
    pub max_messages: u32,
}

/// An operation that a client wants.
pub(crate) struct Wanted {
    buffer: Buffer,
    kind: OperationKind,
    /// The peer of a message.
    to: Option<EndPoint>,
    timeout: Option<Duration>,
    owner: Option<Arc<dyn Owner>>,
    going_on: bool,
}

impl Wanted {
    fn new(buffer: Buffer, kind: OperationKind, timeout: Option<Duration>) -> Wanted {
        Wanted { buffer, kind, to: None, timeout, owner: None, going_on: false }
    }

    pub(crate) fn receive(buffer: Buffer, receive: Receive, timeout: Option<Duration>) -> Wanted {
        let Receive { min_receive_size, max_messages } = receive;
        let kind = OperationKind::Receive { min_receive_size: min_receive_size as u64, max_messages };
        Wanted::new(buffer, kind, timeout)
    }

    pub(crate) fn send(buffer: Buffer, length: usize, to: &EndPoint, timeout: Option<Duration>) -> Wanted {
        let kind = OperationKind::Send { length: length as u64, to: to.address() };
        Wanted { to: Some(to.clone()), ..Wanted::new(buffer, kind, timeout) }
    }

    pub(crate) fn passive_receive(buffer: Buffer, timeout: Option<Duration>) -> Wanted {
        Wanted::new(buffer, OperationKind::PassiveReceive, timeout)
    }

    pub(crate) fn passive_send(buffer: Buffer, length: usize, timeout: Option<Duration>) -> Wanted {
        Wanted::new(buffer, OperationKind::PassiveSend { length: length as u64 }, timeout)
    }

    pub(crate) fn active_receive(
        buffer: Buffer,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) -> Wanted {
        Wanted::new(buffer, OperationKind::ActiveReceive { descriptor: *descriptor }, timeout)
    }

    pub(crate) fn active_send(
        buffer: Buffer,
        length: usize,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) -> Wanted {
        let kind = OperationKind::ActiveSend { descriptor: *descriptor, length: length as u64 };
        Wanted::new(buffer, kind, timeout)
    }

    /// The events go to this owner instead of the client.
    pub(crate) fn owned_by(self, owner: Arc<dyn Owner>) -> Wanted {
        Wanted { owner: Some(owner), ..self }
    }

    /// It belongs to what is in flight already, and starts though the machine is to stop.
    pub(crate) fn going_on(self) -> Wanted {
        Wanted { going_on: true, ..self }
    }

    /// Not to be started.
    pub(crate) fn refuse(self, error: Error) -> Refused {
        Refused { buffer: self.buffer, error }
    }

    /// When it times out, counting from this moment.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// An operation has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Its name.
    pub op: OpId,
    /// Of a passive operation: what the peer needs to reach the buffer.
    pub descriptor: Option<Descriptor>,
}

impl Started {
    /// Of an operation that every transport gives a descriptor.
    pub(crate) fn passive(self) -> (OpId, Descriptor) {
        (self.op, self.descriptor.unwrap_or(Descriptor::NONE))
    }
}

impl Machine {
    /// Moves the buffer into an operation and starts it.
    pub(crate) fn start(&self, wanted: Wanted) -> Result<Started, Refused> {
        if let Err(error) = self.check(&wanted) {
            return Err(wanted.refuse(error));
        }
        let timed = wanted.timeout.map(|timeout| (self.now_ns(), timeout));
        let deadline_ns = timed.map(|(now_ns, timeout)| after(now_ns, timeout));
        let operation = self.enter(&mut self.inner.lock(), wanted, deadline_ns)?;
        deadline_ns.inspect(|&deadline_ns| self.hurry(deadline_ns));
        self.settle(
            OpId::from_cookie(operation.cookie),
            self.tm.submit_since(timed.map(|(now_ns, _)| now_ns), &operation),
        )
    }

    /// What the transport does not look at.
    pub(crate) fn check(&self, wanted: &Wanted) -> Result<(), Error> {
        self.domain.check_here()?;
        let Wanted { buffer, kind, timeout, .. } = wanted;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::TimeoutPassed);
        }
        if !buffer.is_of(&self.domain) {
            return Err(Error::OtherDomain);
        }
        buffer.check_single()?;
        let all = buffer.len();
        buffer.check_unlent(kind.queue().receives(), 0..sent_length(kind).unwrap_or(all).min(all))
    }

    /// Moves the buffer into an operation: gives what the transport is to be told.
    pub(crate) fn enter(
        &self,
        inner: &mut State,
        wanted: Wanted,
        deadline_ns: Option<u64>,
    ) -> Result<Operation, Refused> {
        let Wanted { buffer, kind, to, owner, going_on, .. } = wanted;
        let goes_on = going_on && inner.state == TmState::Stopping;
        if inner.state != TmState::Started && !goes_on {
            return Err(Refused { buffer, error: Error::NotStarted { state: inner.state } });
        }
        let in_flight = inner.operations.len() as u64;
        if let Err(error) = self.domain.ledger().check(Object::Operations, in_flight) {
            return Err(Refused { buffer, error });
        }
        let (handle, queue) = (buffer.handle(), kind.queue());
        let length = sent_length(&kind).unwrap_or(0);
        let op = Op { queue, buffer, length, _to: to, reason: None, cancel_sent: false, owner };
        let (id, _) = inner.operations.enter(|_| op);
        inner.statistics.of(queue).adds += 1;
        inner.posted[queue.index()] += 1;
        if let Some(deadline_ns) = deadline_ns {
            inner.deadlines.set(id.slot(), deadline_ns);
            self.note_earliest(inner);
        }
        Ok(Operation { buffer: handle, cookie: id.cookie(), kind })
    }

    /// What the transport says to an operation that has been entered. Refused, it was never there, unless it has ended with
    /// an event all the same.
    pub(crate) fn settle(&self, op: OpId, told: Result<Submitted, CoreError>) -> Result<Started, Refused> {
        match told {
            Ok(Submitted { descriptor }) => Ok(Started { op, descriptor }),
            Err(error) => match self.withdraw(op) {
                Some(buffer) => Err(Refused { buffer, error: error.into() }),
                None => Ok(Started { op, descriptor: None }),
            },
        }
    }

    fn withdraw(&self, id: OpId) -> Option<Buffer> {
        let mut inner = self.inner.lock();
        let op = inner.operations.leave(id)?;
        inner.posted[op.queue.index()] -= 1;
        let adds = &mut inner.statistics.of(op.queue).adds;
        // The counters may have been reset since.
        *adds = adds.saturating_sub(1);
        self.drop_deadline(&mut inner, id);
        Some(op.buffer)
    }
}

/// The bytes of the buffer that an operation sends, if it sends.
fn sent_length(kind: &OperationKind) -> Option<usize> {
    match *kind {
        OperationKind::Send { length, .. }
        | OperationKind::PassiveSend { length }
        | OperationKind::ActiveSend { length, .. } => Some(usize::try_from(length).unwrap_or(usize::MAX)),
        _ => None,
    }
}
