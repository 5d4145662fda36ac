//! PUTs that wait for a buffer on a lazy portal (lnet-semantics 11; S-109, S-310).
//!
//! A message that finds nothing announces itself, and looks once more with the portal's queue locked; only then does
//! it wait. Who posts a buffer looks whether anybody has announced himself, after releasing the partition's lock. The
//! last look and the posting hold the same partition's lock: so either the look finds the buffer, or the poster sees
//! the announcement, and waits for the queue's lock until the message is in the queue. Until the queue has been asked,
//! the new buffer is reserved: no later message overtakes those that wait.

use lnet_api::{Delivery, MdOptions, RxToken, Verdict};
use lnet_nid::Portal;
use lnet_proto::PING_PORTAL;
use nlx_sync::Rule;

use crate::drops::DropReason;
use crate::engine::Engine;
use crate::list::Links;
use crate::message::{Inbound, Local, Way};
use crate::names::RxName;
use crate::portal::Entry;
use crate::portal_state::{Blocked, Delayed, PortalState};
use crate::receive::{Attempt, Search};
use crate::resources::Resources;
use crate::slab::{Key, NONE, some};
use crate::work::Work;

/// SYNC engine.announced: a message announces itself before its last look for a buffer, so either that finds the buffer that is being
/// attached, or who attaches it finds the message.
pub(crate) const ANNOUNCED: Rule = Rule::new("engine.announced");

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
            let portal = u32::try_from(portal).unwrap_or(u32::MAX);
            return self.drop_put(search.inbound, search.header, self.no_match(portal), work);
        }
        let state = &self.portals[portal];
        let mut blocked = state.blocked();
        let late = !ANNOUNCED.holds();
        if !late {
            state.announce();
        }
        let attempt = self.search_everywhere(portal, search, work);
        if late {
            state.announce();
        }
        // Under the queue's lock: whoever ends the portal's or the NI's life comes before this, or finds the message.
        let outcome = match attempt {
            Attempt::Taken(verdict) => Ok(verdict),
            Attempt::Refused(reason) => Err(reason),
            Attempt::Nothing if !state.is_lazy() => Err(DropReason::NotLazy),
            Attempt::Nothing if !self.is_alive(&search.inbound.back) => Err(DropReason::NiStopping),
            Attempt::Nothing => match blocked.push(search, local) {
                Some(key) => return Verdict::Delay(RxName::Delayed(portal, key).token()),
                None => Err(DropReason::NoRoom),
            },
        };
        state.withdraw();
        drop(blocked);
        outcome.unwrap_or_else(|reason| self.drop_put(search.inbound, search.header, reason, work))
    }

    pub(crate) fn is_alive(&self, way: &Way) -> bool {
        match way {
            Way::Here => true,
            Way::Over { ni, partition, .. } => {
                let net = self.net.lock(*partition);
                net.shared().is_open(*ni)
            }
        }
    }

    /// The connection of a waiting message is lost; `false` if the message does not wait any more.
    pub(crate) fn forget_waiting(&self, token: RxToken, work: &mut Work) -> bool {
        let (portal, key) = match RxName::open(token) {
            RxName::Held(key) => return self.forget_held(token, key, work),
            RxName::Delayed(portal, key) => (portal, key),
            RxName::Receiving(..) => return false,
        };
        let Some(state) = self.portals.get(portal) else { return false };
        let gone = {
            let mut blocked = state.blocked();
            let waits = blocked.delayed.get(key).is_some();
            waits.then(|| blocked.remove(state, key.index)).flatten()
        };
        gone.is_some_and(|delayed| {
            self.end_forgotten(delayed, work);
            true
        })
    }

    /// The same for a message that a fault rule had delayed before: the token names its place there.
    pub(crate) fn forget_elsewhere(&self, token: RxToken, work: &mut Work) -> bool {
        let gone = self.portals.iter().filter(|state| state.has_waiting()).find_map(|state| {
            let mut blocked = state.blocked();
            let index = blocked.held_as(token)?;
            blocked.remove(state, index)
        });
        gone.is_some_and(|delayed| {
            self.end_forgotten(delayed, work);
            true
        })
    }

    fn end_forgotten(&self, delayed: Delayed, work: &mut Work) {
        let _ = self.drop_put(&delayed.inbound, &delayed.header, DropReason::ConnectionLost, work);
        if let Some(local) = delayed.local {
            self.end_outgoing(&local.message, Ok(()), work);
        }
    }

    /// A buffer was posted: messages that wait try it, in order, until it is used up (S-109); then others may. Each goes
    /// on before the next one is looked for: so nothing need be remembered of many, and those whose buffer is busy do
    /// not hinder each other.
    pub(crate) fn retry_delayed(&self, portal: usize, partition: usize, me: Key, work: &mut Work) {
        let _reserved = Reserved { engine: self, partition, me };
        let mut passed = None;
        while let Some((delayed, attempt)) = self.retry_one(portal, partition, me, &mut passed, work) {
            match attempt {
                Attempt::Taken(verdict) => self.go_on(delayed, verdict, work),
                Attempt::Refused(reason) => self.drop_one(delayed, reason, work),
                Attempt::Nothing => self.drop_one(delayed, DropReason::NoMatch, work),
            }
            self.run(work);
        }
    }

    /// The first message behind those `passed` over that the buffer takes, or would if it had the room. If there is none,
    /// nobody needs the buffer to be reserved any more.
    fn retry_one(
        &self,
        portal: usize,
        partition: usize,
        me: Key,
        passed: &mut Option<Key>,
        work: &mut Work,
    ) -> Option<(Delayed, Attempt)> {
        let state = &self.portals[portal];
        let mut blocked = state.blocked();
        let part = &mut *self.posted.lock(partition);
        while let Some(index) = blocked.behind(*passed) {
            let entry = part.objects.entry(me)?;
            let delayed = &blocked.delayed[index];
            let found = part.try_reserved(entry, &delayed.wanted);
            let search =
                Search { inbound: &delayed.inbound, header: &delayed.header, wanted: &delayed.wanted };
            let attempt = self.take(part, &search, found, work);
            if !matches!(attempt, Attempt::Nothing) {
                return Some((blocked.remove(state, index)?, attempt));
            }
            *passed = Some(blocked.delayed.key(index));
        }
        part.release(me);
        None
    }

    /// Makes a portal lazy, or not: then those that wait are dropped.
    pub(crate) fn change_lazy(&self, portal: Portal, lazy: bool, work: &mut Work) {
        let state = &self.portals[portal.index()];
        state.set_lazy(&state.blocked(), lazy);
        if !lazy {
            // Unless somebody makes it lazy again meanwhile.
            self.drop_delayed(portal.index(), |_| !state.is_lazy(), DropReason::NotLazy, work);
        }
    }

    /// Drops some of the messages that wait on a portal, each before the next one is looked for.
    pub(crate) fn drop_delayed(
        &self,
        portal: usize,
        which: impl Fn(&Delayed) -> bool,
        reason: DropReason,
        work: &mut Work,
    ) {
        let state = &self.portals[portal];
        let mut passed = None;
        let mut next = || {
            let mut blocked = state.blocked();
            while let Some(index) = blocked.behind(passed) {
                if which(&blocked.delayed[index]) {
                    return blocked.remove(state, index);
                }
                passed = Some(blocked.delayed.key(index));
            }
            None
        };
        while let Some(delayed) = next() {
            self.drop_one(delayed, reason, work);
            self.run(work);
        }
    }

    fn drop_one(&self, delayed: Delayed, reason: DropReason, work: &mut Work) {
        let verdict = self.drop_put(&delayed.inbound, &delayed.header, reason, work);
        self.go_on(delayed, verdict, work);
    }

    fn go_on(&self, delayed: Delayed, verdict: Verdict, work: &mut Work) {
        self.proceed(&delayed.inbound, delayed.local, verdict, work);
    }

    /// A message that waited is received, or dropped, or waits for something else.
    pub(crate) fn proceed(&self, inbound: &Inbound, local: Option<Local>, verdict: Verdict, work: &mut Work) {
        let delivery = match verdict {
            Verdict::Deliver(delivery) => Some(delivery),
            Verdict::Delay(_) => return,
            Verdict::Done | Verdict::Discard | Verdict::Close(_) => None,
        };
        match (local, delivery) {
            (Some(local), Some(delivery)) => self.copy(local, delivery, work),
            (Some(local), None) => self.end_outgoing(&local.message, Ok(()), work),
            (None, delivery) => self.resume(inbound, delivery),
        }
    }

    /// Has the LND go on with a message that was delayed.
    fn resume(&self, inbound: &Inbound, delivery: Option<Delivery>) {
        let Way::Over { ni, partition, .. } = inbound.back else { return };
        let lnd = self.net.lock(partition).shared().lnd(ni);
        if let Some(lnd) = lnd {
            lnd.resume(inbound.rx, delivery);
        }
    }
}

/// A buffer that is reserved for those that wait. A handler that panics when it is woken must not leave it so.
struct Reserved<'a> {
    engine: &'a Engine,
    partition: usize,
    me: Key,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.posted.lock(self.partition).release(self.me);
        }
    }
}

impl Resources {
    /// The MD of an entry is for everybody from now on.
    fn release(&mut self, me: Key) {
        if let Some(&Entry { md, .. }) = self.objects.entry(me)
            && md != NONE
        {
            self.objects.md_mut(md).reserved = false;
        }
    }
}

impl Blocked {
    /// The first message behind one that was passed over; from the head, if that one is gone.
    fn behind(&self, passed: Option<Key>) -> Option<u32> {
        match passed.and_then(|key| self.delayed.get(key)) {
            Some(passed) => some(passed.links.next),
            None => self.order.head(),
        }
    }

    /// The message that a fault rule had delayed under this token, if it waits here.
    fn held_as(&self, token: RxToken) -> Option<u32> {
        self.delayed.indices().find(|&index| self.delayed[index].inbound.held == token.0)
    }

    /// Enters a message at the end; `None` if there are too many.
    fn push(&mut self, search: &Search<'_>, local: &mut Option<Local>) -> Option<Key> {
        debug_assert_eq!(search.wanted.op, MdOptions::OP_PUT, "a GET never waits");
        let delayed = Delayed {
            inbound: search.inbound.clone(),
            header: *search.header,
            wanted: search.wanted.clone(),
            local: None,
            links: Links::NONE,
        };
        let key = self.delayed.insert(delayed)?;
        self.delayed[key.index].local = local.take();
        self.order.push_back(&mut self.delayed, key.index);
        Some(key)
    }

    fn remove(&mut self, state: &PortalState, index: u32) -> Option<Delayed> {
        self.order.remove(&mut self.delayed, index);
        state.withdraw();
        self.delayed.take(index)
    }
}
