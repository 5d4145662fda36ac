//! Timers (lnet-wire 28): coarse, because one pass checks everything.

use crate::sock::Peer;
use lnet_lnd::ConnFailure;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::closing::close_broken;
use lnet_lnd::driver::check_peers;
use lnet_lnd::life::Silence;
use lnet_lnd::pass_timer::{SHORT_PART, Shortages};
use lnet_lnd::protocol::Driver as _;
use lnet_proto::sock::Keepalive;

use super::Driver;
use super::receive::RxConn;
use super::source::EventSource;
use crate::attempts::CROWDED_NS;
use crate::config::NS_PER_S;
use crate::peer::Choose;
use crate::sock::Turn;
use lnet_lnd::shard_table::ShardKey;

/// Time limit for a message that has begun, in timeouts, however steadily it trickles: a megabyte
/// in 100 s by default.
const TIMEOUTS_PER_MESSAGE: u64 = 2;

/// The timer that has expired for a source.
enum Due {
    Accept,
    Connect,
    Redial,
    Listen,
    Stuck(&'static str),
    Gone,
}

/// Returns the action for a connection on which reception has stalled, is too slow, or has ended;
/// `None` if it is in order.
fn check_receiving(rx: &RxConn, now_ns: u64, timeout_ns: u64) -> Option<Due> {
    if rx.is_mid_message() && rx.last_heard_ns.saturating_add(timeout_ns) <= now_ns {
        return Some(Due::Stuck("a message has begun and does not end"));
    }
    if rx.has_lasted(TIMEOUTS_PER_MESSAGE * timeout_ns, now_ns) {
        return Some(Due::Stuck("a message comes too slowly"));
    }
    // The connection of a held message is not read, so that nothing else shows its end.
    (rx.is_held() && rx.ending).then_some(Due::Gone)
}

impl Driver {
    pub(super) fn fire_timers(&mut self, turn: Turn<'_>) -> usize {
        if !self.core.timers.begin(turn.now_ns) {
            return 0;
        }
        let due = self.check_sources(turn);
        let count = due.len();
        for (key, due) in due {
            match due {
                Due::Accept => {
                    turn.shard.counters.rx.handshake_timeouts.one();
                    self.sources.remove(key);
                }
                Due::Connect => self.connecting_timed_out(turn, key),
                Due::Redial => self.redial(turn, key),
                Due::Listen => self.sources.enqueue(key),
                Due::Stuck(what) => {
                    close_broken(self, turn, key, ConnFailure::gone(Errno::ETIMEDOUT, what));
                }
                Due::Gone => {
                    close_broken(self, turn, key, ConnFailure::gone(Errno::ECONNRESET, "the peer closed it"));
                }
            }
        }
        count + check_peers(self, turn)
    }

    fn check_sources(&mut self, turn: Turn<'_>) -> Vec<(ShardKey, Due)> {
        let now_ns = turn.now_ns;
        let mut found = Vec::new();
        let mut late = Vec::new();
        let mut connections = false;
        let crowded = turn.shared.own.attempts.is_crowded();
        for (key, source) in self.sources.iter_mut() {
            let (deadline_ns, due) = match source {
                EventSource::Accepting(accepting) => (accepting.deadline_ns, Due::Accept),
                EventSource::Connecting(connecting) => {
                    // Other peers may queue for permits later, which shortens this deadline.
                    self.core.timers.note(now_ns.saturating_add(CROWDED_NS));
                    let deadline_ns = connecting.deadline_ns(crowded);
                    match connecting.redial_ns(turn.shared.config.min_reconnect_ns()) {
                        Some(redial_ns) if redial_ns < deadline_ns => (redial_ns, Due::Redial),
                        _ => (deadline_ns, Due::Connect),
                    }
                }
                EventSource::Listener(listener) => match listener.paused_until_ns {
                    Some(until_ns) => (until_ns, Due::Listen),
                    None => continue,
                },
                EventSource::Conn(rx) => {
                    connections = true;
                    for token in rx.conn.take_overdue(now_ns) {
                        rx.peer.ni.upcalls.finalize_tx(token, Err(Errno::ETIMEDOUT));
                    }
                    let timeout_ns = rx.peer.ni.timeout_ns;
                    rx.sending.check(&rx.conn, now_ns, (timeout_ns / NS_PER_S) as u32);
                    match check_receiving(rx, now_ns, timeout_ns) {
                        Some(due) => found.push((key, due)),
                        None if rx.sends_late(now_ns, timeout_ns) => late.push(key),
                        None => rx.sending.doubt.end(),
                    }
                    continue;
                }
                EventSource::Vacant => continue,
            };
            if deadline_ns <= now_ns {
                found.push((key, due));
            } else {
                self.core.timers.note(deadline_ns);
            }
        }
        if connections {
            self.core.timers.note_period(now_ns);
        }
        let mut shortages = Shortages::default();
        for key in late {
            found.extend(self.check_sending(now_ns, key, &mut shortages).map(|due| (key, due)));
        }
        found
    }

    /// Decides on a connection with data that does not progress, or too slowly. The connection ends
    /// only if its peer has been silent for the same time. A peer that is not silent may hold
    /// earlier messages ([`lnet_lnd::life`]): then only unsent messages end, if they have credits
    /// that messages to others wait for.
    fn check_sending(&mut self, now_ns: u64, key: ShardKey, shortages: &mut Shortages) -> Option<Due> {
        let peer = self.sources.get(key)?.conn()?.peer.clone();
        let heard_ns = self.heard_ns(&peer);
        let rx = self.sources.get_mut(key)?.conn_mut()?;
        let timeout_ns = peer.ni.timeout_ns;
        let (silence, changes_ns) = match heard_ns {
            Some(heard_ns) => rx.sending.doubt.silence(now_ns, heard_ns, timeout_ns),
            None => (Silence::None, u64::MAX),
        };
        let queued = rx.conn.queued();
        let stalled_ns = rx.sending.stalled_since_ns(queued);
        let lasts =
            |part_ns: u64| stalled_ns.is_some_and(|since_ns| since_ns.saturating_add(part_ns) <= now_ns);
        if silence == Silence::Whole && lasts(timeout_ns) {
            return Some(Due::Stuck("nothing can be sent on it"));
        }
        if queued > 0
            && lasts(timeout_ns / SHORT_PART)
            && shortages.is_short(peer.ni.id.nid, &*peer.ni.upcalls)
        {
            if silence >= Silence::Short {
                return Some(Due::Stuck(
                    "nothing can be sent on it, and messages to others wait for its credits",
                ));
            }
            let lives = silence == Silence::None;
            for token in lives.then(|| rx.conn.take_unbegun()).into_iter().flatten() {
                peer.ni.upcalls.finalize_tx(token, Err(Errno::ETIMEDOUT));
            }
        }
        let begun_ns = rx.conn.begun_deadline_ns();
        if silence == Silence::Whole && begun_ns.is_some_and(|ns| ns.saturating_add(timeout_ns) <= now_ns) {
            return Some(Due::Stuck("a message has begun to leave and is long overdue"));
        }
        // The second check confirms a stall; the connection must end then, and not wait for a third
        // check.
        let ends = [timeout_ns / SHORT_PART, timeout_ns]
            .map(|part_ns| stalled_ns.map(|ns| ns.saturating_add(part_ns)));
        let ends = ends.into_iter().flatten().chain([changes_ns]);
        ends.filter(|at_ns| *at_ns > now_ns).for_each(|at_ns| self.core.timers.note(at_ns));
        None
    }

    /// Sends a keepalive to a peer that has been silent for the keepalive time, unless other data
    /// serves the same purpose. Returns the number sent, 0 or 1.
    pub(super) fn keep_alive(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
        let conn = {
            let mut state = peer.state.lock();
            let conns = || state.conns.iter().filter_map(|conn| self.sources.get(conn.key)?.conn());
            let Some(heard_ns) = conns().map(|rx| rx.last_heard_ns).max() else { return 0 };
            // Unacknowledged data serves the same purpose. Nor is a keepalive needed while such
            // data stalls: a kernel node that holds messages, and shows no other sign of life,
            // sends keepalives to a silent peer.
            if conns().any(|rx| rx.sending.is_stalled()) {
                return 0;
            }
            let Some(conn) = state.choose_for_noop().cloned() else { return 0 };
            let silence_ns = turn.shared.config.keepalive_ns();
            let new = || Keepalive::new(conn.version, silence_ns, heard_ns);
            let keepalive = state.own.keepalive.get_or_insert_with(new);
            keepalive.heard(heard_ns);
            if keepalive.poll(turn.now_ns, conn.queued() == 0).is_none() {
                return 0;
            }
            conn
        };
        conn.keep_alive();
        1
    }
}
