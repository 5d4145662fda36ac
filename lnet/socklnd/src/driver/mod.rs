//! A shard's driver: everything that happens on its sockets except sending on a caller's own
//! thread.
//!
//! One thread at a time drives. Senders use nothing in this module, so that upcalls made from here
//! may send.

mod accept;
mod close;
mod connect;
mod connecting;
mod decide;
mod opened;
mod receive;
mod sending;
mod source;
mod spin;
mod timers;

use crate::sock::Turn;
use crate::sock::{Ni, Peer, Shard};
use std::sync::Arc;

use lnet_api::{Errno, PayloadTarget, Poll};
use lnet_lnd::closing::{CloseScope, InUse, close_broken};
use lnet_lnd::driver::serve_requests;
use lnet_lnd::shard_table::ShardKey;
use lnet_lnd::{ConnFailure, DriverCore, LIST_ROOM};
use lnet_proto::sock::Version;

use crate::burst::SendCoalescer;
use crate::conn::Conn;
use crate::shard::SockRequest;
use crate::sys::{Events, Readiness};
use crate::{Sock, SockConfig};
pub(crate) use close::closed;
use connecting::ConnAttempt;
pub(crate) use receive::Unread;
use receive::{Rest, ShardBuffers};
use source::{EventSource, EventSources};
use spin::PollSpin;

/// State that only the driver of a shard uses.
pub struct Driver {
    core: DriverCore<Sock>,
    sources: EventSources,
    buffers: ShardBuffers,
    coalescer: SendCoalescer,
    spin: PollSpin,
    /// Lists that are filled and emptied within a call, kept for their memory.
    events: Option<Events>,
    uncorking: Vec<Arc<Conn>>,
}

impl lnet_lnd::protocol::Driver<Sock> for Driver {
    const REQUEST_ROUNDS: usize = 1;
    const SEND_FAILED: &'static str = "";

    fn new(config: &SockConfig, shard: usize) -> Driver {
        Driver {
            core: DriverCore::new(shard, config.keepalive_ns().unwrap_or(u64::MAX)),
            sources: EventSources::new(shard),
            buffers: ShardBuffers::new(&config.memory, shard % config.partitions.max(1)),
            coalescer: SendCoalescer::new(),
            spin: PollSpin::default(),
            events: Some(Events::new()),
            uncorking: Vec::with_capacity(LIST_ROOM),
        }
    }

    fn core(&mut self) -> &mut DriverCore<Sock> {
        &mut self.core
    }

    fn poll(&mut self, turn: Turn<'_>, budget: usize) -> Poll {
        let _polling = turn.shard.polling_here();
        let _burst = turn.shard.own.burst_guard();
        let since_last_ns = turn.now_ns.saturating_sub(self.core.now_ns);
        self.core.now_ns = turn.now_ns;
        let mut work = self.write_deferred(turn, since_last_ns);
        work += serve_requests(self, turn);
        work += self.fire_timers(turn);
        let direct = self
            .spin
            .begin(since_last_ns)
            .filter(|&key| self.sources.get(key).and_then(EventSource::conn).is_some_and(|rx| !rx.is_held()));
        match direct {
            Some(key) => self.sources.enqueue(key),
            None => work += self.take_events(turn),
        }
        work += self.work_off_ready(turn, budget, direct);
        if work > 0 {
            work += turn.shard.own.uncork(&mut self.uncorking);
            work += serve_requests(self, turn);
        }
        self.core.polled(work)
    }

    /// Returns `true` if the driver has no work that the poller does not report, and the last poll
    /// has queried the poller.
    fn arm(&mut self, _shard: &Shard) -> bool {
        self.spin.end() && self.sources.queue().is_empty()
    }

    fn advance_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        self.advance(turn, peer);
    }

    fn connect(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        self.advance(turn, peer);
        turn.shared.own.attempts.decline(peer);
    }

    fn in_use(&self, _turn: Turn<'_>, key: ShardKey) -> Option<InUse<Sock>> {
        let rx = self.sources.get(key)?.conn()?;
        Some(InUse { peer: rx.peer.clone(), conn: rx.conn.clone(), address: rx.remote })
    }

    fn ends_with(&self, turn: Turn<'_>, key: ShardKey, failure: &ConnFailure) -> CloseScope {
        self.decide_ends(turn, key, failure)
    }

    fn end_conn(&mut self, turn: Turn<'_>, peer: &Arc<Peer>, conn: &Arc<Conn>, errno: Errno) {
        self.close_conn(turn, peer, conn, errno);
    }

    fn completing(&self) -> usize {
        let completes = |connecting: &ConnAttempt| !connecting.peer.state.lock().conns.is_empty();
        self.sources.keys(|source| source.connecting().is_some_and(completes)).len()
    }

    fn resume(&mut self, turn: Turn<'_>, key: ShardKey, held: Unread, delivery: Option<PayloadTarget>) {
        if let Some(rx) = self.sources.get_mut(key).and_then(EventSource::conn_mut) {
            rx.resume(turn, held, delivery);
            self.sources.enqueue(key);
        }
    }

    fn serve(&mut self, turn: Turn<'_>, request: SockRequest) {
        match request {
            SockRequest::Listen(listener) => self.listen(turn, listener),
            SockRequest::Decide(offered) => self.decide(turn, None, *offered),
            SockRequest::Flush(key) => {
                if let Some(rx) = self.sources.get(key).and_then(EventSource::conn) {
                    rx.conn.flush();
                }
            }
        }
    }

    fn check_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
        self.advance(turn, peer);
        self.keep_alive(turn, peer)
    }

    /// Sends a keepalive on each connection, because the peer may not be reading some of them.
    /// Version 2 of the protocol has no keepalives.
    fn send_sign_of_life(&mut self, _turn: Turn<'_>, peer: &Arc<Peer>) {
        let conns = peer.state.lock().conns.clone();
        conns.iter().filter(|conn| conn.version != Version::V2).for_each(|conn| conn.keep_alive());
    }

    fn heard_ns(&self, peer: &Peer) -> Option<u64> {
        let state = peer.state.lock();
        let conns = state.conns.iter().filter_map(|conn| self.sources.get(conn.key)?.conn());
        conns.filter(|rx| !rx.is_held()).map(|rx| rx.last_heard_ns).max()
    }

    fn end_ni(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        self.end_handshakes(turn, ni);
    }

    /// Removes closed connections from the list of connections to flush, where an entry would keep
    /// a descriptor open.
    fn release_deferred(&mut self, shard: &Shard) {
        shard.own.forget_closed();
    }
}

impl Driver {
    /// Writes the messages left for this poll, and records the longest time that they may have
    /// waited.
    fn write_deferred(&mut self, turn: Turn<'_>, waited_ns: u64) -> usize {
        let any = turn.shard.own.write_deferred(&mut self.uncorking);
        if any {
            self.coalescer.learn(turn.now_ns, waited_ns);
        }
        turn.shard.own.set_coalescing(self.coalescer.allows(turn.now_ns));
        usize::from(any)
    }

    fn take_events(&mut self, turn: Turn<'_>) -> usize {
        // Only the wake-up is watched; a poll needs to query the system only after a wake-up.
        if self.sources.is_empty() && !turn.shard.own.take_woken() {
            return 0;
        }
        // The list is taken out so that the sources can change while it is read; it is put back
        // below.
        let Some(mut events) = self.events.take() else { return 0 };
        turn.shard.counters.rx.polls.one();
        let mut count = 0;
        turn.shard.own.poller.wait(&mut events);
        for (key, readiness) in events.iter() {
            count += 1;
            self.on_event(turn, ShardKey(key), readiness);
        }
        self.events = Some(events);
        count
    }

    fn on_event(&mut self, turn: Turn<'_>, key: ShardKey, readiness: Readiness) {
        match self.sources.get_mut(key) {
            Some(EventSource::Conn(rx)) => {
                if readiness.writable {
                    rx.conn.became_writable();
                }
                rx.ending |= readiness.ending;
                if readiness.readable && !rx.is_held() {
                    self.sources.enqueue(key);
                } else if readiness.broken {
                    self.break_off(turn, key, Errno::ECONNRESET);
                }
            }
            Some(EventSource::Listener(_)) => self.sources.enqueue(key),
            Some(EventSource::Accepting(_)) if readiness.readable => self.continue_accepting(turn, key),
            Some(EventSource::Connecting(_)) => self.continue_connecting(turn, key, readiness),
            // The event belongs to a descriptor that an earlier event of the same batch has closed.
            Some(EventSource::Accepting(_) | EventSource::Vacant) | None => {}
        }
    }

    /// Receives and accepts in turn until nothing is ready or the budget is used up. A direct read
    /// (without an event) that finds nothing does not count as work.
    fn work_off_ready(&mut self, turn: Turn<'_>, budget: usize, direct: Option<ShardKey>) -> usize {
        let mut left = budget;
        let mut turns = 0;
        while left > 0
            && let Some(key) = self.sources.dequeue()
        {
            turns += 1;
            let rest = match self.sources.get_mut(key) {
                Some(EventSource::Conn(rx)) => {
                    // The turn itself is charged only afterwards, so that a budget of one message
                    // also makes progress.
                    let rest = rx.receive(turn, &mut self.buffers, &mut self.core.held, &mut left);
                    left = left.saturating_sub(1);
                    if std::mem::take(&mut rx.received) {
                        self.spin.delivered(key);
                    } else if direct == Some(key) && matches!(rest, Ok(Rest::Drained)) {
                        turns -= 1;
                    }
                    rest
                }
                Some(EventSource::Listener(_)) => {
                    left -= 1;
                    Ok(self.accept_some(turn, key))
                }
                _ => continue,
            };
            match rest {
                Ok(Rest::More) => self.sources.enqueue(key),
                Ok(Rest::Drained) => {}
                Err(broken) => close_broken(self, turn, key, broken),
            }
        }
        turns
    }
}
