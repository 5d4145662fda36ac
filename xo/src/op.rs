//! Operations, as a client wants them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nlx_core::{OperationKind, Queue};

use crate::domain::Inner;
use crate::event::Owner;
use crate::{Buffer, EndPoint, Error, Offer, OpId, Refused};

/// An operation to be started: a buffer, and what is to be done with it. [`Machine::start`](crate::Machine::start) starts one,
/// [`Batch`](crate::Batch) several together, [`AsyncMachine::start`](crate::AsyncMachine::start) gives a future.
///
/// | operation | moves | |
/// | --- | --- | --- |
/// | [`Op::receive`] | messages from anybody into the buffer | one event for each |
/// | [`Op::send`] | a message out of the buffer | |
/// | [`Op::passive_receive`] | what a peer writes into the buffer | starting it gives an [`Offer`] for the peer |
/// | [`Op::passive_send`] | what a peer reads out of the buffer | starting it gives an [`Offer`] for the peer |
/// | [`Op::active_receive`] | a peer's buffer into this one | takes what the peer was given |
/// | [`Op::active_send`] | this buffer into a peer's | takes what the peer was given |
///
/// Unless told otherwise it takes the whole buffer and has no timeout.
///
/// ```
/// # use std::time::Duration;
/// # use nlx::{Domain, NodeConfig, Op, TmOptions};
/// # let domain = Domain::in_process(&NodeConfig::new())?;
/// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
/// # let peer = tm.own_end_point();
/// tm.start(Op::receive(domain.allocate(4096)?).max_messages(16))?;
/// tm.start(Op::send(domain.allocate(4096)?, peer).length(5).timeout(Duration::from_secs(10)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Bulk of any size
///
/// Where a buffer is [large](Buffer), or a peer's is, the four bulk operations move it in parts of 1 MiB, of which several are in
/// flight at a time ([`MachineBuilder::large_window`](crate::MachineBuilder::large_window)). One event tells of the whole, and
/// brings the buffer back; the timeout is that of the whole. The parts are operations as any others: they count in the
/// statistics, and among those in flight. When one of them fails, the others are cancelled, and the whole fails for its
/// reason. A message is never split.
#[must_use = "it starts with `Machine::start`"]
pub struct Op {
    pub(crate) buffer: Buffer,
    pub(crate) what: What,
    /// Bytes from the start of the buffer that it is about; all of them at first.
    pub(crate) length: usize,
    pub(crate) timeout: Option<Duration>,
    /// Who gets its events instead of the client.
    pub(crate) owner: Option<Arc<dyn Owner>>,
    /// It belongs to what is in flight already, and starts though the machine is to stop.
    pub(crate) going_on: bool,
}

// It is moved some times on its way to the transport; what is larger is copied by calls.
const _: () = assert!(size_of::<Op>() <= 128);

/// What is to be done with a buffer.
pub(crate) enum What {
    Receive { min_receive_size: Option<usize>, max_messages: u32 },
    Send(EndPoint),
    Bulk(Bulk),
}

/// What may be split.
pub(crate) enum Bulk {
    PassiveReceive,
    PassiveSend,
    ActiveReceive(Offer),
    ActiveSend(Offer),
}

impl Op {
    #[inline]
    fn new(buffer: Buffer, what: What) -> Op {
        let length = buffer.len();
        Op { buffer, what, length, timeout: None, owner: None, going_on: false }
    }

    #[inline]
    pub(crate) fn bulk(buffer: Buffer, bulk: Bulk) -> Op {
        Op::new(buffer, What::Bulk(bulk))
    }

    /// Takes messages into a buffer, one behind the other. Each is an event with a [`crate::Message`]; the last event brings
    /// the buffer back.
    ///
    /// One message, of up to the buffer's length, unless [`Op::max_messages`] and [`Op::min_receive_size`] say otherwise.
    #[inline]
    pub fn receive(buffer: Buffer) -> Op {
        Op::new(buffer, What::Receive { min_receive_size: None, max_messages: 1 })
    }

    /// Sends a buffer as a message. Success means that the bytes have left.
    #[inline]
    pub fn send(buffer: Buffer, to: &EndPoint) -> Op {
        Op::new(buffer, What::Send(to.clone()))
    }

    /// Lets whoever gets the offer write into a buffer, once. The buffer can be reached as soon as it has started.
    ///
    /// A writer fills the parts of a large buffer in any order; all are to be filled, the last one perhaps not to its end.
    #[inline]
    pub fn passive_receive(buffer: Buffer) -> Op {
        Op::bulk(buffer, Bulk::PassiveReceive)
    }

    /// Lets whoever gets the offer read a buffer, once. The buffer can be reached as soon as it has started.
    #[inline]
    pub fn passive_send(buffer: Buffer) -> Op {
        Op::bulk(buffer, Bulk::PassiveSend)
    }

    /// Reads a peer's buffer, all that it offers: an [`Offer`], or a [`Descriptor`](crate::Descriptor) of Motr's.
    ///
    /// The event has ENODATA if a peer that runs nlx has no such buffer any more: the offer was used, or its buffer cancelled.
    /// Of a peer that runs LNet in the kernel that is known over RDMA alone, of reads that are longer than a message; others
    /// end at their timeout.
    #[inline]
    pub fn active_receive(buffer: Buffer, offer: impl Into<Offer>) -> Op {
        Op::bulk(buffer, Bulk::ActiveReceive(offer.into()))
    }

    /// Writes a buffer into a peer's: what that offers, or a [`Descriptor`](crate::Descriptor) of Motr's. Success means that the bytes
    /// have arrived.
    ///
    /// The event has ENODATA if a peer that runs nlx has no such buffer any more; a peer that runs LNet in the kernel does not
    /// say so, and the write ends at its timeout.
    #[inline]
    pub fn active_send(buffer: Buffer, offer: impl Into<Offer>) -> Op {
        Op::bulk(buffer, Bulk::ActiveSend(offer.into()))
    }

    /// Sends so many bytes from the start of the buffer instead of all; of a passive receive, offers room for so many. A
    /// receive and an active receive have the whole buffer as room, and this has no effect on them.
    #[inline]
    pub fn length(self, bytes: usize) -> Op {
        Op { length: bytes, ..self }
    }

    /// Ends the operation with ETIMEDOUT, counting from its start, unless it is over by then. `None` takes a timeout away.
    #[inline]
    pub fn timeout(self, timeout: impl Into<Option<Duration>>) -> Op {
        Op { timeout: timeout.into(), ..self }
    }

    /// Of a receive: the buffer comes back once less room than this is left, in bytes; longer messages do not match it
    /// (S-403). At least 1, at most the whole buffer. The buffer's length divided by [`Op::max_messages`] unless this says
    /// otherwise. No effect on other operations.
    #[inline]
    pub fn min_receive_size(mut self, bytes: usize) -> Op {
        if let What::Receive { min_receive_size, .. } = &mut self.what {
            *min_receive_size = Some(bytes);
        }
        self
    }

    /// Of a receive: the buffer comes back after this many messages, at least 1; 1 unless this says otherwise. No effect on
    /// other operations.
    #[inline]
    pub fn max_messages(mut self, messages: u32) -> Op {
        if let What::Receive { max_messages, .. } = &mut self.what {
            *max_messages = messages;
        }
        self
    }

    /// The queue it will be in.
    #[must_use]
    pub fn queue(&self) -> Queue {
        match &self.what {
            What::Receive { .. } => Queue::MessageReceive,
            What::Send(_) => Queue::MessageSend,
            What::Bulk(bulk) => bulk.queue(),
        }
    }

    /// Its buffer: it is not to be started.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// The events go to this owner instead of the client.
    pub(crate) fn owned_by(self, owner: Arc<dyn Owner>) -> Op {
        Op { owner: Some(owner), ..self }
    }

    /// It belongs to what is in flight already, and starts though the machine is to stop.
    pub(crate) fn going_on(self) -> Op {
        Op { going_on: true, ..self }
    }

    /// Whether it takes more than an operation of the transport: a buffer or an offer in parts, or an offer that says more than a
    /// descriptor of the buffer does.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        let What::Bulk(bulk) = &self.what else { return false };
        let says_more = match bulk {
            Bulk::ActiveReceive(offer) | Bulk::ActiveSend(offer) => offer.single().is_none(),
            Bulk::PassiveReceive => self.length != self.buffer.len(),
            Bulk::PassiveSend => false,
        };
        says_more || self.buffer.is_large()
    }

    /// What the transport does not look at.
    #[inline]
    pub(crate) fn check(&self, domain: &Arc<Inner>) -> Result<(), Error> {
        self.check_before(domain)?;
        self.buffer.check_single()?;
        let all = self.buffer.len();
        let receives = self.queue().receives();
        self.buffer.check_unlent(receives, 0..if receives { all } else { self.length.min(all) })
    }

    /// The same, before its buffer is looked at.
    #[inline]
    pub(crate) fn check_before(&self, domain: &Arc<Inner>) -> Result<(), Error> {
        domain.check_here()?;
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::TimeoutPassed);
        }
        if self.buffer.is_of(domain) { Ok(()) } else { Err(Error::OtherDomain) }
    }

    /// What the transport is to do with the buffer.
    #[inline]
    pub(crate) fn kind(&self) -> OperationKind {
        let length = self.length as u64;
        match &self.what {
            What::Receive { min_receive_size, max_messages } => {
                // No messages are refused by the transport.
                let each = || self.buffer.len() / (*max_messages).max(1) as usize;
                let min_receive_size = min_receive_size.unwrap_or_else(|| each().max(1)) as u64;
                OperationKind::Receive { min_receive_size, max_messages: *max_messages }
            }
            What::Send(to) => OperationKind::Send { length, to: to.address() },
            What::Bulk(bulk) => match bulk {
                Bulk::PassiveReceive => OperationKind::PassiveReceive,
                Bulk::PassiveSend => OperationKind::PassiveSend { length },
                Bulk::ActiveReceive(offer) => {
                    OperationKind::ActiveReceive { descriptor: offer.descriptor(0) }
                }
                Bulk::ActiveSend(offer) => {
                    OperationKind::ActiveSend { descriptor: offer.descriptor(0), length }
                }
            },
        }
    }

    /// Not to be started.
    pub(crate) fn refuse(self, error: Error) -> Refused {
        Refused { buffer: self.buffer, error }
    }
}

impl Bulk {
    pub(crate) fn queue(&self) -> Queue {
        match self {
            Bulk::PassiveReceive => Queue::PassiveBulkReceive,
            Bulk::PassiveSend => Queue::PassiveBulkSend,
            Bulk::ActiveReceive(_) => Queue::ActiveBulkReceive,
            Bulk::ActiveSend(_) => Queue::ActiveBulkSend,
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Op({}, {} bytes)", self.queue(), self.length)
    }
}

/// An operation has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its name.
    pub op: OpId,
    /// Of a passive operation: what the peer needs to reach the buffer. Of any other [`Offer::NONE`], which leads nowhere.
    pub offer: Offer,
}

impl Started {
    /// With nothing that a peer needs.
    pub(crate) fn plain(op: OpId) -> Started {
        Started { op, offer: Offer::NONE }
    }
}
