//! Processing of completions: under the connection's lock its rules are applied; the resulting
//! events are reported to the engine afterwards (`events.rs`).

use lnet_api::Errno;
use lnet_proto::ib::{Body, Message, verify_checksum};

use super::Driver;
use super::events::Event;
use super::rx_conn::{Reposts, RxConn};
use super::source::EventSource;
use crate::ConnStep;
use crate::buffers::receive_index;
use crate::conn::{EndedOp, ReceivedMessage};
use crate::connection::{ConnState, Connection};
use crate::fabric::{WorkCompletion, WorkError};
use crate::o2ib::Turn;
use crate::op_data::{Described, OpData, PayloadSource};
use lnet_lnd::ConnFailure;
use lnet_lnd::closing::close_broken;
use lnet_lnd::life::sign_period_ns;
use lnet_lnd::shard_table::ShardKey;

impl Driver {
    /// Processes the completions of a connection; returns their number, or `None` if the connection
    /// is gone.
    pub(super) fn digest(&mut self, turn: Turn<'_>, key: ShardKey) -> Option<usize> {
        let mut events = std::mem::take(&mut self.events);
        let Some(rx) = self.sources.get_mut(key).and_then(EventSource::conn_mut) else {
            self.events = events;
            return None;
        };
        let conn = rx.conn.clone();
        let (count, broken) = rx.poll_completions(turn, &mut events);
        if count > 0 {
            self.report(turn, key, &conn, &mut events);
        }
        self.events = events;
        if let Some(broken) = broken {
            close_broken(self, turn, key, broken);
        }
        if count > 0 && !conn.peer.state.lock().waiting.is_empty() {
            self.flush_waiting(&conn.peer);
        }
        self.sources.get(key).and_then(EventSource::conn).map(|_| count)
    }
}

impl RxConn {
    /// Polls the connection once, and adds the events for the engine to `events`. Returns the
    /// number of completions, and the reason for closing the connection, if there is one.
    fn poll_completions(&mut self, turn: Turn<'_>, events: &mut Vec<Event>) -> (usize, Option<ConnFailure>) {
        let conn = self.conn.clone();
        let mut guard = conn.state.lock();
        let state = &mut *guard;
        let Some(live) = &mut state.live else { return (0, None) };
        let mut done = std::mem::take(&mut self.stash);
        if done.is_empty()
            && let Err(errno) = live.endpoint.poll(&mut done)
        {
            return (0, Some(ConnFailure::gone(errno, "the completion queue has broken")));
        }
        self.awaits_sends = live.machine.posted() > 0;
        if done.is_empty() {
            return (0, None);
        }
        let count = done.len();
        let mut reposts = Reposts::new();
        for completion in done.drain(..) {
            let taken = match receive_index(completion.id) {
                Some(index) => {
                    self.received_ns = turn.now_ns;
                    self.received(turn, state, index, &completion, events, &mut reposts)
                }
                None => sent(state, &completion, events),
            };
            if let Err(broken) = taken {
                return (count, Some(broken));
            }
        }
        let Some(live) = &mut state.live else { return (count, None) };
        if let Err(errno) = self.repost(live, &mut reposts) {
            return (count, Some(ConnFailure::gone(errno, "receives cannot be posted")));
        }
        // The engine may send messages on these events, which return the credits: a NOOP before
        // them would be superfluous.
        if events.is_empty() || live.machine.queued() > 0 {
            conn.pump(state, turn.now_ns);
        }
        state.corked = !events.is_empty();
        (count, None)
    }

    /// Processes a received message.
    fn received(
        &mut self,
        turn: Turn<'_>,
        state: &mut ConnState,
        index: usize,
        completion: &WorkCompletion,
        events: &mut Vec<Event>,
        reposts: &mut Reposts,
    ) -> Result<(), ConnFailure> {
        completion.status.map_err(of_work)?;
        let Some(live) = &mut state.live else { return Ok(()) };
        let conn = &self.conn;
        let message = read(conn, self.receive.bytes(index, completion.length as usize), turn)?;
        let received = live.machine.received(&message);
        let (receipt, received) = received.map_err(|error| ConnFailure::broke(error.errno(), error))?;
        let counters = &turn.shard.counters.rx;
        match (received, message.body) {
            (ReceivedMessage::Immediate, Body::Immediate { header, payload }) => {
                counters.messages.one();
                // The buffer is kept until its payload has been copied.
                events.push(Event::Immediate { index, receipt, header, payload: payload.len() });
                return Ok(());
            }
            (ReceivedMessage::PutReq(operation), Body::PutReq { header, .. }) => {
                counters.messages.one();
                events.push(Event::PutReq { operation, header });
            }
            (ReceivedMessage::GetReq(operation), Body::GetReq { header, descriptor, .. }) => {
                counters.messages.one();
                if header.dest.nid != conn.link.local.nid {
                    let detail = format!(
                        "it sends a GET_REQ for {} to this node, which does not route requests",
                        header.dest.nid
                    );
                    return Err(ConnFailure::broke(Errno::EPROTO, detail));
                }
                let source = PayloadSource { target: Described::of(&descriptor), ..PayloadSource::default() };
                // This cannot fail, as the operation is new and has no item.
                let _ = live.machine.attach(operation, OpData::Reply { token: None, source });
                events.push(Event::GetReq { operation, header });
            }
            (ReceivedMessage::PutAck { put, length }, Body::PutAck { descriptor, .. }) => {
                if let Some(OpData::Send { source, .. }) = live.machine.item(put) {
                    source.target = Described::of(&descriptor);
                    source.bytes = length;
                }
                live.machine.renew(put, conn.answer_deadline_ns());
                conn.prepare(state, put);
            }
            (ReceivedMessage::Ended(ended), _) => events.push(Event::Ended(ended)),
            (_, Body::Noop) => {
                counters.noops.one();
                // A peer that holds messages back sends signs of life, and waits on only while it
                // receives some from this side.
                let period_ns = sign_period_ns(conn.ni().timeout_ns);
                if live.machine.progress().is_some() && turn.now_ns >= self.answered_ns + period_ns / 2 {
                    self.answered_ns = turn.now_ns;
                    live.machine.send_sign_of_life();
                }
            }
            _ => {}
        }
        reposts.push((index, receipt));
        Ok(())
    }
}

/// Reads and checks the message in these bytes of a receive buffer.
fn read<'a>(conn: &Connection, bytes: Option<&'a [u8]>, turn: Turn<'_>) -> Result<Message<'a>, ConnFailure> {
    let wrong = || {
        ConnFailure::gone(
            Errno::EIO,
            "the device reports a receive without such a buffer or of such a length",
        )
    };
    let bytes = bytes.ok_or_else(wrong)?;
    if conn.cksum && verify_checksum(bytes).is_err() {
        turn.shard.counters.rx.checksum_errors.one();
    }
    let message = Message::parse(bytes).map_err(|error| ConnFailure::said(ConnStep::Established, &error))?;
    conn.link.check(&message.head).map_err(|error| ConnFailure::said(ConnStep::Established, &error))?;
    Ok(message)
}

/// Processes the completion of a send.
fn sent(
    state: &mut ConnState,
    completion: &WorkCompletion,
    events: &mut Vec<Event>,
) -> Result<(), ConnFailure> {
    completion.status.map_err(of_work)?;
    let Some(live) = &mut state.live else { return Ok(()) };
    let ended: Option<EndedOp<OpData>> =
        live.machine.completed(completion.id).map_err(|error| ConnFailure::broke(error.errno(), error))?;
    events.extend(ended.map(Event::Ended));
    Ok(())
}

/// Returns the failure that a failed work request causes.
fn of_work(error: WorkError) -> ConnFailure {
    match error {
        WorkError::Flushed => ConnFailure::gone(Errno::ECONNRESET, "the connection has ended"),
        WorkError::RetriesExceeded => {
            ConnFailure::gone(Errno::ETIMEDOUT, "the peer's device does not answer")
        }
        WorkError::NoReceiver => {
            ConnFailure::gone(Errno::EIO, "the peer has posted fewer receives than the protocol demands")
        }
        WorkError::RemoteAccess => ConnFailure::gone(
            Errno::EIO,
            "the peer's device refuses a write: its memory is not registered there any more",
        ),
        WorkError::Other(status) => {
            ConnFailure::gone(Errno::EIO, format!("a work request failed with status {status}"))
        }
    }
}
