//! Entries of the submission ring, as values.

use nlx_core::{BufferHandle, Descriptor, MatchCounter, Operation, OperationKind, Queue};
use zerocopy::IntoBytes;

use crate::layout::AddressLayout;
use crate::object::Object;
use crate::{PacketError, Segment, Submission};

/// Kinds of entries: [`Submission::kind`].
const OPERATE: u32 = 1;
const CANCEL: u32 = 2;
const REGISTER: u32 = 3;
const DEREGISTER: u32 = 4;

const ENTRY: Object = Object("an entry of the ring");

/// An entry of the submission ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Starts an operation.
    Operate {
        /// The transfer machine.
        tm: u64,
        /// The buffer, the kind, and what the kind needs.
        operation: Operation,
        /// The lower part of its match bits, if it is passive; else [`MatchCounter::UNSOLICITED`].
        counter: MatchCounter,
    },
    /// Requests the end of an operation. An operation that has ended is no error.
    Cancel {
        /// The transfer machine.
        tm: u64,
        /// The operation's buffer.
        buffer: BufferHandle,
        /// The operation's cookie.
        cookie: u64,
    },
    /// Registers a buffer of one segment.
    Register {
        /// The client's name for it, as in [`crate::Request::Register`].
        buffer: BufferHandle,
        /// The memory of the buffer.
        segment: Segment,
    },
    /// Removes a buffer.
    Deregister {
        /// The registered buffer whose name becomes free.
        buffer: BufferHandle,
    },
}

impl Submission {
    /// Decodes the entry.
    ///
    /// # Errors
    /// [`PacketError::Kind`] (ENOTTY), and [`PacketError::Field`] (EBADR): for an unknown queue, a
    /// target whose length does not fit the operation or that is not the address of an interface, a
    /// receive of no messages, a match counter in an operation that has none or a missing one, an
    /// invalid name or segment of a buffer to be registered, and a value other than 0 in a field
    /// that this kind of entry does not use.
    ///
    /// The helper checks later that the buffer exists and that the operation's numbers fit it, and
    /// reports a mistake by an event.
    pub fn read(&self) -> Result<Entry, PacketError> {
        let entry = self.decode_fields()?;
        match self.first_difference(&entry.write()) {
            None => Ok(entry),
            Some((field, value)) => {
                Err(ENTRY.field(field, value, "a value that its kind of entry permits, or 0"))
            }
        }
    }

    /// Decodes the fields that this kind of entry uses.
    fn decode_fields(&self) -> Result<Entry, PacketError> {
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
                let (arena, offset, length) =
                    (self.count.get(), self.counter_or_offset.get(), self.length.get());
                Ok(Entry::Register { buffer, segment: ENTRY.segment(Segment { arena, offset, length })? })
            }
            DEREGISTER => Ok(Entry::Deregister { buffer }),
            kind => Err(PacketError::Kind { object: ENTRY.0, kind }),
        }
    }

    fn operation(&self) -> Result<OperationKind, PacketError> {
        let length = self.length.get();
        let queue = self.queue.get();
        Ok(match Queue::from_value(queue) {
            // A receive of no messages would reserve no room for the event that ends it.
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

    fn counter(&self, queue: Queue) -> Result<MatchCounter, PacketError> {
        match MatchCounter::new(self.counter_or_offset.get()) {
            Some(counter) if queue.is_passive() == (counter != MatchCounter::UNSOLICITED) => Ok(counter),
            _ => {
                let rule = "1 to 2^52-1 for a passive operation, else 0";
                Err(ENTRY.field("the match counter", self.counter_or_offset.get(), rule))
            }
        }
    }

    fn descriptor(&self) -> Result<Descriptor, PacketError> {
        Descriptor::from_bytes(self.target()?)
            .map_err(|_| self.target_refused("that of a descriptor, 48 or 56"))
    }

    fn target(&self) -> Result<&[u8], PacketError> {
        let length = self.target_length.get() as usize;
        self.target.get(..length).ok_or_else(|| self.target_refused("at most 56"))
    }

    fn target_refused(&self, rule: &'static str) -> PacketError {
        ENTRY.field("the length of the target", self.target_length.get(), rule)
    }
}

impl Entry {
    /// Encodes the entry.
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
                    counter_or_offset: counter.get().into(),
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
                counter_or_offset: offset.into(),
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
