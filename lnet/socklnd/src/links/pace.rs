//! The pace of connection attempts to a peer: pauses, retries, and the time limit for opening a
//! connection set (lnet-wire 24).

use lnet_lnd::pace::{Backoff, Pause};

use super::Bounds;

/// The maximum number of refusals in a row before the connection set is accepted incomplete, or the
/// attempts end.
const RETRIES_MAX: u32 = 3;

/// The pace of the attempts to connect to one peer.
#[derive(Debug)]
pub(super) struct Pace {
    bounds: Bounds,
    /// Refusals in a row.
    refusals: u32,
    backoff: Backoff,
    /// Until this time, no second connection of a type is requested from the peer.
    surplus_ns: u64,
    /// The time at which the first of the live connections was established.
    since_ns: u64,
    /// The number of connections that ended alone, soon after they were opened, since the first
    /// live connection.
    alone: u32,
    /// End of the pause after the last connection that ended alone.
    alone_ns: u64,
    /// The start time of the current attempt.
    begun_ns: u64,
    /// Time left for the attempts that complete the set. The bound applies to all of them together:
    /// with a bound for each, a peer that delays every attempt would hold a permit for many
    /// timeouts. Pauses, and waiting in the queue for a permit, do not count.
    left_ns: u64,
}

impl Pace {
    pub(super) fn new(bounds: Bounds) -> Pace {
        Pace {
            bounds,
            refusals: 0,
            backoff: Backoff::new(bounds.min_reconnect_ns, bounds.max_reconnect_ns),
            surplus_ns: 0,
            since_ns: 0,
            alone: 0,
            alone_ns: 0,
            begun_ns: 0,
            left_ns: bounds.timeout_ns,
        }
    }

    /// Returns the pause in force at this time.
    pub(super) fn pause(&self, now_ns: u64) -> Option<Pause> {
        let alone = Pause::Retry { until_ns: self.alone_ns };
        self.backoff.pause(now_ns).or(Some(alone).filter(|pause| now_ns < pause.until_ns()))
    }

    /// Starts an attempt. Returns its deadline.
    pub(super) fn begin(&mut self, now_ns: u64) -> u64 {
        self.begun_ns = now_ns;
        now_ns.saturating_add(self.left_ns)
    }

    /// Records that the attempt has established a connection: resets the refusals and the back-off.
    /// `first` means that it is the peer's only live connection.
    pub(super) fn established(&mut self, first: bool, now_ns: u64) {
        self.spend(now_ns);
        self.refusals = 0;
        self.backoff.established();
        if first {
            self.since_ns = now_ns;
        }
    }

    /// Counts a refusal of the attempt. Returns whether this side may try again.
    pub(super) fn refused(&mut self, now_ns: u64) -> bool {
        self.spend(now_ns);
        self.refusals += 1;
        self.refusals <= RETRIES_MAX
    }

    /// Delays the next attempt by the shortest pause, because the peer is to be tried later.
    pub(super) fn delay_retry(&mut self, now_ns: u64) {
        self.backoff.delay_retry(now_ns);
    }

    /// Records that the attempt has failed: restores the time limit and the retries, and lengthens
    /// the back-off.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.begin_anew();
        self.backoff.failed(now_ns);
    }

    /// Restores the full time limit and all retries: the set is complete or accepted incomplete, or
    /// the attempts have ended.
    pub(super) fn begin_anew(&mut self) {
        self.refusals = 0;
        self.left_ns = self.bounds.timeout_ns;
    }

    /// Records that the last connection has ended; `opened` if this side had opened any. Only then
    /// does the back-off apply.
    pub(super) fn lost(&mut self, opened: bool, now_ns: u64) {
        self.left_ns = self.bounds.timeout_ns;
        // Now all connections have ended, so those that ended alone were only the first of them.
        (self.alone, self.alone_ns) = (0, 0);
        if opened {
            self.backoff.lost(self.since_ns, now_ns, false);
        }
    }

    /// Delays the next attempt, longer each time, after one connection ended soon after it was
    /// opened while others are live.
    pub(super) fn lost_one(&mut self, now_ns: u64) {
        let Bounds { min_reconnect_ns, max_reconnect_ns, .. } = self.bounds;
        let doubled_ns = min_reconnect_ns.saturating_mul(1_u64.checked_shl(self.alone).unwrap_or(u64::MAX));
        self.alone = self.alone.saturating_add(1);
        self.alone_ns = now_ns.saturating_add(doubled_ns.min(max_reconnect_ns));
    }

    /// Delays the next request for a second connection of a type by the longest pause, because the
    /// peer refused one. The peer's limit may stay lower than this side's.
    pub(super) fn put_off_surplus(&mut self, now_ns: u64) {
        self.begin_anew();
        self.surplus_ns = now_ns.saturating_add(self.bounds.max_reconnect_ns);
    }

    /// Returns the time until which no second connection of a type is requested from the peer.
    pub(super) fn surplus_pause(&self, now_ns: u64) -> Option<u64> {
        Some(self.surplus_ns).filter(|until_ns| now_ns < *until_ns)
    }

    /// Ends the pause for second connections of a type.
    pub(super) fn allow_surplus(&mut self) {
        self.surplus_ns = 0;
    }

    fn spend(&mut self, now_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(now_ns.saturating_sub(self.begun_ns));
    }
}
