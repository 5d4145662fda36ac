//! Operations as values, before they start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nlx_core::{OperationKind, Queue};

use crate::domain::DomainInner;
use crate::event::OpOwner;
use crate::{Buffer, EndPoint, Error, Offer, OpId, Refused};

/// An operation that has not started: a buffer, and what to do with it.
/// [`Machine::start`](crate::Machine::start) starts one, [`Batch`](crate::Batch) starts several
/// together, [`AsyncMachine::start`](crate::AsyncMachine::start) returns a future.
///
/// | operation | moves | |
/// | --- | --- | --- |
/// | [`Op::receive`] | messages from any peer into the buffer | one event for each message |
/// | [`Op::send`] | a message out of the buffer to a peer | |
/// | [`Op::passive_receive`] | what a peer writes into the buffer | starting it returns an [`Offer`] for the peer |
/// | [`Op::passive_send`] | what a peer reads from the buffer | starting it returns an [`Offer`] for the peer |
/// | [`Op::active_receive`] | a peer's buffer into this one | takes the peer's offer |
/// | [`Op::active_send`] | this buffer into a peer's | takes the peer's offer |
///
/// By default an operation uses the whole buffer and has no timeout.
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
/// A setting that an operation does not have is an error when it starts:
///
/// ```
/// # use nlx::{Domain, NodeConfig, Op, TmOptions};
/// # let domain = Domain::in_process(&NodeConfig::new())?;
/// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
/// let refused = tm.start(Op::receive(domain.allocate(4096)?).length(5)).unwrap_err();
/// assert_eq!(refused.error.to_string(), "the message receive operation does not take `length`");
/// assert_eq!(refused.buffer.len(), 4096); // it comes back
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Bulk of any size
///
/// If a buffer is [large](Buffer), or the peer's is, the four bulk operations transfer it in parts
/// of 1 MiB, several of them in flight at a time
/// ([`MachineBuilder::large_window`](crate::MachineBuilder::large_window)). One event reports the
/// end of the transfer and returns the buffer; the timeout applies to the whole transfer. The parts
/// are ordinary operations: they count in the statistics, and as operations in flight. When one of
/// them fails, the others are cancelled, and the transfer fails with its errno. A message is never
/// split.
#[must_use = "it starts with `Machine::start`"]
pub struct Op {
    pub(crate) buffer: Buffer,
    pub(crate) action: OpAction,
    /// The bytes from the start of the buffer to use; by default all.
    pub(crate) length: usize,
    pub(crate) timeout: Option<Duration>,
    /// The owner that gets its events instead of the client.
    pub(crate) owner: Option<Arc<dyn OpOwner>>,
    /// Set for a part of an operation in flight: it may start while the machine stops.
    pub(crate) going_on: bool,
    /// The first setting that this kind of operation does not have: the start is refused.
    misplaced: Option<Setting>,
}

/// Settings that only some kinds of operation have.
#[derive(Clone, Copy)]
enum Setting {
    Length,
    MinReceiveSize,
    MaxMessages,
}

// An operation is moved several times on its way to the transport; the compiler moves larger values
// by calls of memcpy.
const _: () = assert!(size_of::<Op>() <= 128);

/// The action of an operation on its buffer.
pub(crate) enum OpAction {
    Receive { min_receive_size: Option<usize>, max_messages: u32 },
    Send(EndPoint),
    Bulk(BulkOp),
}

/// Bulk operations, which can be split into parts.
pub(crate) enum BulkOp {
    PassiveReceive,
    PassiveSend,
    ActiveReceive(Offer),
    ActiveSend(Offer),
}

impl Op {
    #[inline]
    fn new(buffer: Buffer, action: OpAction) -> Op {
        let length = buffer.len();
        Op { buffer, action, length, timeout: None, owner: None, going_on: false, misplaced: None }
    }

    #[inline]
    pub(crate) fn bulk(buffer: Buffer, bulk: BulkOp) -> Op {
        Op::new(buffer, OpAction::Bulk(bulk))
    }

    /// Receives messages into a buffer, one after the other. Each is an event with a
    /// [`crate::Message`]; the last event returns the buffer.
    ///
    /// By default it receives one message, of up to the buffer's length: see [`Op::max_messages`]
    /// and [`Op::min_receive_size`].
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Op, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// let buffer = domain.allocate(16 * 256)?;
    /// tm.start(Op::receive(buffer).max_messages(16))?; // of up to 256 bytes each
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn receive(buffer: Buffer) -> Op {
        Op::new(buffer, OpAction::Receive { min_receive_size: None, max_messages: 1 })
    }

    /// Sends a buffer as a message. Success means that the bytes have left.
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Op, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// let peer = tm.end_point("0@lo:12345:31:1")?;
    /// tm.start(Op::send(domain.buffer_of(b"hello")?, &peer))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn send(buffer: Buffer, to: &EndPoint) -> Op {
        Op::new(buffer, OpAction::Send(to.clone()))
    }

    /// Lets any peer that has the offer write into a buffer, once. The peer can do so as soon as
    /// the operation has started.
    ///
    /// A peer may fill the parts of a large buffer in any order, and the last part may be shorter.
    /// The operation ends when all parts are filled.
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Op, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// let started = tm.start(Op::passive_receive(domain.allocate(4096)?))?;
    /// assert_eq!(started.offer.length(), 4096); // its bytes go to the peer in a message
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn passive_receive(buffer: Buffer) -> Op {
        Op::bulk(buffer, BulkOp::PassiveReceive)
    }

    /// Lets any peer that has the offer read a buffer, once. The peer can do so as soon as the
    /// operation has started.
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Op, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// let started = tm.start(Op::passive_send(domain.allocate(64 << 20)?))?;
    /// assert_eq!(started.offer.parts(), 64); // a large buffer is read in parts
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn passive_send(buffer: Buffer) -> Op {
        Op::bulk(buffer, BulkOp::PassiveSend)
    }

    /// Reads a peer's offer into a buffer: an [`Offer`], or a [`Descriptor`](crate::Descriptor) of
    /// Motr's.
    ///
    /// The event has ENODATA if a peer that runs nlx no longer has the buffer: the offer was used,
    /// or the operation cancelled. A peer that runs LNet in the kernel reports this only over RDMA,
    /// for reads that are longer than a message; other reads end at their timeout.
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Offer, Op, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// # let message = tm.start(Op::passive_send(domain.buffer_of(b"hello")?))?.offer.as_bytes().to_vec();
    /// let offer = Offer::from_bytes(&message)?; // as it came in a message
    /// let op = tm.start(Op::active_receive(domain.allocate(4096)?, &offer))?.op;
    /// # while tm.wait(None)?.is_some_and(|event| event.op != op) {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn active_receive(buffer: Buffer, offer: impl Into<Offer>) -> Op {
        Op::bulk(buffer, BulkOp::ActiveReceive(offer.into()))
    }

    /// Writes a buffer into the buffer that a peer offers: by an [`Offer`], or a
    /// [`Descriptor`](crate::Descriptor) of Motr's. Success means that the bytes have arrived.
    ///
    /// The event has ENODATA if a peer that runs nlx no longer has the buffer; a peer that runs
    /// LNet in the kernel does not report this, and the write ends at its timeout.
    ///
    /// ```
    /// # use nlx::{Domain, NodeConfig, Offer, Op, TmOptions};
    /// # let domain = Domain::in_process(&NodeConfig::new())?;
    /// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// # let message = tm.start(Op::passive_receive(domain.allocate(4096)?))?.offer.as_bytes().to_vec();
    /// let offer = Offer::from_bytes(&message)?; // as it came in a message
    /// let op = tm.start(Op::active_send(domain.buffer_of(b"hello")?, &offer))?.op;
    /// # while tm.wait(None)?.is_some_and(|event| event.op != op) {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn active_send(buffer: Buffer, offer: impl Into<Offer>) -> Op {
        Op::bulk(buffer, BulkOp::ActiveSend(offer.into()))
    }

    /// Sends only this number of bytes from the start of the buffer; for a passive receive, offers
    /// room for this number of bytes.
    ///
    /// A receive and an active receive always use the whole buffer: with a length they are refused
    /// with EINVAL.
    #[inline]
    pub fn length(self, bytes: usize) -> Op {
        match self.action {
            OpAction::Receive { .. } | OpAction::Bulk(BulkOp::ActiveReceive(_)) => {
                self.misplace(Setting::Length)
            }
            _ => Op { length: bytes, ..self },
        }
    }

    /// Ends the operation with ETIMEDOUT this long after its start, unless it has ended before.
    /// `None` removes a timeout; 0 is refused with ETIME.
    #[inline]
    pub fn timeout(self, timeout: impl Into<Option<Duration>>) -> Op {
        Op { timeout: timeout.into(), ..self }
    }

    /// Sets, for a receive, the number of free bytes below which the buffer is returned; longer
    /// messages do not match it (S-403). From 1 to the buffer's length; by default the buffer's
    /// length divided by [`Op::max_messages`]. Other operations are refused with EINVAL.
    #[inline]
    pub fn min_receive_size(mut self, bytes: usize) -> Op {
        let OpAction::Receive { min_receive_size, .. } = &mut self.action else {
            return self.misplace(Setting::MinReceiveSize);
        };
        *min_receive_size = Some(bytes);
        self
    }

    /// Sets, for a receive, the number of messages after which the buffer is returned; at least 1,
    /// the default. Other operations are refused with EINVAL.
    #[inline]
    pub fn max_messages(mut self, messages: u32) -> Op {
        let OpAction::Receive { max_messages, .. } = &mut self.action else {
            return self.misplace(Setting::MaxMessages);
        };
        *max_messages = messages;
        self
    }

    /// Records a setting that this kind of operation does not have; of several, the first.
    #[cold]
    fn misplace(self, setting: Setting) -> Op {
        Op { misplaced: self.misplaced.or(Some(setting)), ..self }
    }

    /// Returns the queue of the transfer machine that the operation belongs to.
    #[must_use]
    pub fn queue(&self) -> Queue {
        match &self.action {
            OpAction::Receive { .. } => Queue::MessageReceive,
            OpAction::Send(_) => Queue::MessageSend,
            OpAction::Bulk(bulk) => bulk.queue(),
        }
    }

    /// Returns the buffer of an operation that will not be started.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Sets the owner that gets its events instead of the client.
    pub(crate) fn owned_by(self, owner: Arc<dyn OpOwner>) -> Op {
        Op { owner: Some(owner), ..self }
    }

    /// Makes it part of an operation in flight: it may start while the machine stops.
    pub(crate) fn going_on(self) -> Op {
        Op { going_on: true, ..self }
    }

    /// Returns whether it is a large transfer: its buffer or its offer has parts, its offer has a
    /// header, or a passive receive offers less room than its buffer has.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        let OpAction::Bulk(bulk) = &self.action else { return false };
        let says_more = match bulk {
            BulkOp::ActiveReceive(offer) | BulkOp::ActiveSend(offer) => offer.single().is_none(),
            BulkOp::PassiveReceive => self.length != self.buffer.len(),
            BulkOp::PassiveSend => false,
        };
        says_more || self.buffer.is_large()
    }

    /// Checks what the transport does not check.
    #[inline]
    pub(crate) fn check(&self, domain: &Arc<DomainInner>) -> Result<(), Error> {
        self.check_before(domain)?;
        self.buffer.check_single()?;
        let all = self.buffer.len();
        let receives = self.queue().receives();
        self.buffer.check_unlent(receives, 0..if receives { all } else { self.length.min(all) })
    }

    /// Checks what [`Op::check`] does, except the size and the leases of the buffer.
    #[inline]
    pub(crate) fn check_before(&self, domain: &Arc<DomainInner>) -> Result<(), Error> {
        domain.check_here()?;
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::TimeoutPassed);
        }
        if let Some(setting) = self.misplaced {
            return Err(Error::Setting { setting: setting.name(), queue: self.queue() });
        }
        if let OpAction::Bulk(BulkOp::ActiveReceive(offer) | BulkOp::ActiveSend(offer)) = &self.action
            && *offer == Offer::NONE
        {
            return Err(Error::NoOffer);
        }
        if self.buffer.is_of(domain) { Ok(()) } else { Err(Error::OtherDomain) }
    }

    /// Returns the operation as the transport's type.
    #[inline]
    pub(crate) fn kind(&self) -> OperationKind {
        let length = self.length as u64;
        match &self.action {
            OpAction::Receive { min_receive_size, max_messages } => {
                // 0 messages are refused by the transport.
                let each = || self.buffer.len() / (*max_messages).max(1) as usize;
                let min_receive_size = min_receive_size.unwrap_or_else(|| each().max(1)) as u64;
                OperationKind::Receive { min_receive_size, max_messages: *max_messages }
            }
            OpAction::Send(to) => OperationKind::Send { length, to: to.address() },
            OpAction::Bulk(bulk) => match bulk {
                BulkOp::PassiveReceive => OperationKind::PassiveReceive,
                BulkOp::PassiveSend => OperationKind::PassiveSend { length },
                BulkOp::ActiveReceive(offer) => {
                    OperationKind::ActiveReceive { descriptor: offer.descriptor(0) }
                }
                BulkOp::ActiveSend(offer) => {
                    OperationKind::ActiveSend { descriptor: offer.descriptor(0), length }
                }
            },
        }
    }

    /// Returns the buffer with the error.
    pub(crate) fn refuse(self, error: Error) -> Refused {
        Refused { buffer: self.buffer, error }
    }
}

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Setting::Length => "length",
            Setting::MinReceiveSize => "min_receive_size",
            Setting::MaxMessages => "max_messages",
        }
    }
}

impl BulkOp {
    pub(crate) fn queue(&self) -> Queue {
        match self {
            BulkOp::PassiveReceive => Queue::PassiveBulkReceive,
            BulkOp::PassiveSend => Queue::PassiveBulkSend,
            BulkOp::ActiveReceive(_) => Queue::ActiveBulkReceive,
            BulkOp::ActiveSend(_) => Queue::ActiveBulkSend,
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Op({}, {} bytes)", self.queue(), self.length)
    }
}

/// An operation that has started.
///
/// ```
/// # use nlx::{Domain, NodeConfig, Op, Started, TmOptions};
/// # let domain = Domain::in_process(&NodeConfig::new())?;
/// # let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
/// let Started { op, offer } = tm.start(Op::passive_send(domain.buffer_of(b"hello")?))?;
/// assert_eq!(offer.length(), 5);
/// assert!(tm.cancel(op));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The operation's id, which its events carry.
    pub op: OpId,
    /// The offer by which a peer can access the buffer of a passive operation; [`Offer::NONE`] for
    /// any other operation.
    pub offer: Offer,
}

impl Started {
    /// Returns a started operation without an offer.
    pub(crate) fn plain(op: OpId) -> Started {
        Started { op, offer: Offer::NONE }
    }
}
