//! Progress of sending on a connection (lnet-wire 28): of the bytes queued here, and of those that
//! the peer's TCP has not acknowledged.

use lnet_lnd::life::Doubt;

use crate::conn::Conn;

/// The progress since the last check.
#[derive(Default)]
pub(super) struct SendProgress {
    stall: Option<Stall>,
    /// The bytes written when all of them were acknowledged and none was queued.
    settled: u64,
    /// Set while the system's limit for unacknowledged data is off: sent data waits for room at the
    /// peer, and the peer's system answers.
    unlimited: bool,
    /// The doubt whether the peer still runs.
    pub(super) doubt: Doubt,
}

/// Unsent data without progress.
struct Stall {
    /// Bytes that the peer's TCP has acknowledged, or bytes written if the system does not report
    /// that.
    moved: u64,
    since_ns: u64,
    /// Set when nothing has progressed between two checks.
    confirmed: bool,
}

impl SendProgress {
    /// Checks the progress. Queries the system only for a connection with data that may be under
    /// way.
    ///
    /// The system's own limit for unacknowledged data also applies while the peer's system answers
    /// and only its program reads nothing (tcp(7)). In that case the driver decides instead,
    /// because it has the time at which data last came from the program.
    pub(super) fn check(&mut self, conn: &Conn, now_ns: u64, timeout_s: u32) {
        let (written, queued) = (conn.written(), conn.queued());
        let facts = if queued > 0 || written != self.settled { conn.stream.facts() } else { None };
        let unacked = facts.map_or(0, |facts| facts.unacked_bytes);
        if queued == 0 && unacked == 0 {
            self.settled = written;
            self.stall = None;
            self.doubt.end();
        } else {
            // Data under way counts in whole segments, which TCP may split differently. A NOOP that
            // fits into the socket is no progress.
            let moved = written.saturating_sub(unacked);
            match &mut self.stall {
                Some(stall) if stall.moved >= moved => stall.confirmed = true,
                stall => *stall = Some(Stall { moved, since_ns: now_ns, confirmed: false }),
            }
        }
        let confirmed = self.stall.as_ref().is_some_and(|stall| stall.confirmed);
        let unlimited = confirmed && facts.is_some_and(|facts| facts.waits_for_room());
        if unlimited != std::mem::replace(&mut self.unlimited, unlimited) {
            conn.stream.limit_unacked(if unlimited { 0 } else { timeout_s });
        }
    }

    /// Returns the time since which nothing has progressed, if the driver and not the system must
    /// end the connection.
    pub(super) fn stalled_since_ns(&self, queued: usize) -> Option<u64> {
        self.stall.as_ref().filter(|_| queued > 0 || self.unlimited).map(|stall| stall.since_ns)
    }

    /// Returns whether nothing has progressed between two checks.
    pub(super) fn is_stalled(&self) -> bool {
        self.stall.as_ref().is_some_and(|stall| stall.confirmed)
    }
}
