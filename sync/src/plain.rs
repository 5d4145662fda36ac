//! The types that programs use.

pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(feature = "std")]
pub use std::sync::OnceLock;

#[cfg(feature = "count-locks")]
pub use crate::counted::{Mutex, MutexGuard};

#[cfg(all(feature = "std", not(feature = "count-locks")))]
pub use parking_lot::{Mutex, MutexGuard};
