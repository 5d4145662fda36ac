//! The errors of a connection's state machine.

use lnet_api::Errno;
use lnet_proto::ib::{Cookie, MessageKind};

/// The reason why a connection cannot go on, or why a call was refused. [`ConnError::Gone`] and
/// [`ConnError::Chain`] leave the connection unchanged; all others are violations of the protocol
/// by the peer, after which the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnError {
    /// The peer returned more credits than the connection has.
    #[error("the peer returned {returned} credits on top of {held}: there are {limit}")]
    Credits {
        /// Credits that the message returned.
        returned: u8,
        /// Credits that this side had before.
        held: u16,
        /// The depth of the connection.
        limit: u16,
    },
    /// The peer sent a message that needs a credit, and had none.
    #[error("the peer sent {kind} without a credit: it has used all {limit}")]
    Overrun {
        /// The message that overran.
        kind: MessageKind,
        /// The depth of the connection.
        limit: u16,
    },
    /// The peer requested a transfer beyond the number that may be under way.
    #[error("the peer sent {kind} while {limit} of its transfers wait for an answer: that is the limit")]
    Transfers {
        /// The request beyond the limit.
        kind: MessageKind,
        /// The depth of the connection.
        limit: u16,
    },
    /// The cookie of a message names no operation, or one that does not wait for this message
    /// (lnet-wire 35.5).
    #[error("the peer sent {kind} with cookie {:#x}, which names no operation that waits for it", .cookie.get())]
    Cookie {
        /// The message that has the cookie.
        kind: MessageKind,
        /// The cookie in the message.
        cookie: Cookie,
    },
    /// The status of a message is higher than the number of bytes requested.
    #[error("the peer sent {kind} with status {status}: at most {limit} bytes were asked for")]
    Status {
        /// The message that has the status.
        kind: MessageKind,
        /// The status in the message.
        status: i32,
        /// The number of bytes requested.
        limit: u32,
    },
    /// The type of the message is not allowed on an established connection.
    #[error("the peer sent {kind} on an established connection")]
    Unexpected {
        /// The message that is not allowed.
        kind: MessageKind,
    },
    /// A work request completed that is not posted.
    #[error("a send with id {id:#x} completed, but none is posted")]
    UnknownSend {
        /// The id of the work request.
        id: u64,
    },
    /// The operation has ended, or is not in the state that the call needs.
    #[error("operation {key:#x} has ended, or is in another state")]
    Gone {
        /// The operation's [`super::OpKey::bits`].
        key: u64,
    },
    /// A transfer needs more work requests than the send queue has.
    #[error("a transfer takes {works} work requests: the send queue has {limit}")]
    Chain {
        /// Work requests of the transfer: the writes and the message behind them.
        works: u32,
        /// The capacity of the send queue.
        limit: u32,
    },
}

impl ConnError {
    /// Returns the errno: EPROTO for each violation by the peer.
    #[must_use]
    pub const fn errno(&self) -> Errno {
        match self {
            ConnError::Gone { .. } => Errno::ENOENT,
            ConnError::Chain { .. } => Errno::EMSGSIZE,
            ConnError::UnknownSend { .. } => Errno::EIO,
            _ => Errno::EPROTO,
        }
    }
}
