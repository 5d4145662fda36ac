//! The types with which a driver calls `Links`.

use lnet_proto::ib::Refusal;

/// Identifies an attempt, and the connection that it becomes, among those of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// The next action for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the set is complete, or attempts are under way.
    Nothing,
    /// Call [`super::Links::begin`] for an attempt, and ask again.
    Connect,
    /// Ask again at this time.
    Wait {
        /// The time.
        until_ns: u64,
    },
    /// There is no connection, and none can be tried now: waiting messages fail.
    Unreachable,
}

/// The consequence of an attempt that did not give a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Dial again at once, for the same [`LinkId`]; the parameters may have changed.
    Again {
        /// Close all connections to the peer: it has restarted.
        close_all: bool,
    },
    /// The attempt is over; call [`super::Links::next`].
    GoOn,
    /// The attempt is over, and none is left: waiting messages fail.
    Failed,
}

/// The answer to a connection that a peer offers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Accept it.
    Accept {
        /// Its id from now on.
        id: LinkId,
        /// The time by which it must be established.
        deadline_ns: u64,
    },
    /// Reject it with this record.
    Reject {
        /// Record and cause.
        refusal: Refusal,
        /// Close all connections to the peer first: it has restarted, or speaks another version.
        close_all: bool,
    },
}
