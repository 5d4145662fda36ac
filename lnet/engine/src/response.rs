//! ACKs and REPLYs that are still to come (lnet-semantics 12: response tracking).

use lnet_api::EventKind;
use lnet_nid::{Nid, ProcessId};

use crate::list::{Linked, Links};

/// The list number of all responses with a deadline, the earliest first.
pub(crate) const BY_DEADLINE: usize = 2;
/// The list number of the responses expected from one peer.
pub(crate) const BY_PEER: usize = 3;
/// The list number of the responses expected for one MD.
pub(crate) const BY_MD: usize = 4;

/// An expected ACK or REPLY.
#[derive(Debug)]
pub(crate) struct Response {
    /// [`EventKind::Ack`] or [`EventKind::Reply`].
    pub(crate) kind: EventKind,
    pub(crate) md: u32,
    /// The next hop; NONE for this node itself.
    pub(crate) peer: u32,
    /// Whom the request went to.
    pub(crate) target: ProcessId,
    /// The NID it was sent from.
    pub(crate) source: Nid,
    /// In nanoseconds; `None` if the wait is not bounded.
    pub(crate) deadline_ns: Option<u64>,
    /// The request has left.
    pub(crate) sent: bool,
    by_deadline: Links,
    by_peer: Links,
    by_md: Links,
}

impl Response {
    /// One that is in no list yet.
    pub(crate) fn new(kind: EventKind, md: u32, peer: u32, target: ProcessId, source: Nid) -> Response {
        Response {
            kind,
            md,
            peer,
            target,
            source,
            deadline_ns: None,
            sent: false,
            by_deadline: Links::NONE,
            by_peer: Links::NONE,
            by_md: Links::NONE,
        }
    }
}

macro_rules! linked {
    ($list:ident, $field:ident) => {
        impl Linked<$list> for Response {
            fn links(&self) -> Links {
                self.$field
            }

            fn links_mut(&mut self) -> &mut Links {
                &mut self.$field
            }
        }
    };
}

linked!(BY_DEADLINE, by_deadline);
linked!(BY_PEER, by_peer);
linked!(BY_MD, by_md);
