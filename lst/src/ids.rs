//! Match bits of replies and bulk data (lst 2).

use std::sync::atomic::{AtomicU64, Ordering};

/// The counter from which a node takes reply ids and bulk ids.
///
/// A program has one counter for its test node and its console, because both receive on the same
/// portal.
#[derive(Debug)]
pub struct Ids(AtomicU64);

impl Ids {
    /// Starts at wall-clock seconds shifted by 48, as kernel nodes do: a restarted program gets
    /// another range.
    #[must_use]
    pub const fn new(seconds: u64) -> Ids {
        Ids(AtomicU64::new(seconds << 48))
    }

    /// Returns an id that no earlier call has returned.
    #[must_use]
    pub fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
