//! What a connection sends: transfers are prepared, and messages emitted and posted as the rules allow.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ProtoError;
use lnet_proto::ib::{
    Body, CharSign, Descriptor, Head, MESSAGE_MAX, Message, MessageKind, checksum, emit_immediate,
};
use lnet_region::WriteVec;
use smallvec::SmallVec;

use crate::conn::{ConnError, Emit, Key as OpKey, What};
use crate::connection::{Connection, Live, State};
use crate::fabric::{Endpoint, Piece, SendKind, SendWork};
use crate::item::{Item, Source};
use crate::memory::{Taken, Undescribed, Waiter, source_of, tell_failed};
use crate::writes::{Chain, WriteError};

/// Work requests that are handed to the device in one call: a chain that is longer goes in several.
const POSTED_TOGETHER: usize = 16;

/// Where the checksum stands in a message (lnet-wire 32).
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// The message buffers for sends, by place.
pub(crate) struct Transmit {
    pub(crate) buffers: Vec<WriteVec>,
    /// Where the first lies, and the key of all.
    pub(crate) address: u64,
    pub(crate) key: u32,
}

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
                tracing::warn!(peer = %self.peer.key.nid, works, limit, "a transfer is longer than the send queue");
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
        if source.bounce.is_none() {
            let mut why = None;
            if source_of(self.device(), payload, pieces).is_some() {
                match chain.fill(self.limits, pieces.iter().copied(), source.target.first(bytes)) {
                    Ok(()) => return Some(Ok(())),
                    Err(WriteError::TooShort { .. }) => return Some(Err(Errno::EPROTO)),
                    Err(error) => why = Some(error),
                }
            }
            let waiter = Waiter::Operation(self.clone(), operation);
            match self.ni().pool.take(self.device(), bytes as usize, self.shard().now_ns(), waiter) {
                Taken::Bounce(mut bounce, _) => {
                    bounce.load(payload);
                    self.shard().counters.tx.bytes_bounced.add(bounce.len());
                    source.bounce = Some(bounce);
                }
                Taken::Later => return None,
                Taken::Never(_) => {
                    let errno = match why {
                        Some(error) => tell_failed(self, &error, error.errno()),
                        None => tell_failed(self, &Undescribed::Unregistered, Errno::ENOMEM),
                    };
                    return Some(Err(errno));
                }
            }
        }
        let Some(bounce) = &source.bounce else { return Some(Err(Errno::EIO)) };
        let filled = chain.fill(self.limits, std::iter::once(bounce.piece()), source.target.first(bytes));
        Some(filled.map_err(|error| tell_failed(self, &error, error.errno())))
    }

    /// When an answer of this side must have left.
    pub(crate) fn answer_deadline_ns(&self) -> u64 {
        self.shard().now_ns().saturating_add(self.ni().timeout_ns())
    }

    /// Emits and posts what the rules allow.
    pub(crate) fn pump(self: &Arc<Connection>, state: &mut State, now_ns: u64) {
        if state.broken.is_some() {
            return;
        }
        loop {
            let Some(live) = &mut state.live else { return };
            match self.next(live, now_ns) {
                Ok(true) => {}
                Ok(false) => return,
                Err(errno) => return self.break_off(state, errno),
            }
        }
    }

    /// Emits and posts one message; `false` if there is none.
    fn next(self: &Arc<Connection>, live: &mut Live, now_ns: u64) -> Result<bool, Errno> {
        let Live { machine, transmit, chain, pieces, filling, endpoint, .. } = live;
        let Some(Emit { id, credits, what, item }) = machine.next(now_ns) else { return Ok(false) };
        let buffer =
            transmit.buffers.get_mut(id.place()).and_then(WriteVec::as_mut_slice).ok_or(Errno::EIO)?;
        let head = self.link.head(credits);
        let counters = &self.shard().counters.tx;
        counters.sends.one();
        let mut writes_to = None;
        let length = match (what, item) {
            (What::Noop, _) => {
                counters.noops.one();
                emit(&head, Body::Noop, buffer)
            }
            (What::Immediate, Some(Item::Send { header, source, .. })) => {
                let emitted = emit_immediate(&head, header, buffer);
                if let (Ok(length), Some(payload)) = (&emitted, &source.payload) {
                    let copied = payload.copy_to(0, &mut buffer[MessageKind::Immediate.min_len()..*length]);
                    counters.bytes_copied.add(copied);
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
                    if source.filling != *filling {
                        *filling += 1;
                        refill(self, chain, pieces, source)?;
                        source.filling = *filling;
                    }
                    counters.bytes_direct.add(if source.bounce.is_some() {
                        0
                    } else {
                        source.bytes as usize
                    });
                    writes_to = Some(source.target.key);
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
            tracing::error!(peer = %self.peer.key.nid, %error, "a message cannot be emitted");
            Errno::EIO
        })?;
        if self.cksum {
            let sum = checksum(&buffer[..length], CharSign::Unsigned);
            buffer[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        }
        let address = transmit.address + (id.place() * MESSAGE_MAX) as u64;
        let message = Piece { address, length: length as u32, key: transmit.key };
        let done = SendWork {
            id: id.bits(),
            pieces: &[message],
            kind: SendKind::Send,
            signalled: true,
            inline: length <= self.inline,
        };
        counters.writes.add(if writes_to.is_some() { chain.len() } else { 0 });
        post(&**endpoint, writes_to.map(|key| (&*chain, key)), done)?;
        Ok(true)
    }
}

fn emit(head: &Head, body: Body<'_>, buffer: &mut [u8]) -> Result<usize, ProtoError> {
    Message { head: *head, body }.emit(buffer)
}

/// The chain has been used for another transfer since this one was prepared.
fn refill(
    conn: &Connection,
    chain: &mut Chain,
    pieces: &mut Vec<Piece>,
    source: &Source,
) -> Result<(), Errno> {
    let target = source.target.first(source.bytes);
    let filled = match (&source.bounce, &source.payload) {
        (Some(bounce), _) => chain.fill(conn.limits, std::iter::once(bounce.piece()), target),
        (None, Some(payload)) => {
            source_of(conn.device(), payload, pieces).ok_or(Errno::ENOMEM)?;
            chain.fill(conn.limits, pieces.iter().copied(), target)
        }
        (None, None) => return Err(Errno::EIO),
    };
    filled.map_err(|error| error.errno())
}

/// Posts writes and the message behind them.
fn post(endpoint: &dyn Endpoint, writes: Option<(&Chain, u32)>, message: SendWork<'_>) -> Result<(), Errno> {
    let mut works: SmallVec<[SendWork<'_>; POSTED_TOGETHER]> = SmallVec::new();
    if let Some((chain, key)) = writes {
        for (address, pieces) in chain.writes() {
            if works.len() + 1 == POSTED_TOGETHER {
                endpoint.post_sends(&works).map_err(|error| error.errno)?;
                works.clear();
            }
            let kind = SendKind::Write { address, key };
            works.push(SendWork { id: message.id, pieces, kind, signalled: false, inline: false });
        }
    }
    works.push(message);
    endpoint.post_sends(&works).map_err(|error| error.errno)
}
