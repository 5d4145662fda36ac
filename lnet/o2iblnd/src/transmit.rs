//! What a connection sends: transfers are prepared, and messages emitted and posted as the rules allow.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ProtoError;
use lnet_proto::ib::{
    Body, CharSign, Descriptor, Head, MESSAGE_MAX, Message, MessageKind, checksum, emit_immediate,
};
use lnet_region::{ReadVec, WriteVec};
use smallvec::SmallVec;

use crate::conn::{ConnError, Emit, Key as OpKey, What};
use crate::connection::{Connection, Live, State};
use crate::fabric::{Piece, SendKind, SendWork};
use crate::item::{Item, Source, Way};
use crate::memory::{Taken, Undescribed, Waiter, gather, source_of, tell_failed};
use crate::writes::{Chain, WriteError};

/// Where the checksum stands in a message (lnet-wire 32).
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// A payload of so many bytes that goes with its message, out of memory that is registered already, is gathered from there: to
/// copy fewer costs less than a second piece costs the device.
const GATHERED_MIN: usize = 1024;

/// Pieces of a message that is gathered, its own bytes included; devices have fewer, or are asked for fewer (`wrq_sge`).
const GATHERED_PIECES: usize = 4;

/// Where a small payload stands in a message buffer, to be written from there: behind a DONE, the smallest of messages.
const STAGED_AT: usize = 64;

/// As much as has room there.
const STAGED_MAX: usize = MESSAGE_MAX - STAGED_AT;
const _: () =
    assert!(STAGED_AT >= MessageKind::PutDone.min_len() && STAGED_AT >= MessageKind::GetDone.min_len());

/// The message buffers for sends, by place.
pub(crate) struct Transmit {
    pub(crate) buffers: Vec<WriteVec>,
    /// Where the first lies, and the key of all.
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// A bounce buffer is awaited.
struct Awaited;

impl Connection {
    /// Makes the writes of a transfer whose source this node is, or finds out that it cannot be; the DONE behind them is
    /// queued. Without a bounce buffer, where one is needed, it is called again when there is one.
    pub(crate) fn prepare(self: &Arc<Connection>, state: &mut State, operation: OpKey) {
        let Some(live) = &mut state.live else { return };
        let Live { machine, chain, pieces, filling, .. } = live;
        let Some(Item::Send { source, .. } | Item::Reply { source, .. }) = machine.item(operation) else {
            return;
        };
        // Whatever comes of it, the chain is no longer another transfer's.
        *filling += 1;
        let filled = match self.fill(chain, pieces, source, operation) {
            Some(filled) => filled,
            None => return self.shard().counters.tx.bounces_awaited.one(),
        };
        source.filling = *filling;
        let (result, writes) = match filled {
            Ok(()) => (Ok(source.bytes), chain.len() as u32),
            Err(errno) => (Err(errno), 0),
        };
        let deadline_ns = self.answer_deadline_ns();
        let done = match machine.done(operation, result, writes, deadline_ns) {
            Err(ConnError::Chain { works, limit }) => {
                tracing::warn!(peer = %self.peer.key.id.nid, works, limit, "a transfer is longer than the send queue");
                machine.done(operation, Err(Errno::EMSGSIZE), 0, deadline_ns)
            }
            done => done,
        };
        if let Err(error) = done {
            self.break_off(state, error.errno());
        }
    }

    /// Fills the chain; `None`: there is no bounce buffer now.
    fn fill(
        self: &Arc<Connection>,
        chain: &mut Chain,
        pieces: &mut Vec<Piece>,
        source: &mut Source,
        operation: OpKey,
    ) -> Option<Result<(), Errno>> {
        chain.clear();
        let bytes = source.bytes;
        let Some(payload) = source.payload.as_ref().filter(|_| bytes > 0) else { return Some(Ok(())) };
        if payload.len() < bytes as usize {
            return Some(Err(Errno::EPROTO));
        }
        if matches!(source.way, Way::Straight) {
            let mut why = None;
            if source_of(self.device(), payload, pieces).is_some() {
                match chain.fill(self.limits, pieces.iter().copied(), source.target.first(bytes)) {
                    Ok(()) => return Some(Ok(())),
                    Err(WriteError::TooShort { .. } | WriteError::NoMemory { .. }) => {
                        return Some(Err(Errno::EPROTO));
                    }
                    Err(error) => why = Some(error),
                }
            }
            source.way = match self.copy(payload, bytes as usize, operation) {
                Ok(Some(way)) => way,
                Ok(None) => {
                    let errno = match why {
                        Some(error) => tell_failed(self, &error, error.errno()),
                        None => tell_failed(self, &Undescribed::Unregistered, Errno::ENOMEM),
                    };
                    return Some(Err(errno));
                }
                Err(Awaited) => return None,
            };
        }
        // What goes with its message has no place before that has one; it is one piece in any case.
        let piece = match &source.way {
            Way::Bounce(bounce) => bounce.piece(),
            Way::Straight | Way::Message => Piece { address: 0, length: bytes, key: 0 },
        };
        let filled = chain.fill(self.limits, std::iter::once(piece), source.target.first(bytes));
        Some(filled.map_err(|error| tell_failed(self, &error, error.errno())))
    }

    /// Where a payload that cannot be written from its place is copied to, if anywhere.
    fn copy(
        self: &Arc<Connection>,
        payload: &ReadVec,
        bytes: usize,
        operation: OpKey,
    ) -> Result<Option<Way>, Awaited> {
        if bytes <= STAGED_MAX {
            return Ok(Some(Way::Message));
        }
        let waiter = Waiter::Operation(self.clone(), operation);
        match self.ni().own.pool.take(self.device(), bytes, self.shard().own.now_ns(), waiter) {
            Taken::Bounce(mut bounce, _) => {
                bounce.load(payload);
                self.shard().counters.tx.bytes_bounced.add(bounce.len());
                Ok(Some(Way::Bounce(bounce)))
            }
            Taken::Later => Err(Awaited),
            Taken::Never(_) => Ok(None),
        }
    }

    /// When an answer of this side must have left.
    pub(crate) fn answer_deadline_ns(&self) -> u64 {
        self.shard().own.now_ns().saturating_add(self.ni().timeout_ns)
    }

    /// Emits what the rules allow, and posts it together.
    pub(crate) fn pump(&self, state: &mut State, now_ns: u64) {
        state.corked = false;
        if state.broken.is_some() {
            return;
        }
        let Some(live) = &mut state.live else { return };
        if let Err(errno) = self.pump_live(live, now_ns) {
            self.break_off(state, errno);
        }
    }

    fn pump_live(&self, live: &mut Live, now_ns: u64) -> Result<(), Errno> {
        let counters = &self.shard().counters.tx;
        while self.next(live, now_ns)? {
            if live.batch.is_full() {
                counters.posts.add(live.batch.post(&*live.endpoint)?);
            }
        }
        counters.posts.add(live.batch.post(&*live.endpoint)?);
        Ok(())
    }

    /// Emits one message; `false` if there is none.
    fn next(&self, live: &mut Live, now_ns: u64) -> Result<bool, Errno> {
        let Live { machine, transmit, batch, chain, pieces, filling, .. } = live;
        let Some(Emit { id, credits, what, item }) = machine.next(now_ns) else { return Ok(false) };
        let address = transmit.address + (id.place() * MESSAGE_MAX) as u64;
        let buffer =
            transmit.buffers.get_mut(id.place()).and_then(WriteVec::as_mut_slice).ok_or(Errno::EIO)?;
        let head = self.link.head(credits);
        let counters = &self.shard().counters.tx;
        counters.sends.one();
        // The payload, where it is sent from its place.
        let mut gathered: SmallVec<[Piece; GATHERED_PIECES]> = SmallVec::new();
        let length = match (what, item) {
            (What::Noop, _) => {
                counters.noops.one();
                emit(&head, Body::Noop, buffer)
            }
            (What::Immediate, Some(Item::Send { header, source, .. })) => {
                let emitted = emit_immediate(&head, header, buffer);
                if let (Ok(length), Some(payload)) = (&emitted, &source.payload) {
                    if self.gathers(payload, &mut gathered) {
                        counters.bytes_direct.add(payload.len());
                    } else {
                        let copied =
                            payload.copy_to(0, &mut buffer[MessageKind::Immediate.min_len()..*length]);
                        counters.bytes_copied.add(copied);
                    }
                }
                emitted
            }
            (What::PutReq { cookie }, Some(Item::Send { header, .. })) => {
                emit(&head, Body::PutReq { header: *header, cookie }, buffer)
            }
            (What::GetReq { cookie }, Some(Item::Get { header, sink, .. })) => {
                let descriptor = Descriptor::new(sink.described.key, &sink.described.fragments);
                descriptor.and_then(|descriptor| {
                    emit(&head, Body::GetReq { header: *header, cookie, descriptor }, buffer)
                })
            }
            (What::PutAck { source, sink: own }, Some(Item::Receive { sink, .. })) => {
                let descriptor = Descriptor::new(sink.described.key, &sink.described.fragments);
                descriptor.and_then(|descriptor| {
                    emit(&head, Body::PutAck { source, sink: own, descriptor }, buffer)
                })
            }
            (What::PutNak(done), _) => emit(&head, Body::PutNak(done), buffer),
            (What::PutDone(done), item) | (What::GetDone(done), item) => {
                if let Some(Item::Send { source, .. } | Item::Reply { source, .. }) = item
                    && done.status > 0
                {
                    if source.filling != *filling || matches!(source.way, Way::Message) {
                        *filling += 1;
                        let staged = Piece {
                            address: address + STAGED_AT as u64,
                            length: source.bytes,
                            key: transmit.key,
                        };
                        refill(self, chain, pieces, source, staged)?;
                        source.filling = *filling;
                    }
                    match (&source.way, &source.payload) {
                        (Way::Message, Some(payload)) => {
                            let place = STAGED_AT..STAGED_AT + source.bytes as usize;
                            counters.bytes_copied.add(payload.copy_to(0, &mut buffer[place]));
                        }
                        (Way::Straight, _) => counters.bytes_direct.add(source.bytes as usize),
                        (Way::Message | Way::Bounce(_), _) => {}
                    }
                    counters.writes.add(chain.len());
                    batch.add_writes(chain, source.target.key, id.bits());
                }
                let body = match what {
                    What::GetDone(_) => Body::GetDone(done),
                    _ => Body::PutDone(done),
                };
                emit(&head, body, buffer)
            }
            // What was queued is of this kind.
            (What::Immediate | What::PutReq { .. } | What::GetReq { .. } | What::PutAck { .. }, _) => {
                return Err(Errno::EIO);
            }
        };
        let length = length.map_err(|error| {
            tracing::error!(peer = %self.peer.key.id.nid, %error, "a message cannot be emitted");
            Errno::EIO
        })?;
        if self.cksum {
            let sum = checksum(&buffer[..length], CharSign::Unsigned);
            buffer[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        }
        let own = if gathered.is_empty() { length } else { MessageKind::Immediate.min_len() };
        gathered.insert(0, Piece { address, length: own as u32, key: transmit.key });
        let inline = gathered.len() == 1 && length <= self.inline;
        batch.add(SendWork {
            id: id.bits(),
            pieces: &gathered,
            kind: SendKind::Send,
            signalled: true,
            inline,
        });
        Ok(true)
    }

    /// Whether a payload is sent from its place, behind the message's own bytes; its pieces are added then. A checksum is made of
    /// bytes that lie together.
    fn gathers(&self, payload: &ReadVec, pieces: &mut SmallVec<[Piece; GATHERED_PIECES]>) -> bool {
        let most = self.limits.pieces.min(GATHERED_PIECES) - 1;
        !self.cksum && payload.len() >= GATHERED_MIN && gather(self.device(), payload, most, pieces)
    }
}

fn emit(head: &Head, body: Body<'_>, buffer: &mut [u8]) -> Result<usize, ProtoError> {
    Message { head: *head, body }.emit(buffer)
}

/// Fills the chain for a transfer again: it has been used for another since this one was prepared, or only now it is known where
/// the message's buffer is.
fn refill(
    conn: &Connection,
    chain: &mut Chain,
    pieces: &mut Vec<Piece>,
    source: &Source,
    staged: Piece,
) -> Result<(), Errno> {
    let target = source.target.first(source.bytes);
    let filled = match (&source.way, &source.payload) {
        (Way::Message, _) => chain.fill(conn.limits, std::iter::once(staged), target),
        (Way::Bounce(bounce), _) => chain.fill(conn.limits, std::iter::once(bounce.piece()), target),
        (Way::Straight, Some(payload)) => {
            source_of(conn.device(), payload, pieces).ok_or(Errno::ENOMEM)?;
            chain.fill(conn.limits, pieces.iter().copied(), target)
        }
        (Way::Straight, None) => return Err(Errno::EIO),
    };
    filled.map_err(|error| error.errno())
}
