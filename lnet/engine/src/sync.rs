//! The lock and the atomics of what partitions share: the real ones, or loom's when a model checks every interleaving.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// A lock that a panic of its holder does not poison.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Inner<T>);

#[cfg(loom)]
type Inner<T> = loom::sync::Mutex<T>;
#[cfg(loom)]
pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;
#[cfg(not(loom))]
type Inner<T> = parking_lot::Mutex<T>;
#[cfg(not(loom))]
pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(Inner::new(value))
    }

    #[cfg(not(loom))]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    #[cfg(loom)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model panics with a lock held")
    }
}

/// A step of a protocol that a model leaves out, to show that it would notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A message announces itself after its last look for a buffer.
    LateAnnouncement,
}

#[cfg(all(test, loom))]
std::thread_local! {
    static MUTANT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Runs a model with a step left out.
#[cfg(all(test, loom))]
pub(crate) fn with_mutant(mutant: Mutant, model: impl FnOnce()) {
    MUTANT.set(Some(mutant));
    model();
}

/// Whether a step is left out.
#[cfg(all(test, loom))]
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Whether a step is left out: never, but in a model.
#[cfg(not(all(test, loom)))]
#[inline]
pub(crate) const fn is_mutant(_: Mutant) -> bool {
    false
}
