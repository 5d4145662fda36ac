//! How soon, how often and for how long a peer is tried: pauses, retries, and the time that a set of connections may take
//! to be opened (lnet-wire 24).

use lnet_lnd::pace::{Backoff, Pause};

use super::Bounds;

/// How often in a row an attempt may be refused before the set of connections is taken as it is, or given up.
const RETRIES_MAX: u32 = 3;

/// The pace of the attempts to connect to one peer.
#[derive(Debug)]
pub(super) struct Pace {
    bounds: Bounds,
    /// Refusals in a row.
    refusals: u32,
    backoff: Backoff,
    /// Until then the peer is not asked for more than one connection of a type.
    surplus_ns: u64,
    /// When the first of the live connections stood.
    since_ns: u64,
    /// How many connections have ended alone since there are any, soon after they were opened.
    alone: u32,
    /// Until then none is opened in place of the last of these.
    alone_ns: u64,
    /// When the attempt under way began.
    begun_ns: u64,
    /// How long the attempts may still take that complete the set: none of them is bounded alone, or a peer that delays
    /// each would hold an attempt for many timeouts. Pauses, and turns that are waited for, are not the peer's time.
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

    /// The pause that there is at this time.
    pub(super) fn pause(&self, now_ns: u64) -> Option<Pause> {
        let alone = Pause::Retry { until_ns: self.alone_ns };
        self.backoff.pause(now_ns).or(Some(alone).filter(|pause| now_ns < pause.until_ns()))
    }

    /// An attempt begins; when it must be over.
    pub(super) fn begin(&mut self, now_ns: u64) -> u64 {
        self.begun_ns = now_ns;
        now_ns.saturating_add(self.left_ns)
    }

    /// The attempt gave a connection, the first or a further one.
    pub(super) fn established(&mut self, first: bool, now_ns: u64) {
        self.spend(now_ns);
        self.refusals = 0;
        self.backoff.established();
        if first {
            self.since_ns = now_ns;
        }
    }

    /// The attempt was refused; whether there may be another.
    pub(super) fn refused(&mut self, now_ns: u64) -> bool {
        self.spend(now_ns);
        self.refusals += 1;
        self.refusals <= RETRIES_MAX
    }

    /// The next attempt waits for the shortest pause.
    pub(super) fn be_patient(&mut self, now_ns: u64) {
        self.backoff.be_patient(now_ns);
    }

    /// The attempt failed.
    pub(super) fn failed(&mut self, now_ns: u64) {
        self.begin_anew();
        self.backoff.failed(now_ns);
    }

    /// The set is complete, given up, or taken as it is: what is opened from now on has the whole time, and all retries.
    pub(super) fn begin_anew(&mut self) {
        self.refusals = 0;
        self.left_ns = self.bounds.timeout_ns;
    }

    /// All connections are gone, of which this side has `opened` some or none.
    pub(super) fn lost(&mut self, opened: bool, now_ns: u64) {
        self.left_ns = self.bounds.timeout_ns;
        // Those that went before were the first of them all.
        (self.alone, self.alone_ns) = (0, 0);
        if opened {
            self.backoff.lost(self.since_ns, now_ns, false);
        }
    }

    /// One connection is gone soon after it was opened, and others are not: the next attempt waits, and each time longer.
    pub(super) fn lost_one(&mut self, now_ns: u64) {
        let Bounds { min_reconnect_ns, max_reconnect_ns, .. } = self.bounds;
        let doubled_ns = min_reconnect_ns.saturating_mul(1_u64.checked_shl(self.alone).unwrap_or(u64::MAX));
        self.alone = self.alone.saturating_add(1);
        self.alone_ns = now_ns.saturating_add(doubled_ns.min(max_reconnect_ns));
    }

    /// The peer takes no second connection of a type: it is asked again after the longest pause. It may allow fewer than
    /// this side for as long as both run.
    pub(super) fn put_off_surplus(&mut self, now_ns: u64) {
        self.begin_anew();
        self.surplus_ns = now_ns.saturating_add(self.bounds.max_reconnect_ns);
    }

    /// Until when the peer is not asked for a second connection of a type.
    pub(super) fn surplus_pause(&self, now_ns: u64) -> Option<u64> {
        Some(self.surplus_ns).filter(|until_ns| now_ns < *until_ns)
    }

    /// The peer may be asked for a second connection of a type at once.
    pub(super) fn allow_surplus(&mut self) {
        self.surplus_ns = 0;
    }

    fn spend(&mut self, now_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(now_ns.saturating_sub(self.begun_ns));
    }
}
