//! Whether what is sent on a connection moves (lnet-wire 28): what is queued here, and what the peer's TCP has not acknowledged.

use lnet_lnd::life::Doubt;

use crate::conn::Conn;

/// What is known of it since the last look.
#[derive(Default)]
pub(super) struct Sending {
    stall: Option<Stall>,
    /// So many bytes had been written when the last of them was acknowledged, and nothing was queued.
    settled: u64,
    /// The system does not end it: what was sent waits for room at the peer, whose system answers.
    patient: bool,
    /// Whether the peer lives.
    pub(super) doubt: Doubt,
}

/// There is something to send, and it does not move.
struct Stall {
    /// Bytes that the peer's TCP has acknowledged, or that were written if the system does not say.
    moved: u64,
    since_ns: u64,
    /// Nothing has moved between two looks.
    confirmed: bool,
}

impl Sending {
    /// Looks whether something has moved. The system is asked only about a connection on which something may be under way.
    ///
    /// Its own limit for what is not acknowledged also counts while the peer's system answers, and only its program reads nothing
    /// (tcp(7)). Then the driver decides in its place: it knows whether the program has been heard.
    pub(super) fn look(&mut self, conn: &Conn, now_ns: u64, timeout_s: u32) {
        let (written, queued) = (conn.written(), conn.queued());
        let facts = if queued > 0 || written != self.settled { conn.stream.facts() } else { None };
        let unacked = facts.map_or(0, |facts| facts.unacked_bytes);
        if queued == 0 && unacked == 0 {
            self.settled = written;
            self.stall = None;
            self.doubt.end();
        } else {
            // What is under way counts in whole segments, which TCP may cut anew. That a socket takes a NOOP is no progress.
            let moved = written.saturating_sub(unacked);
            match &mut self.stall {
                Some(stall) if stall.moved >= moved => stall.confirmed = true,
                stall => *stall = Some(Stall { moved, since_ns: now_ns, confirmed: false }),
            }
        }
        let confirmed = self.stall.as_ref().is_some_and(|stall| stall.confirmed);
        let patient = confirmed && facts.is_some_and(|facts| facts.waits_for_room());
        if patient != std::mem::replace(&mut self.patient, patient) {
            conn.stream.limit_unacked(if patient { 0 } else { timeout_s });
        }
    }

    /// Since when nothing has moved, if the end of the connection is not left to the system.
    pub(super) fn stalled_since_ns(&self, queued: usize) -> Option<u64> {
        self.stall.as_ref().filter(|_| queued > 0 || self.patient).map(|stall| stall.since_ns)
    }

    /// Whether nothing has moved between two looks.
    pub(super) fn is_stalled(&self) -> bool {
        self.stall.as_ref().is_some_and(|stall| stall.confirmed)
    }
}
