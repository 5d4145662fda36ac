//! Actions that are decided under a lock and performed after it.

use lnet_api::{Dropped, Errno, EventKind, Handler, TxToken};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::IoVec;
use smallvec::SmallVec;

use crate::common::Common;
use crate::message::{Launch, Launched, MessageOp, OutgoingMessage, Path};
use crate::names::MdName;
use crate::slab::Key;

/// A message of this node that ended without its LND, or is complete. Like all types here, it is
/// plain data that a room passes to the engine, so its fields are visible in the crate.
pub(crate) struct EndedMessage {
    pub(crate) message: OutgoingMessage,
    pub(crate) result: Result<(), Errno>,
}

/// The ACK that a PUT requests. It has a third of the size of the [`Launch`] that is made from it
/// after the lock is released.
pub(crate) struct Ack {
    pub(crate) path: Path,
    pub(crate) dest: ProcessId,
    pub(crate) src: Nid,
    pub(crate) dst_wmd: WireHandle,
    pub(crate) match_bits: MatchBits,
    pub(crate) mlength: u32,
}

impl Ack {
    /// Returns the ACK as a message to launch.
    pub(crate) fn launch(self, common: &Common) -> Launch {
        let Ack { path, dest, src, dst_wmd, match_bits, mlength } = self;
        let src = ProcessId::new(src, common.config.pid);
        let header =
            Header { dest, src, payload_length: 0, body: Body::Ack { dst_wmd, match_bits, mlength } };
        // An ACK delivers no event.
        let event = common.event(EventKind::Send);
        let message = OutgoingMessage { op: MessageOp::Ack, md: None, event, response: Key::NULL };
        Launch { path, message, header, payload: None, reply_to: None }
    }
}

/// Items of each kind that fit without allocating.
const INLINE: usize = 2;

/// Actions that must not run under a lock: calls into LNDs and handlers, freeing of memory, and
/// everything that needs the lock of another table. One call into the engine rarely has more of
/// each than fits here without allocating: a message that completes starts at most two others,
/// unless its host's share has grown. The rooms queue actions and the engine performs them, so the
/// fields are visible in the whole crate.
#[derive(Default)]
pub(crate) struct DeferredWork {
    pub(crate) launches: ShortQueue<Launch>,
    pub(crate) acks: ShortQueue<Ack>,
    pub(crate) sends: ShortQueue<Launched>,
    pub(crate) ended: ShortQueue<EndedMessage>,
    /// Messages to be withdrawn, because the owner of their MD has unlinked it.
    pub(crate) withdrawn: SmallVec<[TxToken; INLINE]>,
    /// Paths of peers whose push has ended.
    pub(crate) pushed: ShortQueue<Path>,
    /// Dropped messages, for the watcher. At most one until it is reported.
    pub(crate) drops: SmallVec<[Dropped; 1]>,
    pub(crate) wakes: SmallVec<[Handler; INLINE]>,
    pub(crate) garbage: SmallVec<[IoVec; INLINE]>,
    /// The MD that this call has created, until the call ends it or finds that it has ended.
    pub(crate) made: Option<MdName>,
}

impl DeferredWork {
    /// Adds a handler that got an event to those to be woken, once.
    pub(crate) fn wake(&mut self, handler: &Handler) {
        if !self.wakes.iter().any(|known| known.same(handler)) {
            self.wakes.push(handler.clone());
        }
    }

    /// Forgets the created MD if it is this one, which has ended.
    pub(crate) fn forget_made(&mut self, md: MdName) {
        if self.made == Some(md) {
            self.made = None;
        }
    }

    /// Returns whether the actions should run now, between several operations: there is something
    /// to send, or no room for more without allocating.
    pub(crate) fn is_urgent(&self) -> bool {
        !self.only_wakes() || self.wakes.len() == INLINE || self.garbage.len() == INLINE
    }

    /// Returns whether there is memory for the actions that the failure of another operation would
    /// queue, so that the operation may be tried under the same lock. This always holds when
    /// nothing else is queued.
    pub(crate) fn has_room(&mut self) -> bool {
        self.wakes.try_reserve(1).is_ok() && self.garbage.try_reserve(1).is_ok() && self.pushed.reserve(1)
    }

    /// Returns whether no action is queued and no memory allocated, which is the common case.
    pub(crate) fn is_bare(&self) -> bool {
        let DeferredWork { launches, acks, sends, ended, withdrawn, pushed, drops, wakes, garbage, made: _ } =
            self;
        launches.is_bare()
            && acks.is_bare()
            && sends.is_bare()
            && ended.is_bare()
            && withdrawn.is_empty()
            && !withdrawn.spilled()
            && pushed.is_bare()
            && drops.is_empty()
            && !drops.spilled()
            && wakes.is_empty()
            && !wakes.spilled()
            && garbage.is_empty()
            && !garbage.spilled()
    }

    /// Returns whether no action is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.only_wakes() && self.wakes.is_empty()
    }

    fn only_wakes(&self) -> bool {
        self.launches.is_empty()
            && self.acks.is_empty()
            && self.sends.is_empty()
            && self.ended.is_empty()
            && self.withdrawn.is_empty()
            && self.pushed.is_empty()
            && self.drops.is_empty()
    }
}

/// A queue that is usually short: [`INLINE`] items fit without allocating. Most calls into the
/// engine leave it empty or add one item. Items are moved as little as possible, as they are
/// hundreds of bytes long.
pub(crate) struct ShortQueue<T> {
    /// The queued items; those before `next` have been removed and are `None`.
    items: SmallVec<[Option<T>; INLINE]>,
    next: usize,
}

impl<T> ShortQueue<T> {
    pub(crate) fn push(&mut self, item: T) {
        if self.next > 0 && self.items.len() == self.items.capacity() {
            self.items.drain(..self.next);
            self.next = 0;
        }
        self.items.push(Some(item));
    }

    /// Removes and returns the oldest item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.next + 1 < self.items.len() {
            self.next += 1;
            return self.items[self.next - 1].take();
        }
        let last = self.items.pop().flatten();
        self.items.clear();
        self.next = 0;
        last
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.next
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns whether the queue is empty and has allocated no memory.
    fn is_bare(&self) -> bool {
        self.is_empty() && !self.items.spilled()
    }

    /// Reserves room for `more` items, allocating if needed; `false` if there is no memory.
    pub(crate) fn reserve(&mut self, more: usize) -> bool {
        self.items.try_reserve(more).is_ok()
    }
}

impl<T> Default for ShortQueue<T> {
    fn default() -> ShortQueue<T> {
        ShortQueue { items: SmallVec::new(), next: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The queue behaves as the standard library's, and its capacity follows the number of
        /// present items, not of all past ones.
        #[test]
        fn what_is_put_in_comes_out_in_order(pushes in proptest::collection::vec(any::<bool>(), 0..200)) {
            let (mut queue, mut model) = (ShortQueue::default(), VecDeque::new());
            let mut most = 0;
            for (number, push) in pushes.into_iter().enumerate() {
                if push {
                    queue.push(number);
                    model.push_back(number);
                } else {
                    prop_assert_eq!(queue.pop(), model.pop_front());
                }
                most = model.len().max(most);
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(queue.items.capacity() <= (2 * most).max(2));
            }
        }
    }
}
