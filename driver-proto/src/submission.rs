//! What goes through the submission ring.

use nlx_core::{
    Address, BufferHandle, Descriptor, MatchCounter, Nid, Operation, OperationKind, Pid, Queue, TmId,
};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{ProtoError, Segment};

/// An entry of the ring as it lies there: 120 bytes, all that a slot of the queue has.
///
/// Which fields count hangs on `kind`; the others are 0. Operations that are refused end with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Submission {
    /// 1 operate, 2 cancel, 3 register, 4 deregister.
    pub kind: U32,
    /// Operate: the [`Queue`].
    pub queue: U32,
    /// Operate, cancel: the transfer machine.
    pub tm: U64,
    /// The buffer.
    pub buffer: U64,
    /// Operate, cancel: the operation's cookie.
    pub cookie: U64,
    /// Send, passive send, active send, register: bytes. Receive: the least room.
    pub length: U64,
    /// Passive operations: the lower 52 bits of the match bits. Register: the offset in the arena.
    pub place: U64,
    /// Receive: the most messages. Register: the arena.
    pub count: U32,
    /// Bytes of `target` that count: 32 for an address, those of a descriptor.
    pub target_length: U32,
    /// Send: NID, PID, portal, id of the receiver. Active operations: the descriptor.
    pub target: [u8; Descriptor::MAX_LEN],
    /// Always 0.
    pub reserved: U64,
}

static_assertions::const_assert_eq!(size_of::<Submission>(), 120);

/// An address in `target`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, zerocopy::Unaligned)]
#[repr(C)]
struct AddressLayout {
    nid: [u8; Nid::WIRE_LEN],
    pid: U32,
    portal: U32,
    tmid: U32,
}

static_assertions::const_assert_eq!(size_of::<AddressLayout>(), 32);

const OPERATE: u32 = 1;
const CANCEL: u32 = 2;
const REGISTER: u32 = 3;
const DEREGISTER: u32 = 4;

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
    /// With all fields 0.
    const ZERO: Submission = Submission {
        kind: U32::ZERO,
        queue: U32::ZERO,
        tm: U64::ZERO,
        buffer: U64::ZERO,
        cookie: U64::ZERO,
        length: U64::ZERO,
        place: U64::ZERO,
        count: U32::ZERO,
        target_length: U32::ZERO,
        target: [0; Descriptor::MAX_LEN],
        reserved: U64::ZERO,
    };

    fn set_target(&mut self, bytes: &[u8]) {
        self.target_length = (bytes.len() as u32).into();
        self.target[..bytes.len()].copy_from_slice(bytes);
    }

    fn wrong<T>(&self, field: &'static str, value: u64, rule: &'static str) -> Result<T, ProtoError> {
        Err(ProtoError::Field { object: "an entry of the ring", field, value, rule })
    }

    /// What it says.
    ///
    /// # Errors
    /// [`ProtoError::Kind`] and [`ProtoError::Field`]. Whether an operation's numbers fit its buffer is looked at later.
    pub fn read(&self) -> Result<Entry, ProtoError> {
        let buffer = BufferHandle(self.buffer.get());
        let (tm, cookie) = (self.tm.get(), self.cookie.get());
        match self.kind.get() {
            OPERATE => {
                let kind = self.operation()?;
                let counter = match MatchCounter::new(self.place.get()) {
                    Some(counter) if kind.queue().is_passive() == (counter != MatchCounter::UNSOLICITED) => {
                        counter
                    }
                    _ => {
                        return self.wrong(
                            "the match counter",
                            self.place.get(),
                            "1 to 2^52-1 if it is passive, else 0",
                        );
                    }
                };
                Ok(Entry::Operate { tm, operation: Operation { buffer, cookie, kind }, counter })
            }
            CANCEL => Ok(Entry::Cancel { tm, buffer, cookie }),
            REGISTER => {
                let (arena, offset, length) = (self.count.get(), self.place.get(), self.length.get());
                Ok(Entry::Register { buffer, segment: Segment { arena, offset, length } })
            }
            DEREGISTER => Ok(Entry::Deregister { buffer }),
            kind => Err(ProtoError::Kind { object: "an entry of the ring", kind }),
        }
    }

    fn operation(&self) -> Result<OperationKind, ProtoError> {
        let length = self.length.get();
        Ok(match Queue::from_value(self.queue.get()) {
            Some(Queue::MessageReceive) => {
                OperationKind::Receive { min_receive_size: length, max_messages: self.count.get() }
            }
            Some(Queue::MessageSend) => OperationKind::Send { length, to: self.address()? },
            Some(Queue::PassiveBulkReceive) => OperationKind::PassiveReceive,
            Some(Queue::PassiveBulkSend) => OperationKind::PassiveSend { length },
            Some(Queue::ActiveBulkReceive) => OperationKind::ActiveReceive { descriptor: self.descriptor()? },
            Some(Queue::ActiveBulkSend) => {
                OperationKind::ActiveSend { descriptor: self.descriptor()?, length }
            }
            _ => return self.wrong("the queue", self.queue.get().into(), "one of six"),
        })
    }

    fn target(&self) -> Result<&[u8], ProtoError> {
        let length = self.target_length.get();
        match self.target.get(..length as usize) {
            Some(bytes) => Ok(bytes),
            None => self.wrong("the length of the target", length.into(), "at most 56"),
        }
    }

    fn descriptor(&self) -> Result<Descriptor, ProtoError> {
        let length = self.target_length.get().into();
        Descriptor::from_bytes(self.target()?)
            .or_else(|_| self.wrong("the length of the target", length, "48 or 56"))
    }

    fn address(&self) -> Result<Address, ProtoError> {
        let length = self.target_length.get().into();
        let Ok(layout) = AddressLayout::ref_from_bytes(self.target()?) else {
            return self.wrong("the length of the target", length, "32");
        };
        let (Ok(nid), Ok(tmid)) = (Nid::from_wire(&layout.nid), TmId::new(layout.tmid.get())) else {
            return self.wrong(
                "the receiver's id",
                layout.tmid.get().into(),
                "1 to 4095, with the NID of an interface",
            );
        };
        Ok(Address { nid, pid: Pid(layout.pid.get()), portal: layout.portal.get(), tmid })
    }
}

impl Entry {
    /// As it lies in the ring.
    #[must_use]
    pub fn write(&self) -> Submission {
        let blank = Submission::ZERO;
        match self {
            Entry::Operate { tm, operation, counter } => {
                let mut made = Submission {
                    kind: OPERATE.into(),
                    queue: operation.kind.queue().value().into(),
                    tm: (*tm).into(),
                    buffer: operation.buffer.0.into(),
                    cookie: operation.cookie.into(),
                    place: counter.get().into(),
                    ..blank
                };
                match operation.kind {
                    OperationKind::Receive { min_receive_size, max_messages } => {
                        made.length = min_receive_size.into();
                        made.count = max_messages.into();
                    }
                    OperationKind::Send { length, to } => {
                        made.length = length.into();
                        let address = AddressLayout {
                            nid: to.nid.to_wire(),
                            pid: to.pid.0.into(),
                            portal: to.portal.into(),
                            tmid: to.tmid.get().into(),
                        };
                        made.set_target(address.as_bytes());
                    }
                    OperationKind::PassiveReceive => {}
                    OperationKind::PassiveSend { length } => made.length = length.into(),
                    OperationKind::ActiveReceive { descriptor } => made.set_target(descriptor.as_bytes()),
                    OperationKind::ActiveSend { descriptor, length } => {
                        made.length = length.into();
                        made.set_target(descriptor.as_bytes());
                    }
                }
                made
            }
            Entry::Cancel { tm, buffer, cookie } => Submission {
                kind: CANCEL.into(),
                tm: (*tm).into(),
                buffer: buffer.0.into(),
                cookie: (*cookie).into(),
                ..blank
            },
            Entry::Register { buffer, segment: Segment { arena, offset, length } } => Submission {
                kind: REGISTER.into(),
                buffer: buffer.0.into(),
                length: (*length).into(),
                place: (*offset).into(),
                count: (*arena).into(),
                ..blank
            },
            Entry::Deregister { buffer } => {
                Submission { kind: DEREGISTER.into(), buffer: buffer.0.into(), ..blank }
            }
        }
    }
}
