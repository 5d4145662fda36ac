use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use lnet_nid::{MatchBits, Nid, ProcessId};
use nlx_fallible::TryArc;

use crate::{Errno, MdHandle};

/// What happened (lnet-semantics 8).
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

/// One event of an MD (lnet-semantics 8: which fields mean something for which kind).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The process the message was sent to.
    pub target: ProcessId,
    /// Who began the operation: the *primary* NID of the source's peer, and its PID. `Nid::ANY` at the initiator.
    pub initiator: ProcessId,
    /// The source as the header names it.
    pub source: ProcessId,
    /// NID of the last hop.
    pub sender: Nid,
    /// Portal index of the header.
    pub portal: u32,
    /// Match bits of the header.
    pub match_bits: MatchBits,
    /// The eight bytes beside a PUT's payload; else 0.
    pub hdr_data: u64,
    /// Bytes the message wanted to move.
    pub rlength: u32,
    /// Bytes moved.
    pub mlength: u32,
    /// First byte in the MD.
    pub offset: u64,
    /// The MD.
    pub md: MdHandle,
    /// The MD's `user_ptr`.
    pub user_ptr: u64,
    /// Whether it worked.
    pub status: Result<(), Errno>,
    /// The MD is gone: this is its last event.
    pub unlinked: bool,
}

impl Event {
    /// An event of which nothing is known but what it is, and whose process `here` is: nothing moved, of no MD, and it
    /// worked.
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

/// Takes the events of an event queue.
///
/// Per MD, calls never overlap, and the one with `unlinked` set is the last; events of different MDs may come at the
/// same time from several threads (S-311).
pub trait EventHandler: Send + Sync {
    /// An event. Called under one of LNet's locks: copy what is needed and return; no LNet call, no allocation, no
    /// system call.
    fn event(&self, event: &Event);

    /// Called after one or more `event` calls, once the lock is released: the place to wake a sleeper. LNet calls are
    /// allowed here; the wake-ups that they cause come after this one has returned, so it must not wait for one.
    fn wake(&self);
}

/// A handler as an event queue keeps it: a program's `Arc`, or a reference whose allocation could fail, for a server that makes
/// queues for others.
#[derive(Clone)]
pub enum Handler {
    /// Allocated as everything is.
    Shared(Arc<dyn EventHandler>),
    /// Allocated so that want of memory was an error.
    Fallible(TryArc<dyn EventHandler>),
}

impl Handler {
    /// Whether both are the same handler.
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
