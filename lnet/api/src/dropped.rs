use lnet_nid::{MatchBits, ProcessId};

/// A PUT that has reached this node and was lost here, because no buffer took it: nothing matched on its portal, or what
/// did was too short or in use; or it waited on a lazy portal until that was lazy no more, its connection was lost, or there was no
/// memory for it.
///
/// Its sender notices at the most that no ACK comes (lnet-wire 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dropped {
    /// The process of this node that it was sent to: one of [`crate::LNet::local_ids`].
    pub target: ProcessId,
    /// Portal index of the header: any number, for a peer may write what it likes.
    pub portal: u32,
    /// Match bits of the header.
    pub match_bits: MatchBits,
    /// Who sent it: the *primary* NID of the source's peer, and its PID.
    pub initiator: ProcessId,
    /// Bytes of its payload.
    pub length: u32,
}

/// Hears of messages that nobody took; see [`crate::LNet::watch_drops`].
pub trait DropWatcher: Send + Sync {
    /// A message was dropped. Called without any of LNet's locks, on the thread that found out, perhaps by several at the
    /// same time. A peer decides how often: it must take constant time, allocate nothing, and not call LNet.
    fn dropped(&self, message: &Dropped);
}
