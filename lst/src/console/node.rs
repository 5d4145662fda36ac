//! Nodes of a session as the console knows them (lst 10.2).

use std::fmt;
use std::ops::BitOr;

use lnet_proto::lst::{Reply, ReplyBody, SessionId};

/// State of a node, by its last framework reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NodeState {
    /// The last reply carried the session of this console.
    Active = 1,
    /// The last reply carried another session.
    Busy = 2,
    /// A transaction timed out waiting for the node.
    Down = 4,
    /// No reply yet, or the last one carried "no session".
    Unknown = 8,
}

impl NodeState {
    /// All states, in the order in which lists show them.
    pub const ALL: [NodeState; 4] = [NodeState::Active, NodeState::Busy, NodeState::Down, NodeState::Unknown];

    /// Returns the state of a node whose reply carried the session `carried`, for the console of
    /// session `own`.
    pub(super) fn of_reply(carried: SessionId, own: SessionId) -> NodeState {
        match carried {
            sid if sid == own => NodeState::Active,
            SessionId::NONE => NodeState::Unknown,
            _ => NodeState::Busy,
        }
    }
}

/// The state as `lst` prints it: `Active`.
impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A set of node states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStates(u8);

impl NodeStates {
    /// Every state.
    pub const ALL: NodeStates = NodeStates(15);
    /// Every state except [`NodeState::Active`]: `invalid` on the command line.
    pub const INVALID: NodeStates = NodeStates(14);

    /// Returns whether the set has the state.
    #[must_use]
    pub const fn contains(self, state: NodeState) -> bool {
        self.0 & state as u8 != 0
    }

    /// Returns whether the set has no state.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<NodeState> for NodeStates {
    fn from(state: NodeState) -> NodeStates {
        NodeStates(state as u8)
    }
}

impl BitOr for NodeStates {
    type Output = NodeStates;

    fn bitor(self, other: NodeStates) -> NodeStates {
        NodeStates(self.0 | other.0)
    }
}

/// What the console keeps of one node.
#[derive(Debug)]
pub(super) struct Node {
    state: NodeState,
    /// Time of the reply or timeout that gave the state.
    stamp_ns: u64,
    /// Time of the last reply, of whatever service.
    pub(super) heard_ns: u64,
    /// Time of the last reply or of the last DEBUG that kept the session alive. A DEBUG counts at
    /// once, so that a silent node gets one per interval.
    pub(super) kept_ns: u64,
    /// Seconds without an RPC after which the node ends the session; 0 is never.
    pub(super) timeout_s: u32,
    /// Whether the node accepts check 4 (discard); `None` before a probe.
    pub(super) discards: Option<bool>,
    /// Whether the console has warned that the node's session must have expired.
    pub(super) expiry_reported: bool,
}

impl Node {
    pub(super) fn new(now_ns: u64) -> Node {
        Node {
            state: NodeState::Unknown,
            stamp_ns: now_ns,
            heard_ns: now_ns,
            kept_ns: now_ns,
            timeout_s: super::NODE_TIMEOUT_S,
            discards: None,
            expiry_reported: false,
        }
    }

    pub(super) fn state(&self) -> NodeState {
        self.state
    }

    /// Sets the state as of `now_ns`, unless a later event has set it.
    pub(super) fn set_state(&mut self, state: NodeState, now_ns: u64) {
        if now_ns >= self.stamp_ns {
            (self.state, self.stamp_ns) = (state, now_ns);
        }
    }

    /// Notes a reply that carried the state.
    pub(super) fn heard(&mut self, state: NodeState, now_ns: u64) {
        self.set_state(state, now_ns);
        self.heard_ns = self.heard_ns.max(now_ns);
        self.kept_ns = self.kept_ns.max(now_ns);
        self.expiry_reported = false;
    }

    /// Notes the timeout that a node announces for the session.
    pub(super) fn note_timeout(&mut self, reply: &Reply) {
        if let (0, ReplyBody::MakeSession { timeout_s, .. } | ReplyBody::Debug { timeout_s, .. }) =
            (reply.status, reply.body)
        {
            self.timeout_s = timeout_s;
        }
    }
}
