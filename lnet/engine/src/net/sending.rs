//! An outgoing message in its table.

use crate::list::{ListLinks, linked};
use crate::message::OutgoingMessage;
use crate::slab::NONE;

/// The list number of messages that wait for credits: of their peer, in their host's share, or of
/// their NI, never two at a time.
pub(super) const QUEUE: usize = 5;

/// The credit for which a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// A credit of the message's peer.
    Peer,
    /// A credit of the share of the message's host: the host must hold fewer credits.
    Host,
    /// A credit of the message's NI.
    Ni,
}

/// A message that waits for credits, or is with its LND.
#[derive(Debug)]
pub(super) struct PendingSend {
    pub(super) message: OutgoingMessage,
    /// The index of the peer that is the next hop.
    pub(super) peer: u32,
    /// Index of the LND's part of the message in a separate table while the message waits for
    /// credits, otherwise [`NONE`]. The table is separate because few messages ever wait.
    pub(super) waiting: u32,
    /// The queue in which the message waits; `None` if it does not wait.
    pub(super) awaits: Awaits,
    /// The host whose credit the message holds or waits for, as an index among the hosts of its NI;
    /// [`NONE`] while the message waits for a credit of its peer.
    pub(super) host: u32,
    queue: ListLinks,
}

impl PendingSend {
    pub(super) fn new(message: OutgoingMessage, peer: u32) -> PendingSend {
        PendingSend { message, peer, waiting: NONE, awaits: Awaits::Peer, host: NONE, queue: ListLinks::NONE }
    }
}

linked!(PendingSend: QUEUE => queue);
