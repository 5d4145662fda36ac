//! What an observer is told.

use std::sync::Arc;

use lnet_api::{Errno, RxContext, RxToken, Sent, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::Header;

/// Which connection a message came over, and its number on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Number of the connection.
    pub connection: u64,
    /// Which end sent it.
    pub end: usize,
    /// How many messages that end had sent before.
    pub sequence: u64,
}

/// Something that passes between an engine and the network; told *before* the engine hears of it.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the calls they tell of")]
pub enum Note {
    /// The engine sends.
    Sent { ni: Nid, peer: ProcessId, header: Header, payload: Arc<[u8]>, token: TxToken, deadline_ns: u64 },
    /// A send's answer. After [`Sent::Now`] the message is finalised.
    Taken { ni: Nid, token: TxToken, answer: Sent },
    /// A message is about to be finalised.
    FinalizeTx { ni: Nid, token: TxToken, result: Result<(), Errno> },
    /// A header is about to be parsed.
    Arriving { ni: Nid, from: ProcessId, header: Header, payload: Arc<[u8]>, rx: RxContext, lane: Lane },
    /// What the engine made of it.
    Judged { ni: Nid, rx: RxContext, judgement: Judgement },
    /// A payload is in place, or as many bytes of it as are told.
    FinalizeRx { ni: Nid, token: RxToken, result: Result<(), Errno>, written: usize },
    /// The engine has been asked for the memory of a GET: its length.
    Sink { ni: Nid, token: TxToken, sink: Option<usize> },
    /// The network is about to report that it has answered a GET: with these bytes.
    FinalizeGet { ni: Nid, token: TxToken, result: Result<Arc<[u8]>, Errno> },
    /// The engine lets a delayed message go on.
    Resumed { ni: Nid, rx: RxContext, delivery: Option<(RxToken, usize)> },
    /// The connection of a delayed message is gone: whether the engine has forgotten the message.
    Forgotten { ni: Nid, rx: RxContext, forgotten: bool },
    /// The last connection to a peer is gone.
    PeerLost { ni: Nid, peer: Nid, reason: Errno },
}

/// A [`lnet_api::Verdict`] without the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Receive so many bytes.
    Deliver(RxToken, usize),
    /// Nothing more to do.
    Done,
    /// Throw the payload away.
    Discard,
    /// Hold it.
    Delay(RxToken),
    /// Close the connection.
    Close(Errno),
}

/// Watches a [`crate::SimNet`]. Called without any lock of the network, but inside engine calls: it must not call an
/// engine.
pub trait Observer: Send + Sync {
    /// Something passes.
    fn note(&self, now_ns: u64, note: &Note);
}

impl Observer for () {
    fn note(&self, _: u64, _: &Note) {}
}
