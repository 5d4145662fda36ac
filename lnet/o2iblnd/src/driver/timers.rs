//! Timers (lnet-wire 38): coarse, for everything is looked at in one pass.

use std::sync::Arc;

use lnet_api::{Errno, Tx};
use lnet_nid::Nid;
use smallvec::SmallVec;

use super::close::{Broken, retire_if_idle};
use super::digest::RxConn;
use super::events::give_up;
use super::{Driver, Source, Turn};
use crate::O2ibConfig;
use crate::conn::Late;
use crate::ni::Ni;
use crate::peer::Peer;
use lnet_api::slab::Key;

/// How often a period of a timeout is looked at: detection takes at most 1.25 times the timeout.
const LOOKS_PER_TIMEOUT: u64 = 4;

/// While messages wait for credits of an NI, a connection that holds some and makes no progress is given up after this part of the
/// timeout: 12.5 s by default. Progress is that a message leaves, that the peer's device has taken one, or that the peer answers: a
/// peer that is merely slow does some of it, and one without credits that others want gets the whole time.
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
    pub(super) fn new(config: &O2ibConfig) -> Timers {
        Timers { next_ns: None, period_ns: config.keepalive_ns() / LOOKS_PER_TIMEOUT }
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

fn what_is(late: Late) -> &'static str {
    match late {
        Late::Queued => "a message waits for credits, which the peer does not give back",
        Late::Posted => "a send does not complete",
        Late::Unanswered => "the peer does not answer",
        Late::Unprepared => "this node has not answered in time",
    }
}

/// Why a connection is given up while credits are short.
const STUCK: &str = "it makes no progress, and messages to others wait for its credits";

/// What a look at a connection finds.
enum Look {
    /// Its queues are gone.
    Closed,
    /// An operation has not ended by its deadline.
    Late(Late),
    /// Neither.
    Well {
        /// When it is to be looked at again.
        deadline_ns: u64,
        /// When it has made no progress for the short part of the timeout, if own operations are under way.
        stuck_at_ns: Option<u64>,
    },
}

/// Looks at a connection, and sends what is due on it.
fn look(rx: &mut RxConn, now_ns: u64) -> Look {
    let mut guard = rx.conn.state.lock();
    let state = &mut *guard;
    let Some(live) = &mut state.live else { return Look::Closed };
    if let Some(late) = live.machine.late(now_ns) {
        return Look::Late(late);
    }
    rx.progress_mark = match (rx.progress_mark, live.machine.progress()) {
        (_, None) => None,
        (Some(mark), Some(steps)) if mark.0 == steps => Some(mark),
        (_, Some(steps)) => Some((steps, now_ns)),
    };
    let short_ns = rx.conn.ni().timeout_ns() / SHORT_PART;
    let stuck_at_ns = rx.progress_mark.map(|(_, since_ns)| since_ns.saturating_add(short_ns));
    let deadline_ns = live.machine.deadline_ns();
    rx.conn.pump(state, now_ns);
    Look::Well { deadline_ns, stuck_at_ns }
}

/// Whether messages wait for credits of an NI: asked once for each in a pass, and under no lock of a connection.
fn is_short(known: &mut SmallVec<[(Nid, bool); 4]>, ni: &Ni) -> bool {
    let nid = ni.id.nid;
    if let Some((_, short)) = known.iter().find(|(known, _)| *known == nid) {
        return *short;
    }
    let short = ni.upcalls.is_short(nid);
    known.push((nid, short));
    short
}

impl Driver {
    pub(super) fn fire_timers(&mut self, turn: Turn<'_>) -> usize {
        if !self.timers.is_due(turn.now_ns) {
            return 0;
        }
        self.timers.next_ns = None;
        for ni in turn.shared.nis.matching(None) {
            for pool in [&ni.pool, &ni.sinks] {
                std::iter::from_fn(|| pool.overdue(turn.now_ns)).for_each(give_up);
            }
        }
        let due = self.look_at_conns(turn);
        let count = due.len();
        for (key, detail) in due {
            self.close_broken(turn, key, Broken::system(Errno::ETIMEDOUT, detail));
        }
        count + self.look_at_peers(turn)
    }

    /// Connections that are at their end, each with the reason.
    fn look_at_conns(&mut self, turn: Turn<'_>) -> Vec<(Key, &'static str)> {
        let now_ns = turn.now_ns;
        let mut found = Vec::new();
        let mut connections = false;
        // Of each NI that has been asked in this pass, whether credits are short.
        let mut short: SmallVec<[(Nid, bool); 4]> = SmallVec::new();
        for (key, source) in self.sources.iter_mut() {
            let Source::Conn(rx) = source else { continue };
            connections = true;
            match look(rx, now_ns) {
                Look::Closed => {}
                Look::Late(late) => found.push((key, what_is(late))),
                Look::Well { deadline_ns, stuck_at_ns } => {
                    self.timers.note(deadline_ns.max(now_ns + 1));
                    match stuck_at_ns {
                        Some(at_ns) if at_ns > now_ns => self.timers.note(at_ns),
                        Some(_) if is_short(&mut short, rx.conn.ni()) => found.push((key, STUCK)),
                        Some(_) | None => {}
                    }
                }
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
            loop {
                let overdue = peer.state.lock().links.overdue(turn.now_ns);
                let Some(id) = overdue else { break };
                self.overdue(turn, &peer, id);
                count += 1;
            }
            let deadline_ns = peer.state.lock().links.deadline_ns();
            if let Some(deadline_ns) = deadline_ns {
                self.timers.note(deadline_ns);
            }
            self.advance_peer(turn, &peer);
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
}
