//! The rooms of MDs: [`Posted`] has the MEs of portals and the MDs attached to them, [`Bound`] the
//! MDs bound for PUTs and GETs with the responses for which they wait.
//!
//! Each CPU partition has one of each, under separate locks: so arrivals on a portal do not contend
//! with sends, nor with the answers to them (S-106). This module has the part that both share:
//! [`MdTable`] the data, the trait [`Resources`] the operations.
//!
//! Events are delivered under the lock: so those of one MD never overlap, and the one with
//! `unlinked` is the last.

mod audit;
mod bound;
#[cfg(test)]
pub(crate) mod damage;
mod entry;
mod matching;
mod md;
mod objects;
mod posted;
mod response;
mod table;

use std::sync::Arc;

use lnet_api::{Errno, Event, EventKind, LNetError, Md, MdHandle, PayloadTarget, TxToken, Unlink, Verdict};
use lnet_proto::WireHandle;
use lnet_region::WriteVec;

pub(crate) use self::audit::Uses;
pub(crate) use self::bound::Bound;
pub(crate) use self::entry::PortalKind;
pub(crate) use self::matching::{MatchRequest, Search};
use self::md::MdState;
use self::objects::Objects;
pub(crate) use self::posted::{Attached, MatchAttempt, Posted};
use crate::common::Common;
use crate::counters::Counters;
use crate::event_queue::QueueUses;
use crate::message::Path;
use crate::names::{MdLocation, MdName, RxName};
use crate::slab::{Key, NONE, Slab, slab, some};
use crate::work::{Ack, DeferredWork};

/// Slots of a table, or links of a list, that a search for failed messages visits per hold of its
/// lock.
const FAIL_BATCH: u32 = 1024;

/// A message whose payload is being received.
#[derive(Debug)]
struct Receiving {
    kind: Intake,
    /// Index of the MD that takes the message, in the same partition's table; [`NONE`] if the
    /// message is received without a buffer.
    md: u32,
    back: Path,
    event: Event,
    /// The handle that the ACK of a PUT echoes, if one is requested.
    ack: WireHandle,
}

/// The kind of an incoming message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    Put,
    /// A PUT to the node's own portal: one at a time per peer.
    Push,
    Reply,
}

/// The MDs of a room with their users: event queues, and the messages being received.
pub(crate) struct MdTable {
    common: Arc<Common>,
    location: MdLocation,
    objects: Objects,
    queues: QueueUses,
    receiving: Slab<Receiving>,
    counters: Counters,
}

impl MdTable {
    fn new(common: &Arc<Common>, location: MdLocation) -> MdTable {
        let (limits, room) = (&common.config.limits, common.room(location.partition));
        let entries = if location.bound { 0 } else { limits.match_entries };
        MdTable {
            common: common.clone(),
            location,
            objects: Objects::new(entries, limits.descriptors, &room),
            queues: QueueUses::default(),
            receiving: slab(limits.messages).within(&room),
            counters: Counters::default(),
        }
    }

    /// Adds an MD; `me` is the index of its entry, or [`NONE`].
    fn enter(&mut self, md: Md, me: u32, unlink: Unlink) -> Result<u32, LNetError> {
        let limit = self.objects.limits().1;
        let eq = match md.eq {
            None => NONE,
            Some(eq) => self.queues.enter(&self.common.queues, eq, self.common.handles.decode_eq(eq))?,
        };
        let index = self.objects.insert_md(some(me), MdState::new(md, eq, me, unlink));
        if index.is_none() && eq != NONE {
            self.queues.leave(eq);
        }
        index.ok_or(LNetError::TooMany { objects: "memory descriptors", limit })
    }

    /// Returns the MD's index, unless it is unlinked.
    fn live(&self, key: Key) -> Option<u32> {
        self.objects.named_md(key).filter(|md| !md.dead).map(|_| key.index)
    }

    fn handle(&self, index: u32) -> MdHandle {
        self.common.handles.md(self.location, self.objects.key(index))
    }

    /// Counts an operation on an MD that starts; the MD exists until the operation ends.
    fn begin(&mut self, md: u32) {
        let md = self.objects.md_mut(md);
        md.consume();
        md.busy += 1;
    }

    /// Delivers `event` with this status and `unlinked` in place of the event's own.
    fn deliver(
        &mut self,
        md: u32,
        event: &Event,
        (status, unlinked): (Result<(), Errno>, bool),
        work: &mut DeferredWork,
    ) {
        let &MdState { eq, user_ptr, .. } = self.objects.md(md);
        let event = Event { md: self.handle(md), user_ptr, status, unlinked, ..*event };
        if let Some(handler) = self.queues.deliver(eq, &event) {
            work.wake(handler);
        }
    }

    fn free(&mut self, md: u32, work: &mut DeferredWork) {
        let key = self.objects.key(md);
        let Some(gone) = self.objects.remove_md(md) else { return };
        work.forget_made(MdName { location: self.location, key });
        if gone.eq != NONE {
            self.queues.leave(gone.eq);
        }
        work.garbage.push(gone.memory);
    }

    /// Stores the token of a message that waits or is with its LND: from now on the owner of its MD
    /// can withdraw it. If the owner has unlinked the MD before that, the message is withdrawn now,
    /// as the unlink found no token. The message may have ended already; then the token names
    /// nothing.
    pub(crate) fn remember(&mut self, md: Key, token: TxToken, work: &mut DeferredWork) {
        match self.objects.named_md_mut(md) {
            Some(md) if md.aborted => work.withdrawn.push(token),
            Some(md) => md.outgoing = Some(token),
            None => work.forget_made(MdName { location: self.location, key: md }),
        }
    }

    /// Returns whether an MD is unlinked; it may be gone with its message, if its NI has ended
    /// since.
    pub(crate) fn is_unlinked(&self, md: Key) -> bool {
        self.objects.named_md(md).is_none_or(|md| md.aborted)
    }

    /// Returns the number of MDs that use an event queue.
    pub(crate) fn users(&self, eq: Key) -> usize {
        self.queues.users(eq)
    }

    /// Removes an event queue that no MD uses.
    pub(crate) fn forget_queue(&mut self, eq: Key) {
        self.queues.forget(eq);
    }

    /// Returns an event queue that MDs use.
    #[cfg(test)]
    pub(crate) fn queue_in_use(&self) -> Option<Key> {
        self.queues.iter().next().map(|(key, _)| key)
    }

    /// Returns this table's part of the node's counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters { msgs_alloc: self.receiving.len() as u64, ..self.counters }
    }
}

/// Operations of both rooms of MDs: use and end of MDs.
pub(crate) trait Resources {
    /// Returns the room's MDs.
    fn mds(&self) -> &MdTable;

    /// Returns the room's MDs, mutable.
    fn mds_mut(&mut self) -> &mut MdTable;

    /// Makes the MD unreachable for handles, messages and responses. Its messages in flight
    /// continue, and the last of them ends it.
    fn retire(&mut self, md: u32);

    /// Unlinks an MD by handle; `None` if there is no such MD.
    fn unlink_named(&mut self, key: Key, work: &mut DeferredWork) -> Option<()> {
        let md = self.mds().live(key)?;
        self.unlink_by_owner(md, work);
        Some(())
    }

    /// Unlinks an MD for its owner (lnet-semantics 7). A message that has not started to leave is
    /// withdrawn.
    fn unlink_by_owner(&mut self, md: u32, work: &mut DeferredWork) {
        let descriptor = self.mds().objects.md(md);
        work.withdrawn.extend(descriptor.outgoing.filter(|_| descriptor.busy > 0));
        let event = self.mds().common.event(EventKind::Unlink);
        self.unlink(md, event, work);
    }

    /// Unlinks an MD for another reason than exhaustion. An idle one ends with `event`, whose
    /// status is kept; with messages in flight the last of them ends it.
    fn unlink(&mut self, md: u32, event: Event, work: &mut DeferredWork) {
        self.retire(md);
        let mds = self.mds_mut();
        if mds.objects.md(md).busy > 0 {
            mds.objects.md_mut(md).aborted = true;
            return;
        }
        let status = event.status;
        mds.deliver(md, &event, (status, true), work);
        mds.free(md, work);
    }

    /// Ends one message that uses the MD: delivers its event, and ends the MD if it was the last
    /// (lnet-semantics 5, 7).
    fn finish(&mut self, md: u32, event: &Event, status: Result<(), Errno>, work: &mut DeferredWork) {
        let mds = self.mds_mut();
        let descriptor = mds.objects.md_mut(md);
        descriptor.busy -= 1;
        let used_up = descriptor.bound && descriptor.auto_unlink && descriptor.is_exhausted();
        let unlinked = descriptor.busy == 0 && (descriptor.dead || used_up);
        let status = match status {
            Ok(()) if unlinked && descriptor.aborted => Err(Errno::ETIMEDOUT),
            status => status,
        };
        mds.deliver(md, event, (status, unlinked), work);
        if unlinked {
            self.retire(md);
            self.mds_mut().free(md, work);
        }
    }

    /// Ends the reception of a payload, which is complete or lost.
    fn received(&mut self, key: Key, result: Result<(), Errno>, work: &mut DeferredWork) {
        if let Some(receiving) = self.mds_mut().receiving.remove(key) {
            end_incoming(self, &receiving, result, work);
        }
    }

    /// Ends the messages being received, from slot `next` on, over a path for which `which` holds;
    /// they will not complete. Returns the slot at which to continue after the queued actions have
    /// run; `None` if no message is left.
    fn fail_receiving(
        &mut self,
        which: impl Fn(&Path) -> bool,
        (next, reason): (u32, Errno),
        work: &mut DeferredWork,
    ) -> Option<u32> {
        let used = self.mds().receiving.used();
        let end = used.min(next.saturating_add(FAIL_BATCH));
        for index in next..end {
            if !work.has_room() {
                return Some(index);
            }
            let table = &mut self.mds_mut().receiving;
            let fails = table.at(index).is_some_and(|receiving| which(&receiving.back));
            if fails && let Some(receiving) = table.take(index) {
                end_incoming(self, &receiving, Err(reason), work);
            }
        }
        (end < used).then_some(end)
    }
}

/// Starts the reception of a payload; a message without payload is complete at once. The table must
/// have room.
fn deliver_payload(
    part: &mut (impl Resources + ?Sized),
    receiving: Receiving,
    sink: Option<WriteVec>,
    work: &mut DeferredWork,
) -> Verdict {
    if receiving.event.rlength == 0 {
        end_incoming(part, &receiving, Ok(()), work);
        return Verdict::Done;
    }
    let mds = part.mds_mut();
    let Some(key) = mds.receiving.insert(receiving) else { return Verdict::Discard };
    mds.counters.msgs_max = mds.counters.msgs_max.max(mds.receiving.len() as u64);
    let sink = sink.filter(|sink| !sink.is_empty());
    Verdict::Deliver(PayloadTarget { token: RxName::Receiving(mds.location, key).token(), sink })
}

/// Delivers the event of a received PUT or REPLY, then queues the ACK.
fn end_incoming(
    part: &mut (impl Resources + ?Sized),
    receiving: &Receiving,
    result: Result<(), Errno>,
    work: &mut DeferredWork,
) {
    let counters = &mut part.mds_mut().counters;
    match result {
        Ok(()) => {
            counters.recv_count += 1;
            counters.recv_length += u64::from(receiving.event.mlength);
        }
        Err(_) => counters.errors += 1,
    }
    if receiving.md != NONE {
        part.finish(receiving.md, &receiving.event, result, work);
    }
    if receiving.kind == Intake::Push {
        work.pushed.push(receiving.back);
    }
    if result.is_ok() && !receiving.ack.is_none() {
        let Event { source, target, match_bits, mlength, .. } = receiving.event;
        let (path, dst_wmd) = (receiving.back, receiving.ack);
        work.acks.push(Ack { path, dest: source, src: target.nid, dst_wmd, match_bits, mlength });
    }
}
