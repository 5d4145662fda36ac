//! Reports events to the engine, and carries out its verdicts. No lock of a connection is held
//! during the upcalls.

use lnet_lnd::{ConnFailure, HeldMemory, HoldDecision};
use std::sync::Arc;

use lnet_api::{Arrival, Errno, PayloadTarget, RxContext, TxToken, Verdict};
use lnet_proto::ib::MessageKind;
use lnet_proto::{Header, MessageType};
use lnet_region::{ReadVec, WriteVec};
use smallvec::SmallVec;

use super::Driver;
use super::rx_conn::{Reposts, RxConn};
use super::source::EventSource;
use crate::conn::{EndedOp, OpKey, Receipt};
use crate::connection::Connection;
use crate::counters::{LiveRx, LiveTx};
use crate::fabric::COMPLETIONS_PER_LOOK;
use crate::memory::{BounceResult, Waiter, WaiterId, register_sink, warn_failed};
use crate::o2ib::Turn;
use crate::op_data::{
    AskedGet, Described, HeldMessage, OpData, PayloadReceiver, PendingGet, Sink, UNNAMED, name_of_get,
};
use crate::replies;
use lnet_lnd::closing::close_broken;
use lnet_lnd::counting::Counters;
use lnet_lnd::shard_table::ShardKey;

/// An event for the engine, noted under the connection's lock and reported after it.
#[allow(
    clippy::large_enum_variant,
    reason = "they are in a list that is kept: a box would be an allocation for each"
)]
pub(super) enum Event {
    /// A whole message was received; its payload is in a receive buffer.
    Immediate { index: usize, receipt: Receipt, header: Header, payload: usize },
    /// The peer announces a payload.
    PutReq { operation: OpKey, header: Header },
    /// The peer requests data.
    GetReq { operation: OpKey, header: Header },
    /// An operation has ended.
    Ended(EndedOp<OpData>),
}

/// Tokens of sent messages, reported in one call.
type SentTokens = SmallVec<[TxToken; COMPLETIONS_PER_LOOK]>;

impl Driver {
    /// Reports all events to the engine, in order.
    pub(super) fn report(
        &mut self,
        turn: Turn<'_>,
        key: ShardKey,
        conn: &Arc<Connection>,
        events: &mut Vec<Event>,
    ) {
        if events.is_empty() {
            return;
        }
        let upcalls = &*conn.ni().upcalls;
        let mut sent = SentTokens::new();
        let mut reposts = Reposts::new();
        let mut broken = None;
        for event in events.drain(..) {
            match event {
                Event::Ended(EndedOp { item: OpData::Send { token, source, .. }, outcome: Ok(_) }) => {
                    // The lease ends before the engine is notified that the message has ended.
                    drop(source);
                    sent.push(token);
                    continue;
                }
                event => {
                    if !sent.is_empty() {
                        upcalls.finalize_txs(&sent, Ok(()));
                        sent.clear();
                    }
                    let result = match event {
                        Event::Ended(ended) => {
                            if let Some((name, payload)) = end(conn, &turn.shard.counters, ended) {
                                self.core.held.came(turn, name, Some(payload));
                            }
                            Ok(())
                        }
                        Event::Immediate { index, receipt, header, payload } => {
                            self.immediate(turn, key, conn, (index, receipt, payload), &header, &mut reposts)
                        }
                        Event::PutReq { operation, header } => self.put_req(turn, conn, operation, &header),
                        Event::GetReq { operation, header } => get_req(turn, conn, operation, &header),
                    };
                    if let Err(errno) = result {
                        broken.get_or_insert(errno);
                    }
                }
            }
        }
        if !sent.is_empty() {
            upcalls.finalize_txs(&sent, Ok(()));
        }
        self.repost_buffers(turn, key, &mut reposts);
        if let Some(errno) = broken {
            close_broken(
                self,
                turn,
                key,
                ConnFailure::broke(errno, "LNet rejects a message of the peer as invalid"),
            );
        }
    }

    /// Posts buffers again whose payloads have been copied, and sends the messages that were queued
    /// during the upcalls.
    fn repost_buffers(&mut self, turn: Turn<'_>, key: ShardKey, reposts: &mut Reposts) {
        let Some(rx) = self.sources.get(key).and_then(EventSource::conn) else { return };
        let mut guard = rx.conn.state.lock();
        let state = &mut *guard;
        let Some(live) = &mut state.live else { return };
        match rx.repost(live, reposts) {
            Ok(()) => rx.conn.pump(state, turn.now_ns),
            Err(errno) => rx.conn.break_off(state, errno),
        }
    }

    /// Passes an IMMEDIATE to the engine, and carries out the verdict.
    fn immediate(
        &mut self,
        turn: Turn<'_>,
        key: ShardKey,
        conn: &Arc<Connection>,
        (index, receipt, payload): (usize, Receipt, usize),
        header: &Header,
        reposts: &mut Reposts,
    ) -> Result<(), Errno> {
        // A GET is answered by an ordinary message, so only a PUT needs a name.
        let may_wait = header.message_type() == MessageType::Put;
        let name = if may_wait { self.core.held.next() } else { UNNAMED };
        let verdict = parse(conn, header, name);
        if let Verdict::Delay(token) | Verdict::Stay(token) = verdict {
            if !may_wait {
                conn.ni().upcalls.forget_delayed(token);
                return Err(Errno::EPROTO);
            }
            let from = (&conn.peer, conn.key);
            let admitted = match verdict {
                Verdict::Delay(_) => self.core.held.admit(turn, from, token, payload, HeldMemory::Heap),
                _ => HoldDecision::Conn,
            };
            match admitted {
                HoldDecision::Memory(name, sink) => {
                    let rx = self.sources.get(key).and_then(EventSource::conn);
                    let copied = rx.and_then(|rx| rx.copy(index, payload, sink?));
                    turn.shard.counters.rx.bytes_copied.add(payload);
                    self.core.held.came(turn, name, copied);
                }
                HoldDecision::Conn => {
                    let held = HeldMessage::Immediate { buffer: index, receipt, payload };
                    self.core.held.keep(turn, from, token, held);
                    return Ok(());
                }
                HoldDecision::Dropped => turn.shard.counters.rx.discards.one(),
            }
            reposts.push((index, receipt));
            return Ok(());
        }
        if let Some(rx) = self.sources.get(key).and_then(EventSource::conn) {
            match verdict {
                Verdict::Deliver(delivery) => rx.deliver(turn, conn, index, payload, delivery),
                Verdict::Done | Verdict::Discard | Verdict::Delay(_) | Verdict::Stay(_) => {
                    if payload > 0 {
                        turn.shard.counters.rx.discards.one();
                    }
                }
                Verdict::Close(errno) => return Err(errno),
            }
            reposts.push((index, receipt));
        }
        Ok(())
    }

    /// Passes the header of a PUT_REQ to the engine, and carries out the verdict.
    fn put_req(
        &mut self,
        turn: Turn<'_>,
        conn: &Arc<Connection>,
        operation: OpKey,
        header: &Header,
    ) -> Result<(), Errno> {
        let payload = header.payload_length;
        match parse(conn, header, self.core.held.next()) {
            Verdict::Delay(token) => {
                let from = (&conn.peer, conn.key);
                match self.core.held.admit(turn, from, token, payload as usize, HeldMemory::Pages) {
                    HoldDecision::Memory(name, Some(sink)) => {
                        register_sink(conn.ni(), &sink, turn.now_ns);
                        if conn.describe(&sink, payload as usize).is_ok() {
                            receive_into(turn, conn, operation, payload, PayloadReceiver::Memory(name), sink);
                        } else {
                            // Bounce buffers are only for payloads whose sink is known, and the
                            // sink of this one is not.
                            drop(sink);
                            if !self.core.held.stay(turn, name, HeldMessage::PutReq { operation, payload }) {
                                take_put(turn, conn, operation, payload, None);
                            }
                        }
                    }
                    HoldDecision::Memory(name, None) => {
                        refuse_put(conn, operation, Ok(()));
                        self.core.held.came(turn, name, None);
                    }
                    HoldDecision::Conn => {
                        self.core.held.keep(turn, from, token, HeldMessage::PutReq { operation, payload });
                    }
                    HoldDecision::Dropped => take_put(turn, conn, operation, payload, None),
                }
            }
            Verdict::Stay(token) => {
                let held = HeldMessage::PutReq { operation, payload };
                self.core.held.keep(turn, (&conn.peer, conn.key), token, held);
            }
            Verdict::Deliver(delivery) => take_put(turn, conn, operation, payload, Some(delivery)),
            Verdict::Done | Verdict::Discard => take_put(turn, conn, operation, payload, None),
            Verdict::Close(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Resumes a message that was held back.
    pub(super) fn resume_held(
        &mut self,
        turn: Turn<'_>,
        key: ShardKey,
        held: HeldMessage,
        delivery: Option<PayloadTarget>,
    ) {
        let Some(rx) = self.sources.get(key).and_then(EventSource::conn) else { return };
        let conn = rx.conn.clone();
        match held {
            HeldMessage::PutReq { operation, payload } => take_put(turn, &conn, operation, payload, delivery),
            HeldMessage::Immediate { buffer, receipt, payload } => {
                match delivery {
                    Some(delivery) => rx.deliver(turn, &conn, buffer, payload, delivery),
                    None => turn.shard.counters.rx.discards.one(),
                }
                let mut reposts = Reposts::new();
                reposts.push((buffer, receipt));
                self.repost_buffers(turn, key, &mut reposts);
            }
        }
    }

    /// Resumes an operation for which a bounce buffer is free, if it still needs one.
    pub(super) fn resume_operation(&mut self, conn: &Arc<Connection>, operation: OpKey) {
        let receives = {
            let mut guard = conn.state.lock();
            let state = &mut *guard;
            let item = state.live.as_mut().and_then(|live| live.machine.item(operation));
            let receives = matches!(item, Some(OpData::Receive { .. }));
            if !receives && item.is_some() {
                conn.prepare(state, operation);
                conn.pump(state, conn.shard().own.now_ns());
            }
            receives
        };
        if receives {
            prepare_sink(conn, operation);
        }
        let waiter_id = WaiterId::operation(conn, operation);
        conn.ni().own.pool.waiter_done(waiter_id);
        conn.ni().own.sinks.waiter_done(waiter_id);
    }
}

impl RxConn {
    /// Copies a payload out of a receive buffer into new memory.
    fn copy(&self, index: usize, payload: usize, mut memory: WriteVec) -> Option<ReadVec> {
        let start = MessageKind::Immediate.min_len();
        memory.copy_from(0, self.receive.bytes(index, start + payload)?.get(start..)?);
        Some(memory.into_read())
    }

    /// Copies a payload out of a receive buffer into the engine's sink.
    fn deliver(
        &self,
        turn: Turn<'_>,
        conn: &Connection,
        index: usize,
        payload: usize,
        delivery: PayloadTarget,
    ) {
        let PayloadTarget { token, sink } = delivery;
        let start = MessageKind::Immediate.min_len();
        let bytes = self.receive.bytes(index, start + payload).and_then(|bytes| bytes.get(start..));
        if let (Some(mut sink), Some(bytes)) = (sink, bytes) {
            turn.shard.counters.rx.bytes_copied.add(sink.copy_from(0, bytes));
        }
        conn.ni().upcalls.finalize_rx(token, Ok(()));
    }
}

/// Returns the engine's verdict on a message.
fn parse(conn: &Connection, header: &Header, rx: RxContext) -> Verdict {
    conn.ni().upcalls.parse(&Arrival { ni: conn.ni().id.nid, from: conn.peer.key.id, header, host: None, rx })
}

/// Handles a request for data. The engine may answer during the upcall, or later, from any thread.
fn get_req(turn: Turn<'_>, conn: &Arc<Connection>, operation: OpKey, header: &Header) -> Result<(), Errno> {
    let name = turn.shard.own.gets.lock().insert(AskedGet { conn: conn.clone(), operation });
    match parse(conn, header, name_of_get(name)) {
        Verdict::Done => return Ok(()),
        Verdict::Close(errno) => {
            turn.shard.own.gets.lock().remove(name);
            return Err(errno);
        }
        Verdict::Discard => {}
        // A GET has no payload to receive, so it is finished here.
        Verdict::Deliver(PayloadTarget { token, sink }) => {
            drop(sink);
            conn.ni().upcalls.finalize_rx(token, Ok(()));
        }
        Verdict::Delay(token) | Verdict::Stay(token) => {
            conn.ni().upcalls.forget_delayed(token);
        }
    }
    if turn.shard.own.gets.lock().remove(name).is_some() {
        let mut guard = conn.state.lock();
        let state = &mut *guard;
        if let Some(live) = &mut state.live {
            match live.machine.done(operation, Err(Errno::ENODATA), 0, conn.answer_deadline_ns()) {
                Ok(()) => conn.pump_or_leave(state),
                Err(error) => conn.break_off(state, error.errno()),
            }
        }
    }
    Ok(())
}

/// Answers a PUT_REQ: with the sink of its payload, or with a PUT_NAK if no payload is wanted.
fn take_put(
    turn: Turn<'_>,
    conn: &Arc<Connection>,
    operation: OpKey,
    payload: u32,
    delivery: Option<PayloadTarget>,
) {
    let (token, sink) = match delivery {
        Some(PayloadTarget { token, sink }) => {
            (Some(token), sink.filter(|sink| !sink.is_empty() && payload > 0))
        }
        None => (None, None),
    };
    let (Some(token), Some(sink)) = (token, sink) else {
        turn.shard.counters.rx.discards.one();
        refuse_put(conn, operation, Ok(()));
        if let Some(token) = token {
            conn.ni().upcalls.finalize_rx(token, Ok(()));
        }
        return;
    };
    receive_into(turn, conn, operation, payload, PayloadReceiver::Engine(token), sink);
}

/// Answers a PUT_REQ so that the peer writes the payload into this memory.
fn receive_into(
    turn: Turn<'_>,
    conn: &Arc<Connection>,
    operation: OpKey,
    payload: u32,
    receiver: PayloadReceiver,
    mut sink: WriteVec,
) {
    drop(sink.split_off(payload as usize));
    register_sink(conn.ni(), &sink, turn.now_ns);
    let sink = Sink { vec: sink, described: Described::default(), bounce: None };
    let attached = {
        let mut state = conn.state.lock();
        match &mut state.live {
            Some(live) => live.machine.attach(operation, OpData::Receive { receiver, sink }),
            None => Err(OpData::Receive { receiver, sink }),
        }
    };
    match attached {
        Ok(()) => prepare_sink(conn, operation),
        Err(item) => {
            drop(item);
            receiver.ended(conn, Err(Errno::ECONNRESET));
        }
    }
}

/// Sends the sink's description to the peer, once the memory can be described.
fn prepare_sink(conn: &Arc<Connection>, operation: OpKey) {
    let mut guard = conn.state.lock();
    let state = &mut *guard;
    let Some(live) = &mut state.live else { return };
    let Some(OpData::Receive { sink, .. }) = live.machine.item(operation) else { return };
    let bytes = sink.vec.len();
    match conn.describe(&sink.vec, bytes) {
        Ok(described) => sink.described = described,
        Err(error) => match conn.ni().own.sinks.take(
            conn.device(),
            bytes,
            conn.shard().own.now_ns(),
            Waiter::Operation(conn.clone(), operation),
        ) {
            BounceResult::Bounce(mut bounce, _) => {
                sink.described = bounce.described();
                sink.bounce = Some(bounce);
            }
            BounceResult::Later => return conn.shard().counters.tx.bounces_awaited.one(),
            BounceResult::Never(_) => {
                drop(guard);
                let errno = warn_failed(conn, &error, error.errno());
                return refuse_put(conn, operation, Err(errno));
            }
        },
    }
    match live.machine.ack(operation, bytes as u32, conn.answer_deadline_ns()) {
        Ok(()) => conn.pump_or_leave(state),
        Err(error) => conn.break_off(state, error.errno()),
    }
}

/// Answers a PUT_REQ with PUT_NAK: nothing is wanted, or the payload cannot be taken.
fn refuse_put(conn: &Arc<Connection>, operation: OpKey, reason: Result<(), Errno>) {
    let item = {
        let mut guard = conn.state.lock();
        let state = &mut *guard;
        let Some(live) = &mut state.live else { return };
        match live.machine.nak(operation, reason, conn.answer_deadline_ns()) {
            Ok(item) => {
                conn.pump_or_leave(state);
                item
            }
            Err(error) => return conn.break_off(state, error.errno()),
        }
    };
    if let Some(OpData::Receive { receiver, sink }) = item {
        drop(sink);
        receiver.ended(conn, reason);
    }
}

/// Fails a transfer for which no bounce buffer became free in time; its connection continues.
pub(super) fn give_up(waiter: Waiter) {
    const WHY: &str = "it has waited too long for a bounce buffer; use registered memory";
    let (conn, operation) = match waiter {
        Waiter::Operation(conn, operation) => (conn, operation),
        Waiter::Get(pending) => {
            let PendingGet { conn, token, sink, .. } = *pending;
            return conn.fail_get(token, sink, warn_failed(&conn, &WHY, Errno::ETIMEDOUT));
        }
    };
    {
        let mut guard = conn.state.lock();
        let state = &mut *guard;
        let Some(live) = &mut state.live else { return };
        match live.machine.item(operation) {
            None => return,
            Some(OpData::Receive { .. }) => {}
            Some(_) => {
                let errno = warn_failed(&conn, &WHY, Errno::ETIMEDOUT);
                return match live.machine.done(operation, Err(errno), 0, conn.answer_deadline_ns()) {
                    Ok(()) => conn.pump(state, conn.shard().own.now_ns()),
                    Err(error) => conn.break_off(state, error.errno()),
                };
            }
        }
    }
    refuse_put(&conn, operation, Err(warn_failed(&conn, &WHY, Errno::ETIMEDOUT)));
}

/// Reports the end of an operation to the engine. Returns the name and payload of a held message
/// that is now in memory.
pub(super) fn end(
    conn: &Connection,
    counters: &Counters<LiveTx, LiveRx>,
    ended: EndedOp<OpData>,
) -> Option<(ShardKey, ReadVec)> {
    let upcalls = &*conn.ni().upcalls;
    let EndedOp { item, outcome } = ended;
    let settle = |mut sink: Sink, outcome: Result<u32, Errno>| {
        if let Ok(bytes) = outcome {
            let copied = sink.settle(bytes);
            counters.rx.bytes_bounced.add(copied);
            counters.rx.bytes_direct.add(bytes as usize - copied);
        }
        sink.vec
    };
    match item {
        OpData::Send { token, source, .. } => {
            drop(source);
            upcalls.finalize_tx(token, outcome.map(|_| ()));
        }
        OpData::Get { token, sink, .. } => {
            let outcome = outcome.and_then(|bytes| replies::check(conn, &sink.described, bytes));
            let vec: WriteVec = settle(sink, outcome);
            drop(vec);
            upcalls.finalize_get(token, outcome);
        }
        OpData::Receive { receiver, sink } => {
            let vec = settle(sink, outcome);
            if let (PayloadReceiver::Memory(name), Ok(_)) = (receiver, outcome) {
                return Some((name, vec.into_read()));
            }
            drop(vec);
            receiver.ended(conn, outcome.map(|_| ()));
        }
        OpData::Reply { token, source } => {
            drop(source);
            if let Some(token) = token {
                upcalls.finalize_tx(token, outcome.map(|_| ()));
            }
        }
    }
    None
}
