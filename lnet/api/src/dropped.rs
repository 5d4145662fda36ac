use lnet_nid::{MatchBits, ProcessId};

/// A PUT that has reached this node and was lost here because no buffer took it. Either no entry
/// matched on its portal, or the matching buffer was too short or in use; or the PUT waited on a
/// lazy portal until the portal was no longer lazy, its connection was lost, or there was no memory
/// for it.
///
/// The sender can only detect that no ACK arrives (lnet-wire 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dropped {
    /// The process of this node to which the PUT was sent: one of [`crate::LNet::local_ids`].
    pub target: ProcessId,
    /// Portal index in the header: any number, as a peer may write any value.
    pub portal: u32,
    /// Match bits in the header.
    pub match_bits: MatchBits,
    /// The initiator: the *primary* NID of the source's peer, and its PID.
    pub initiator: ProcessId,
    /// Payload length in bytes.
    pub length: u32,
}

/// The callback for messages that no buffer took; see [`crate::LNet::watch_drops`].
pub trait DropWatcher: Send + Sync {
    /// Reports a dropped message. Called without any of LNet's locks, on the thread that drops the
    /// message, possibly by several threads at the same time. The rate of calls depends on peers,
    /// so it must take constant time, allocate nothing, and not call LNet.
    fn dropped(&self, message: &Dropped);
}
