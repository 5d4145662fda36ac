use lnet_proto::ib::Refusal;

/// Names an attempt, and the connection that becomes of it, among those of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// What to do next for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: all is there, or attempts are under way.
    Nothing,
    /// [`super::Links::begin`] an attempt, and ask again.
    Connect,
    /// Ask again then.
    Wait {
        /// When.
        until_ns: u64,
    },
    /// There is no connection and, for now, no way to get one: messages fail.
    Unreachable,
}

/// What follows from an attempt that did not give a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Dial again at once, for the same [`LinkId`]; the parameters may have changed.
    Again {
        /// Close all connections to the peer: it has restarted.
        close_all: bool,
    },
    /// The attempt is over; see what is next.
    GoOn,
    /// The attempt is over, and nothing is left: messages that wait fail.
    Failed,
}

/// The answer to a connection that a peer offers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Accept it.
    Accept {
        /// Its name from now on.
        id: LinkId,
        /// When it must stand.
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
