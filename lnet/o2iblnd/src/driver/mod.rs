//! A shard's driver: everything that happens on its connections except sending in a caller's own
//! thread.
//!
//! One thread at a time drives. Senders use nothing in this module, so that upcalls made from here
//! may send.

mod close;
mod dial;
mod digest;
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

use lnet_api::{Errno, PayloadTarget, Poll};
use lnet_lnd::closing::InUse;
use lnet_lnd::driver::serve_requests;
use lnet_lnd::shard_table::ShardKey;
use lnet_lnd::{DriverCore, LIST_ROOM};

use crate::O2ibConfig;
use crate::connection::Connection;
use crate::fabric::{CmEvent, DeviceChange};
use crate::memory::WaiterId;
use crate::ni::update_port;
use crate::op_data::HeldMessage;
use crate::send::choose;
use crate::shard::O2ibRequest;
use events::Event;
use opening::Opening;
use rx_conn::RxConn;
use source::{EventSource, EventSources, key};

/// The maximum number of connection manager events handled in one poll: some for each connection of
/// a busy shard. Further ones are left to the next poll.
const CM_EVENTS_PER_POLL: usize = 64;

/// The maximum number of requests to connect handled in one poll. Queues and buffers are made for
/// each, which takes a millisecond on a card. So a peer that connects again and again cannot keep a
/// shard from the messages of its other peers.
const CONNECTS_PER_POLL: usize = 2;

/// The number of consecutive polls without completions after which a connection, if it is one of
/// several busy ones, is armed and no longer polled.
const IDLE_POLLS: u32 = 256;

/// The number of consecutive polls without work and without a sleep that indicate a spinning
/// thread; a thread that is about to sleep polls once or twice.
const SPINNING: u32 = 8;

/// State that only the driver of a shard uses.
pub struct Driver {
    core: DriverCore<O2ib>,
    sources: EventSources,
    /// Number of polls without work since the last poll with work, or since a driver was last about
    /// to sleep.
    idle_polls: u32,
    /// Set if the last poll has not taken all events of the channel.
    events_left: bool,
    /// Events taken from the channel while a listener ended, and not handled yet; the next poll
    /// begins with them.
    kept_events: VecDeque<CmEvent>,
    /// Events for the engine. The list is empty between calls, and kept for its memory.
    events: Vec<Event>,
}

impl lnet_lnd::protocol::Driver<O2ib> for Driver {
    const REQUEST_ROUNDS: usize = 8;
    const SEND_FAILED: &'static str = "a work request cannot be posted";

    fn new(config: &O2ibConfig, shard: usize) -> Driver {
        Driver {
            core: DriverCore::new(shard, config.keepalive_ns()),
            sources: EventSources::new(shard),
            idle_polls: 0,
            events_left: false,
            kept_events: VecDeque::new(),
            events: Vec::with_capacity(LIST_ROOM),
        }
    }

    fn core(&mut self) -> &mut DriverCore<O2ib> {
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
        self.idle_polls = if work == 0 { self.idle_polls.saturating_add(1) } else { 0 };
        if self.idle_polls >= SPINNING {
            work += self.yield_to_devices(turn, budget);
        }
        if work > 0 {
            work += serve_requests(self, turn);
        }
        self.core.polled(work)
    }

    /// Arms all connections; returns whether the driver may sleep: no completion arrived before the
    /// arming, and no event of the channel is left.
    fn arm(&mut self, shard: &Shard) -> bool {
        self.idle_polls = 0;
        let mut quiet = !self.events_left && self.kept_events.is_empty();
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

    fn in_use(&self, turn: Turn<'_>, key: ShardKey) -> Option<InUse<O2ib>> {
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

    fn resume(&mut self, turn: Turn<'_>, key: ShardKey, held: HeldMessage, delivery: Option<PayloadTarget>) {
        self.resume_held(turn, key, held, delivery);
    }

    fn serve(&mut self, turn: Turn<'_>, request: O2ibRequest) {
        match request {
            O2ibRequest::Offered(offered) => self.decide(turn, *offered),
            O2ibRequest::Prepare(conn, operation) => self.resume_operation(&conn, operation),
            O2ibRequest::BeginGet(mut pending) => {
                let (conn, waiter_id) = (pending.conn.clone(), WaiterId::Get(pending.token));
                // The peer's time to answer begins now: the wait for the buffer does not count.
                pending.deadline_ns = pending.deadline_ns.max(conn.answer_deadline_ns());
                conn.begin_get(*pending);
                conn.ni().own.sinks.waiter_done(waiter_id);
            }
        }
    }

    fn check_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
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

    fn send_sign_of_life(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        let conns = peer.state.lock().conns.clone();
        for conn in conns {
            let mut state = conn.state.lock();
            if let Some(live) = &mut state.live {
                live.machine.send_sign_of_life();
            }
            conn.pump(&mut state, turn.now_ns);
        }
    }

    /// Returns the time of the last message received from the peer; `None` without a connection. A
    /// peer can send a sign of life even while its messages are held: some receive buffers are
    /// reserved for held messages, and others for NOOPs.
    fn heard_ns(&self, peer: &Peer) -> Option<u64> {
        let state = peer.state.lock();
        state
            .conns
            .iter()
            .filter_map(|conn| self.sources.get(conn.key)?.conn())
            .map(|rx| rx.received_ns)
            .max()
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
            let Some(cm_event) = self.kept_events.pop_front().or_else(|| turn.shard.own.channel.next())
            else {
                self.events_left = false;
                return count;
            };
            count += 1;
            connects += usize::from(matches!(cm_event, CmEvent::Request { .. }));
            self.on_cm_event(turn, cm_event);
        }
        self.events_left = true;
        count
    }

    fn on_cm_event(&mut self, turn: Turn<'_>, cm_event: CmEvent) {
        match cm_event {
            CmEvent::Request { listener, request } => self.handle_request(turn, key(listener), request),
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

    /// Polls the busy connections one after the other, until no completions are left or the budget
    /// is used up.
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
                self.requeue_busy(key, count);
            }
            if left == before {
                return budget - left;
            }
        }
    }

    /// Adds a connection to those that each poll includes.
    fn make_busy(&mut self, key: ShardKey) {
        if let Some(rx) = self.sources.get_mut(key).and_then(EventSource::conn_mut).filter(|rx| !rx.busy) {
            rx.idle = 0;
            self.sources.enqueue(key);
        }
    }

    /// Records that a busy connection had `count` completions. Queues it again, unless it is one of
    /// several and has been idle for [`IDLE_POLLS`] polls.
    fn requeue_busy(&mut self, key: ShardKey, count: usize) {
        let many = self.sources.queue().len() > 1;
        let Some(rx) = self.sources.get_mut(key).and_then(EventSource::conn_mut) else { return };
        rx.idle = if count == 0 { rx.idle.saturating_add(1) } else { 0 };
        if !many || rx.idle < IDLE_POLLS || !rx.arm() {
            self.sources.enqueue(key);
        }
    }

    /// Arms all busy connections without completions; returns whether none of them has any.
    fn arm_all(&mut self) -> bool {
        let mut quiet = true;
        for _ in 0..self.sources.queue().len() {
            let Some(key) = self.sources.dequeue() else { break };
            if self.sources.get_mut(key).and_then(EventSource::conn_mut).is_some_and(|rx| !rx.arm()) {
                self.sources.enqueue(key);
                quiet = false;
            }
        }
        quiet
    }

    /// Yields the processor of a spinning thread to a software device, which may need it to send,
    /// and polls again.
    fn yield_to_devices(&mut self, turn: Turn<'_>, budget: usize) -> usize {
        let waits = |key: &ShardKey| {
            self.sources.get(*key).and_then(EventSource::conn).is_some_and(RxConn::awaits_program)
        };
        if !self.sources.queue().iter().any(waits) {
            return 0;
        }
        std::thread::yield_now();
        self.work_off_busy(turn, budget)
    }

    /// Sends the messages that wait for a peer, as far as its connections have room.
    fn flush_waiting(&mut self, peer: &Arc<Peer>) {
        loop {
            let (tx, conn) = {
                let mut state = peer.state.lock();
                state.waiting.end_hand_out();
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
                    // Only this shard's driver closes connections, so this one is full, or another
                    // thread has marked it broken.
                    let mut state = peer.state.lock();
                    if !state.waiting.end_hand_out() {
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

    /// Handles a change of a device. Established connections are left to the device, which resends
    /// for a while before it breaks them: a short outage of the link loses nothing.
    fn device_changed(&mut self, turn: Turn<'_>, name: &str, change: DeviceChange) {
        for ni in turn.shared.nis.matching(None) {
            if ni.own.device.name() != name {
                continue;
            }
            let up = update_port(&ni);
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

    /// Retries the peers of an NI whose port is up again: failures while it was down do not count
    /// against the peers.
    fn try_again(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        for peer in turn.peers_of(ni) {
            peer.state.lock().links.forgive();
            self.advance(turn, &peer);
        }
    }
}
