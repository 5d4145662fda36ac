//! One partition of MEs and MDs: what one lock of the resource locks protects.

use lnet_api::{Errno, Event, EventKind, LNetError, Md, MdHandle, Unlink};
use lnet_nid::Portal;
use lnet_proto::WireHandle;

use crate::common::Common;
use crate::counters::Counters;
use crate::event_queue::QueueUses;
use crate::groups::Groups;
use crate::list::List;
use crate::md::Descriptor;
use crate::message::Way;
use crate::names::Place;
use crate::objects::Objects;
use crate::portal::Table;
use crate::response::{BY_DEADLINE, Response};
use crate::slab::{Key, NONE, Slab, slab, some};
use crate::work::Work;

/// A message whose payload is being received.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) kind: Intake,
    /// The MD that takes it, in the same partition's table; NONE if it goes nowhere.
    pub(crate) md: u32,
    pub(crate) back: Way,
    pub(crate) event: Event,
    /// What the ACK of a PUT echoes, if one is wanted.
    pub(crate) ack: WireHandle,
}

/// What is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    Put,
    /// A PUT to the node's own portal: one at a time per peer.
    Push,
    Reply,
}

/// MDs with all that hangs on them.
///
/// Each CPU partition has two of these, under locks of their own: one for what is posted on portals (MEs and the MDs
/// attached to them), one for the MDs bound for PUTs and GETs with the responses they wait for. So what arrives for a
/// portal does not contend with what is sent, nor with the answers to it (S-106).
///
/// Events are delivered under the lock: so those of one MD never overlap, and the one with `unlinked` is the last.
pub(crate) struct Resources {
    pub(crate) place: Place,
    pub(crate) objects: Objects,
    /// The match entries, by portal; none if this is for bound MDs.
    pub(crate) tables: Box<[Table]>,
    pub(crate) queues: QueueUses,
    /// Messages whose payload is being received.
    pub(crate) receiving: Slab<Receiving>,
    pub(crate) responses: Slab<Response>,
    pub(crate) deadlines: List<BY_DEADLINE>,
    pub(crate) by_debtor: Groups,
    pub(crate) counters: Counters,
}

impl Resources {
    pub(crate) fn new(common: &Common, place: Place) -> Resources {
        let limits = &common.config.limits;
        let portals = if place.bound { 0 } else { Portal::COUNT };
        Resources {
            place,
            objects: Objects::new(if place.bound { 0 } else { limits.match_entries }, limits.descriptors),
            tables: (0..portals).map(|_| Table::new()).collect(),
            queues: QueueUses::default(),
            receiving: slab(limits.messages),
            responses: slab(if place.bound { limits.messages } else { 0 }),
            deadlines: List::new(),
            by_debtor: Groups::default(),
            counters: Counters::default(),
        }
    }

    /// Enters an MD; `me` is its entry, or [`NONE`].
    pub(crate) fn enter_md(
        &mut self,
        common: &Common,
        md: Md,
        me: u32,
        unlink: Unlink,
    ) -> Result<u32, LNetError> {
        let limit = self.objects.limits().1;
        let eq = match md.eq {
            None => NONE,
            Some(eq) => self.queues.enter(&common.queues, eq, common.handles.open_eq(eq))?,
        };
        let index = self.objects.insert_md(some(me), Descriptor::new(md, eq, me, unlink));
        if index.is_none() && eq != NONE {
            self.queues.leave(eq);
        }
        index.ok_or(LNetError::TooMany { objects: "memory descriptors", limit })
    }

    /// The MD, unless it is unlinked.
    pub(crate) fn live_md(&self, key: Key) -> Option<u32> {
        self.objects.named_md(key).filter(|md| !md.dead).map(|_| key.index)
    }

    pub(crate) fn md_handle(&self, common: &Common, index: u32) -> MdHandle {
        common.handles.md(self.place, self.objects.key(index))
    }

    /// Explicit unlink (lnet-semantics 7). A message that has not begun to leave is taken back.
    pub(crate) fn unlink_by_owner(&mut self, common: &Common, md: u32, work: &mut Work) {
        let descriptor = self.objects.md(md);
        work.withdrawn.extend(descriptor.outgoing.filter(|_| descriptor.busy > 0));
        self.unlink(common, md, common.event(EventKind::Unlink), work);
    }

    /// Nothing finds the MD any more. Its messages in flight go on, and the last of them ends it.
    pub(crate) fn unlink_when_idle(&mut self, common: &Common, md: u32, work: &mut Work) {
        if self.objects.md(md).busy > 0 {
            self.retire(md);
        } else {
            self.unlink(common, md, common.event(EventKind::Unlink), work);
        }
    }

    /// Unlinks an MD for another reason than exhaustion. An idle one ends with `event`, whose status is kept; with
    /// messages in flight the last of them ends it.
    pub(crate) fn unlink(&mut self, common: &Common, md: u32, event: Event, work: &mut Work) {
        self.retire(md);
        if self.objects.md(md).busy > 0 {
            self.objects.md_mut(md).aborted = true;
            return;
        }
        let status = event.status;
        self.deliver(common, md, &event, (status, true), work);
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
            let portal = self.objects[me].portal;
            self.tables[portal.index()].attached -= 1;
            if self.objects[me].auto_unlink {
                self.remove_entry(me);
            }
        }
    }

    pub(crate) fn remove_entry(&mut self, me: u32) {
        let portal = self.objects[me].portal;
        self.tables[portal.index()].withdraw(&mut self.objects, me);
        self.objects.remove_entry(me);
    }

    /// Counts an operation that begins, and keeps the MD until it ends.
    pub(crate) fn begin(&mut self, md: u32) {
        let md = self.objects.md_mut(md);
        md.consume();
        md.busy += 1;
    }

    /// One message that uses the MD is done: tells its owner, and ends the MD if it was the last (lnet-semantics 5, 7).
    pub(crate) fn finish(
        &mut self,
        common: &Common,
        md: u32,
        event: &Event,
        status: Result<(), Errno>,
        work: &mut Work,
    ) {
        let descriptor = self.objects.md_mut(md);
        descriptor.busy -= 1;
        let used_up = descriptor.bound && descriptor.auto_unlink && descriptor.is_exhausted();
        let unlinked = descriptor.busy == 0 && (descriptor.dead || used_up);
        let status = match status {
            Ok(()) if unlinked && descriptor.aborted => Err(Errno::ETIMEDOUT),
            status => status,
        };
        self.deliver(common, md, event, (status, unlinked), work);
        if unlinked {
            self.retire(md);
            self.free_md(md, work);
        }
    }

    /// Tells of an event with this end in place of its own.
    fn deliver(
        &mut self,
        common: &Common,
        md: u32,
        event: &Event,
        (status, unlinked): (Result<(), Errno>, bool),
        work: &mut Work,
    ) {
        let &Descriptor { eq, user_ptr, .. } = self.objects.md(md);
        let event = Event { md: self.md_handle(common, md), user_ptr, status, unlinked, ..*event };
        if let Some(handler) = self.queues.deliver(eq, &event) {
            work.wake(handler);
        }
    }

    fn free_md(&mut self, md: u32, work: &mut Work) {
        let Some(gone) = self.objects.remove_md(md) else { return };
        if gone.eq != NONE {
            self.queues.leave(gone.eq);
        }
        work.garbage.push(gone.memory);
    }

    /// How many of its MDs use an event queue.
    pub(crate) fn users(&self, eq: Key) -> usize {
        self.queues.users(eq)
    }

    /// Forgets an event queue that none of its MDs uses.
    pub(crate) fn forget_queue(&mut self, eq: Key) {
        self.queues.forget(eq);
    }

    /// Its part of the node's counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            msgs_alloc: self.receiving.len() as u64,
            rst_alloc: self.responses.len() as u64,
            ..self.counters
        }
    }
}
