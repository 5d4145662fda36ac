//! Synchronization primitives in two builds with the same names: for programs ([`plain`]), and for
//! the model checker loom, which runs every order of the threads' steps (`model`, with
//! `RUSTFLAGS="--cfg loom"`). The top level re-exports those of the current build.
//!
//! | | holds |
//! | --- | --- |
//! | [`plain`] | the atomics of `core`, the locks of `parking_lot`, the standard library's `OnceLock` |
//! | `model` | loom's atomics and locks with the same interfaces |
//! | [`Slots`] | tables of objects that are named by index and generation |
//! | [`Deadlines`] | deadlines of numbered slots, the earliest first |
//! | [`wait`] | sleeping and waking, in one process and between processes that share memory |
//! | [`Rule`] | a named synchronization rule, which a model can break |
//! | [`rule!`] | steps of hot code that a model leaves out, swaps or replaces to break a rule |
//! | [`point!`] | points of the code at which tests kill or stop the process |
//!
//! A crate that models a part of itself imports from the top level, and has loom as a
//! dev-dependency under `cfg(loom)` for the threads of its models. A crate whose models are
//! separate from those of the crates above it imports from [`plain`] or `model` directly.

#![cfg_attr(not(any(feature = "std", loom)), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

#[macro_use]
mod points;

#[cfg(feature = "count-locks")]
mod counted;
mod deadlines;
#[cfg(loom)]
pub mod model;
pub mod plain;
mod rule;
mod slots;
pub mod wait;

#[cfg(feature = "count-locks")]
pub use counted::{locks_taken, uncounted};
pub use deadlines::{Deadlines, deadline_after};
#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use plain::*;
#[cfg(feature = "points")]
pub use points::{meet, set_points};
pub use rule::{Rule, RuleEnd};
#[cfg(loom)]
pub use rule::{broken, weakened};
pub use slots::{PlaceMemory, Room, SlotKey, Slots};
pub use wait::SleepWord;
#[cfg(feature = "wait")]
pub use wait::{
    Bell, DEFAULT_SPIN, FutexWord, MAX_SPIN, PollHandle, Sleeper, Spin, SpinWait, Wake, Waker,
    has_spare_processor, poll_cards,
};

/// Runs a check that only debug builds make; tests that count locks do not count the locks that it
/// takes.
#[cfg(not(feature = "count-locks"))]
#[inline]
pub fn uncounted<R>(check: impl FnOnce() -> R) -> R {
    check()
}
