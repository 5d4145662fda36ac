//! Timers (lnet-wire 38). They are coarse: one pass checks everything.

use lnet_api::Errno;
use lnet_lnd::ConnFailure;
use lnet_lnd::closing::close_broken;
use lnet_lnd::driver::check_peers;
use lnet_lnd::life::Silence;
use lnet_lnd::pass_timer::{SHORT_PART, Shortages};
use lnet_lnd::protocol::Driver as _;

use super::Driver;
use super::events::{end, give_up};
use super::rx_conn::RxConn;
use crate::conn::{EndedOp, Late};
use crate::o2ib::Turn;
use lnet_lnd::shard_table::ShardKey;

fn what_is(late: Late) -> &'static str {
    match late {
        Late::Queued => "a message waits for credits, which the peer does not return",
        Late::Posted => "a send does not complete",
        Late::Unanswered => "the peer does not answer",
        Late::Unprepared => "this node has not answered in time",
    }
}

/// Reason for closing a connection while credits are short.
const STUCK: &str = "it makes no progress, and messages to other peers wait for its credits";

/// The state of a connection, as a timer finds it.
enum ConnCheck {
    /// The queues of the connection are gone.
    Closed,
    /// An operation has not ended by its deadline.
    Late,
    /// Own operations are under way, and have made no progress for the short part of the timeout.
    Stuck,
    /// Own operations are under way.
    Busy,
    /// No own operation is under way.
    Idle,
}

/// Checks a connection, and sends what is due on it. Passes the times of the next checks to `note`.
fn check_conn(rx: &mut RxConn, now_ns: u64, mut note: impl FnMut(u64)) -> ConnCheck {
    let mut guard = rx.conn.state.lock();
    let state = &mut *guard;
    let Some(live) = &mut state.live else { return ConnCheck::Closed };
    rx.progress_mark = match (rx.progress_mark, live.machine.progress()) {
        (_, None) => None,
        (Some(mark), Some(steps)) if mark.0 == steps => Some(mark),
        (_, Some(steps)) => Some((steps, now_ns)),
    };
    if live.machine.late(now_ns).is_some() {
        return ConnCheck::Late;
    }
    let short_ns = rx.conn.ni().timeout_ns / SHORT_PART;
    note(live.machine.deadline_ns().max(now_ns + 1));
    rx.conn.pump(state, now_ns);
    match rx.progress_mark.map(|(_, since_ns)| since_ns.saturating_add(short_ns)) {
        Some(at_ns) if at_ns <= now_ns => ConnCheck::Stuck,
        Some(at_ns) => {
            note(at_ns);
            ConnCheck::Busy
        }
        None => {
            rx.doubt.end();
            ConnCheck::Idle
        }
    }
}

impl Driver {
    pub(super) fn fire_timers(&mut self, turn: Turn<'_>) -> usize {
        if !self.core.timers.begin(turn.now_ns) {
            return 0;
        }
        for ni in turn.shared.nis.matching(None) {
            for pool in [&ni.own.pool, &ni.own.sinks] {
                std::iter::from_fn(|| pool.overdue(turn.now_ns)).for_each(give_up);
            }
        }
        let due = self.check_conns(turn);
        let count = due.len();
        for (key, detail) in due {
            close_broken(self, turn, key, ConnFailure::gone(Errno::ETIMEDOUT, detail));
        }
        count + check_peers(self, turn)
    }

    /// Returns the connections to close, each with the reason.
    fn check_conns(&mut self, turn: Turn<'_>) -> Vec<(ShardKey, &'static str)> {
        let now_ns = turn.now_ns;
        let mut doubtful = Vec::new();
        let mut connections = false;
        let timers = &mut self.core.timers;
        for (key, rx) in self.sources.iter_mut().filter_map(|(key, source)| Some((key, source.conn_mut()?))) {
            connections = true;
            match check_conn(rx, now_ns, |at_ns| timers.note(at_ns)) {
                ConnCheck::Closed | ConnCheck::Idle => {}
                found => doubtful.push((key, found)),
            }
        }
        if connections {
            self.core.timers.note_period(now_ns);
        }
        let mut shortages = Shortages::default();
        let judge = |(key, found)| Some((key, self.judge(turn, key, found, &mut shortages)?));
        doubtful.into_iter().filter_map(judge).collect()
    }

    /// Returns the reason for closing a connection whose own operations are under way: it makes no
    /// progress, or an operation is overdue. `None` if it stays open. A peer that sends signs of
    /// life may hold back earlier messages ([`lnet_lnd::life`]). Then the PUTs that it has not
    /// answered continue to wait. Messages that have not been posted end when they are overdue; if
    /// messages to other peers wait for credits, the messages that have not been posted and the
    /// unanswered PUTs end at once. GETs are not held back: a missing answer ends the connection.
    fn judge(
        &mut self,
        turn: Turn<'_>,
        key: ShardKey,
        found: ConnCheck,
        shortages: &mut Shortages,
    ) -> Option<&'static str> {
        let now_ns = turn.now_ns;
        let peer = self.sources.get(key)?.conn()?.conn.peer.clone();
        let heard_ns = self.heard_ns(&peer).unwrap_or(now_ns);
        let rx = self.sources.get_mut(key)?.conn_mut()?;
        let (silence, changes_ns) = rx.doubt.silence(now_ns, heard_ns, peer.ni.timeout_ns);
        if matches!(found, ConnCheck::Busy) {
            self.core.timers.note(changes_ns.max(now_ns + 1));
            return None;
        }
        let is_short =
            matches!(found, ConnCheck::Stuck) && shortages.is_short(peer.ni.id.nid, &*peer.ni.upcalls);
        if is_short && silence >= Silence::Short {
            return Some(STUCK);
        }
        let conn = rx.conn.clone();
        let mut gone = Vec::new();
        let found = {
            let mut guard = conn.state.lock();
            let state = &mut *guard;
            let live = state.live.as_mut()?;
            if is_short && silence == Silence::None {
                gone.extend(std::iter::from_fn(|| live.machine.take_overdue(u64::MAX)));
                gone.extend(std::iter::from_fn(|| live.machine.abandon()));
            } else if silence < Silence::Whole {
                gone.extend(std::iter::from_fn(|| live.machine.take_overdue(now_ns)));
                live.machine.wait_for_answers(now_ns, changes_ns);
            }
            let unanswered = || is_short && silence == Silence::None && live.machine.awaits_data();
            let found = if unanswered() { Some(STUCK) } else { live.machine.late(now_ns).map(what_is) };
            if found.is_none() {
                // The NOOP makes a peer that holds messages back send a sign of life.
                live.machine.send_sign_of_life();
                self.core.timers.note(live.machine.deadline_ns().min(changes_ns).max(now_ns + 1));
                conn.pump(state, now_ns);
            }
            found
        };
        if !gone.is_empty() {
            for item in gone {
                let _ = end(&conn, &turn.shard.counters, EndedOp { item, outcome: Err(Errno::ETIMEDOUT) });
            }
            self.flush_waiting(&peer);
        }
        found
    }
}
