//! What programs use.

pub use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(feature = "std")]
pub use std::sync::OnceLock;

#[cfg(feature = "std")]
pub use parking_lot::{Mutex, MutexGuard};
