//! The notes for observers.

use std::sync::Arc;

use lnet_api::{Errno, RxContext, RxToken, Sent, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::Header;

/// The connection of a message, and its number on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// The number of the connection.
    pub connection: u64,
    /// The sending end.
    pub end: usize,
    /// The number of messages that the end had sent before.
    pub sequence: u64,
}

/// A call between an engine and the network; observers get it *before* the engine.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the calls they tell of")]
pub enum Note {
    /// The engine sends a message.
    Sent { ni: Nid, peer: ProcessId, header: Header, payload: Arc<[u8]>, token: TxToken, deadline_ns: u64 },
    /// The result of a send. After [`Sent::Now`] the message is finalised.
    Taken { ni: Nid, token: TxToken, answer: Sent },
    /// A message is about to be finalised.
    FinalizeTx { ni: Nid, token: TxToken, result: Result<(), Errno> },
    /// A header is about to be parsed.
    Arriving { ni: Nid, from: ProcessId, header: Header, payload: Arc<[u8]>, rx: RxContext, lane: Lane },
    /// The engine's verdict on an arrived header.
    Judged { ni: Nid, rx: RxContext, judgement: Judgement },
    /// A payload is in place, or `written` bytes of it.
    FinalizeRx { ni: Nid, token: RxToken, result: Result<(), Errno>, written: usize },
    /// The engine has returned the memory of a GET; `sink` is its length.
    Sink { ni: Nid, token: TxToken, sink: Option<usize> },
    /// The network is about to report that it has answered a GET with these bytes.
    FinalizeGet { ni: Nid, token: TxToken, result: Result<Arc<[u8]>, Errno> },
    /// The engine resumes a delayed message.
    Resumed { ni: Nid, rx: RxContext, delivery: Option<(RxToken, usize)> },
    /// The connection of a delayed message is gone; `forgotten` is true if the engine has forgotten
    /// the message.
    Forgotten { ni: Nid, rx: RxContext, forgotten: bool },
    /// The last connection to a peer is gone.
    PeerLost { ni: Nid, peer: Nid, reason: Errno },
}

/// A [`lnet_api::Verdict`] without the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Receive this number of bytes.
    Deliver(RxToken, usize),
    /// The message needs no further action.
    Done,
    /// Discard the payload.
    Discard,
    /// Hold the message.
    Delay(RxToken),
    /// Close the connection.
    Close(Errno),
}

/// Observes a [`crate::SimNet`]. Called without any lock of the network, but inside engine calls:
/// it must not call an engine.
pub trait Observer: Send + Sync {
    /// Handles a note.
    fn note(&self, now_ns: u64, note: &Note);
}

impl Observer for () {
    fn note(&self, _: u64, _: &Note) {}
}
