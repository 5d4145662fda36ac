use lnet_api::Errno;
use lnet_proto::ib::{Cookie, MessageKind};

/// Why a connection cannot go on, or why a call was refused. [`ConnError::Gone`] and [`ConnError::Chain`] leave the connection
/// as it was; all others are the peer's doing, and the connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnError {
    /// More credits came back than there are: the peer has lost count.
    #[error("the peer returned {returned} credits on top of {held}: there are {limit}")]
    Credits {
        /// Credits in the message.
        returned: u8,
        /// Credits that were there.
        held: u16,
        /// The depth of the connection.
        limit: u16,
    },
    /// A message that needs a credit, and the peer had none.
    #[error("the peer sent {kind} without a credit: it has used all {limit}")]
    Overrun {
        /// The message.
        kind: MessageKind,
        /// The depth of the connection.
        limit: u16,
    },
    /// A request for a transfer beyond those that may be under way.
    #[error("the peer sent {kind} while {limit} of its transfers await an answer, the most there may be")]
    Transfers {
        /// The message.
        kind: MessageKind,
        /// The depth of the connection.
        limit: u16,
    },
    /// A message with a cookie that names no operation, or one that does not wait for it (lnet-wire 35.5).
    #[error("the peer sent {kind} with cookie {:#x}, which names nothing that waits for it", .cookie.get())]
    Cookie {
        /// The message.
        kind: MessageKind,
        /// Its cookie.
        cookie: Cookie,
    },
    /// A status that cannot be.
    #[error("the peer sent {kind} with status {status}: at most {limit} bytes were asked for")]
    Status {
        /// The message.
        kind: MessageKind,
        /// Its status.
        status: i32,
        /// The most it may be.
        limit: u32,
    },
    /// A message that has no place on a connection that stands.
    #[error("the peer sent {kind} on a connection that stands")]
    Unexpected {
        /// The message.
        kind: MessageKind,
    },
    /// A work request has completed that was not posted.
    #[error("a send of id {id:#x} completed, which is not posted")]
    UnknownSend {
        /// The id.
        id: u64,
    },
    /// The operation has ended, or does not wait for this.
    #[error("operation {key:#x} does not wait for this, or has ended")]
    Gone {
        /// Its [`super::Key::bits`].
        key: u64,
    },
    /// A transfer of more work requests than the send queue has.
    #[error("a transfer takes {works} work requests: the send queue has {limit}")]
    Chain {
        /// Writes and the message behind them.
        works: u32,
        /// What the send queue holds.
        limit: u32,
    },
}

impl ConnError {
    /// The errno: EPROTO for whatever the peer does wrong.
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
