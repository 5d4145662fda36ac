//! Events of message descriptors, and the handlers of event queues (lnet-semantics 8).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use lnet_nid::{MatchBits, Nid, ProcessId};
use nlx_fallible::TryArc;

use crate::{Errno, MdHandle};

/// The kind of an event (lnet-semantics 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// At the target: the REPLY to a GET has been sent.
    Get = 1,
    /// At the target: the data of a PUT has been received.
    Put = 2,
    /// At the initiator: the data of a REPLY has been received.
    Reply = 3,
    /// At the initiator: the ACK of a PUT has been received.
    Ack = 4,
    /// At the initiator: a PUT or GET has been handed to the network completely, or failed.
    Send = 5,
    /// An idle MD has been unlinked explicitly.
    Unlink = 6,
}

/// An event of an MD (lnet-semantics 8: which fields are valid for which kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// PUT, GET, SEND, ACK, REPLY or UNLINK; it decides which fields are valid.
    pub kind: EventKind,
    /// The process the message was sent to.
    pub target: ProcessId,
    /// The initiator of the operation: the *primary* NID of the source's peer, and its PID.
    /// `Nid::ANY` at the initiator.
    pub initiator: ProcessId,
    /// The source in the header.
    pub source: ProcessId,
    /// NID of the last hop.
    pub sender: Nid,
    /// Portal index in the header.
    pub portal: u32,
    /// Match bits in the header.
    pub match_bits: MatchBits,
    /// The 64 bits of header data of a PUT; else 0.
    pub hdr_data: u64,
    /// Requested length in bytes.
    pub rlength: u32,
    /// Bytes actually moved.
    pub mlength: u32,
    /// Offset of the first byte in the MD.
    pub offset: u64,
    /// The MD that the event reports on.
    pub md: MdHandle,
    /// The MD's `user_ptr`.
    pub user_ptr: u64,
    /// Success, or the error of the operation.
    pub status: Result<(), Errno>,
    /// Set if the MD has ended: this is its last event.
    pub unlinked: bool,
}

impl Event {
    /// Makes a successful event of this kind with empty fields: no bytes, no MD, and `here` as
    /// every process.
    #[must_use]
    pub fn blank(kind: EventKind, here: ProcessId) -> Event {
        Event {
            kind,
            target: here,
            initiator: here,
            source: here,
            sender: Nid::ANY,
            portal: 0,
            match_bits: MatchBits(0),
            hdr_data: 0,
            rlength: 0,
            mlength: 0,
            offset: 0,
            md: MdHandle(0),
            user_ptr: 0,
            status: Ok(()),
            unlinked: false,
        }
    }
}

/// The callback of an event queue.
///
/// Per MD, calls never overlap, and the one with `unlinked` set is the last; events of different
/// MDs may come at the same time from several threads (S-311).
pub trait EventHandler: Send + Sync {
    /// Handles one event. Called under one of LNet's locks: it must copy what it needs and return,
    /// without an LNet call, an allocation or a system call.
    fn event(&self, event: &Event);

    /// Called after one or more `event` calls, once the lock is released: the place to wake a
    /// sleeper. LNet calls are allowed here; the wake-ups that they cause follow after this call
    /// has returned, so it must not wait for one.
    fn wake(&self);
}

/// A handler as stored in an event queue: a program's `Arc`, or a reference whose allocation can
/// fail, for a server that makes queues for its clients.
#[derive(Clone)]
pub enum Handler {
    /// A program's handler, allocated by the program.
    Shared(Arc<dyn EventHandler>),
    /// A handler whose allocation reports a lack of memory as an error.
    Fallible(TryArc<dyn EventHandler>),
}

impl Handler {
    /// Returns whether both refer to the same handler object.
    #[must_use]
    pub fn same(&self, other: &Handler) -> bool {
        match (self, other) {
            (Handler::Shared(one), Handler::Shared(other)) => Arc::ptr_eq(one, other),
            (Handler::Fallible(one), Handler::Fallible(other)) => TryArc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Deref for Handler {
    type Target = dyn EventHandler;

    #[inline]
    fn deref(&self) -> &(dyn EventHandler + 'static) {
        match self {
            Handler::Shared(handler) => &**handler,
            Handler::Fallible(handler) => &**handler,
        }
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}
