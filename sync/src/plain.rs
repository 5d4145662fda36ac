//! The types that programs use.

pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(feature = "std")]
pub use std::sync::OnceLock;

/// Loads a word where an old value does no harm. A model always loads the newest value: there are
/// fewer orders of steps to run then.
#[inline]
pub fn newest(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[cfg(feature = "count-locks")]
pub use crate::counted::{Mutex, MutexGuard};

#[cfg(all(feature = "std", not(feature = "count-locks")))]
pub use parking_lot::{Mutex, MutexGuard};
