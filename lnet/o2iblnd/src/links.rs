//! The connections to one peer, without verbs, sockets or clock: which are established, which
//! attempts are under way, when the next attempt begins, and how to answer the peer's (lnet-wire
//! 33, 34 and 38).
//!
//! There is one [`Links`] for each peer of an NI. Attempts and connections keep their [`LinkId`]
//! from beginning to end:
//!
//! | event | call | then |
//! | --- | --- | --- |
//! | a message waits, time has passed, or any event below | [`Links::next`] until it does not return [`NextStep::Connect`] | dial for each [`Links::begin`] |
//! | the route to the peer is resolved | make the queues for [`Links::params`], then [`Links::request`] | connect with it as private data |
//! | the peer accepts | [`Links::granted`] | establish, then [`Links::established`] |
//! | the peer rejects | [`Links::rejected`] | dial again, or see [`AttemptOutcome`] |
//! | the attempt cannot go on, or is [`Links::overdue`] | [`Links::failed`] | drop it, see [`AttemptOutcome`] |
//! | the peer asks to connect | [`Links::offered`] | accept with the sizes of the queues really made, or reject; then [`Links::established`] or [`Links::failed`] |
//! | a message is to be sent | [`Links::pick`] | that connection's [`crate::conn::Conn`] |
//! | a connection has ended | [`Links::lost`] | call [`Links::next`] |
//!
//! Connections that the peer offers are always accepted, also while an own attempt is under way:
//! releases decide races differently (lnet-wire 34). If the peer rejects the own attempt because of
//! a race, its connection is used.

use lnet_nid::Nid;
use lnet_proto::ProtoError;
use lnet_proto::ib::{
    Attempt, ConnOffer, ConnParams, Connector, End, Established, Known, RETRIES_MAX, RejectReason, Rejection,
    RequestRefusal, Version,
};

mod pace;

pub use pace::{Bounds, MESSAGE_GRACE_NS};
use pace::{Pace, Pause};

/// The maximum number of connections to one peer, attempts of both sides included: twice the
/// largest `conns_per_peer`, 127, as both sides may open that number. Further requests of the peer
/// are rejected with NO_RESOURCES.
pub const LINKS_MAX: usize = 254;

/// The number of consecutive failures of attempts that complete a set of connections, after which
/// the set stays incomplete.
const FAILURES_MAX: u32 = 3;

/// Identifies an attempt, and the connection that it becomes, among those of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// The next action for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing: the set is complete, or attempts are under way.
    Nothing,
    /// Call [`Links::begin`] for an attempt, and then [`Links::next`] again.
    Connect,
    /// Call [`Links::next`] again at this time.
    Wait {
        /// The time, in nanoseconds.
        until_ns: u64,
    },
    /// There is no connection, and none can be tried now: waiting messages fail.
    Unreachable,
}

/// The consequence of an attempt that did not give a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum AttemptOutcome {
    /// Dial again at once, for the same [`LinkId`], with the current parameters.
    Again {
        /// True if all connections to the peer are to be closed: it has restarted.
        close_all: bool,
    },
    /// The attempt is over; call [`Links::next`].
    GoOn,
    /// The attempt is over, and no other is under way: waiting messages fail.
    Failed,
}

/// The answer to a connection that a peer offers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum ConnAnswer {
    /// Accept the connection.
    Accept {
        /// The id of the connection from now on.
        id: LinkId,
        /// The time by which the connection must be established, in nanoseconds.
        deadline_ns: u64,
    },
    /// Reject the connection with this record.
    Reject {
        /// The record, and the cause of the rejection.
        refusal: RequestRefusal,
        /// True if all connections to the peer are to be closed first: it has restarted, or uses
        /// another version.
        close_all: bool,
    },
}

/// An attempt, of either side, to open a connection.
#[derive(Debug)]
struct PendingLink {
    id: LinkId,
    deadline_ns: u64,
    /// True if this side makes the attempt.
    own: bool,
    tries: u32,
    /// The handshake of the try under way.
    connector: Option<Connector>,
}

/// An established connection.
#[derive(Debug, Clone, Copy)]
struct LiveLink {
    id: LinkId,
    own: bool,
    since_ns: u64,
}

/// The connections between one local NI and one peer. See the [module](self).
#[derive(Debug)]
pub struct Links {
    own: End,
    peer: Nid,
    bounds: Bounds,
    /// The parameters that this NI requests by default.
    configured: ConnParams,
    /// The parameters that this NI requests from this peer.
    params: ConnParams,
    /// The peer's version and incarnation, as of the live connections.
    life: Option<Known>,
    /// The incarnation that the peer named in a rejection.
    learnt_stamp: u64,
    pending: Vec<PendingLink>,
    live: Vec<LiveLink>,
    /// Index of the connection on which the last message was sent.
    turn: usize,
    last_id: u32,
    /// Set while this side completes the set of connections.
    active: bool,
    races: u32,
    failures: u32,
    pace: Pace,
}

impl lnet_lnd::protocol::Links for Links {
    /// Sets the number of connections that this side opens (`conns_per_peer`); established ones
    /// stay, even if there are more.
    fn set_conns(&mut self, conns: u8) {
        self.bounds.conns = conns;
        if self.live.iter().any(|live| live.own) {
            self.failures = 0;
            self.active = true;
            self.rest_if_complete();
        }
    }

    /// Returns whether the state has no connection, no attempt and no pause, so that it equals a
    /// new one.
    fn is_forgettable(&self, now_ns: u64) -> bool {
        self.live.is_empty() && self.pending.is_empty() && self.pace.pause(now_ns).is_none()
    }
}

impl Links {
    /// Creates the state of a peer without connections. `configured` are the parameters that the NI
    /// requests: its `peer_credits`, 257 fragments, 4096 bytes.
    #[must_use]
    pub fn new(own: End, peer: Nid, configured: ConnParams, bounds: Bounds) -> Links {
        Links {
            own,
            peer,
            bounds,
            configured,
            params: configured,
            life: None,
            learnt_stamp: 0,
            pending: Vec::new(),
            live: Vec::new(),
            turn: 0,
            last_id: 0,
            active: false,
            races: 0,
            failures: 0,
            pace: Pace::new(),
        }
    }

    /// Returns the next action. `waiting` is `true` if messages wait for a connection.
    #[must_use]
    pub fn next(&self, now_ns: u64, waiting: bool) -> NextStep {
        let needed = waiting && self.live.is_empty();
        let incoming = self.pending.iter().any(|pending| !pending.own);
        let there = self.live.len() + self.pending.len();
        // While the peer's own connection is being made, messages wait for it.
        if there >= self.wanted() || !(self.active || needed) || (needed && incoming) {
            return NextStep::Nothing;
        }
        match self.pace.pause(now_ns) {
            Some(Pause::Backoff { .. }) if needed && there == 0 => NextStep::Unreachable,
            Some(pause) => NextStep::Wait { until_ns: pause.until_ns() },
            None => NextStep::Connect,
        }
    }

    /// Begins an attempt; returns its id and its deadline, which covers all its tries.
    pub fn begin(&mut self, now_ns: u64) -> (LinkId, u64) {
        self.active = true;
        self.pend(true, now_ns)
    }

    /// Returns the parameters with which to make the queues of an own attempt.
    #[must_use]
    pub fn params(&self) -> ConnParams {
        self.params
    }

    /// Returns the CONNREQ of an own attempt. `made` are the parameters of the queues that the
    /// device could make for [`Links::params`]. These are not recorded, as the device may make
    /// larger ones later.
    ///
    /// # Errors
    /// Those of [`Connector::new`]; the caller must end the attempt.
    pub fn request(&mut self, id: LinkId, made: ConnParams) -> Result<&[u8], ProtoError> {
        let attempt = Attempt {
            local: self.own,
            peer: End { nid: self.peer, stamp: self.stamp() },
            version: Version::V2,
            oldest: Version::V2,
            params: made,
        };
        let connector = Connector::new(attempt)?;
        let gone = ProtoError::Attempt { field: "attempt", value: id.0.to_string() };
        let pending = self.pending.iter_mut().find(|pending| pending.id == id).ok_or(gone)?;
        Ok(pending.connector.insert(connector).request())
    }

    /// Reads the CONNACK of an own attempt.
    ///
    /// # Errors
    /// The violation in the CONNACK; the caller must end the attempt.
    pub fn granted(&self, id: LinkId, private_data: &[u8]) -> Result<Established, ProtoError> {
        let connector = self.pending.iter().find(|pending| pending.id == id);
        let gone = || ProtoError::Attempt { field: "attempt", value: id.0.to_string() };
        connector.and_then(|pending| pending.connector.as_ref()).ok_or_else(gone)?.accepted(private_data)
    }

    /// Records that an attempt of either side has become a connection to the incarnation `life` of
    /// the peer. Returns `true` if the caller must close all other connections, as they belong to
    /// another incarnation.
    #[must_use]
    pub fn established(&mut self, id: LinkId, life: Known, now_ns: u64) -> bool {
        let Some(pending) = self.take(id) else { return false };
        let other = self.life.is_some_and(|known| known != life);
        self.life = Some(life);
        self.learnt_stamp = 0;
        (self.races, self.failures) = (0, 0);
        self.live.push(LiveLink { id, own: pending.own, since_ns: now_ns });
        self.pace.established();
        self.rest_if_complete();
        other
    }

    /// Handles the rejection of an own attempt by the peer or its connection manager. `waiting` as
    /// for [`Links::next`].
    ///
    /// # Errors
    /// The cause of the failure, for messages to the operator, with the outcome of
    /// [`Links::failed`].
    pub fn rejected(
        &mut self,
        id: LinkId,
        rejection: Rejection<'_>,
        waiting: bool,
        now_ns: u64,
    ) -> Result<AttemptOutcome, (ProtoError, AttemptOutcome)> {
        let Some(at) = self.pending.iter().position(|pending| pending.id == id) else {
            return Ok(AttemptOutcome::GoOn);
        };
        let Some(mut connector) = self.pending[at].connector.take() else {
            return Ok(self.failed(id, now_ns));
        };
        match connector.rejected(rejection) {
            lnet_proto::ib::AfterRejection::Fail(cause) => Err((cause, self.failed(id, now_ns))),
            lnet_proto::ib::AfterRejection::Later if self.races < RETRIES_MAX => {
                self.races += 1;
                self.pending.remove(at);
                self.pace.delay_retry(now_ns);
                Ok(AttemptOutcome::GoOn)
            }
            lnet_proto::ib::AfterRejection::Later => Err((self.exhausted(), self.failed(id, now_ns))),
            lnet_proto::ib::AfterRejection::Now if self.pending[at].tries >= RETRIES_MAX => {
                Err((self.exhausted(), self.failed(id, now_ns)))
            }
            lnet_proto::ib::AfterRejection::Now => {
                self.pending[at].tries += 1;
                let close_all = self.learn(connector.attempt());
                if !self.is_wanted(waiting) {
                    self.pending.remove(at);
                    self.rest_if_idle();
                    return Ok(AttemptOutcome::GoOn);
                }
                Ok(AttemptOutcome::Again { close_all })
            }
        }
    }

    /// Records that an attempt of either side has failed, or that the caller has ended it.
    pub fn failed(&mut self, id: LinkId, now_ns: u64) -> AttemptOutcome {
        let Some(pending) = self.take(id) else { return AttemptOutcome::GoOn };
        if pending.own {
            self.pace.failed(now_ns);
            self.failures += 1;
        }
        if !self.live.is_empty() {
            if self.failures > FAILURES_MAX {
                self.rest();
            }
            return AttemptOutcome::GoOn;
        }
        self.rest_if_idle();
        // No message depends on the peer's attempt: if messages waited for it, `next` begins an own
        // one.
        if pending.own && self.pending.is_empty() { AttemptOutcome::Failed } else { AttemptOutcome::GoOn }
    }

    /// Returns an attempt whose deadline has passed: drop it, and call [`Links::failed`].
    #[must_use]
    pub fn overdue(&self, now_ns: u64) -> Option<LinkId> {
        self.pending.iter().find(|pending| pending.deadline_ns <= now_ns).map(|pending| pending.id)
    }

    /// Returns the earliest deadline of an attempt.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.deadline_ns).min()
    }

    /// Answers a connection that the peer offers.
    pub fn offered(&mut self, offer: &ConnOffer, now_ns: u64) -> ConnAnswer {
        if let Err(refusal) = offer.check_known(self.life) {
            return ConnAnswer::Reject { refusal, close_all: true };
        }
        if self.live.len() + self.pending.len() >= LINKS_MAX {
            let reason = RejectReason::NoResources;
            let refusal =
                RequestRefusal { record: offer.refuse(reason), cause: ProtoError::Rejected { reason } };
            return ConnAnswer::Reject { refusal, close_all: false };
        }
        let (id, deadline_ns) = self.pend(false, now_ns);
        ConnAnswer::Accept { id, deadline_ns }
    }

    /// Returns the connection for the next message: the first usable one behind the last one used,
    /// round robin.
    pub fn pick(&mut self, mut is_usable: impl FnMut(LinkId) -> bool) -> Option<LinkId> {
        let count = self.live.len();
        let turn =
            (1..=count).map(|step| (self.turn + step) % count).find(|at| is_usable(self.live[*at].id))?;
        self.turn = turn;
        Some(self.live[turn].id)
    }

    /// Records that a connection has ended.
    pub fn lost(&mut self, id: LinkId, now_ns: u64) {
        let Some(at) = self.live.iter().position(|live| live.id == id) else { return };
        let live = self.live.remove(at);
        if live.own {
            self.pace.lost(live.since_ns, now_ns);
        }
        if !self.live.is_empty() {
            // This side opened the connection, so it replaces it.
            self.active |= live.own;
            return;
        }
        self.life = None;
        self.rest_if_idle();
    }

    /// Returns whether any connection is established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.live.is_empty()
    }

    /// Returns the established connections.
    pub fn connections(&self) -> impl ExactSizeIterator<Item = LinkId> {
        self.live.iter().map(|live| live.id)
    }

    /// Returns the peer's version and incarnation, while a connection is established.
    #[must_use]
    pub fn life(&self) -> Option<Known> {
        self.life
    }

    /// Clears the back-off: the failures had a cause on this node, so that the peer can be tried at
    /// once.
    pub fn forgive(&mut self) {
        self.pace = Pace::new();
    }

    fn wanted(&self) -> usize {
        usize::from(self.bounds.conns.max(1)).min(LINKS_MAX)
    }

    /// Returns whether an own attempt that was rejected is tried again (lnet-wire 33): messages
    /// wait for it, or it completes a set; and no connection of the peer's is being made.
    fn is_wanted(&self, waiting: bool) -> bool {
        let incoming = self.pending.iter().any(|pending| !pending.own);
        if self.live.is_empty() { waiting && !incoming } else { self.live.len() < self.wanted() }
    }

    fn pend(&mut self, own: bool, now_ns: u64) -> (LinkId, u64) {
        self.last_id = self.last_id.wrapping_add(1);
        let (id, deadline_ns) = (LinkId(self.last_id), now_ns.saturating_add(self.bounds.attempt_ns));
        self.pending.push(PendingLink { id, deadline_ns, own, tries: 0, connector: None });
        (id, deadline_ns)
    }

    fn take(&mut self, id: LinkId) -> Option<PendingLink> {
        let at = self.pending.iter().position(|pending| pending.id == id)?;
        Some(self.pending.remove(at))
    }

    /// Applies the changes of a rejection to later requests; returns whether the peer has
    /// restarted.
    fn learn(&mut self, changed: &Attempt) -> bool {
        let stamp = changed.peer.stamp;
        let restarted = self.life.is_some_and(|life| stamp != 0 && life.stamp != stamp);
        // A new incarnation may have other limits, and attempts that began together may have
        // received different ones.
        let known = self.params;
        self.learnt_stamp = stamp;
        self.params = match restarted {
            true => self.configured,
            false => ConnParams {
                queue_depth: known.queue_depth.min(changed.params.queue_depth),
                max_fragments: known.max_fragments.min(changed.params.max_fragments),
                ..known
            },
        };
        restarted
    }

    fn stamp(&self) -> u64 {
        self.life.map_or(self.learnt_stamp, |life| life.stamp)
    }

    fn exhausted(&self) -> ProtoError {
        ProtoError::RetriesExhausted { nid: self.peer, limit: RETRIES_MAX }
    }

    fn rest(&mut self) {
        self.active = false;
        self.failures = 0;
    }

    fn rest_if_complete(&mut self) {
        if self.live.len() >= self.wanted() {
            self.rest();
        }
    }

    /// Stops completing the set if there is no connection and no own attempt: the next message
    /// begins anew.
    fn rest_if_idle(&mut self) {
        if self.live.is_empty() && !self.pending.iter().any(|pending| pending.own) {
            self.rest();
        }
    }
}
