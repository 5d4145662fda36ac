//! The atomics, and the names of the pairs of memory orderings.
//!
//! Under `cfg(loom)` everything comes from loom, so that the model checker sees each access. A pair is a constant here
//! rather than an `Ordering` written out twice: both ends then name it, and the model tests can weaken each end and
//! watch loom find the fault.

use core::sync::atomic::Ordering;

#[cfg(all(feature = "std", not(loom)))]
use core::sync::atomic::fence;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};

/// SYNC bevq.put: the producer has written an event → the consumer reads it.
pub(crate) const PUT: Pair = Pair("bevq.put");
/// SYNC bevq.get: the consumer has copied an event out → the producer fills the slot again.
pub(crate) const GET: Pair = Pair("bevq.get");
/// SYNC bevq.grow: the consumer has linked slots in → the producer follows the links.
pub(crate) const GROW: Pair = Pair("bevq.grow");
/// SYNC bevq.sleep: announcing sleep and producing are both followed by a full fence before the other side's word is
/// read, so at least one of the two sees the other.
#[cfg(feature = "std")]
pub(crate) const SLEEP: Pair = Pair("bevq.sleep");

/// One named pair of orderings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(&'static str);

/// An end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The one that publishes.
    Store,
    /// The one that observes.
    Load,
}

impl Pair {
    /// The ordering of the store that publishes.
    pub(crate) fn release(self) -> Ordering {
        if self.is_weakened(End::Store) { Ordering::Relaxed } else { Ordering::Release }
    }

    /// The ordering of the load that observes.
    pub(crate) fn acquire(self) -> Ordering {
        if self.is_weakened(End::Load) { Ordering::Relaxed } else { Ordering::Acquire }
    }

    /// A fence that stands in one order with the other side's fence of the same name. `SeqCst`, because each side
    /// stores one word and then loads the other's (Dekker's pattern), which acquire and release do not order.
    #[cfg(feature = "std")]
    pub(crate) fn fence(self, end: End) {
        if !self.is_weakened(end) {
            fence(Ordering::SeqCst);
        }
    }

    #[cfg(not(loom))]
    fn is_weakened(self, _: End) -> bool {
        let Pair(_name) = self;
        false
    }

    #[cfg(loom)]
    fn is_weakened(self, end: End) -> bool {
        WEAKENED.get() == Some((self, end))
    }
}

#[cfg(loom)]
std::thread_local! {
    static WEAKENED: core::cell::Cell<Option<(Pair, End)>> = const { core::cell::Cell::new(None) };
}

/// Runs `model` with one end of a pair weakened to `Relaxed`. Loom runs all threads of a model on the thread that started it,
/// so models on other threads are not disturbed.
#[cfg(all(test, loom))]
pub(crate) fn weakened<R>(pair: Pair, end: End, model: impl FnOnce() -> R) -> R {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            WEAKENED.set(None);
        }
    }
    let _restore = Restore;
    WEAKENED.set(Some((pair, end)));
    model()
}
