//! The types that models use: loom tracks each access to them.

use std::sync::PoisonError;

pub use loom::cell::UnsafeCell;
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub use loom::sync::{Arc, MutexGuard};

/// Loads the newest value of a word; see [`plain::newest`](crate::plain::newest).
pub fn newest(word: &AtomicU64) -> u64 {
    const NEVER: u64 = u64::MAX;
    word.compare_exchange(NEVER, NEVER, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|word| word)
}

/// Loom's lock with the interface of `parking_lot::Mutex`, which a panic does not poison either.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Acquires the lock; blocks until the lock is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock and returns its guard; `None` if the lock is not free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    /// Returns the value without locking: `&mut self` excludes other users.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The standard library's `OnceLock` in a form that loom can track: the flag that the value is set
/// is stored with release and loaded with acquire.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }
}

impl<T> OnceLock<T> {
    /// Returns the value, once it is set.
    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    /// Returns the value, after initializing it if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        // Loom cannot switch threads between these two statements.
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}
