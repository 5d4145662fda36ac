//! The arithmetic against tables that were computed by hand, against the protocol's own code, and
//! against properties that hold for all values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod by_hand;
mod negotiation;
mod properties;
mod transfers;
mod tunables;

use lnet_o2iblnd::fabric::DeviceLimits;
use lnet_o2iblnd::sizes::{Adjusted, Release, Side, Tunables};

/// Returns a device with this number of work requests per queue, and otherwise high limits.
fn device(queue_entries: u32) -> DeviceLimits {
    DeviceLimits {
        queue_entries,
        completions: 4_194_303,
        pieces: 30,
        transfer_bytes: 1 << 30,
        memory_bytes: 1 << 40,
    }
}

/// Returns a node of a release on a current kernel, with changed tunables.
fn node(release: Release, tune: impl FnOnce(&mut Tunables)) -> Adjusted {
    let mut side = Side::of(release);
    tune(&mut side.tunables);
    side.adjust().unwrap()
}
