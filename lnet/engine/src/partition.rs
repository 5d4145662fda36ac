//! The engine's state: everything that stands behind one lock.

use std::sync::Arc;

use lnet_api::{
    EqHandle, Event, EventHandler, EventKind, LNetError, Md, MdHandle, MeHandle, MeSpec, Tx, Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};

use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::identity::Identities;
use crate::keys::Hasher;
use crate::list::List;
use crate::md::{self, Descriptor};
use crate::message::{Delayed, Message};
use crate::ni::Nis;
use crate::objects::Objects;
use crate::peer::Peers;
use crate::portal::Table;
use crate::response::{BY_DEADLINE, Response};
use crate::slab::{Key, NONE, Slab, some};
use crate::work::Work;

/// The list number of the messages that wait on a lazy portal.
pub(crate) const DELAYED: usize = 6;

/// An event queue.
pub(crate) struct EventQueue {
    handler: Arc<dyn EventHandler>,
    /// MDs that use it.
    users: u32,
}

/// One partition of a node's state (there is one so far).
///
/// Its methods make all decisions and change all tables; what touches the outside they leave in a [`Work`], which the
/// engine does when the lock is released. Events are delivered under the lock: so those of one MD never overlap, and
/// the one with `unlinked` is the last.
pub(crate) struct Partition {
    pub(crate) config: EngineConfig,
    pub(crate) now_ns: u64,
    pub(crate) hasher: Hasher,
    pub(crate) event_queues: Slab<EventQueue>,
    pub(crate) objects: Objects,
    pub(crate) portals: Box<[Table]>,
    pub(crate) messages: Slab<Message>,
    /// The messages that wait for credits.
    pub(crate) waiting: Slab<Tx>,
    pub(crate) delayed: Slab<Delayed>,
    pub(crate) responses: Slab<Response>,
    pub(crate) deadlines: List<BY_DEADLINE>,
    pub(crate) peers: Peers,
    pub(crate) nis: Nis,
    pub(crate) identities: Identities,
    pub(crate) counters: Counters,
}

impl Partition {
    pub(crate) fn new(config: EngineConfig) -> Partition {
        let limits = &config.limits;
        Partition {
            now_ns: 0,
            hasher: Hasher::default(),
            event_queues: Slab::new(limits.event_queues),
            objects: Objects::new(limits.match_entries, limits.descriptors),
            portals: (0..Portal::COUNT).map(|_| Table::new()).collect(),
            messages: Slab::new(limits.messages),
            waiting: Slab::new(limits.messages),
            delayed: Slab::new(limits.delayed),
            responses: Slab::new(limits.messages),
            deadlines: List::new(),
            peers: Peers::new(limits.peers),
            nis: Nis::new(),
            identities: Identities::new(limits.known_nodes),
            counters: Counters::default(),
            config,
        }
    }

    /// Whether this node has the NID, NIs that are just starting or stopping included.
    pub(crate) fn is_local(&self, nid: Nid) -> bool {
        nid.is_loopback() || self.nis.find(nid).is_some()
    }

    pub(crate) fn eq_alloc(&mut self, handler: Arc<dyn EventHandler>) -> Result<EqHandle, LNetError> {
        let limit = self.event_queues.limit();
        let key = self.event_queues.insert(EventQueue { handler, users: 0 });
        key.map(|key| EqHandle(key.to_u64())).ok_or(LNetError::TooMany { objects: "event queues", limit })
    }

    /// Gives the handler back, to be dropped without the lock.
    pub(crate) fn eq_free(&mut self, eq: EqHandle) -> Result<Arc<dyn EventHandler>, LNetError> {
        let key = Key::from_u64(eq.0);
        match self.event_queues.get(key) {
            None => Err(LNetError::NoSuch { object: "EQ", handle: eq.0 }),
            Some(queue) if queue.users > 0 => Err(LNetError::Busy { object: "EQ", handle: eq.0 }),
            Some(_) => {
                let queue = self.event_queues.remove(key);
                queue.map(|queue| queue.handler).ok_or(LNetError::NoSuch { object: "EQ", handle: eq.0 })
            }
        }
    }

    pub(crate) fn me_attach(&mut self, spec: &MeSpec) -> Result<MeHandle, LNetError> {
        let table = &mut self.portals[spec.portal.index()];
        let index = table.post(&mut self.objects, &self.hasher, spec)?;
        Ok(MeHandle(self.objects.key(index).to_u64()))
    }

    pub(crate) fn me_unlink(&mut self, me: MeHandle, work: &mut Work) -> Result<(), LNetError> {
        let key = Key::from_u64(me.0);
        let entry = self.objects.entry(key).ok_or(LNetError::NoSuch { object: "ME", handle: me.0 })?;
        let md = entry.md;
        self.remove_entry(key.index);
        if md != NONE {
            self.objects.md_mut(md).me = NONE;
            self.unlink_by_owner(md, work);
        }
        Ok(())
    }

    pub(crate) fn md_attach(
        &mut self,
        me: MeHandle,
        md: Md,
        unlink: Unlink,
        work: &mut Work,
    ) -> Result<MdHandle, LNetError> {
        let key = Key::from_u64(me.0);
        match self.objects.entry(key) {
            None => return Err(LNetError::NoSuch { object: "ME", handle: me.0 }),
            Some(entry) if entry.md != NONE => return Err(LNetError::Busy { object: "ME", handle: me.0 }),
            Some(_) => {}
        }
        let made = md::check_attached(&md).and_then(|()| self.enter_md(md, key.index, unlink));
        match made {
            Ok(index) => {
                self.objects[key.index].md = index;
                let handle = self.md_handle(index);
                self.retry_delayed(key.index, work);
                Ok(handle)
            }
            Err(error) => {
                self.remove_entry(key.index);
                Err(error)
            }
        }
    }

    pub(crate) fn md_bind(&mut self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        md::check_bound(&md)?;
        let index = self.enter_md(md, NONE, unlink)?;
        Ok(self.md_handle(index))
    }

    fn enter_md(&mut self, md: Md, me: u32, unlink: Unlink) -> Result<u32, LNetError> {
        let eq = match md.eq {
            None => NONE,
            Some(eq) => {
                let key = Key::from_u64(eq.0);
                self.event_queues.get(key).ok_or(LNetError::NoSuch { object: "EQ", handle: eq.0 })?;
                key.index
            }
        };
        let limit = self.objects.limits().1;
        let index = self.objects.insert_md(some(me), Descriptor::new(md, eq, me, unlink));
        let index = index.ok_or(LNetError::TooMany { objects: "memory descriptors", limit })?;
        if eq != NONE {
            self.event_queues[eq].users += 1;
        }
        Ok(index)
    }

    pub(crate) fn md_unlink(&mut self, md: MdHandle, work: &mut Work) -> Result<(), LNetError> {
        let index = self.live_md(md).ok_or(LNetError::NoSuch { object: "MD", handle: md.0 })?;
        self.unlink_by_owner(index, work);
        Ok(())
    }

    /// The MD, unless it is unlinked.
    pub(crate) fn live_md(&self, md: MdHandle) -> Option<u32> {
        let key = Key::from_u64(md.0);
        self.objects.named_md(key).filter(|md| !md.dead).map(|_| key.index)
    }

    pub(crate) fn md_handle(&self, index: u32) -> MdHandle {
        MdHandle(self.objects.key(index).to_u64())
    }

    /// Explicit unlink (lnet-semantics 7).
    fn unlink_by_owner(&mut self, md: u32, work: &mut Work) {
        let event = self.event(EventKind::Unlink);
        self.unlink(md, event, work);
    }

    /// Unlinks an MD for another reason than exhaustion. An idle one ends with `event`, whose status is kept; with
    /// messages in flight the last of them ends it.
    pub(crate) fn unlink(&mut self, md: u32, event: Event, work: &mut Work) {
        self.retire(md);
        if self.objects.md(md).busy > 0 {
            self.objects.md_mut(md).aborted = true;
            return;
        }
        self.deliver(md, Event { unlinked: true, ..event }, work);
        self.free_md(md, work);
    }

    /// From here on no handle, message or response finds the MD; its ME goes too if it was posted so.
    pub(crate) fn retire(&mut self, md: u32) {
        self.objects.md_mut(md).dead = true;
        while let Some(head) = self.objects.md(md).responses.head() {
            self.remove_response(head);
        }
        let me = std::mem::replace(&mut self.objects.md_mut(md).me, NONE);
        if me != NONE {
            self.objects[me].md = NONE;
            if self.objects[me].auto_unlink {
                self.remove_entry(me);
            }
        }
    }

    fn remove_entry(&mut self, me: u32) {
        let portal = self.objects[me].portal;
        self.portals[portal.index()].withdraw(&mut self.objects, me);
        self.objects.remove_entry(me);
    }

    /// One message that uses the MD is done: tells its owner, and ends the MD if it was the last (lnet-semantics 5, 7).
    pub(crate) fn finish(
        &mut self,
        md: u32,
        event: &Event,
        status: Result<(), lnet_api::Errno>,
        work: &mut Work,
    ) {
        let entry = self.objects.md_mut(md);
        entry.busy -= 1;
        let used_up = entry.bound && entry.auto_unlink && entry.is_exhausted();
        let unlinked = entry.busy == 0 && (entry.dead || used_up);
        let status = match status {
            Ok(()) if unlinked && entry.aborted => Err(lnet_api::Errno::ETIMEDOUT),
            status => status,
        };
        self.deliver(md, Event { status, unlinked, ..*event }, work);
        if unlinked {
            self.retire(md);
            self.free_md(md, work);
        }
    }

    fn deliver(&mut self, md: u32, event: Event, work: &mut Work) {
        let &Descriptor { eq, user_ptr, .. } = self.objects.md(md);
        if eq == NONE {
            return;
        }
        let handler = &self.event_queues[eq].handler;
        handler.event(&Event { md: self.md_handle(md), user_ptr, ..event });
        work.wake(handler);
    }

    fn free_md(&mut self, md: u32, work: &mut Work) {
        let Some(gone) = self.objects.remove_md(md) else { return };
        if gone.eq != NONE {
            self.event_queues[gone.eq].users -= 1;
        }
        work.garbage.push(gone.memory);
    }

    /// An event in which nothing is filled in but what it is and this node's PID.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        let here = ProcessId::new(Nid::ANY, self.config.pid);
        Event {
            kind,
            target: here,
            initiator: here,
            source: here,
            sender: Nid::ANY,
            portal: 0,
            match_bits: MatchBits(0),
            hdr_data: 0,
            rlength: 0,
            mlength: 0,
            offset: 0,
            md: MdHandle(0),
            user_ptr: 0,
            status: Ok(()),
            unlinked: false,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let (msgs_alloc, rst_alloc) = (self.messages.len() as u64, self.responses.len() as u64);
        Counters { msgs_alloc, rst_alloc, ..self.counters }
    }
}
