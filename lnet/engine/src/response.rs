//! ACKs and REPLYs that are still to come (lnet-semantics 12: response tracking).

use lnet_api::{Errno, Event, EventKind};
use lnet_nid::{Nid, ProcessId};

use crate::buckets::{CHAIN, Hashed};
use crate::common::Common;
use crate::engine::Engine;
use crate::finish::FAIL_BATCH;
use crate::groups::{GROUP, Grouped};
use crate::list::{Linked, Links};
use crate::message::{Inbound, PeerName, Route, Way, known_as};
use crate::resources::Resources;
use crate::slab::{Key, NONE, some};
use crate::work::Work;

/// How many expired responses one hold of a partition's lock ends.
const EXPIRE_BATCH: usize = 1024;

/// How many of an MD's expected responses, and how many of a peer's, are compared with one that has come. An MD nearly
/// always expects one; one that expects many from many peers finds its own among the few that the sender owes.
const ANSWER_SEARCH: usize = 256;

/// The list number of all responses of a partition that have a deadline, the earliest first.
pub(crate) const BY_DEADLINE: usize = 2;
/// The list number of the responses expected for one MD.
pub(crate) const BY_MD: usize = 4;

/// An expected ACK or REPLY.
#[derive(Debug)]
pub(crate) struct Response {
    /// [`EventKind::Ack`] or [`EventKind::Reply`].
    pub(crate) kind: EventKind,
    pub(crate) md: u32,
    /// The next hop; none for this node itself.
    pub(crate) debtor: Option<PeerName>,
    /// Whom the request went to.
    pub(crate) target: ProcessId,
    /// The primary NID of the target's node.
    pub(crate) primary: Nid,
    /// The NID it was sent from.
    pub(crate) source: Nid,
    /// In nanoseconds; `None` if the wait is not bounded.
    pub(crate) deadline_ns: Option<u64>,
    /// The request has left.
    pub(crate) sent: bool,
    by_deadline: Links,
    by_md: Links,
    chain: Links,
    of_debtor: Links,
    last: u32,
}

impl Response {
    /// One that is in no list yet.
    pub(crate) fn new(kind: EventKind, md: u32, route: &Route, target: ProcessId) -> Response {
        Response {
            kind,
            md,
            debtor: route.debtor,
            target,
            primary: route.primary,
            source: route.source,
            deadline_ns: None,
            sent: false,
            by_deadline: Links::NONE,
            by_md: Links::NONE,
            chain: Links::NONE,
            of_debtor: Links::NONE,
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
linked!(BY_MD, by_md);
linked!(CHAIN, chain);
linked!(GROUP, of_debtor);

impl Response {
    /// The event that tells of it, as far as that is known before it comes.
    pub(crate) fn event(&self, common: &Common) -> Event {
        Event {
            target: ProcessId::new(self.source, common.config.pid),
            initiator: ProcessId::new(self.primary, self.target.pid),
            source: self.target,
            sender: self.target.nid,
            ..common.event(self.kind)
        }
    }
}

impl Resources {
    /// Enters a response in the table and in its lists; `None` if there is no room.
    pub(crate) fn track(&mut self, common: &Common, response: Response) -> Option<Key> {
        let Response { md, deadline_ns, debtor, .. } = response;
        let key = self.responses.insert(response)?;
        if debtor.is_some() && !self.by_debtor.push_back(&mut self.responses, key.index) {
            self.responses.take(key.index);
            return None;
        }
        self.objects.md_mut(md).responses.push_back(&mut self.responses, key.index);
        if let Some(deadline_ns) = deadline_ns {
            if self.deadlines.is_empty() {
                common.hasten(self.place.partition, deadline_ns);
            }
            self.deadlines.push_back(&mut self.responses, key.index);
        }
        Some(key)
    }

    /// A response is not expected any more.
    pub(crate) fn remove_response(&mut self, index: u32) {
        let Response { md, debtor, deadline_ns, .. } = self.responses[index];
        self.objects.md_mut(md).responses.remove(&mut self.responses, index);
        if debtor.is_some() {
            self.by_debtor.remove(&mut self.responses, index);
        }
        if deadline_ns.is_some() {
            self.deadlines.remove(&mut self.responses, index);
        }
        self.responses.take(index);
    }

    /// The expected response that an ACK or REPLY is: one to a request that went to the NID it comes from, else one to
    /// a request that went to another NID of the same node.
    pub(crate) fn answered(
        &self,
        common: &Common,
        md: u32,
        kind: EventKind,
        inbound: &Inbound,
        source: Nid,
    ) -> Option<u32> {
        let sender = match inbound.back {
            Way::Here => None,
            Way::Over { ni, peer, .. } => Some((ni, known_as(peer))),
        };
        // Who was asked must answer: the very peer, or another NID that is known to be of the node which the header names.
        // Programs with unprivileged ports (lnet-wire 27) answer for themselves alone.
        let of_node = inbound.nids.contains(&inbound.from.nid) && !inbound.from.pid.is_userspace();
        let is_node = |debtor: Option<PeerName>| debtor.is_some_and(|debtor| !debtor.id.pid.is_userspace());
        let of_md = self.objects.md(md).responses.iter(&self.responses).take(ANSWER_SEARCH);
        // Not looked for as long as those of the MD will do.
        let of_debtor = sender.into_iter().flat_map(|(ni, id)| {
            let first = self.first_of_debtor(&PeerName::new(&common.hasher, ni, id));
            std::iter::successors(some(first), |&at| self.next_of_debtor(at)).take(ANSWER_SEARCH)
        });
        let expected = |index: u32| {
            let Response { md: of, kind: wanted, debtor, .. } = self.responses[index];
            let owes = || debtor.map(|debtor| (debtor.ni, debtor.id)) == sender;
            of == md && wanted == kind && (owes() || of_node && is_node(debtor))
        };
        let mut same_node = None;
        for index in of_md.chain(of_debtor).filter(|&index| expected(index)) {
            let target = self.responses[index].target.nid;
            if target == source {
                return Some(index);
            }
            if same_node.is_none() && inbound.nids.contains(&target) {
                same_node = Some(index);
            }
        }
        same_node
    }

    fn first_of_debtor(&self, debtor: &PeerName) -> u32 {
        self.by_debtor
            .first(&self.responses, debtor.hash, |response: &Response| response.debtor == Some(*debtor))
    }

    fn next_of_debtor(&self, index: u32) -> Option<u32> {
        some(Linked::<GROUP>::links(&self.responses[index]).next)
    }

    /// A response will not come: it ends like one that has come, with an event of its kind and the reason as status. So an
    /// MD made for the operation alone ends too.
    pub(crate) fn fail_response(&mut self, common: &Common, index: u32, reason: Errno, work: &mut Work) {
        let response = &self.responses[index];
        let (md, event) = (response.md, response.event(common));
        self.remove_response(index);
        self.begin(md);
        self.finish(common, md, &event, Err(reason), work);
    }

    /// Ends responses that are late (lnet-semantics 12). The MD is unlinked. If it is idle, its last event has the kind of
    /// the response that did not come; else the message in flight ends it. Gives the earliest deadline that is left.
    fn expire(&mut self, common: &Common, now_ns: u64, work: &mut Work) -> u64 {
        for _ in 0..EXPIRE_BATCH {
            if !work.has_room() {
                break;
            }
            let Some(head) = self.deadlines.head() else { return u64::MAX };
            let response = &self.responses[head];
            match response.deadline_ns {
                Some(deadline_ns) if deadline_ns > now_ns => return deadline_ns,
                _ => {}
            }
            let status = Err(Errno::ETIMEDOUT);
            let (md, event) = (response.md, Event { status, ..response.event(common) });
            self.counters.response_timeout_count += 1;
            self.unlink(common, md, event, work);
        }
        now_ns
    }
}

impl Engine {
    /// Time passes in a partition.
    pub(crate) fn expire(&self, partition: usize, now_ns: u64) {
        self.with(|work| {
            let part = &mut *self.bound.lock(partition);
            let next = part.expire(&self.common, now_ns, work);
            self.common.set_deadline(partition, next);
        });
    }

    /// The connections to a peer are gone, and with them the ACKs and REPLYs to what was sent. What is still being sent,
    /// the LND finalises.
    pub(crate) fn lose_peer(&self, ni: Nid, peer: lnet_nid::ProcessId, reason: Errno, work: &mut Work) {
        let home = { self.net.lock(self.common.here()).shared().home_of(ni, peer.nid) };
        let Some((ni, home)) = home else { return };
        let debtor = PeerName::new(&self.common.hasher, ni, peer);
        for partition in 0..self.common.partitions() {
            self.fail_sent(partition, &debtor, reason, work);
        }
        self.net.lock(home).forget_if_idle(&debtor);
    }

    /// Ends what a peer owes for requests that have left. Others stay in the list: the search goes on behind the last of
    /// them that it passed, or from the start if that one has gone meanwhile.
    fn fail_sent(&self, partition: usize, debtor: &PeerName, reason: Errno, work: &mut Work) {
        self.in_batches(None, work, |mut passed: Option<Key>, work| {
            let part = &mut *self.bound.lock(partition);
            for _ in 0..FAIL_BATCH {
                passed = passed.filter(|&key| part.responses.get(key).is_some());
                if !work.has_room() {
                    break;
                }
                let index = match passed {
                    Some(key) => part.next_of_debtor(key.index)?,
                    None => some(part.first_of_debtor(debtor))?,
                };
                if part.responses[index].sent {
                    part.fail_response(&self.common, index, reason, work);
                } else {
                    passed = Some(part.responses.key(index));
                }
            }
            Some(passed)
        });
    }

    /// Ends what some peers owe, whether the requests have left or not. One that ends may take others of its MD along.
    pub(crate) fn fail_responses(
        &self,
        partition: usize,
        which: impl Fn(&PeerName) -> bool,
        reason: Errno,
        work: &mut Work,
    ) {
        self.in_batches(0, work, |next: u32, work| {
            let part = &mut *self.bound.lock(partition);
            let end = part.responses.used().min(next.saturating_add(FAIL_BATCH));
            for index in next..end {
                if !work.has_room() {
                    return Some(index);
                }
                let debtor = part.responses.at(index).and_then(|response| response.debtor.as_ref());
                if debtor.is_some_and(&which) {
                    part.fail_response(&self.common, index, reason, work);
                }
            }
            (end < part.responses.used()).then_some(end)
        });
    }
}
