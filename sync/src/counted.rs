//! The lock of programs in a build for tests: it records where it was taken.

use core::cell::RefCell;
use core::panic::Location;
use std::vec::Vec;

pub use parking_lot::MutexGuard;

std::thread_local! {
    /// The places at which this thread has taken locks; `None` while it does not count.
    static LOCK_SITES: RefCell<Option<Vec<&'static Location<'static>>>> = const { RefCell::new(None) };
}

/// `parking_lot::Mutex`, with the methods that this workspace uses.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Acquires the lock; blocks until the lock is free.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        record(Location::caller());
        self.0.lock()
    }

    /// Acquires the lock and returns its guard; `None` if the lock is not free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let location = Location::caller();
        self.0.try_lock().inspect(|_| record(location))
    }

    /// Returns the value without locking: `&mut self` excludes other users.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

fn record(location: &'static Location<'static>) {
    // While the thread exits, its thread-local variable is gone, and nothing is counted.
    let _ = LOCK_SITES.try_with(|taken| {
        if let Some(taken) = &mut *taken.borrow_mut() {
            taken.push(location);
        }
    });
}

/// Runs `work`, and returns the places at which this thread took a lock of this crate during it, in
/// order.
pub fn locks_taken<R>(work: impl FnOnce() -> R) -> (R, Vec<&'static Location<'static>>) {
    let before = LOCK_SITES.replace(Some(Vec::new()));
    let result = work();
    (result, LOCK_SITES.replace(before).unwrap_or_default())
}

/// Runs a check that only debug builds make; the locks that it takes are not counted.
pub fn uncounted<R>(check: impl FnOnce() -> R) -> R {
    let counting = LOCK_SITES.take();
    let result = check();
    LOCK_SITES.set(counting);
    result
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn locks_are_counted_where_they_are_taken_on_this_thread_alone() {
        let (one, other) = (Mutex::new(1), Mutex::new(2));
        let (sum, taken) = locks_taken(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| *one.lock() += 1);
            });
            uncounted(|| drop(one.lock()));
            let held = one.lock();
            assert!(one.try_lock().is_none(), "it is taken");
            let free = other.try_lock().expect("it is free");
            *held + *free
        });
        assert_eq!((sum, taken.len()), (4, 2));
        assert!(taken.iter().all(|location| location.file().ends_with("counted.rs")));
        assert!(taken[0].line() < taken[1].line());
        assert!(locks_taken(|| drop(one.lock())).1.len() == 1, "each count begins at none");
    }
}
