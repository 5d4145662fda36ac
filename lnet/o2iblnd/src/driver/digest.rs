//! What comes of completions: under the lock of the connection what its rules make of them, and afterwards what the engine is
//! told (`events.rs`).

use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::{Body, Message, verify_checksum};
use smallvec::SmallVec;

use super::events::Event;
use super::{Driver, Source, Turn};
use crate::Step;
use crate::buffers::{Receive, place_of};
use crate::conn::{Ended, Receipt, Received};
use crate::connection::{Connection, Live, State};
use crate::fabric::{COMPLETIONS_PER_LOOK, Completion, Completions, ReceiveWork, WorkError};
use crate::item::{Described, Item, Source as Payload};
use lnet_lnd::Miss;
use lnet_lnd::admission::Guest;
use lnet_lnd::slab::Key;

/// Receive buffers that are to be posted again, each with what that makes possible.
pub(super) type Reposts = SmallVec<[(usize, Receipt); COMPLETIONS_PER_LOOK]>;

/// How often who is about to sleep looks for the completions of sends that have not completed: devices take a microsecond or two
/// for that, which is less than it takes to sleep and to be woken.
const SHORT_LOOKS: usize = 16;

/// A connection as its driver has it.
pub(super) struct RxConn {
    pub(super) conn: Arc<Connection>,
    pub(super) receive: Receive,
    /// It is looked at by each poll, for it is not armed.
    pub(super) busy: bool,
    /// For so many polls nothing has come on it.
    pub(super) idle: u32,
    /// Sends had not completed when it was looked at last.
    awaits_sends: bool,
    /// The progress of its own operations, and the first look at which it was that.
    pub(super) progress_mark: Option<(u64, u64)>,
    /// What came when it was armed, or shortly before.
    stash: Completions,
    /// It counts as long as the connection stands, if the peer has opened it.
    _guest: Option<Guest>,
}

impl RxConn {
    pub(super) fn new(conn: Arc<Connection>, receive: Receive, guest: Option<Guest>) -> RxConn {
        RxConn {
            conn,
            receive,
            busy: false,
            idle: 0,
            awaits_sends: false,
            progress_mark: None,
            stash: Completions::new(),
            _guest: guest,
        }
    }

    /// Arms it; `false` if something has come.
    pub(super) fn arm(&mut self) -> bool {
        if !self.stash.is_empty() || self.awaits_sends && self.look_for_sends() {
            return false;
        }
        let state = self.conn.state.lock();
        // A connection that is closed has nothing more to tell.
        let Some(live) = &state.live else { return true };
        let armed = live.endpoint.arm().and_then(|()| live.endpoint.poll(&mut self.stash));
        // What is wrong with it, the next look will show.
        armed.is_ok() && self.stash.is_empty()
    }

    /// Whether sends are to be carried out by a program, which needs a processor.
    pub(super) fn awaits_program(&self) -> bool {
        self.awaits_sends && self.conn.device().is_program()
    }

    /// Looks for completions a little longer.
    fn look_for_sends(&mut self) -> bool {
        let looks = if self.awaits_program() { 0 } else { SHORT_LOOKS };
        (0..looks).any(|_| {
            std::hint::spin_loop();
            let state = self.conn.state.lock();
            let looked = state.live.as_ref().map_or(Ok(()), |live| live.endpoint.poll(&mut self.stash));
            // What is wrong with it, the next look will show.
            looked.is_err() || !self.stash.is_empty()
        })
    }

    /// Posts receive buffers again, and tells the rules.
    pub(super) fn repost(&self, live: &mut Live, reposts: &mut Reposts) -> Result<(), Errno> {
        if reposts.is_empty() {
            return Ok(());
        }
        let works: SmallVec<[ReceiveWork; COMPLETIONS_PER_LOOK]> =
            reposts.iter().map(|(place, _)| self.receive.work(*place)).collect();
        live.endpoint.post_receives(&works).map_err(|error| error.errno)?;
        reposts.drain(..).for_each(|(_, receipt)| live.machine.reposted(receipt));
        Ok(())
    }
}

impl Driver {
    /// Takes the completions of a connection; gives how many there were, or `None` if it is gone.
    pub(super) fn digest(&mut self, turn: Turn<'_>, key: Key) -> Option<usize> {
        let mut events = std::mem::take(&mut self.events);
        let Some(Source::Conn(rx)) = self.sources.get_mut(key) else {
            self.events = events;
            return None;
        };
        let conn = rx.conn.clone();
        let (count, broken) = rx.look(turn, &mut events);
        if count > 0 {
            self.tell(turn, key, &conn, &mut events);
        }
        self.events = events;
        if let Some(broken) = broken {
            self.close_broken(turn, key, broken);
        }
        if count > 0 && !conn.peer.state.lock().waiting.is_empty() {
            self.flush_waiting(&conn.peer);
        }
        matches!(self.sources.get(key), Some(Source::Conn(_))).then_some(count)
    }
}

impl RxConn {
    /// Looks once. What the engine is to be told joins the events; gives how many completions there were, and why the connection
    /// is at its end, if it is.
    fn look(&mut self, turn: Turn<'_>, events: &mut Vec<Event>) -> (usize, Option<Miss>) {
        let conn = self.conn.clone();
        let mut guard = conn.state.lock();
        let state = &mut *guard;
        let Some(live) = &mut state.live else { return (0, None) };
        let mut done = std::mem::take(&mut self.stash);
        if done.is_empty()
            && let Err(errno) = live.endpoint.poll(&mut done)
        {
            return (0, Some(Miss::gone(errno, "the completion queue has broken")));
        }
        self.awaits_sends = live.machine.posted() > 0;
        if done.is_empty() {
            return (0, None);
        }
        let count = done.len();
        let mut reposts = Reposts::new();
        for completion in done.drain(..) {
            let taken = match place_of(completion.id) {
                Some(place) => self.received(turn, state, place, &completion, events, &mut reposts),
                None => sent(state, &completion, events),
            };
            if let Err(broken) = taken {
                return (count, Some(broken));
            }
        }
        let Some(live) = &mut state.live else { return (count, None) };
        if let Err(errno) = self.repost(live, &mut reposts) {
            return (count, Some(Miss::gone(errno, "receives cannot be posted")));
        }
        // What the engine is told may make messages, which take the credits along: no NOOP is to do it before.
        if events.is_empty() || live.machine.queued() > 0 {
            conn.pump(state, turn.now_ns);
        }
        state.corked = !events.is_empty();
        (count, None)
    }

    /// A message has come.
    fn received(
        &self,
        turn: Turn<'_>,
        state: &mut State,
        place: usize,
        completion: &Completion,
        events: &mut Vec<Event>,
        reposts: &mut Reposts,
    ) -> Result<(), Miss> {
        completion.status.map_err(of_work)?;
        let Some(live) = &mut state.live else { return Ok(()) };
        let conn = &self.conn;
        let bytes = self.receive.bytes(place, completion.length as usize);
        let wrong = || Miss::gone(Errno::EIO, "the device tells of a receive that cannot be");
        let bytes = bytes.ok_or_else(wrong)?;
        if conn.cksum && verify_checksum(bytes).is_err() {
            turn.shard.counters.rx.checksum_errors.one();
        }
        let message = Message::parse(bytes).map_err(|error| Miss::said(Step::Established, &error))?;
        conn.link.check(&message.head).map_err(|error| Miss::said(Step::Established, &error))?;
        let received = live.machine.received(&message);
        let (receipt, received) = received.map_err(|error| Miss::broke(error.errno(), error))?;
        let counters = &turn.shard.counters.rx;
        match (received, message.body) {
            (Received::Immediate, Body::Immediate { header, payload }) => {
                counters.messages.one();
                // The buffer is needed until its payload is in its place.
                events.push(Event::Immediate { place, receipt, header, payload: payload.len() });
                return Ok(());
            }
            (Received::PutReq(operation), Body::PutReq { header, .. }) => {
                counters.messages.one();
                events.push(Event::PutReq { operation, header });
            }
            (Received::GetReq(operation), Body::GetReq { header, descriptor, .. }) => {
                counters.messages.one();
                if header.dest.nid != conn.link.local.nid {
                    let detail = format!("it asks {} directly, through this node", header.dest.nid);
                    return Err(Miss::broke(Errno::EPROTO, detail));
                }
                let source = Payload { target: Described::of(&descriptor), ..Payload::default() };
                // It is new, and has none.
                let _ = live.machine.attach(operation, Item::Reply { token: None, source });
                events.push(Event::GetReq { operation, header });
            }
            (Received::Wanted { put, length }, Body::PutAck { descriptor, .. }) => {
                if let Some(Item::Send { source, .. }) = live.machine.item(put) {
                    source.target = Described::of(&descriptor);
                    source.bytes = length;
                }
                live.machine.renew(put, conn.answer_deadline_ns());
                conn.prepare(state, put);
            }
            (Received::Ended(ended), _) => events.push(Event::Ended(ended)),
            (_, Body::Noop) => counters.noops.one(),
            _ => {}
        }
        reposts.push((place, receipt));
        Ok(())
    }
}

/// A send has completed.
fn sent(state: &mut State, completion: &Completion, events: &mut Vec<Event>) -> Result<(), Miss> {
    completion.status.map_err(of_work)?;
    let Some(live) = &mut state.live else { return Ok(()) };
    let ended: Option<Ended<Item>> =
        live.machine.completed(completion.id).map_err(|error| Miss::broke(error.errno(), error))?;
    events.extend(ended.map(Event::Ended));
    Ok(())
}

/// A work request has failed.
fn of_work(error: WorkError) -> Miss {
    match error {
        WorkError::Flushed => Miss::gone(Errno::ECONNRESET, "it was ended"),
        WorkError::RetriesExceeded => Miss::gone(Errno::ETIMEDOUT, "the peer's device does not answer"),
        WorkError::NoReceiver => {
            Miss::gone(Errno::EIO, "the peer has posted fewer receives than the protocol demands")
        }
        WorkError::RemoteAccess => Miss::gone(
            Errno::EIO,
            "the peer's device refuses a write: its memory is not registered there any more",
        ),
        WorkError::Other(status) => {
            Miss::gone(Errno::EIO, format!("a work request failed with status {status}"))
        }
    }
}
