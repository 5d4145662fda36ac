//! The back-off and the deadlines of attempts to connect to a peer (lnet-wire 34 and 38).

use lnet_lnd::pace::Backoff;
pub(super) use lnet_lnd::pace::Pause;

const NS_PER_S: u64 = 1_000_000_000;

/// The pause after the first failure, in nanoseconds.
const MIN_RECONNECT_NS: u64 = NS_PER_S;

/// The longest pause, in nanoseconds. Both pauses are those of socklnd: kernel nodes leave retries
/// to higher layers, which retry at once.
const MAX_RECONNECT_NS: u64 = 60 * NS_PER_S;

/// The shortest time limit of an attempt (lnet-wire 34).
const ATTEMPT_MIN_NS: u64 = 5 * NS_PER_S;

/// The time that a message may wait for a connection beyond the time limit of an attempt (lnet-wire
/// 34).
pub const MESSAGE_GRACE_NS: u64 = 10 * NS_PER_S;

/// The bounds that the tunables set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections that this side opens (`conns_per_peer`); 0 counts as 1.
    pub conns: u8,
    /// Time limit of an attempt, with all its tries.
    pub attempt_ns: u64,
}

impl Bounds {
    /// Computes the bounds of `conns_per_peer` and `timeout`: the limit of an attempt is a quarter
    /// of `timeout`, but at least 5 s.
    #[must_use]
    pub const fn new(conns: u8, timeout_ns: u64) -> Bounds {
        let quarter = timeout_ns / 4;
        Bounds { conns, attempt_ns: if quarter > ATTEMPT_MIN_NS { quarter } else { ATTEMPT_MIN_NS } }
    }

    /// Returns the deadline by which a message queued now must have a connection.
    #[must_use]
    pub const fn message_deadline_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.attempt_ns).saturating_add(MESSAGE_GRACE_NS)
    }
}

/// The back-off of the attempts to connect to one peer, of which there may be several at a time.
#[derive(Debug)]
pub(super) struct Pace(Backoff);

impl Pace {
    pub(super) const fn new() -> Pace {
        Pace(Backoff::new(MIN_RECONNECT_NS, MAX_RECONNECT_NS))
    }

    /// Returns the pause that applies at this time.
    pub(super) fn pause(&self, now_ns: u64) -> Option<Pause> {
        self.0.pause(now_ns)
    }

    /// Records that a connection is established.
    pub(super) fn established(&mut self) {
        self.0.established();
    }

    /// Delays the next attempt by the shortest pause.
    pub(super) fn delay_retry(&mut self, now_ns: u64) {
        if self.pause(now_ns).is_none() {
            self.0.delay_retry(now_ns);
        }
    }

    /// Records that an attempt failed. Several attempts that began together and fail together count
    /// as one failure.
    pub(super) fn failed(&mut self, now_ns: u64) {
        if !matches!(self.pause(now_ns), Some(Pause::Backoff { .. })) {
            self.0.failed(now_ns);
        }
    }

    /// Records that a connection that this side opened has ended.
    pub(super) fn lost(&mut self, since_ns: u64, now_ns: u64) {
        self.0.lost(since_ns, now_ns, true);
    }
}
