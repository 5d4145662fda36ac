//! The lock and the atomics: the real ones, or loom's when a model checks every interleaving.

#[cfg(loom)]
pub(crate) use self::model::{Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, Ordering};
#[cfg(not(loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::MutexGuard;

    /// Loom's mutex with the face of parking_lot's.
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(data: T) -> Self {
            Mutex(loom::sync::Mutex::new(data))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}
