//! A shard's driver: everything that happens on its connections except sending in a caller's own thread.
//!
//! One thread at a time drives; nothing here is touched by senders, so that upcalls made from here may send.

mod close;
mod dial;
mod digest;
mod events;
mod listen;
mod opened;
mod opening;
mod timers;

use std::collections::VecDeque;
use std::sync::Arc;

use lnet_api::{Errno, Poll};

use crate::O2ibConfig;
use crate::connection::Connection;
use crate::fabric::{DeviceChange, Happening, Token};
use crate::memory::Who;
use crate::ni::Ni;
use crate::peer::Peer;
use crate::shard::{Request, Shard};
use crate::shared::Shared;
use digest::RxConn;
use events::Event;
use listen::Listening;
pub(crate) use listen::Offered;
use lnet_lnd::LIST_ROOM;
use lnet_lnd::slab::{Key, Slab};
use lnet_lnd::timers::Timers;
pub(crate) use opening::Depths;
use opening::Opening;

/// Happenings that one poll looks at: some for each connection of a busy shard. The rest is left to the next.
const HAPPENINGS_PER_POLL: usize = 64;

/// Requests to connect that one poll looks at. Queues and buffers are made for each, which takes a card a millisecond: whoever
/// connects again and again does not keep a shard from the messages of its peers.
const CONNECTS_PER_POLL: usize = 2;

/// Rounds of requests that one call serves, where serving them makes others.
const REQUEST_ROUNDS: usize = 8;

/// A connection of several busy ones on which nothing has come for so many polls is armed, and no more looked at by each poll.
const IDLE_POLLS: u32 = 256;

/// Polls in a row without work and without a sleep, from which on somebody spins: who is about to sleep polls once or twice.
const SPINNING: u32 = 8;

/// The time, and what everybody shares, for the length of one call.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) shard: &'a Shard,
    pub(crate) now_ns: u64,
}

/// What a token of the channel names.
enum Source {
    Listener(Listening),
    Opening(Box<Opening>),
    Conn(Box<RxConn>),
    /// A place that is kept for what is being made.
    Vacant,
}

pub(crate) struct Driver {
    sources: Slab<Source>,
    /// Connections that are looked at by each poll, for they are not armed.
    busy: VecDeque<Key>,
    timers: Timers,
    /// Polls that have found nothing, since the last that did and since somebody was about to sleep.
    fruitless: u32,
    /// The last poll has not taken all that the channel has to tell.
    unheard: bool,
    /// Taken from the channel while a listener ended, and not handled yet: the next poll begins with them.
    kept: VecDeque<Happening>,
    /// The time of the last poll.
    now_ns: u64,
    /// Lists that are filled and emptied within a call, kept for their memory.
    requests: Vec<Request>,
    events: Vec<Event>,
    peers: Vec<Arc<Peer>>,
}

impl Driver {
    pub(crate) fn new(config: &O2ibConfig, shard: usize) -> Driver {
        Driver {
            // There are no more than MAX_SHARDS shards.
            sources: Slab::new(shard as u8),
            busy: VecDeque::new(),
            timers: Timers::new(config.keepalive_ns()),
            fruitless: 0,
            unheard: false,
            kept: VecDeque::new(),
            now_ns: 0,
            requests: Vec::with_capacity(LIST_ROOM),
            events: Vec::with_capacity(LIST_ROOM),
            peers: Vec::new(),
        }
    }

    /// Does what there is to do; about `budget` messages at the most.
    pub(crate) fn poll(&mut self, turn: Turn<'_>, budget: usize) -> Poll {
        let _polling = turn.shard.polling_here(turn.now_ns);
        self.now_ns = turn.now_ns;
        let mut work = self.serve_requests(turn);
        work += self.fire_timers(turn);
        work += self.take_happenings(turn);
        work += self.work_off_busy(turn, budget);
        self.fruitless = if work == 0 { self.fruitless.saturating_add(1) } else { 0 };
        if self.fruitless >= SPINNING {
            work += self.let_programs_work(turn, budget);
        }
        if work > 0 {
            work += self.serve_requests(turn);
        }
        Poll { work, deadline_ns: self.timers.next_ns() }
    }

    /// The thread that polls is about to sleep. Whether it may: all connections are armed, nothing has come before they were,
    /// and all that the channel has told is known.
    pub(crate) fn arm(&mut self, shard: &Shard) -> bool {
        self.fruitless = 0;
        let mut quiet = !self.unheard && self.kept.is_empty();
        for _ in 0..self.busy.len() {
            let Some(key) = self.busy.pop_front() else { break };
            if !self.settle_down(key) {
                self.busy.push_back(key);
                quiet = false;
            }
        }
        if quiet {
            shard.channel.rest();
        }
        quiet
    }

    /// Arms a connection, unless something has come on it.
    fn settle_down(&mut self, key: Key) -> bool {
        let Some(Source::Conn(rx)) = self.sources.get_mut(key) else { return true };
        let armed = rx.arm();
        rx.busy = !armed;
        armed
    }

    fn serve_requests(&mut self, turn: Turn<'_>) -> usize {
        let mut count = 0;
        for _ in 0..REQUEST_ROUNDS {
            let mut requests = std::mem::take(&mut self.requests);
            let any = turn.shard.requests.take(&mut requests);
            count += requests.len();
            for request in requests.drain(..) {
                self.serve(turn, request);
            }
            self.requests = requests;
            if !any {
                break;
            }
        }
        count
    }

    fn serve(&mut self, turn: Turn<'_>, request: Request) {
        match request {
            Request::Offered(offered) => self.decide(turn, *offered),
            Request::Connect(peer) => {
                self.advance_peer(turn, &peer);
                self.flush_waiting(&peer);
            }
            Request::Complete(peer) => {
                peer.state.lock().links.set_conns(peer.ni.conns_per_peer());
                self.advance_peer(turn, &peer);
            }
            Request::Broken(key, errno) => self.broken(turn, key, errno, "a work request cannot be posted"),
            Request::Resume(key, delivery) => self.resume(turn, key, delivery),
            Request::Prepare(conn, operation) => self.go_on(&conn, operation),
            Request::BeginGet(mut pending) => {
                let (conn, who) = (pending.conn.clone(), Who::Get(pending.token));
                // The peer has all the time that it would have had without the wait.
                pending.deadline_ns = pending.deadline_ns.max(conn.answer_deadline_ns());
                conn.begin_get(*pending);
                conn.ni().sinks.came(who);
            }
        }
    }

    fn take_happenings(&mut self, turn: Turn<'_>) -> usize {
        turn.shard.counters.rx.polls.one();
        let (mut count, mut connects) = (0, 0);
        while count < HAPPENINGS_PER_POLL && connects < CONNECTS_PER_POLL {
            let Some(happening) = self.kept.pop_front().or_else(|| turn.shard.channel.next()) else {
                self.unheard = false;
                return count;
            };
            count += 1;
            connects += usize::from(matches!(happening, Happening::Request { .. }));
            self.on_happening(turn, happening);
        }
        self.unheard = true;
        count
    }

    fn on_happening(&mut self, turn: Turn<'_>, happening: Happening) {
        match happening {
            Happening::Request { listener, request } => self.asked(turn, key(listener), request),
            Happening::Resolved(token) => self.resolved(turn, key(token)),
            Happening::Accepted(token, private_data) => self.accepted(turn, key(token), &private_data),
            Happening::Established(token) => self.established(turn, key(token)),
            Happening::Rejected(token, rejected) => self.rejected(turn, key(token), &rejected),
            Happening::Failed(token, errno) => self.unreachable(turn, key(token), errno),
            Happening::Disconnected(token) => self.disconnected(turn, key(token)),
            Happening::Ready(token) => self.make_busy(key(token)),
            Happening::Device { name, change } => self.device_changed(turn, &name, change),
        }
    }

    fn make_busy(&mut self, key: Key) {
        if let Some(Source::Conn(rx)) = self.sources.get_mut(key)
            && !std::mem::replace(&mut rx.busy, true)
        {
            rx.idle = 0;
            self.busy.push_back(key);
        }
    }

    /// Looks at the completion queues of the busy connections by turns, until nothing is left in them or the budget is used up.
    fn work_off_busy(&mut self, turn: Turn<'_>, budget: usize) -> usize {
        let mut left = budget;
        loop {
            let before = left;
            for _ in 0..self.busy.len() {
                if left == 0 {
                    return budget;
                }
                let Some(key) = self.busy.pop_front() else { break };
                let Some(count) = self.digest(turn, key) else { continue };
                left = left.saturating_sub(count);
                let many = self.busy.len() > 1;
                if let Some(Source::Conn(rx)) = self.sources.get_mut(key) {
                    rx.idle = if count == 0 { rx.idle.saturating_add(1) } else { 0 };
                    if !many || rx.idle < IDLE_POLLS || !self.settle_down(key) {
                        self.busy.push_back(key);
                    }
                }
            }
            if left == before {
                return budget - left;
            }
        }
    }

    /// A device that is a program may have to send on the processor of a thread that spins, which makes way for it.
    fn let_programs_work(&mut self, turn: Turn<'_>, budget: usize) -> usize {
        let waits =
            |key: &Key| matches!(self.sources.get(*key), Some(Source::Conn(rx)) if rx.awaits_program());
        if !self.busy.iter().any(waits) {
            return 0;
        }
        std::thread::yield_now();
        self.work_off_busy(turn, budget)
    }

    /// Sends what waits for a peer, as far as there are connections with room.
    fn flush_waiting(&mut self, peer: &Arc<Peer>) {
        loop {
            let (tx, conn) = {
                let mut state = peer.state.lock();
                if state.waiting.is_empty() {
                    return;
                }
                let Some(conn) = state.choose().cloned() else { return };
                let Some(tx) = state.waiting.take_first() else { return };
                (tx, conn)
            };
            let token = tx.token;
            match conn.send(tx) {
                Ok(lnet_api::Sent::Later) => {}
                Ok(lnet_api::Sent::Now(result)) => peer.ni.upcalls.finalize_tx(token, result),
                Err((tx, _)) => {
                    // The driver of this shard alone closes connections: this one is full, or another thread has broken it.
                    let mut state = peer.state.lock();
                    if state.retired.is_none() {
                        state.waiting.put_back(tx);
                        return;
                    }
                    drop(state);
                    drop(tx.payload);
                    return peer.ni.upcalls.finalize_tx(token, Err(Errno::ESHUTDOWN));
                }
            }
        }
    }

    /// Connections that stand are left to the device, which gives them up after its retries: a link that is down for a moment
    /// loses nothing.
    fn device_changed(&mut self, turn: Turn<'_>, name: &str, change: DeviceChange) {
        for ni in turn.shared.nis.matching(None) {
            if ni.device.name() != name {
                continue;
            }
            let up = ni.look_at_port();
            match change {
                DeviceChange::Removed => {
                    tracing::error!(nid = %ni.id.nid, name, "the device is gone: its connections are closed");
                    self.lose_device(turn, &ni);
                }
                DeviceChange::PortUp | DeviceChange::PortDown if up => self.try_again(turn, &ni),
                DeviceChange::PortUp | DeviceChange::PortDown => {}
            }
        }
    }

    /// The port of an NI is up: what failed while it was down says nothing of the peers.
    fn try_again(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        for peer in peers_of(turn, ni) {
            peer.state.lock().links.forgive();
            self.advance_peer(turn, &peer);
        }
    }
}

/// The peers of an NI that are this shard's.
fn peers_of(turn: Turn<'_>, ni: &Arc<Ni>) -> Vec<Arc<Peer>> {
    let mut peers = Vec::new();
    let mine = |peer: &Peer| Arc::ptr_eq(&peer.ni, ni) && peer.shard.number == turn.shard.number;
    turn.shared.peers.collect(&mut peers, mine);
    peers
}

/// What the channel knows a source by.
fn token(key: Key) -> Token {
    Token(key.0)
}

fn key(token: Token) -> Key {
    Key(token.0)
}

/// Whether two are the same connection.
fn is_same(a: &Arc<Connection>, b: &Arc<Connection>) -> bool {
    Arc::ptr_eq(a, b)
}
