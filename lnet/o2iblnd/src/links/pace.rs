//! How soon and for how long a peer is tried (lnet-wire 34 and 38).

const NS_PER_S: u64 = 1_000_000_000;

/// The pause after the first failure.
const MIN_RECONNECT_NS: u64 = NS_PER_S;

/// The longest pause. Both as socklnd has them: kernel nodes leave it to higher layers to try again, and these do so at once.
const MAX_RECONNECT_NS: u64 = 60 * NS_PER_S;

/// The least time that an attempt is given (lnet-wire 34).
const ATTEMPT_MIN_NS: u64 = 5 * NS_PER_S;

/// A message may wait for a connection so much longer than an attempt may take (lnet-wire 34).
pub const MESSAGE_GRACE_NS: u64 = 10 * NS_PER_S;

/// How often in a row connections may be gone at once before there is a pause: a peer that has just restarted is connected to
/// again without one.
const BRIEF_MAX: u32 = 2;

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

/// Why, and how long, no attempt is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The peer is connecting itself, or its connections do not last; messages wait.
    Retry { until_ns: u64 },
    /// An attempt failed; messages without a connection fail.
    Backoff { until_ns: u64 },
}

impl Pause {
    pub(super) fn until_ns(self) -> u64 {
        match self {
            Pause::Retry { until_ns } | Pause::Backoff { until_ns } => until_ns,
        }
    }
}

/// The pace of the attempts to connect to one peer.
#[derive(Debug)]
pub(super) struct Pace {
    /// The pause after the next failure.
    backoff_ns: u64,
    pause: Option<Pause>,
    /// How often in a row a connection that this side opened was gone sooner than the shortest pause.
    brief: u32,
}

impl Pace {
    pub(super) const fn new() -> Pace {
        Pace { backoff_ns: MIN_RECONNECT_NS, pause: None, brief: 0 }
    }

    /// The pause that there is at this time.
    pub(super) fn pause(&self, now_ns: u64) -> Option<Pause> {
        self.pause.filter(|pause| now_ns < pause.until_ns())
    }

    /// There is a connection. If those before it did not last, neither may this one: the pause stays.
    pub(super) fn established(&mut self) {
        if self.brief < BRIEF_MAX {
            self.backoff_ns = MIN_RECONNECT_NS;
            self.pause = None;
        }
    }

    /// The next attempt waits for the shortest pause.
    pub(super) fn be_patient(&mut self, now_ns: u64) {
        if self.pause(now_ns).is_none() {
            self.pause = Some(Pause::Retry { until_ns: now_ns.saturating_add(MIN_RECONNECT_NS) });
        }
    }

    /// An attempt failed. Several that were begun together and fail together are one failure.
    pub(super) fn failed(&mut self, now_ns: u64) {
        if !matches!(self.pause(now_ns), Some(Pause::Backoff { .. })) {
            self.pause = Some(Pause::Backoff { until_ns: self.back_off(now_ns) });
        }
    }

    /// A connection that this side opened is gone. If that happens again and again soon after, there are pauses as after
    /// failures: a peer that takes every connection and drops it must not keep both sides busy.
    pub(super) fn lost(&mut self, since_ns: u64, now_ns: u64) {
        let brief = now_ns.saturating_sub(since_ns) < MIN_RECONNECT_NS;
        self.brief = if brief { self.brief.saturating_add(1) } else { 0 };
        if self.brief >= BRIEF_MAX && self.pause(now_ns).is_none() {
            self.pause = Some(Pause::Retry { until_ns: self.back_off(now_ns) });
        }
    }

    /// The end of a pause that begins now; the next one is longer.
    fn back_off(&mut self, now_ns: u64) -> u64 {
        let until_ns = now_ns.saturating_add(self.backoff_ns);
        self.backoff_ns = self.backoff_ns.saturating_mul(2).min(MAX_RECONNECT_NS);
        until_ns
    }
}
