//! What goes through the submission ring, as values.

use nlx_core::{BufferHandle, Descriptor, MatchCounter, Operation, OperationKind, Queue};
use zerocopy::IntoBytes;

use crate::layout::AddressLayout;
use crate::object::Object;
use crate::{ProtoError, Segment, Submission};

/// Which entry it is: [`Submission::kind`].
const OPERATE: u32 = 1;
const CANCEL: u32 = 2;
const REGISTER: u32 = 3;
const DEREGISTER: u32 = 4;

const ENTRY: Object = Object("an entry of the ring");

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Start an operation.
    Operate {
        /// Of this transfer machine.
        tm: u64,
        /// Which one.
        operation: Operation,
        /// The lower part of its match bits, if it is passive; else [`MatchCounter::UNSOLICITED`].
        counter: MatchCounter,
    },
    /// Ask for the end of an operation. One that is over already is no error.
    Cancel {
        /// Of this transfer machine.
        tm: u64,
        /// The buffer that it has.
        buffer: BufferHandle,
        /// Its cookie.
        cookie: u64,
    },
    /// Make a buffer of one segment ready.
    Register {
        /// As of [`crate::Request::Register`].
        buffer: BufferHandle,
        /// Its memory.
        segment: Segment,
    },
    /// Forget a buffer.
    Deregister {
        /// Which one.
        buffer: BufferHandle,
    },
}

impl Submission {
    /// What it says.
    ///
    /// # Errors
    /// [`ProtoError::Kind`] (ENOTTY), and [`ProtoError::Field`] (EBADR): for a queue that is none, a target of another length
    /// than the operation has or of no interface, a receive of no messages, a match counter where none belongs or none where one does, a buffer's name
    /// or a segment to be registered that cannot be, and anything but 0 in a field that this kind of entry does not use.
    ///
    /// Whether an operation's numbers fit its buffer, and whether there is one, is looked at later, and told by an event.
    pub fn read(&self) -> Result<Entry, ProtoError> {
        let entry = self.said()?;
        match self.stray(&entry.write()) {
            None => Ok(entry),
            Some((field, value)) => Err(ENTRY.field(field, value, "what its kind of entry says, or 0")),
        }
    }

    /// What the fields say that this kind of entry has.
    fn said(&self) -> Result<Entry, ProtoError> {
        let buffer = BufferHandle(self.buffer.get());
        let (tm, cookie) = (self.tm.get(), self.cookie.get());
        match self.kind.get() {
            OPERATE => {
                let kind = self.operation()?;
                let operation = Operation { buffer, cookie, kind };
                Ok(Entry::Operate { tm, operation, counter: self.counter(kind.queue())? })
            }
            CANCEL => Ok(Entry::Cancel { tm, buffer, cookie }),
            REGISTER => {
                ENTRY.buffer_name(buffer.0)?;
                let (arena, offset, length) = (self.count.get(), self.place.get(), self.length.get());
                Ok(Entry::Register { buffer, segment: ENTRY.segment(Segment { arena, offset, length })? })
            }
            DEREGISTER => Ok(Entry::Deregister { buffer }),
            kind => Err(ProtoError::Kind { object: ENTRY.0, kind }),
        }
    }

    fn operation(&self) -> Result<OperationKind, ProtoError> {
        let length = self.length.get();
        let queue = self.queue.get();
        Ok(match Queue::from_value(queue) {
            // One of no messages would have no room for the event that ends it.
            Some(Queue::MessageReceive) if self.count.get() == 0 => {
                return Err(ENTRY.field("the count", 0_u64, "1 or more"));
            }
            Some(Queue::MessageReceive) => {
                OperationKind::Receive { min_receive_size: length, max_messages: self.count.get() }
            }
            Some(Queue::MessageSend) => {
                let layout: &AddressLayout = AddressLayout::ref_of(self.target()?)
                    .ok_or_else(|| self.target_refused("that of an address, 32"))?;
                OperationKind::Send { length, to: ENTRY.address(layout)? }
            }
            Some(Queue::PassiveBulkReceive) => OperationKind::PassiveReceive,
            Some(Queue::PassiveBulkSend) => OperationKind::PassiveSend { length },
            Some(Queue::ActiveBulkReceive) => OperationKind::ActiveReceive { descriptor: self.descriptor()? },
            Some(Queue::ActiveBulkSend) => {
                OperationKind::ActiveSend { descriptor: self.descriptor()?, length }
            }
            None => return Err(ENTRY.field("the queue", queue, "0 to 5")),
        })
    }

    fn counter(&self, queue: Queue) -> Result<MatchCounter, ProtoError> {
        match MatchCounter::new(self.place.get()) {
            Some(counter) if queue.is_passive() == (counter != MatchCounter::UNSOLICITED) => Ok(counter),
            _ => {
                let rule = "1 to 2^52-1 for a passive operation, else 0";
                Err(ENTRY.field("the match counter", self.place.get(), rule))
            }
        }
    }

    fn descriptor(&self) -> Result<Descriptor, ProtoError> {
        Descriptor::from_bytes(self.target()?)
            .map_err(|_| self.target_refused("that of a descriptor, 48 or 56"))
    }

    fn target(&self) -> Result<&[u8], ProtoError> {
        let length = self.target_length.get() as usize;
        self.target.get(..length).ok_or_else(|| self.target_refused("at most 56"))
    }

    fn target_refused(&self, rule: &'static str) -> ProtoError {
        ENTRY.field("the length of the target", self.target_length.get(), rule)
    }
}

impl Entry {
    /// As it lies in the ring.
    #[must_use]
    pub fn write(&self) -> Submission {
        match *self {
            Entry::Operate { tm, operation, counter } => {
                let blank = Submission {
                    kind: OPERATE.into(),
                    queue: operation.kind.queue().value().into(),
                    tm: tm.into(),
                    buffer: operation.buffer.0.into(),
                    cookie: operation.cookie.into(),
                    place: counter.get().into(),
                    ..Submission::ZERO
                };
                write_operation(&operation.kind, blank)
            }
            Entry::Cancel { tm, buffer, cookie } => Submission {
                kind: CANCEL.into(),
                tm: tm.into(),
                buffer: buffer.0.into(),
                cookie: cookie.into(),
                ..Submission::ZERO
            },
            Entry::Register { buffer, segment: Segment { arena, offset, length } } => Submission {
                kind: REGISTER.into(),
                buffer: buffer.0.into(),
                length: length.into(),
                place: offset.into(),
                count: arena.into(),
                ..Submission::ZERO
            },
            Entry::Deregister { buffer } => {
                Submission { kind: DEREGISTER.into(), buffer: buffer.0.into(), ..Submission::ZERO }
            }
        }
    }
}

fn write_operation(kind: &OperationKind, blank: Submission) -> Submission {
    match *kind {
        OperationKind::Receive { min_receive_size, max_messages } => {
            Submission { length: min_receive_size.into(), count: max_messages.into(), ..blank }
        }
        OperationKind::Send { length, to } => {
            Submission { length: length.into(), ..blank }.with_target(AddressLayout::from(&to).as_bytes())
        }
        OperationKind::PassiveReceive => blank,
        OperationKind::PassiveSend { length } => Submission { length: length.into(), ..blank },
        OperationKind::ActiveReceive { descriptor } => blank.with_target(descriptor.as_bytes()),
        OperationKind::ActiveSend { descriptor, length } => {
            Submission { length: length.into(), ..blank }.with_target(descriptor.as_bytes())
        }
    }
}
