//! A message in the table of those that are sent.

use crate::list::{Links, linked};
use crate::message::Message;
use crate::slab::NONE;

/// The list number of messages that wait for credits: of their peer, in their host's share, or of their NI, never two at a
/// time.
pub(super) const QUEUE: usize = 5;

/// What a message that waits for credits waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// A credit of its peer.
    Peer,
    /// That its host holds fewer credits.
    Host,
    /// A credit of its NI.
    Ni,
}

/// A message that waits for credits, or that its LND has.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) message: Message,
    /// The next hop.
    pub(super) peer: u32,
    /// While it waits for credits: what its LND will be handed, in a table of its own, for few ever wait; else [`NONE`].
    pub(super) waiting: u32,
    /// The queue it waits in, if it waits.
    pub(super) awaits: Awaits,
    /// The host whose credit it holds or waits for, among those of its NI; [`NONE`] while it waits for a credit of its peer.
    pub(super) host: u32,
    queue: Links,
}

impl Sending {
    pub(super) fn new(message: Message, peer: u32) -> Sending {
        Sending { message, peer, waiting: NONE, awaits: Awaits::Peer, host: NONE, queue: Links::NONE }
    }
}

linked!(Sending: QUEUE => queue);
