//! Timers (lnet-wire 28): coarse, for everything is looked at in one pass.

use crate::sock::Peer;
use lnet_lnd::Miss;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::closing::close_broken;
use lnet_lnd::driver::look_at_peers;
use lnet_lnd::timers::{SHORT_PART, Shortages};
use lnet_proto::sock::Keepalive;

use super::Driver;
use super::receive::RxConn;
use super::source::Source;
use crate::attempts::CROWDED_NS;
use crate::peer::Choose;
use crate::sock::Turn;
use lnet_lnd::slab::Key;

/// A message that has begun must end within so many timeouts, however steadily it trickles: a megabyte in 100 s by default.
const TIMEOUTS_PER_MESSAGE: u64 = 2;

/// What a timer has found.
enum Due {
    Accept,
    Connect,
    Redial,
    Listen,
    Stuck(&'static str),
    Gone,
}

/// Whether a connection still moves, and may go on as it does.
fn judge(
    rx: &mut RxConn,
    now_ns: u64,
    timeout_ns: u64,
    is_short: impl FnOnce(&RxConn) -> bool,
) -> Option<Due> {
    let written = rx.conn.written();
    rx.write_mark = match rx.write_mark {
        _ if rx.conn.queued() == 0 => None,
        Some(mark) if mark.0 == written => Some(mark),
        _ => Some((written, now_ns)),
    };
    if rx.stuck_at_ns(timeout_ns).is_some_and(|at_ns| at_ns <= now_ns) {
        return Some(Due::Stuck("nothing can be sent on it"));
    }
    if rx.stuck_at_ns(timeout_ns / SHORT_PART).is_some_and(|at_ns| at_ns <= now_ns) && is_short(rx) {
        return Some(Due::Stuck("nothing can be sent on it, and messages to others wait for its credits"));
    }
    if rx.conn.begun_deadline_ns().is_some_and(|ns| ns.saturating_add(timeout_ns) <= now_ns) {
        return Some(Due::Stuck("a message has begun to leave and is long overdue"));
    }
    if rx.is_mid_message() && rx.last_heard_ns.saturating_add(timeout_ns) <= now_ns {
        return Some(Due::Stuck("a message has begun and does not end"));
    }
    if rx.has_lasted(TIMEOUTS_PER_MESSAGE * timeout_ns, now_ns) {
        return Some(Due::Stuck("a message comes too slowly"));
    }
    // What is held back is not read, so that nothing else shows the end.
    (rx.is_held() && rx.ending).then_some(Due::Gone)
}

impl Driver {
    pub(super) fn fire_timers(&mut self, turn: Turn<'_>) -> usize {
        if !self.core.timers.begin(turn.now_ns) {
            return 0;
        }
        let due = self.look_at_sources(turn);
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
                    close_broken(self, turn, key, Miss::gone(Errno::ETIMEDOUT, what));
                }
                Due::Gone => {
                    close_broken(self, turn, key, Miss::gone(Errno::ECONNRESET, "the peer closed it"));
                }
            }
        }
        count + look_at_peers(self, turn)
    }

    fn look_at_sources(&mut self, turn: Turn<'_>) -> Vec<(Key, Due)> {
        let now_ns = turn.now_ns;
        let mut found = Vec::new();
        let mut connections = false;
        let mut shortages = Shortages::default();
        let crowded = turn.shared.own.attempts.is_crowded();
        for (key, source) in self.sources.iter_mut() {
            let (deadline_ns, due) = match source {
                Source::Accepting(accepting) => (accepting.deadline_ns, Due::Accept),
                Source::Connecting(connecting) => {
                    // Others may come to queue.
                    self.core.timers.note(now_ns.saturating_add(CROWDED_NS));
                    let deadline_ns = connecting.deadline_ns(crowded);
                    match connecting.redial_ns(turn.shared.config.min_reconnect_ns()) {
                        Some(redial_ns) if redial_ns < deadline_ns => (redial_ns, Due::Redial),
                        _ => (deadline_ns, Due::Connect),
                    }
                }
                Source::Listener(listener) => match listener.paused_until_ns {
                    Some(until_ns) => (until_ns, Due::Listen),
                    None => continue,
                },
                Source::Conn(rx) => {
                    connections = true;
                    for token in rx.conn.take_overdue(now_ns) {
                        rx.peer.ni.upcalls.finalize_tx(token, Err(Errno::ETIMEDOUT));
                    }
                    let timeout_ns = rx.peer.ni.timeout_ns;
                    let is_short = |rx: &RxConn| shortages.is_short(rx.peer.ni.id.nid, &*rx.peer.ni.upcalls);
                    found.extend(judge(rx, now_ns, timeout_ns, is_short).map(|due| (key, due)));
                    // What has happened between two looks is known at the second: the end must not wait for another.
                    let ends = [timeout_ns / SHORT_PART, timeout_ns].map(|part_ns| rx.stuck_at_ns(part_ns));
                    if let Some(at_ns) = ends.into_iter().flatten().find(|at_ns| *at_ns > now_ns) {
                        self.core.timers.note(at_ns);
                    }
                    continue;
                }
                Source::Vacant => continue,
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
        found
    }

    /// Sends a keepalive to a peer that has not been heard of for long.
    pub(super) fn keep_alive(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
        let conn = {
            let mut state = peer.state.lock();
            let heard = |key| self.sources.get(key).and_then(Source::conn).map_or(0, |rx| rx.last_heard_ns);
            let Some(heard_ns) = state.conns.iter().map(|conn| heard(conn.key)).max() else { return 0 };
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
