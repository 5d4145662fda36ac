//! Operations, as a client wants them.

use std::sync::Arc;
use std::time::Duration;

use nlx_core::{Descriptor, OperationKind};

use crate::domain::Inner;
use crate::event::Owner;
use crate::{Buffer, EndPoint, Error, OpId, Refused};

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
    pub(crate) buffer: Buffer,
    pub(crate) kind: OperationKind,
    /// The peer of a message.
    pub(crate) to: Option<EndPoint>,
    timeout: Option<Duration>,
    pub(crate) owner: Option<Arc<dyn Owner>>,
    pub(crate) going_on: bool,
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

    /// What the transport does not look at.
    pub(crate) fn check(&self, domain: &Arc<Inner>) -> Result<(), Error> {
        domain.check_here()?;
        let Wanted { buffer, kind, timeout, .. } = self;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::TimeoutPassed);
        }
        if !buffer.is_of(domain) {
            return Err(Error::OtherDomain);
        }
        buffer.check_single()?;
        let all = buffer.len();
        buffer.check_unlent(kind.queue().receives(), 0..sent_length(kind).unwrap_or(all).min(all))
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

/// The bytes of the buffer that an operation sends, if it sends.
pub(crate) fn sent_length(kind: &OperationKind) -> Option<usize> {
    match *kind {
        OperationKind::Send { length, .. }
        | OperationKind::PassiveSend { length }
        | OperationKind::ActiveSend { length, .. } => Some(usize::try_from(length).unwrap_or(usize::MAX)),
        _ => None,
    }
}
