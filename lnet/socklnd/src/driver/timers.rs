//! Timers (lnet-wire 28): coarse, for everything is looked at in one pass.

use std::sync::Arc;

use lnet_api::{Errno, Tx};
use lnet_nid::Nid;
use lnet_proto::sock::Keepalive;
use smallvec::SmallVec;

use super::close::retire_if_idle;
use super::receive::{Broken, RxConn};
use super::{Driver, Source, Turn};
use crate::SockConfig;
use crate::attempts::CROWDED_NS;
use crate::peer::Peer;
use lnet_api::slab::Key;

/// How often a period of a timeout is looked at: detection takes at most 1.25 times the timeout.
const LOOKS_PER_TIMEOUT: u64 = 4;

/// A message that has begun must end within so many timeouts, however steadily it trickles: a megabyte in 100 s by default.
const TIMEOUTS_PER_MESSAGE: u64 = 2;

/// While messages wait for credits of an NI, a connection that holds some and on which nothing can be sent is given up after this
/// part of the timeout: 12.5 s by default. A peer that takes nothing for as long as TCP needs to repeat a segment five times is
/// stuck; one that is merely slow takes something, and one without credits that others want gets the whole time.
const SHORT_PART: u64 = 4;

/// So many peers without connections are remembered for the reason of their last failure.
const FAILURES_KEPT: usize = 1024;

/// When the next pass is due.
pub(super) struct Timers {
    next_ns: Option<u64>,
    /// The time between passes while there are connections.
    period_ns: u64,
}

impl Timers {
    pub(super) fn new(config: &SockConfig) -> Timers {
        let longest_ns = config.keepalive_ns().unwrap_or(u64::MAX);
        Timers { next_ns: None, period_ns: longest_ns / LOOKS_PER_TIMEOUT }
    }

    /// Something is due then.
    pub(super) fn note(&mut self, at_ns: u64) {
        self.next_ns = Some(self.next_ns.map_or(at_ns, |next_ns| next_ns.min(at_ns)));
    }

    /// There are connections to look at, of an NI with this timeout.
    pub(super) fn note_activity(&mut self, now_ns: u64, timeout_ns: u64) {
        self.period_ns = self.period_ns.min(timeout_ns / LOOKS_PER_TIMEOUT);
        self.note_period(now_ns);
    }

    /// There are connections to look at still.
    fn note_period(&mut self, now_ns: u64) {
        self.note(now_ns.saturating_add(self.period_ns));
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    fn is_due(&self, now_ns: u64) -> bool {
        self.next_ns.is_some_and(|next_ns| next_ns <= now_ns)
    }
}

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
        return Some(Due::Stuck(if rx.is_held() {
            "LNet has held a message back for too long"
        } else {
            "a message comes too slowly"
        }));
    }
    // What is held back is not read, so that nothing else shows the end.
    (rx.is_held() && rx.ending).then_some(Due::Gone)
}

impl Driver {
    pub(super) fn fire_timers(&mut self, turn: Turn<'_>) -> usize {
        if !self.timers.is_due(turn.now_ns) {
            return 0;
        }
        self.timers.next_ns = None;
        let due = self.look_at_sources(turn);
        let count = due.len();
        for (key, due) in due {
            match due {
                Due::Accept => {
                    turn.shard.counters.rx.handshake_timeouts.one();
                    self.drop_accepting(key);
                }
                Due::Connect => self.connecting_timed_out(turn, key),
                Due::Redial => self.redial(turn, key),
                Due::Listen => self.make_ready(key),
                Due::Stuck(what) => {
                    self.close_broken(turn, key, Broken::new(Errno::ETIMEDOUT, what));
                }
                Due::Gone => {
                    self.close_broken(turn, key, Broken::new(Errno::ECONNRESET, "the peer closed it"));
                }
            }
        }
        count + self.look_at_peers(turn)
    }

    fn look_at_sources(&mut self, turn: Turn<'_>) -> Vec<(Key, Due)> {
        let now_ns = turn.now_ns;
        let mut found = Vec::new();
        let mut connections = false;
        // Of each NI that has been asked in this pass, whether credits are short.
        let mut short: SmallVec<[(Nid, bool); 4]> = SmallVec::new();
        let crowded = turn.shared.attempts.is_crowded();
        for (key, source) in self.sources.iter_mut() {
            let (deadline_ns, due) = match source {
                Source::Accepting(accepting) => (accepting.deadline_ns, Due::Accept),
                Source::Connecting(connecting) => {
                    // Others may come to queue.
                    self.timers.note(now_ns.saturating_add(CROWDED_NS));
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
                    let is_short = |rx: &RxConn| {
                        let ni = &rx.peer.ni;
                        let known = short.iter().find(|(nid, _)| *nid == ni.id.nid).map(|(_, short)| *short);
                        known.unwrap_or_else(|| {
                            let is_short = ni.upcalls.is_short(ni.id.nid);
                            short.push((ni.id.nid, is_short));
                            is_short
                        })
                    };
                    found.extend(judge(rx, now_ns, timeout_ns, is_short).map(|due| (key, due)));
                    // What has happened between two looks is known at the second: the end must not wait for another.
                    let ends = [timeout_ns / SHORT_PART, timeout_ns].map(|part_ns| rx.stuck_at_ns(part_ns));
                    if let Some(at_ns) = ends.into_iter().flatten().find(|at_ns| *at_ns > now_ns) {
                        self.timers.note(at_ns);
                    }
                    continue;
                }
                Source::Lost(_) | Source::Vacant => continue,
            };
            if deadline_ns <= now_ns {
                found.push((key, due));
            } else {
                self.timers.note(deadline_ns);
            }
        }
        if connections {
            self.timers.note_period(now_ns);
        }
        found
    }

    fn look_at_peers(&mut self, turn: Turn<'_>) -> usize {
        let mut peers = std::mem::take(&mut self.peers);
        turn.shared.peers.collect(&mut peers, |peer| peer.shard.number == turn.shard.number);
        let crowded = peers.len() > FAILURES_KEPT;
        let mut count = 0;
        for peer in peers.drain(..) {
            count += self.fail_overdue(turn, &peer);
            self.advance_peer(turn, &peer);
            count += self.keep_alive(turn, &peer);
            retire_if_idle(&turn.shared.peers, &peer, turn.now_ns, crowded);
        }
        self.peers = peers;
        count
    }

    /// Fails the messages that have waited too long for a connection.
    fn fail_overdue(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
        let mut overdue: Vec<Tx> = Vec::new();
        {
            let mut state = peer.state.lock();
            while state.waiting.front().is_some_and(|tx| tx.deadline_ns <= turn.now_ns) {
                overdue.extend(state.waiting.pop_front());
            }
        }
        let count = overdue.len();
        for tx in overdue {
            drop(tx.payload);
            peer.ni.upcalls.finalize_tx(tx.token, Err(Errno::ETIMEDOUT));
        }
        count
    }

    /// Sends a keepalive to a peer that has not been heard of for long.
    fn keep_alive(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) -> usize {
        let conn = {
            let mut state = peer.state.lock();
            let heard = |key| match self.sources.get(key) {
                Some(Source::Conn(rx)) => rx.last_heard_ns,
                _ => 0,
            };
            let Some(heard_ns) = state.conns.iter().map(|conn| heard(conn.key)).max() else { return 0 };
            let Some(conn) = state.choose_for_noop().cloned() else { return 0 };
            let silence_ns = turn.shared.config.keepalive_ns();
            let new = || Keepalive::new(conn.version, silence_ns, heard_ns);
            let keepalive = state.keepalive.get_or_insert_with(new);
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
