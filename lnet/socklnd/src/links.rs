//! The connection set of a peer: which connections exist, which is opened next, and the answer to
//! an offered one. lnet-wire 23 and 24 as plain code, without sockets and clocks.

use lnet_nid::Nid;
use lnet_proto::sock::{ConnType, Retry, Version};

use crate::choice::carries_lnet;
use lnet_lnd::pace::Pause;
use pace::Pace;

mod pace;

const NS_PER_MS: u64 = 1_000_000;

/// The version and incarnation of a peer, on which the hellos of its live connections agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerRun {
    pub(crate) version: Version,
    pub(crate) incarnation: u64,
}

/// The driver's next step for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing: the set is complete, or an attempt is under way.
    Nothing,
    /// Open this connection.
    Connect(ConnType),
    /// Call [`Links::next`] again at this time.
    Wait { until_ns: u64 },
    /// There is no connection and, for now, no way to get one: waiting messages fail.
    Unreachable,
}

/// The answer to a connection that a peer offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnAnswer {
    /// Accept the connection.
    Accept,
    /// Refuse it with NONE: this node's own attempt wins, or the set has no room for the type.
    Refuse,
    /// Close all connections to the peer, then refuse this one: the peer has restarted or uses
    /// another version.
    CloseAllAndRefuse,
}

/// The consequence of an attempt that gave no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// Continue with [`Links::next`].
    GoOn,
    /// Close all connections to the peer, then continue with [`Links::next`].
    CloseAll,
    /// Attempts end for now: waiting messages fail.
    Failed,
}

/// The bounds that the tunables set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The maximum number of connections of each bulk type.
    pub(crate) per_type: u8,
    pub(crate) min_reconnect_ns: u64,
    pub(crate) max_reconnect_ns: u64,
    /// Time limit for all attempts that complete one connection set together (lnet-wire 24).
    pub(crate) timeout_ns: u64,
}

impl Bounds {
    pub(crate) fn new(per_type: u8, min_reconnect_ms: u32, max_reconnect_ms: u32, timeout_ns: u64) -> Bounds {
        let ns = |ms: u32| u64::from(ms) * NS_PER_MS;
        let (min_reconnect_ns, max_reconnect_ns) = (ns(min_reconnect_ms), ns(max_reconnect_ms));
        Bounds { per_type, min_reconnect_ns, max_reconnect_ns, timeout_ns }
    }
}

/// The connections between one local NI and one peer.
#[derive(Debug)]
pub struct Links {
    own: Nid,
    peer: Nid,
    /// The maximum number of connections of each bulk type.
    per_type: u8,
    /// Set if the peer connected from an unprivileged port; this node never connects to it
    /// (lnet-wire 27).
    incoming_only: bool,
    /// Set if the peer treats this node as such a peer: one CONTROL connection carries everything.
    control_only: bool,
    /// Live connections by type: ANY, CONTROL, BULK_IN, BULK_OUT.
    counts: [u8; 4],
    /// Version and incarnation of the live connections.
    run: Option<PeerRun>,
    /// The version that the peer requested when it refused another.
    learnt: Option<Version>,
    /// The type of the connection being opened.
    attempt: Option<ConnType>,
    /// Set while this side completes the connection set: until it is complete, or accepted
    /// incomplete after repeated refusals.
    active: bool,
    /// Set if this side has opened some of the live connections, and would open further ones.
    opened: bool,
    pace: Pace,
}

impl lnet_lnd::protocol::Links for Links {
    fn set_conns(&mut self, conns_per_peer: u8) {
        self.set_per_type(conns_per_peer);
        self.complete();
    }

    fn is_forgettable(&self, now_ns: u64) -> bool {
        !self.is_connected() && self.attempt.is_none() && self.pace.pause(now_ns).is_none()
    }
}

impl Links {
    pub(crate) fn new(own: Nid, peer: Nid, incoming_only: bool, bounds: Bounds) -> Links {
        Links {
            own,
            peer,
            per_type: bounds.per_type,
            incoming_only,
            control_only: false,
            counts: [0; 4],
            run: None,
            learnt: None,
            attempt: None,
            active: false,
            opened: false,
            pace: Pace::new(bounds),
        }
    }

    /// Returns the next step; `waiting` is set if messages have no connection to go on.
    pub(crate) fn next(&self, now_ns: u64, waiting: bool) -> NextStep {
        if self.attempt.is_some() {
            return NextStep::Nothing;
        }
        let needed = waiting && !self.carries();
        if self.incoming_only {
            return if needed { NextStep::Unreachable } else { NextStep::Nothing };
        }
        let Some(missing) = self.missing().filter(|_| needed || self.active) else {
            return NextStep::Nothing;
        };
        if let Some(until_ns) = self.pace.surplus_pause(now_ns).filter(|_| self.count(missing) > 0) {
            return NextStep::Wait { until_ns };
        }
        match self.pace.pause(now_ns) {
            Some(Pause::Backoff { .. }) if needed => NextStep::Unreachable,
            Some(pause) => NextStep::Wait { until_ns: pause.until_ns() },
            None => NextStep::Connect(missing),
        }
    }

    /// Sets the maximum number of connections of each bulk type. Existing connections above it
    /// stay.
    pub(crate) fn set_per_type(&mut self, per_type: u8) {
        self.per_type = per_type;
    }

    /// Called after [`Links::set_per_type`]: if this side opened the live connections, it will open
    /// the missing ones, including those that the peer has refused so far.
    pub(crate) fn complete(&mut self) {
        self.pace.allow_surplus();
        if self.opened && !self.active {
            self.active = true;
            self.pace.begin_anew();
        }
    }

    /// Starts an attempt, after which this side completes the set. Returns the deadline.
    pub(crate) fn begin(&mut self, conn_type: ConnType, now_ns: u64) -> u64 {
        self.attempt = Some(conn_type);
        self.active = true;
        self.pace.begin(now_ns)
    }

    /// Returns the version to propose, and the incarnation that the peer must show.
    pub(crate) fn proposal(&self) -> (Version, Option<u64>) {
        let learnt = self.learnt.unwrap_or(Version::preferred_for(self.peer));
        self.run.map_or((learnt, None), |run| (run.version, Some(run.incarnation)))
    }

    /// Records that the attempt has established a connection.
    ///
    /// It may exceed the maximum: while its answer was under way, the peer may have offered one of
    /// the same type (a peer with a higher NID that allows more than this side), before anything
    /// showed that the peer had accepted this one as well. The connection stays: a kernel node does
    /// not lose one connection without losing all of them (lnet-wire 28) and the data sent on them.
    pub(crate) fn established(&mut self, conn_type: ConnType, run: PeerRun, control_only: bool, now_ns: u64) {
        self.attempt = None;
        self.control_only |= control_only;
        self.pace.established(!self.is_connected(), now_ns);
        self.opened = true;
        self.add(conn_type, run);
    }

    /// Handles the peer's refusal of the attempt.
    pub(crate) fn refused(&mut self, retry: Retry, now_ns: u64) -> AttemptOutcome {
        self.attempt = None;
        if !self.pace.refused(now_ns) {
            return self.settle_or_fail(now_ns);
        }
        match retry {
            // Either the peer's own attempt has won, and may complete the set by then; or the peer
            // allows fewer connections, which may change soon.
            Retry::Race => {
                self.pace.delay_retry(now_ns);
                self.rest_if_complete();
                AttemptOutcome::GoOn
            }
            Retry::Version { version, .. } => {
                self.learnt = Some(version);
                if self.run.is_some_and(|run| run.version != version) {
                    AttemptOutcome::CloseAll
                } else {
                    AttemptOutcome::GoOn
                }
            }
            Retry::Stale { version, .. } => {
                self.learnt = Some(version);
                AttemptOutcome::CloseAll
            }
        }
    }

    /// Handles a failed attempt. Without any connection there is no set to complete: the next
    /// message starts anew. If the attempt was for a second connection of a type, this side
    /// requests no such connection for a while.
    pub(crate) fn failed(&mut self, now_ns: u64) -> AttemptOutcome {
        let surplus = self.attempt.take().is_some_and(|conn_type| self.count(conn_type) > 0);
        self.active &= self.is_connected();
        self.pace.failed(now_ns);
        if surplus {
            self.pace.put_off_surplus(now_ns);
        }
        AttemptOutcome::Failed
    }

    /// Decides on a connection that the peer offers (of this type in the local view), in the order
    /// of lnet-wire 24.
    pub(crate) fn offered(&self, conn_type: ConnType, run: PeerRun) -> ConnAnswer {
        if self.peer < self.own && self.attempt.is_some() {
            return ConnAnswer::Refuse;
        }
        if self.contradicts(run) {
            return ConnAnswer::CloseAllAndRefuse;
        }
        if self.count(conn_type) >= self.most(conn_type) {
            return ConnAnswer::Refuse;
        }
        ConnAnswer::Accept
    }

    /// Records that the offered connection is established.
    pub(crate) fn accepted(&mut self, conn_type: ConnType, run: PeerRun) {
        self.add(conn_type, run);
    }

    /// Records that one of several connections has ended: the peer closed it before sending
    /// anything on it. If other connections of its type exist, the peer accepts no more of them,
    /// and this side requests no further one for a while. Otherwise one is missing.
    pub(crate) fn closed_one(&mut self, conn_type: ConnType, now_ns: u64) {
        if let Some(count) = self.counts.get_mut(conn_type.get() as usize) {
            *count = count.saturating_sub(1);
        }
        match self.count(conn_type) {
            0 => self.pace.lost_one(now_ns),
            _ => self.pace.put_off_surplus(now_ns),
        }
        self.active |= self.opened;
    }

    /// Records that the last connection has ended, and with it the known version and incarnation of
    /// the peer. An attempt under way continues.
    pub(crate) fn closed_all(&mut self, now_ns: u64) {
        if self.is_connected() {
            self.pace.lost(self.opened, now_ns);
        }
        self.pace.allow_surplus();
        self.counts = [0; 4];
        self.run = None;
        self.control_only = false;
        self.opened = false;
        self.active = self.attempt.is_some();
    }

    /// Returns whether the live connections, if any, belong to another incarnation or version of
    /// the peer.
    pub(crate) fn contradicts(&self, run: PeerRun) -> bool {
        self.run.is_some_and(|live| live != run)
    }

    /// Returns whether a live connection exists.
    pub(crate) fn is_connected(&self) -> bool {
        self.run.is_some()
    }

    fn settle_or_fail(&mut self, now_ns: u64) -> AttemptOutcome {
        let complete = [ConnType::Control, ConnType::BulkIn, ConnType::BulkOut];
        if complete.into_iter().all(|conn_type| self.count(conn_type) > 0) {
            self.active = false;
            self.pace.begin_anew();
            return AttemptOutcome::GoOn;
        }
        self.failed(now_ns)
    }

    /// Returns the first missing connection of the set: CONTROL, then BULK_IN and BULK_OUT in turn.
    fn missing(&self) -> Option<ConnType> {
        let (bulk_in, bulk_out) = (self.count(ConnType::BulkIn), self.count(ConnType::BulkOut));
        if self.count(ConnType::Control) == 0 {
            return Some(ConnType::Control);
        }
        if self.control_only || (bulk_in >= self.per_type && bulk_out >= self.per_type) {
            return None;
        }
        let in_turn = bulk_in <= bulk_out && bulk_in < self.per_type;
        Some(if in_turn || bulk_out >= self.per_type { ConnType::BulkIn } else { ConnType::BulkOut })
    }

    /// Returns whether some live connection may carry LNet messages.
    fn carries(&self) -> bool {
        let types = [ConnType::Any, ConnType::Control, ConnType::BulkOut];
        let version = self.run.map(|run| run.version);
        types.into_iter().any(|conn_type| {
            self.count(conn_type) > 0 && version.is_some_and(|version| carries_lnet(conn_type, version))
        })
    }

    fn most(&self, conn_type: ConnType) -> u8 {
        if conn_type == ConnType::Control { 1 } else { self.per_type }
    }

    fn count(&self, conn_type: ConnType) -> u8 {
        self.counts.get(conn_type.get() as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, conn_type: ConnType, run: PeerRun) {
        self.run = Some(run);
        self.learnt = None;
        if let Some(count) = self.counts.get_mut(conn_type.get() as usize) {
            *count = count.saturating_add(1);
        }
        self.rest_if_complete();
    }

    fn rest_if_complete(&mut self) {
        if self.attempt.is_none() && self.missing().is_none() {
            self.active = false;
            self.pace.begin_anew();
        }
    }
}

#[cfg(test)]
mod tests;
