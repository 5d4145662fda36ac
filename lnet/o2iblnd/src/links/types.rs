//! The types with which a driver calls `Links`.

use lnet_proto::ib::RequestRefusal;

/// Identifies an attempt, and the connection that it becomes, among those of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// The next action for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing: the set is complete, or attempts are under way.
    Nothing,
    /// Call [`super::Links::begin`] for an attempt, and then [`super::Links::next`] again.
    Connect,
    /// Call [`super::Links::next`] again at this time.
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
    /// The attempt is over; call [`super::Links::next`].
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
