//! The part of a portal that all partitions share: its type, the partitions that have buffers, and
//! the messages that wait for one (lnet-semantics 10 and 11; S-101, S-109, S-309, S-310).

use crossbeam_utils::CachePadded;
use lnet_api::{LNetError, MeSpec, Position, RxToken};
use lnet_nid::{MatchBits, Nid};
use lnet_proto::Header;
use nlx_sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};

#[cfg(test)]
use crate::audit::Damage;
use crate::audit::{Audit, check, equal, text, walk};
use crate::config::Rotor;
use crate::list::{List, ListLinks, linked};
use crate::message::{Local, Path, WaitingMessage};
use crate::placement::{Lookup, Placements};
use crate::resources::{MatchRequest, PortalKind, Search};
use crate::slab::{Key, Slab, slab, some};

/// Time after the last posting, in nanoseconds, after which messages skip a partition without
/// buffers (S-309). It equals the longest step of the engine's clock: a shorter time has no
/// meaning.
const INACTIVE_AFTER_NS: u64 = crate::config::ADVANCE_INTERVAL_NS;

/// One portal without its match entries, which belong to the partitions.
#[derive(Debug)]
pub(crate) struct PortalState {
    /// Code of the portal's type; 0 until the first entry decides it.
    kind: AtomicU8,
    /// A bit for each partition that messages search for buffers. Changed under that partition's
    /// lock.
    active: AtomicU64,
    /// [`Placements`]: the kinds of entries that the partitions have published, each under its
    /// lock.
    placed: AtomicU64,
    /// Partition in which the next message of a round-robin starts.
    rotation: AtomicUsize,
    lazy: AtomicBool,
    /// Number of messages that wait for a buffer, or are about to. Incremented before a last search
    /// of all partitions: a thread that posts a buffer after that search sees the increment, as
    /// both held the partition's lock.
    waiting: AtomicUsize,
    blocked: Mutex<Blocked>,
    /// The turns given out. They are written for each new entry of a wildcard portal, so they lie
    /// on cache lines of their own, apart from those that messages read.
    turns: CachePadded<Turns>,
}

/// The lowest and the highest turn of all entries that a portal has had
/// ([`crate::placement::PlacedEntries::turn`]). 2^63 entries at each end are enough for any run.
#[derive(Debug)]
struct Turns {
    lowest: AtomicI64,
    highest: AtomicI64,
}

/// The list number of the messages that wait on a lazy portal.
const DELAYED: usize = 6;

/// A PUT that waits on a lazy portal.
#[derive(Debug)]
struct Delayed {
    waiting: WaitingMessage,
    wanted: MatchRequest,
    links: ListLinks,
}

linked!(Delayed: DELAYED => links);

/// The messages that wait for a buffer, in order. Its lock is taken before that of a partition,
/// never after.
#[derive(Debug)]
pub(crate) struct Blocked {
    delayed: Slab<Delayed>,
    order: List<DELAYED>,
}

impl PortalState {
    /// Creates a portal on which at most `limit` messages wait.
    pub(crate) fn new(limit: usize) -> PortalState {
        PortalState {
            kind: AtomicU8::new(0),
            active: AtomicU64::new(0),
            placed: AtomicU64::new(0),
            rotation: AtomicUsize::new(0),
            lazy: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            blocked: Mutex::new(Blocked { delayed: slab(limit), order: List::new() }),
            turns: CachePadded::new(Turns { lowest: AtomicI64::new(0), highest: AtomicI64::new(0) }),
        }
    }

    /// Returns the portal's type; `None` before the first entry.
    pub(crate) fn kind(&self) -> Option<PortalKind> {
        match self.kind.load(Ordering::Acquire) {
            0 => None,
            1 => Some(PortalKind::Unique),
            _ => Some(PortalKind::Wildcard),
        }
    }

    /// Returns the kind of a new entry, which decides the portal's type if it is the first (S-101).
    ///
    /// # Errors
    /// EPERM if the entry does not fit the portal's type, or is to be inserted before others on a
    /// portal without an order (S-103).
    pub(crate) fn decide(&self, spec: &MeSpec) -> Result<PortalKind, LNetError> {
        let kind = PortalKind::of(&spec.match_id, spec.ignore_bits);
        if kind == PortalKind::Unique && spec.position == Position::Before {
            return Err(PortalState::refusal(
                spec,
                "entries of a unique portal have no order, so none can be put before others",
            ));
        }
        let code = match kind {
            PortalKind::Unique => 1,
            PortalKind::Wildcard => 2,
        };
        // A plain load is tried first, as all partitions share this word and it changes only once.
        let known = match self.kind.load(Ordering::Acquire) {
            0 => self.kind.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire),
            known => Err(known),
        };
        match known {
            Err(1) if kind == PortalKind::Wildcard => Err(PortalState::refusal(
                spec,
                "a unique portal takes only entries for one process and all bits",
            )),
            Err(2) if kind == PortalKind::Unique => Err(PortalState::refusal(
                spec,
                "a wildcard portal takes only entries that leave the process or some bits open",
            )),
            _ => Ok(kind),
        }
    }

    /// Returns EPERM for an entry.
    pub(crate) fn refusal(spec: &MeSpec, rule: &'static str) -> LNetError {
        LNetError::PortalType { portal: spec.portal.get(), rule }
    }

    /// Returns the kinds of entries that the partitions have published.
    pub(crate) fn placements(&self) -> Placements {
        Placements(self.placed.load(Ordering::Acquire))
    }

    /// Returns the partitions that a message with these bits searches on this portal, whose index
    /// is `portal`.
    pub(crate) fn lookup(&self, portal: usize, bits: MatchBits, partitions: usize) -> Lookup {
        if partitions == 1 { Lookup::One(0) } else { self.placements().lookup(portal, bits, partitions) }
    }

    /// Publishes a kind of entries of a partition; under the partition's lock, before a search can
    /// find such an entry.
    pub(crate) fn publish(&self, unit: u64) {
        self.placed.fetch_add(unit, Ordering::AcqRel);
    }

    /// Unpublishes a kind of which a partition has no entries; under the partition's lock.
    pub(crate) fn unpublish(&self, unit: u64) {
        self.placed.fetch_sub(unit, Ordering::AcqRel);
    }

    /// Returns a turn below all others; under the lock of the partition whose entry takes it.
    pub(crate) fn turn_before(&self) -> i64 {
        self.turns.lowest.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// Returns a turn above all others; under the lock of the partition whose entry takes it.
    pub(crate) fn turn_after(&self) -> i64 {
        self.turns.highest.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns whether messages search this partition, if they search one after the other.
    pub(crate) fn is_active(&self, partition: usize) -> bool {
        self.active.load(Ordering::Acquire) & 1 << partition != 0
    }

    /// Marks a partition as active after a buffer was posted; under the partition's lock.
    pub(crate) fn activate(&self, partition: usize) {
        if !self.is_active(partition) {
            self.active.fetch_or(1 << partition, Ordering::AcqRel);
        }
    }

    /// Marks a partition as inactive after an unsuccessful search, if it has had no buffer for long
    /// enough. It has `attached` buffers, the last of which was posted at `posted_ns`; under the
    /// partition's lock.
    pub(crate) fn deactivate_if_unused(
        &self,
        partition: usize,
        attached: usize,
        posted_ns: u64,
        now_ns: u64,
    ) {
        if attached == 0 && now_ns.saturating_sub(posted_ns) >= INACTIVE_AFTER_NS {
            self.active.fetch_and(!(1 << partition), Ordering::AcqRel);
        }
    }

    /// Returns the partition in which the search for a message starts: `here`, or the rotor's
    /// choice (lnet-semantics 10). `primary` is the primary NID of the source.
    pub(crate) fn first_partition(
        &self,
        rotor: Rotor,
        header: &Header,
        primary: Nid,
        here: usize,
        partitions: usize,
    ) -> usize {
        if partitions == 1 {
            return 0;
        }
        let routed = || header.src.nid.net() != header.dest.nid.net();
        let turn = || self.rotation.fetch_add(1, Ordering::Relaxed) % partitions;
        match rotor {
            Rotor::On => turn(),
            Rotor::RrRt if routed() => turn(),
            Rotor::HashRt if routed() => primary.cpt_of(partitions),
            _ => here,
        }
    }

    /// Returns whether PUTs without a matching buffer wait.
    pub(crate) fn is_lazy(&self) -> bool {
        self.lazy.load(Ordering::Acquire)
    }

    /// Sets whether PUTs without a matching buffer wait. If they no longer do, the caller drops the
    /// waiting ones.
    pub(crate) fn set_lazy(&self, _: &MutexGuard<'_, Blocked>, lazy: bool) {
        self.lazy.store(lazy, Ordering::Release);
    }

    /// Returns the number of messages that wait, or are about to.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Returns whether a message may wait for a buffer that has just been posted.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    /// Locks and returns the queue of waiting messages.
    pub(crate) fn blocked(&self) -> MutexGuard<'_, Blocked> {
        self.blocked.lock()
    }

    /// Announces a message that is about to wait.
    pub(crate) fn announce(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the announcement of a message that does not wait any more.
    pub(crate) fn withdraw(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the number of messages in the queue.
    pub(crate) fn delayed(&self) -> usize {
        self.blocked.lock().delayed.len()
    }
}

impl Blocked {
    /// Returns the first message after the `passed` one; the head, if that one is gone.
    fn behind(&self, passed: Option<Key>) -> Option<u32> {
        match passed.and_then(|key| self.delayed.get(key)) {
            Some(passed) => some(passed.links.next),
            None => self.order.head(),
        }
    }

    /// Returns the first message after the `passed` one, and its search.
    pub(crate) fn next(&self, passed: Option<Key>) -> Option<(Key, Search<'_>)> {
        let index = self.behind(passed)?;
        let Delayed { waiting, wanted, .. } = &self.delayed[index];
        Some((self.delayed.key(index), Search { message: waiting.admitted(), wanted }))
    }

    /// Returns the message that waits here and that a fault rule delayed before under this token.
    pub(crate) fn held_as(&self, token: RxToken) -> Option<Key> {
        let held = |&index: &u32| self.delayed[index].waiting.inbound.held == token.0;
        self.delayed.indices().find(held).map(|index| self.delayed.key(index))
    }

    /// Adds a message, which has announced itself, at the end; `None` if there are too many. Takes
    /// the message from `local`, if this node sent it.
    pub(crate) fn push(&mut self, search: &Search<'_>, local: &mut Option<Local>) -> Option<Key> {
        debug_assert!(search.wanted.is_put(), "a GET never waits");
        let (inbound, header) = (search.message.inbound.clone(), *search.message.header);
        let waiting = WaitingMessage { inbound, header, local: None };
        let delayed = Delayed { waiting, wanted: search.wanted.clone(), links: ListLinks::NONE };
        let key = self.delayed.insert(delayed)?;
        self.delayed[key.index].waiting.local = local.take();
        self.order.push_back(&mut self.delayed, key.index);
        Some(key)
    }

    /// Removes a message of the portal `state`; `None` if it does not wait here.
    pub(crate) fn remove(&mut self, state: &PortalState, key: Key) -> Option<WaitingMessage> {
        self.delayed.get(key)?;
        self.order.remove(&mut self.delayed, key.index);
        state.withdraw();
        self.delayed.remove(key).map(|delayed| delayed.waiting)
    }

    /// Removes the first message, after the `passed` ones, that arrived over a path for which
    /// `which` holds.
    pub(crate) fn remove_first(
        &mut self,
        state: &PortalState,
        passed: &mut Option<Key>,
        which: impl Fn(&Path) -> bool,
    ) -> Option<WaitingMessage> {
        while let Some((key, search)) = self.next(*passed) {
            if which(&search.message.inbound.back) {
                return self.remove(state, key);
            }
            *passed = Some(key);
        }
        None
    }

    /// Returns the messages of this node to itself that wait here, by their index.
    pub(crate) fn locals(&self) -> impl Iterator<Item = (u32, &Local)> {
        let local = |index: u32| Some((index, self.delayed[index].waiting.local.as_ref()?));
        self.delayed.indices().filter_map(local)
    }

    /// Checks that the queue of a portal agrees with the portal's state; `exists` is whether an NI
    /// exists.
    pub(crate) fn audit(&self, portal: usize, state: &PortalState, exists: impl Fn(Key) -> bool) -> Audit {
        let location = text!("portal {portal}");
        let held = self.delayed.len();
        let listed = walk::<DELAYED, Delayed>(
            format_args!("the queue of {location}"),
            (self.order.head(), self.order.tail()),
            |index| self.delayed.at(index),
            |index, delayed| {
                let alive = delayed.waiting.inbound.back.ni().is_none_or(&exists);
                check(
                    "a message waits as long as its NI exists",
                    alive,
                    format_args!("{index} on {location}"),
                )
            },
        )?;
        equal("a message that waits is in its portal's queue", location, listed, held)?;
        equal("those that wait have announced themselves", location, state.waiting(), held)?;
        let lazy = held == 0 || state.is_lazy();
        check("messages wait on lazy portals alone", lazy, format_args!("{location}: {held}"))
    }
}

/// A function that breaks the queue on purpose; the name is the rule of the audit that detects it.
#[cfg(test)]
pub(crate) const DAMAGE: Damage<Blocked> = ("a message that waits is in its portal's queue", |blocked| {
    blocked.order.pop_front(&mut blocked.delayed).unwrap();
});
