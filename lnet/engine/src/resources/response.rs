//! Expected ACKs and REPLYs (lnet-semantics 12: response tracking).

use lnet_api::{Event, EventKind};
use lnet_nid::{Nid, ProcessId};

use super::md::BY_MD;
use crate::buckets::{CHAIN, Hashed};
use crate::common::Common;
use crate::groups::{GROUP, Grouped};
use crate::list::{ListLinks, linked};
use crate::message::{PeerName, Route};
use crate::slab::NONE;

/// The list number of all responses of a partition that have a deadline, the earliest first.
pub(super) const BY_DEADLINE: usize = 2;

/// An expected ACK or REPLY.
#[derive(Debug)]
pub(super) struct Response {
    /// [`EventKind::Ack`] or [`EventKind::Reply`].
    pub(super) kind: EventKind,
    pub(super) md: u32,
    /// The peer (next hop) that owes the answer; `None` for this node itself.
    pub(super) debtor: Option<PeerName>,
    /// The target process of the request.
    pub(super) target: ProcessId,
    /// The primary NID of the target node.
    pub(super) primary: Nid,
    /// The NID from which the request was sent.
    pub(super) source: Nid,
    /// Deadline in nanoseconds; `None` if the wait is not bounded.
    pub(super) deadline_ns: Option<u64>,
    /// True once the request has left.
    pub(super) sent: bool,
    by_deadline: ListLinks,
    by_md: ListLinks,
    chain: ListLinks,
    of_debtor: ListLinks,
    last: u32,
}

impl Response {
    /// Creates a response that is in no list yet.
    pub(super) fn new(kind: EventKind, md: u32, route: &Route, target: ProcessId) -> Response {
        Response {
            kind,
            md,
            debtor: route.debtor,
            target,
            primary: route.primary,
            source: route.source,
            deadline_ns: None,
            sent: false,
            by_deadline: ListLinks::NONE,
            by_md: ListLinks::NONE,
            chain: ListLinks::NONE,
            of_debtor: ListLinks::NONE,
            last: NONE,
        }
    }
}

impl Hashed for Response {
    fn hash(&self) -> u32 {
        self.debtor.map_or(0, |debtor| debtor.hash)
    }
}

impl Grouped for Response {
    fn same_key(&self, other: &Response) -> bool {
        self.debtor == other.debtor
    }

    fn last(&self) -> u32 {
        self.last
    }

    fn set_last(&mut self, last: u32) {
        self.last = last;
    }
}

linked!(Response: BY_DEADLINE => by_deadline, BY_MD => by_md, CHAIN => chain, GROUP => of_debtor);

impl Response {
    /// Returns the event of the response, as far as it is known before the answer arrives.
    pub(super) fn event(&self, common: &Common) -> Event {
        Event {
            target: ProcessId::new(self.source, common.config.pid),
            initiator: ProcessId::new(self.primary, self.target.pid),
            source: self.target,
            sender: self.target.nid,
            ..common.event(self.kind)
        }
    }
}
