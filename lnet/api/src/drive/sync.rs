//! The atomics and the lock of the tokens: the real ones, or loom's when a model checks every interleaving.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

/// A step of a protocol that a model leaves out or moves, to show that it would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A steward says that it rests after it has looked whether anybody keeps watch.
    LateRest,
    /// A steward leaves the watch and wakes nobody.
    SilentLeave,
    /// Who has kept a shard lets go of it and wakes no steward.
    SilentRelease,
}

#[cfg(all(test, loom))]
std::thread_local! {
    static MUTANT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Runs a model with a wrong step.
#[cfg(all(test, loom))]
pub(crate) fn with_mutant(mutant: Mutant, model: impl FnOnce()) {
    MUTANT.set(Some(mutant));
    model();
}

/// Whether a step is wrong.
#[cfg(all(test, loom))]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Whether a step is wrong: never, but in a model.
#[cfg(not(all(test, loom)))]
#[inline]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}

/// Locks; a panic of another holder does not make the list of waiters unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
