//! Timers (lnet-wire 38): coarse, for everything is looked at in one pass.

use lnet_api::Errno;
use lnet_lnd::Miss;
use lnet_lnd::closing::close_broken;
use lnet_lnd::driver::look_at_peers;
use lnet_lnd::timers::{SHORT_PART, Shortages};

use super::Driver;
use super::events::give_up;
use super::rx_conn::RxConn;
use crate::conn::Late;
use crate::o2ib::Turn;
use lnet_lnd::slab::Key;

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
    let short_ns = rx.conn.ni().timeout_ns / SHORT_PART;
    let stuck_at_ns = rx.progress_mark.map(|(_, since_ns)| since_ns.saturating_add(short_ns));
    let deadline_ns = live.machine.deadline_ns();
    rx.conn.pump(state, now_ns);
    Look::Well { deadline_ns, stuck_at_ns }
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
        let due = self.look_at_conns(turn);
        let count = due.len();
        for (key, detail) in due {
            close_broken(self, turn, key, Miss::gone(Errno::ETIMEDOUT, detail));
        }
        count + look_at_peers(self, turn)
    }

    /// Connections that are at their end, each with the reason.
    fn look_at_conns(&mut self, turn: Turn<'_>) -> Vec<(Key, &'static str)> {
        let now_ns = turn.now_ns;
        let mut found = Vec::new();
        let mut connections = false;
        let mut shortages = Shortages::default();
        for (key, rx) in self.sources.iter_mut().filter_map(|(key, source)| Some((key, source.conn_mut()?))) {
            connections = true;
            match look(rx, now_ns) {
                Look::Closed => {}
                Look::Late(late) => found.push((key, what_is(late))),
                Look::Well { deadline_ns, stuck_at_ns } => {
                    self.core.timers.note(deadline_ns.max(now_ns + 1));
                    match stuck_at_ns {
                        Some(at_ns) if at_ns > now_ns => self.core.timers.note(at_ns),
                        Some(_) => {
                            let ni = rx.conn.ni();
                            if shortages.is_short(ni.id.nid, &*ni.upcalls) {
                                found.push((key, STUCK));
                            }
                        }
                        None => {}
                    }
                }
            }
        }
        if connections {
            self.core.timers.note_period(now_ns);
        }
        found
    }
}
