//! Sending on a connection: prepares transfers, and emits and posts messages as the rules allow.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::{Body, CharSign, Head, MESSAGE_MAX, Message, MessageKind, checksum, emit_immediate};
use lnet_proto::{Header, ProtoError};
use lnet_region::{ReadVec, WriteVec};
use smallvec::SmallVec;

use crate::conn::{ConnError, Emit, EmitKind, OpKey};
use crate::connection::{ConnState, Connection, LiveConn};
use crate::fabric::{Piece, SendKind, SendWork};
use crate::memory::{BounceResult, Undescribed, Waiter, gather, source_of, warn_failed};
use crate::op_data::{OpData, PayloadSource, SourceMemory};
use crate::writes::{WriteError, each_write};

/// The position of the checksum in a message (lnet-wire 32).
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// The smallest payload of an IMMEDIATE that is gathered from its registered memory instead of
/// being copied. Below this, a copy costs less than a second piece costs the device.
const GATHERED_MIN: usize = 1024;

/// The maximum number of pieces of a gathered message, the message's own bytes included. Devices
/// may support fewer, or the tunable may ask for fewer (`wrq_sge`).
const GATHERED_PIECES: usize = 4;

/// The offset in a message buffer at which a small payload is staged for writing: behind a DONE,
/// the smallest message.
const STAGED_AT: usize = 64;

/// The largest payload that can be staged.
const STAGED_MAX: usize = MESSAGE_MAX - STAGED_AT;
const _: () =
    assert!(STAGED_AT >= MessageKind::PutDone.min_len() && STAGED_AT >= MessageKind::GetDone.min_len());

/// The message buffers for sends, by index.
pub(crate) struct TransmitBuffers {
    pub(crate) buffers: Vec<WriteVec>,
    /// The address of the first buffer, and the key of all.
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// The operation must wait, as no bounce buffer is free now.
struct BouncePending;

impl Connection {
    /// Queues the DONE of a transfer of which this node is the source, with the number of writes
    /// before it or the error for which nothing is written. If a bounce buffer is needed and none
    /// is free, returns without queueing; the driver calls this again when one is free.
    pub(crate) fn prepare(self: &Arc<Connection>, state: &mut ConnState, operation: OpKey) {
        let Some(live) = &mut state.live else { return };
        let LiveConn { machine, pieces, .. } = live;
        let Some(OpData::Send { source, .. } | OpData::Reply { source, .. }) = machine.item(operation) else {
            return;
        };
        let Some(counted) = self.count_writes(pieces, source, operation) else {
            return self.shard().counters.tx.bounces_awaited.one();
        };
        let (result, writes) = match counted {
            Ok(writes) => (Ok(source.bytes), writes),
            Err(errno) => (Err(errno), 0),
        };
        let deadline_ns = self.answer_deadline_ns();
        let done = match machine.done(operation, result, writes, deadline_ns) {
            Err(ConnError::Chain { works, limit }) => {
                tracing::warn!(peer = %self.peer.key.id.nid, works, limit, "a transfer needs more work requests than the send queue holds: it fails with EMSGSIZE");
                machine.done(operation, Err(Errno::EMSGSIZE), 0, deadline_ns)
            }
            done => done,
        };
        if let Err(error) = done {
            self.break_off(state, error.errno());
        }
    }

    /// Counts the writes of a transfer, and decides from which memory they are made. `None` if a
    /// bounce buffer is needed and none is free.
    fn count_writes(
        self: &Arc<Connection>,
        pieces: &mut Vec<Piece>,
        source: &mut PayloadSource,
        operation: OpKey,
    ) -> Option<Result<u32, Errno>> {
        let bytes = source.bytes;
        if bytes == 0 {
            return Some(Ok(0));
        }
        let Some(payload) = source.payload.as_ref().filter(|payload| payload.len() >= bytes as usize) else {
            return Some(Err(Errno::EPROTO));
        };
        let count = |pieces: &[Piece]| {
            each_write(self.limits, pieces.iter().copied(), source.target.first(bytes), |_, _| {})
        };
        if matches!(source.memory, SourceMemory::Payload) {
            let mut write_error = None;
            if source_of(self.device(), payload, pieces).is_some() {
                match count(pieces) {
                    Ok(writes) => return Some(Ok(writes)),
                    Err(WriteError::TooShort { .. } | WriteError::NoMemory { .. }) => {
                        return Some(Err(Errno::EPROTO));
                    }
                    Err(error) => write_error = Some(error),
                }
            }
            source.memory = match self.copy(payload, bytes as usize, operation) {
                Ok(Some(memory)) => memory,
                Ok(None) => {
                    let errno = match write_error {
                        Some(error) => warn_failed(self, &error, error.errno()),
                        None => warn_failed(self, &Undescribed::Unregistered, Errno::ENOMEM),
                    };
                    return Some(Err(errno));
                }
                Err(BouncePending) => return None,
            };
        }
        // A copy is one piece; its address does not affect the count.
        let counted = count(&[Piece { address: 0, length: bytes, key: 0 }]);
        Some(counted.map_err(|error| warn_failed(self, &error, error.errno())))
    }

    /// Returns the source of a payload that cannot be written from its own memory: the message
    /// itself for a short one, otherwise a bounce buffer with a copy. `None` if no bounce buffer
    /// can be made.
    fn copy(
        self: &Arc<Connection>,
        payload: &ReadVec,
        bytes: usize,
        operation: OpKey,
    ) -> Result<Option<SourceMemory>, BouncePending> {
        if bytes <= STAGED_MAX {
            return Ok(Some(SourceMemory::Message));
        }
        let waiter = Waiter::Operation(self.clone(), operation);
        match self.ni().own.pool.take(self.device(), bytes, self.shard().own.now_ns(), waiter) {
            BounceResult::Bounce(mut bounce, _) => {
                bounce.load(payload);
                self.shard().counters.tx.bytes_bounced.add(bounce.len());
                Ok(Some(SourceMemory::Bounce(bounce)))
            }
            BounceResult::Later => Err(BouncePending),
            BounceResult::Never(_) => Ok(None),
        }
    }

    /// Returns the deadline of an answer for which this side waits.
    pub(crate) fn answer_deadline_ns(&self) -> u64 {
        self.shard().own.now_ns().saturating_add(self.ni().timeout_ns)
    }

    /// Emits the messages that the rules allow, and posts them together.
    pub(crate) fn pump(&self, state: &mut ConnState, now_ns: u64) {
        state.corked = false;
        if state.broken.is_some() {
            return;
        }
        let Some(live) = &mut state.live else { return };
        if let Err(errno) = self.pump_live(live, now_ns) {
            self.break_off(state, errno);
        }
    }

    fn pump_live(&self, live: &mut LiveConn, now_ns: u64) -> Result<(), Errno> {
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
    fn next(&self, live: &mut LiveConn, now_ns: u64) -> Result<bool, Errno> {
        let LiveConn { machine, transmit, batch, pieces, .. } = live;
        let Some(Emit { id, credits, kind, item }) = machine.next(now_ns) else { return Ok(false) };
        let item = item.map(|item| &*item);
        let address = transmit.address + (id.index() * MESSAGE_MAX) as u64;
        let buffer =
            transmit.buffers.get_mut(id.index()).and_then(WriteVec::as_mut_slice).ok_or(Errno::EIO)?;
        self.shard().counters.tx.sends.one();
        if let EmitKind::PutDone(done) | EmitKind::GetDone(done) = kind
            && done.status > 0
            && let Some(OpData::Send { source, .. } | OpData::Reply { source, .. }) = item
        {
            let staged =
                Piece { address: address + STAGED_AT as u64, length: source.bytes, key: transmit.key };
            self.gather_source(source, staged, pieces, buffer)?;
            let target = (&source.target, source.bytes);
            let written = batch.add_writes(self.limits, pieces, target, id.bits());
            let writes = written.map_err(|error| error.errno())?;
            self.shard().counters.tx.writes.add(writes as usize);
        }
        let head = self.link.head(credits);
        // The pieces of the payload, if it is sent from its own memory.
        let mut gathered: SmallVec<[Piece; GATHERED_PIECES]> = SmallVec::new();
        let emitted = match (kind, item) {
            (EmitKind::Immediate, Some(OpData::Send { header, source, .. })) => {
                self.emit_immediate(&head, header, source, buffer, &mut gathered)
            }
            _ => match body_of(kind, item) {
                Ok(Some(body)) => Message { head, body }.emit(buffer),
                // An item of another kind than the message is an error of the driver.
                Ok(None) => return Err(Errno::EIO),
                Err(error) => Err(error),
            },
        };
        let length = emitted.map_err(|error| {
            tracing::error!(peer = %self.peer.key.id.nid, %error, "cannot encode a message");
            Errno::EIO
        })?;
        if kind == EmitKind::Noop {
            self.shard().counters.tx.noops.one();
        }
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

    /// Emits an IMMEDIATE. Its payload is copied behind it, or is sent from its own memory, whose
    /// pieces are added to `gathered`.
    fn emit_immediate(
        &self,
        head: &Head,
        header: &Header,
        source: &PayloadSource,
        buffer: &mut [u8],
        gathered: &mut SmallVec<[Piece; GATHERED_PIECES]>,
    ) -> Result<usize, ProtoError> {
        let length = emit_immediate(head, header, buffer)?;
        if let Some(payload) = &source.payload {
            let counters = &self.shard().counters.tx;
            if self.gathers(payload, gathered) {
                counters.bytes_direct.add(payload.len());
            } else {
                let place = MessageKind::Immediate.min_len()..length;
                counters.bytes_copied.add(payload.copy_to(0, &mut buffer[place]));
            }
        }
        Ok(length)
    }

    /// Collects the pieces that a transfer is written from: those of its payload, or of a copy. A
    /// staged payload is copied into the message buffer, at `staged`.
    fn gather_source(
        &self,
        source: &PayloadSource,
        staged: Piece,
        pieces: &mut Vec<Piece>,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        let counters = &self.shard().counters.tx;
        pieces.clear();
        match (&source.memory, &source.payload) {
            (SourceMemory::Payload, Some(payload)) => {
                source_of(self.device(), payload, pieces).ok_or(Errno::ENOMEM)?;
                counters.bytes_direct.add(source.bytes as usize);
            }
            (SourceMemory::Message, Some(payload)) => {
                let place = STAGED_AT..STAGED_AT + source.bytes as usize;
                counters.bytes_copied.add(payload.copy_to(0, &mut buffer[place]));
                pieces.push(staged);
            }
            (SourceMemory::Bounce(bounce), _) => pieces.push(bounce.piece()),
            (SourceMemory::Payload | SourceMemory::Message, None) => return Err(Errno::EIO),
        }
        Ok(())
    }

    /// Adds the pieces of a payload's own memory to `pieces` if the payload is to be sent from
    /// there, behind the message's own bytes; returns whether it is. With checksums it is not,
    /// because a checksum is computed over contiguous bytes.
    fn gathers(&self, payload: &ReadVec, pieces: &mut SmallVec<[Piece; GATHERED_PIECES]>) -> bool {
        let most = self.limits.pieces.min(GATHERED_PIECES) - 1;
        !self.cksum && payload.len() >= GATHERED_MIN && gather(self.device(), payload, most, pieces)
    }
}

/// Returns the body of any message but an IMMEDIATE; `None` if the item is not of the message's
/// kind.
fn body_of(kind: EmitKind, item: Option<&OpData>) -> Result<Option<Body<'_>>, ProtoError> {
    Ok(Some(match (kind, item) {
        (EmitKind::Noop, _) => Body::Noop,
        (EmitKind::PutReq { cookie }, Some(OpData::Send { header, .. })) => {
            Body::PutReq { header: *header, cookie }
        }
        (EmitKind::GetReq { cookie }, Some(OpData::Get { header, sink, .. })) => {
            Body::GetReq { header: *header, cookie, descriptor: sink.described.descriptor()? }
        }
        (EmitKind::PutAck { source, sink: own }, Some(OpData::Receive { sink, .. })) => {
            Body::PutAck { source, sink: own, descriptor: sink.described.descriptor()? }
        }
        (EmitKind::PutNak(done), _) => Body::PutNak(done),
        (EmitKind::PutDone(done), _) => Body::PutDone(done),
        (EmitKind::GetDone(done), _) => Body::GetDone(done),
        _ => return Ok(None),
    }))
}
