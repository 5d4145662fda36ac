//! The lock and the atomics of what threads share: the real ones, or loom's when a model checks every interleaving.
//!
//! And the rules by which threads agree about it: a pair of memory orderings, or what one hold of a lock covers. Each has a
//! name at all its places, and each is broken by a model, to show that the models would notice.
//!
//! The registry of addresses and the store of random numbers keep locks of their own, which no model looks into.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::OnceLock;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(loom)]
mod modelled;
#[cfg(all(test, loom))]
pub(crate) use modelled::broken;
#[cfg(loom)]
pub(crate) use modelled::{Mutex, MutexGuard, OnceLock};

/// SYNC buffer.association: what an operation has done to its buffer → whoever has the buffer next, be it an operation of
/// another transfer machine or nobody any more.
pub(crate) const ASSOCIATION: Rule = Rule("buffer.association");
/// SYNC kcore.bell: news and a sleeper in the making are both followed by a full fence before the other side's word is
/// read, so at least one of the two sees the other.
pub(crate) const BELL: Rule = Rule("kcore.bell");
/// SYNC kcore.note: noting an operation's MD and looking whether it was cancelled are one hold of the producer lock, so
/// either who cancels finds the MD, or who notes it finds the cancel.
pub(crate) const NOTE: Rule = Rule("kcore.note");
/// SYNC kcore.leave: an operation leaves its buffer before its last event is produced, so who has taken that event finds the
/// buffer free.
pub(crate) const LEAVE: Rule = Rule("kcore.leave");
/// SYNC kcore.stop: the last look for operations and the refusal of new ones are one hold of the lock of the ring.
pub(crate) const STOP: Rule = Rule("kcore.stop");

/// SYNC kcore.news: that there is news is noted under the producer lock, after the event; who finds the note and takes it
/// away rings after that, and so for all events noted until then. So of several threads with events one may ring for all.
pub(crate) const NEWS: Rule = Rule("kcore.news");

/// SYNC kcore.doom: the word that tells of doomed operations is cleared before they are looked for, so one that is doomed
/// after the look is told of again.
pub(crate) const DOOM: Rule = Rule("kcore.doom");

/// SYNC kcore.remains: what a dropped transfer machine leaves is set before it is first cleared, so either that finds LNet
/// without an MD, or the wake-up after the last event finds what is left.
pub(crate) const REMAINS: Rule = Rule("kcore.remains");

/// SYNC kcore.loss: a lost message is counted before the waiter is told that there is news, so who takes the news finds it
/// counted.
pub(crate) const LOSS: Rule = Rule("kcore.loss");

/// One named rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule(&'static str);

impl Rule {
    /// The ordering of the store that publishes.
    pub(crate) fn release(self) -> Ordering {
        if self.holds() { Ordering::Release } else { Ordering::Relaxed }
    }

    /// The ordering of the load that observes.
    pub(crate) fn acquire(self) -> Ordering {
        if self.holds() { Ordering::Acquire } else { Ordering::Relaxed }
    }

    /// The ordering of a read-modify-write that both observes and publishes: each sees all that those before it published.
    pub(crate) fn chain(self) -> Ordering {
        if self.holds() { Ordering::AcqRel } else { Ordering::Relaxed }
    }

    /// A fence that stands in one order with the other side's. `SeqCst`, because each side stores one word and then loads
    /// the other's, which acquire and release do not order.
    pub(crate) fn fence(self) {
        if self.holds() {
            fence(Ordering::SeqCst);
        }
    }

    /// Marks where one hold of a lock covers two steps. Broken, it lets go of the lock between them.
    pub(crate) fn hold<'a, T>(self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if self.holds() {
            return guard;
        }
        drop(guard);
        mutex.lock()
    }

    /// True but in a model that breaks the rule.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) const fn holds(self) -> bool {
        let Rule(_name) = self;
        true
    }

    /// True but in a model that breaks the rule.
    #[cfg(loom)]
    pub(crate) fn holds(self) -> bool {
        !modelled::is_broken(self)
    }
}
