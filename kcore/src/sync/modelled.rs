//! What stands in for the real locks while loom runs a model.

use std::sync::PoisonError;

use loom::sync::atomic::{AtomicBool, Ordering};

use super::Rule;

/// The interface of `parking_lot::Mutex` over loom's lock, which a panic does not poison either.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The standard library's once-cell as loom must see it: a word that tells whether it is set, stored with release and
/// loaded with acquire.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        // Nothing that loom could interrupt is between the two.
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

std::thread_local! {
    static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

pub(super) fn is_broken(rule: Rule) -> bool {
    BROKEN.get() == Some(rule)
}

/// Runs `model` with one rule broken. Loom runs all threads of a model on the thread that started it, so models on other
/// threads are not disturbed.
#[cfg(test)]
pub(crate) fn broken<R>(rule: Rule, model: impl FnOnce() -> R) -> R {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            BROKEN.set(None);
        }
    }
    let _restore = Restore;
    BROKEN.set(Some(rule));
    model()
}
