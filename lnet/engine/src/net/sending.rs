//! An outgoing message in its table.

use crate::list::{Links, linked};
use crate::message::Message;
use crate::slab::NONE;

/// The list number of messages that wait for credits: of their peer, in their host's share, or of
/// their NI, never two at a time.
pub(super) const QUEUE: usize = 5;

/// The credit for which a message waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// A credit of its peer.
    Peer,
    /// A credit of its host's share: the host must hold fewer credits.
    Host,
    /// A credit of its NI.
    Ni,
}

/// A message that waits for credits, or is with its LND.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) message: Message,
    /// The next hop.
    pub(super) peer: u32,
    /// While it waits for credits: index of the LND's part in a separate table, as few messages
    /// ever wait; otherwise [`NONE`].
    pub(super) waiting: u32,
    /// The queue in which it waits, if it waits.
    pub(super) awaits: Awaits,
    /// The host whose credit it holds or waits for, among those of its NI; [`NONE`] while it waits
    /// for a credit of its peer.
    pub(super) host: u32,
    queue: Links,
}

impl Sending {
    pub(super) fn new(message: Message, peer: u32) -> Sending {
        Sending { message, peer, waiting: NONE, awaits: Awaits::Peer, host: NONE, queue: Links::NONE }
    }
}

linked!(Sending: QUEUE => queue);
