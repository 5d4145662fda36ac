//! A shard's driver: everything that happens on its connections except sending in a caller's own thread.
//!
//! One thread at a time drives; nothing here is touched by senders, so that upcalls made from here may send.

mod close;
mod dial;
mod digest;
mod event;
mod events;
mod listen;
mod opened;
mod opening;
mod rx_conn;
mod source;
mod timers;

use crate::o2ib::Turn;
use crate::o2ib::{Ni, O2ib, Peer, Shard};
use std::collections::VecDeque;
use std::sync::Arc;

use lnet_api::{Delivery, Errno, Poll};
use lnet_lnd::closing::InUse;
use lnet_lnd::driver::serve_requests;
use lnet_lnd::slab::Key;
use lnet_lnd::{Core, LIST_ROOM};

use crate::O2ibConfig;
use crate::connection::Connection;
use crate::fabric::{CmEvent, DeviceChange};
use crate::item::Held;
use crate::memory::Who;
use crate::ni::look_at_port;
use crate::peer::choose;
use crate::shard::Asked;
use event::Event;
use opening::Opening;
use rx_conn::RxConn;
use source::{Source, Sources, key};

/// CmEvents that one poll looks at: some for each connection of a busy shard. The rest is left to the next.
const CM_EVENTS_PER_POLL: usize = 64;

/// Requests to connect that one poll looks at. Queues and buffers are made for each, which takes a card a millisecond: whoever
/// connects again and again does not keep a shard from the messages of its peers.
const CONNECTS_PER_POLL: usize = 2;

/// A connection of several busy ones on which nothing has come for so many polls is armed, and no more looked at by each poll.
const IDLE_POLLS: u32 = 256;

/// Polls in a row without work and without a sleep, from which on somebody spins: who is about to sleep polls once or twice.
const SPINNING: u32 = 8;

/// What the driver of a shard alone touches.
pub struct Driver {
    core: Core<O2ib>,
    sources: Sources,
    /// Polls that have found nothing, since the last that did and since somebody was about to sleep.
    fruitless: u32,
    /// The last poll has not taken all that the channel has to tell.
    unheard: bool,
    /// Taken from the channel while a listener ended, and not handled yet: the next poll begins with them.
    kept: VecDeque<CmEvent>,
    /// A list that is filled and emptied within a call, kept for its memory.
    events: Vec<Event>,
}

impl lnet_lnd::protocol::Driver<O2ib> for Driver {
    const REQUEST_ROUNDS: usize = 8;
    const SEND_FAILED: &'static str = "a work request cannot be posted";

    fn new(config: &O2ibConfig, shard: usize) -> Driver {
        Driver {
            core: Core::new(shard, config.keepalive_ns()),
            sources: Sources::new(shard),
            fruitless: 0,
            unheard: false,
            kept: VecDeque::new(),
            events: Vec::with_capacity(LIST_ROOM),
        }
    }

    fn core(&mut self) -> &mut Core<O2ib> {
        &mut self.core
    }

    fn poll(&mut self, turn: Turn<'_>, budget: usize) -> Poll {
        let _polling = turn.shard.polling_here();
        turn.shard.own.set_now_ns(turn.now_ns);
        self.core.now_ns = turn.now_ns;
        let mut work = serve_requests(self, turn);
        work += self.fire_timers(turn);
        work += self.take_cm_events(turn);
        work += self.work_off_busy(turn, budget);
        self.fruitless = if work == 0 { self.fruitless.saturating_add(1) } else { 0 };
        if self.fruitless >= SPINNING {
            work += self.let_programs_work(turn, budget);
        }
        if work > 0 {
            work += serve_requests(self, turn);
        }
        self.core.polled(work)
    }

    /// All connections are armed, nothing has come before they were, and all that the channel has told is known.
    fn arm(&mut self, shard: &Shard) -> bool {
        self.fruitless = 0;
        let mut quiet = !self.unheard && self.kept.is_empty();
        quiet &= self.arm_all();
        if quiet {
            shard.own.channel.rest();
        }
        quiet
    }

    fn advance_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        self.advance(turn, peer);
    }

    fn connect(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        self.advance(turn, peer);
        self.flush_waiting(peer);
    }

    fn in_use(&self, turn: Turn<'_>, key: Key) -> Option<InUse<O2ib>> {
        let conn = self.sources.get(key)?.conn()?.conn.clone();
        let peer = conn.peer.clone();
        let address = peer.address(turn.shared.config.service);
        Some(InUse { peer, conn, address })
    }

    fn end_conn(&mut self, turn: Turn<'_>, _peer: &Arc<Peer>, conn: &Arc<Connection>, errno: Errno) {
        self.close_conn(turn, conn, errno);
    }

    fn completing(&self) -> usize {
        let completes = |opening: &Opening| !opening.peer.state.lock().conns.is_empty();
        self.sources.keys(|source| source.opening().is_some_and(completes)).len()
    }

    fn resume(&mut self, turn: Turn<'_>, key: Key, held: Held, delivery: Option<Delivery>) {
        self.resume_held(turn, key, held, delivery);
    }

    fn serve(&mut self, turn: Turn<'_>, asked: Asked) {
        match asked {
            Asked::Offered(offered) => self.decide(turn, *offered),
            Asked::Prepare(conn, operation) => self.go_on(&conn, operation),
            Asked::BeginGet(mut pending) => {
                let (conn, who) = (pending.conn.clone(), Who::Get(pending.token));
                // The peer has all the time that it would have had without the wait.
                pending.deadline_ns = pending.deadline_ns.max(conn.answer_deadline_ns());
                conn.begin_get(*pending);
                conn.ni().own.sinks.came(who);
            }
        }
    }

    fn look_at(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
        let mut count = 0;
        loop {
            let overdue = peer.state.lock().links.overdue(turn.now_ns);
            let Some(id) = overdue else { break };
            self.overdue(turn, peer, id);
            count += 1;
        }
        let deadline_ns = peer.state.lock().links.deadline_ns();
        if let Some(deadline_ns) = deadline_ns {
            self.core.timers.note(deadline_ns);
        }
        self.advance(turn, peer);
        count
    }

    fn show_life(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        let conns = peer.state.lock().conns.clone();
        for conn in conns {
            let mut state = conn.state.lock();
            if let Some(live) = &mut state.live {
                live.machine.show_life();
            }
            conn.pump(&mut state, turn.now_ns);
        }
    }

    /// Receive buffers are kept for messages that are held back, and others are there for NOOPs: a peer is always heard.
    fn heard_ns(&self, peer: &Peer) -> Option<u64> {
        let state = peer.state.lock();
        state.conns.iter().filter_map(|conn| self.sources.get(conn.key)?.conn()).map(|rx| rx.heard_ns).max()
    }

    fn end_ni(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        self.end_listeners(turn, ni);
    }
}

impl Driver {
    fn take_cm_events(&mut self, turn: Turn<'_>) -> usize {
        turn.shard.counters.rx.polls.one();
        let (mut count, mut connects) = (0, 0);
        while count < CM_EVENTS_PER_POLL && connects < CONNECTS_PER_POLL {
            let Some(cm_event) = self.kept.pop_front().or_else(|| turn.shard.own.channel.next()) else {
                self.unheard = false;
                return count;
            };
            count += 1;
            connects += usize::from(matches!(cm_event, CmEvent::Request { .. }));
            self.on_cm_event(turn, cm_event);
        }
        self.unheard = true;
        count
    }

    fn on_cm_event(&mut self, turn: Turn<'_>, cm_event: CmEvent) {
        match cm_event {
            CmEvent::Request { listener, request } => self.asked(turn, key(listener), request),
            CmEvent::Resolved(token) => self.resolved(turn, key(token)),
            CmEvent::Accepted(token, private_data) => self.accepted(turn, key(token), &private_data),
            CmEvent::Established(token) => self.established(turn, key(token)),
            CmEvent::Rejected(token, rejected) => self.rejected(turn, key(token), &rejected),
            CmEvent::Failed(token, errno) => self.unreachable(turn, key(token), errno),
            CmEvent::Disconnected(token) => self.disconnected(turn, key(token)),
            CmEvent::Ready(token) => self.make_busy(key(token)),
            CmEvent::Device { name, change } => self.device_changed(turn, &name, change),
        }
    }

    /// Looks at the completion queues of the busy connections by turns, until nothing is left in them or the budget is used up.
    fn work_off_busy(&mut self, turn: Turn<'_>, budget: usize) -> usize {
        let mut left = budget;
        loop {
            let before = left;
            for _ in 0..self.sources.queue().len() {
                if left == 0 {
                    return budget;
                }
                let Some(key) = self.sources.dequeue() else { break };
                let Some(count) = self.digest(turn, key) else { continue };
                left = left.saturating_sub(count);
                self.looked_at(key, count);
            }
            if left == before {
                return budget - left;
            }
        }
    }

    /// Has each poll look at a connection.
    fn make_busy(&mut self, key: Key) {
        if let Some(rx) = self.sources.get_mut(key).and_then(Source::conn_mut).filter(|rx| !rx.busy) {
            rx.idle = 0;
            self.sources.enqueue(key);
        }
    }

    /// A connection that each poll looks at had so many completions. It queues again, unless it is one of several and has been idle for
    /// long.
    fn looked_at(&mut self, key: Key, count: usize) {
        let many = self.sources.queue().len() > 1;
        let Some(rx) = self.sources.get_mut(key).and_then(Source::conn_mut) else { return };
        rx.idle = if count == 0 { rx.idle.saturating_add(1) } else { 0 };
        if !many || rx.idle < IDLE_POLLS || !rx.arm() {
            self.sources.enqueue(key);
        }
    }

    /// Arms all connections that each poll looks at, but those on which something has come; whether there are none of these.
    fn arm_all(&mut self) -> bool {
        let mut quiet = true;
        for _ in 0..self.sources.queue().len() {
            let Some(key) = self.sources.dequeue() else { break };
            if self.sources.get_mut(key).and_then(Source::conn_mut).is_some_and(|rx| !rx.arm()) {
                self.sources.enqueue(key);
                quiet = false;
            }
        }
        quiet
    }

    /// A device that is a program may have to send on the processor of a thread that spins, which makes way for it.
    fn let_programs_work(&mut self, turn: Turn<'_>, budget: usize) -> usize {
        let waits =
            |key: &Key| self.sources.get(*key).and_then(Source::conn).is_some_and(RxConn::awaits_program);
        if !self.sources.queue().iter().any(waits) {
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
                state.waiting.let_go();
                if state.waiting.is_empty() {
                    return;
                }
                let Some(conn) = choose(&mut state).cloned() else { return };
                let Some(tx) = state.waiting.hand_out() else { return };
                (tx, conn)
            };
            let token = tx.token;
            match conn.send(tx) {
                Ok(lnet_api::Sent::Later) => {}
                Ok(lnet_api::Sent::Now(result)) => peer.ni.upcalls.finalize_tx(token, result),
                Err((tx, _)) => {
                    // The driver of this shard alone closes connections: this one is full, or another thread has broken it.
                    let mut state = peer.state.lock();
                    if !state.waiting.let_go() {
                        state.waiting.put_back(tx);
                        return;
                    }
                    drop(state);
                    drop(tx.payload);
                    peer.ni.upcalls.finalize_tx(token, Err(Errno::ECANCELED));
                }
            }
        }
    }

    /// Connections that stand are left to the device, which gives them up after its retries: a link that is down for a moment
    /// loses nothing.
    fn device_changed(&mut self, turn: Turn<'_>, name: &str, change: DeviceChange) {
        for ni in turn.shared.nis.matching(None) {
            if ni.own.device.name() != name {
                continue;
            }
            let up = look_at_port(&ni);
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
        for peer in turn.peers_of(ni) {
            peer.state.lock().links.forgive();
            self.advance(turn, &peer);
        }
    }
}
