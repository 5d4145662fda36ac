//! How soon and for how long a peer is tried (lnet-wire 34 and 38).

use lnet_lnd::pace::Backoff;
pub(super) use lnet_lnd::pace::Pause;

const NS_PER_S: u64 = 1_000_000_000;

/// The pause after the first failure.
const MIN_RECONNECT_NS: u64 = NS_PER_S;

/// The longest pause. Both as socklnd has them: kernel nodes leave it to higher layers to try again, and these do so at once.
const MAX_RECONNECT_NS: u64 = 60 * NS_PER_S;

/// The least time that an attempt is given (lnet-wire 34).
const ATTEMPT_MIN_NS: u64 = 5 * NS_PER_S;

/// A message may wait for a connection so much longer than an attempt may take (lnet-wire 34).
pub const MESSAGE_GRACE_NS: u64 = 10 * NS_PER_S;

/// The bounds that the tunables set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections that this side opens (`conns_per_peer`); 0 counts as 1.
    pub conns: u8,
    /// What an attempt may take, all its tries together.
    pub attempt_ns: u64,
}

impl Bounds {
    /// Of `conns_per_peer` and `timeout`: an attempt may take a quarter of it, or 5 s if that is more.
    #[must_use]
    pub const fn new(conns: u8, timeout_ns: u64) -> Bounds {
        let quarter = timeout_ns / 4;
        Bounds { conns, attempt_ns: if quarter > ATTEMPT_MIN_NS { quarter } else { ATTEMPT_MIN_NS } }
    }

    /// Until when a message may wait for a connection that it is queued for now.
    #[must_use]
    pub const fn message_deadline_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.attempt_ns).saturating_add(MESSAGE_GRACE_NS)
    }
}

/// The pace of the attempts to connect to one peer, of which there may be several at a time.
#[derive(Debug)]
pub(super) struct Pace(Backoff);

impl Pace {
    pub(super) const fn new() -> Pace {
        Pace(Backoff::new(MIN_RECONNECT_NS, MAX_RECONNECT_NS))
    }

    /// The pause that there is at this time.
    pub(super) fn pause(&self, now_ns: u64) -> Option<Pause> {
        self.0.pause(now_ns)
    }

    /// There is a connection.
    pub(super) fn established(&mut self) {
        self.0.established();
    }

    /// The next attempt waits for the shortest pause.
    pub(super) fn be_patient(&mut self, now_ns: u64) {
        if self.pause(now_ns).is_none() {
            self.0.be_patient(now_ns);
        }
    }

    /// An attempt failed. Several that were begun together and fail together are one failure.
    pub(super) fn failed(&mut self, now_ns: u64) {
        if !matches!(self.pause(now_ns), Some(Pause::Backoff { .. })) {
            self.0.failed(now_ns);
        }
    }

    /// A connection that this side opened is gone.
    pub(super) fn lost(&mut self, since_ns: u64, now_ns: u64) {
        self.0.lost(since_ns, now_ns, true);
    }
}
