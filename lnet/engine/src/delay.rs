//! PUTs that wait for a buffer on a lazy portal (lnet-semantics 11; S-109, S-310).
//!
//! A message that finds nothing announces itself, and looks once more with the portal's queue locked; only then does
//! it wait. Who posts a buffer looks whether anybody has announced himself, after releasing the partition's lock. The
//! last look and the posting hold the same partition's lock: so either the look finds the buffer, or the poster sees
//! the announcement, and waits for the queue's lock until the message is in the queue.

use lnet_api::{MdOptions, RxToken, Verdict};
use lnet_nid::Portal;
use lnet_proto::PING_PORTAL;

use crate::engine::Engine;
use crate::list::Links;
use crate::matching::Found;
use crate::message::{Delayed, Local, Way};
use crate::ni::Phase;
use crate::portal_state::{Blocked, PortalState};
use crate::receive::{Attempt, Search};
use crate::slab::{Key, some};
use crate::sync::{Mutant, is_mutant};
use crate::work::{Ended, LocalCopy, Resume, Work};

impl Engine {
    /// A PUT has found no buffer: it waits, if its portal is lazy.
    pub(crate) fn delay(
        &self,
        portal: usize,
        search: &Search<'_>,
        local: &mut Option<Local>,
        work: &mut Work,
    ) -> Verdict {
        // On the node's own portal there is nobody to wait for.
        let lazy =
            portal != PING_PORTAL.index() && self.portals.get(portal).is_some_and(PortalState::is_lazy);
        if !lazy {
            return self.discard(search.inbound, search.header);
        }
        let state = &self.portals[portal];
        let mut blocked = state.blocked();
        let late = is_mutant(Mutant::LateAnnouncement);
        if !late {
            state.announce();
        }
        let attempt = self.search_everywhere(portal, search, work);
        if late {
            state.announce();
        }
        // Under the queue's lock: whoever ends the portal's or the NI's life comes before this, or finds the message.
        if matches!(attempt, Attempt::Nothing)
            && state.is_lazy()
            && self.is_alive(&search.inbound.back)
            && blocked.push(search, local)
        {
            return Verdict::Delay(RxToken(0));
        }
        state.withdraw();
        drop(blocked);
        match attempt {
            Attempt::Taken(verdict) => verdict,
            Attempt::Refused | Attempt::Nothing => self.discard(search.inbound, search.header),
        }
    }

    fn is_alive(&self, way: &Way) -> bool {
        match way {
            Way::Here => true,
            Way::Over { ni, partition, .. } => {
                let net = self.net.lock(*partition);
                net.shared().nis.get(*ni).is_some_and(|ni| ni.phase != Phase::Stopping)
            }
        }
    }

    /// A buffer was posted: messages that wait try it, in order, until it is used up (S-109). Each goes on before the next
    /// one is looked for: so nothing need be remembered of many, and those whose buffer is busy do not hinder each
    /// other.
    pub(crate) fn retry_delayed(&self, portal: usize, partition: usize, me: Key, work: &mut Work) {
        while self.retry_one(portal, partition, me, work) {
            self.run(work);
        }
    }

    /// The first message that the buffer would take goes on, or is dropped; `false` if there is none.
    fn retry_one(&self, portal: usize, partition: usize, me: Key, work: &mut Work) -> bool {
        let state = &self.portals[portal];
        let (delayed, attempt) = {
            let mut blocked = state.blocked();
            let part = &mut *self.posted.lock(partition);
            let mut next = blocked.order.head();
            loop {
                let (Some(index), Some(entry)) = (next, part.objects.entry(me)) else { return false };
                let delayed = &blocked.delayed[index];
                next = some(delayed.links.next);
                let found = part.try_entry(entry, &delayed.wanted).unwrap_or(Found::Nothing);
                let search =
                    Search { inbound: &delayed.inbound, header: &delayed.header, wanted: &delayed.wanted };
                let attempt = self.take(part, &search, found, work);
                if matches!(attempt, Attempt::Nothing) {
                    continue;
                }
                if let Some(delayed) = blocked.remove(state, index) {
                    break (delayed, attempt);
                }
            }
        };
        match attempt {
            Attempt::Taken(verdict) => go_on(delayed, verdict, work),
            Attempt::Refused | Attempt::Nothing => self.drop_one(delayed, work),
        }
        true
    }

    /// Makes a portal lazy, or not: then those that wait are dropped.
    pub(crate) fn change_lazy(&self, portal: Portal, lazy: bool, work: &mut Work) {
        let state = &self.portals[portal.index()];
        state.set_lazy(&state.blocked(), lazy);
        if !lazy {
            self.drop_delayed(portal.index(), |_| true, work);
        }
    }

    /// Drops some of the messages that wait on a portal, each before the next one is looked for.
    pub(crate) fn drop_delayed(&self, portal: usize, which: impl Fn(&Delayed) -> bool, work: &mut Work) {
        let state = &self.portals[portal];
        let first = || {
            let mut blocked = state.blocked();
            let Blocked { delayed, order } = &*blocked;
            let index = order.iter(delayed).find(|&index| which(&delayed[index]))?;
            blocked.remove(state, index)
        };
        while let Some(delayed) = first() {
            self.drop_one(delayed, work);
            self.run(work);
        }
    }

    fn drop_one(&self, delayed: Delayed, work: &mut Work) {
        let verdict = self.discard(&delayed.inbound, &delayed.header);
        go_on(delayed, verdict, work);
    }

    /// Has an LND go on with a message that was delayed.
    pub(crate) fn resume(&self, resume: Resume) {
        let Way::Over { ni, partition, .. } = resume.way else { return };
        let lnd = self.net.lock(partition).shared().nis.get(ni).map(|ni| ni.lnd.clone());
        if let Some(lnd) = lnd {
            lnd.resume(resume.rx, resume.delivery);
        }
    }
}

/// A message that waited is received, or dropped.
fn go_on(delayed: Delayed, verdict: Verdict, work: &mut Work) {
    let delivery = if let Verdict::Deliver(delivery) = verdict { Some(delivery) } else { None };
    match (delayed.local, delivery) {
        (Some(local), Some(delivery)) => work.copies.push(LocalCopy { local, delivery }),
        (Some(local), None) => work.ended.push(Ended { message: local.message, result: Ok(()) }),
        (None, delivery) => {
            let (way, rx) = (delayed.inbound.back, delayed.inbound.rx);
            work.resumes.push(Resume { way, rx, delivery });
        }
    }
}

impl Blocked {
    /// Enters a message at the end; `false` if there are too many.
    fn push(&mut self, search: &Search<'_>, local: &mut Option<Local>) -> bool {
        debug_assert_eq!(search.wanted.op, MdOptions::OP_PUT, "a GET never waits");
        let delayed = Delayed {
            inbound: search.inbound.clone(),
            header: *search.header,
            wanted: search.wanted.clone(),
            local: None,
            links: Links::NONE,
        };
        let Some(key) = self.delayed.insert(delayed) else { return false };
        self.delayed[key.index].local = local.take();
        self.order.push_back(&mut self.delayed, key.index);
        true
    }

    fn remove(&mut self, state: &PortalState, index: u32) -> Option<Delayed> {
        self.order.remove(&mut self.delayed, index);
        state.withdraw();
        self.delayed.take(index)
    }
}
