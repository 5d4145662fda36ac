//! The results of a test client: round-trip times and errors of its units.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use nlx_sync::plain::Mutex;

use super::LANES;

/// Upper limit of recorded times: longer than any RPC timeout. Longer ones count as this.
const LONGEST_NS: u64 = 128_000_000_000;

/// Significant decimal digits of the times.
const DIGITS: u8 = 2;

/// The results of a test client. They can be read while it runs, and after its session has ended;
/// they do not count as the node's memory.
#[derive(Debug)]
pub struct Results {
    /// RPCs that failed, except those that a stop has aborted.
    pub(super) errors: AtomicU64,
    /// Round-trip times in nanoseconds, in a lane for each group of units, so that their threads
    /// seldom wait for each other.
    lanes: Box<[CachePadded<Mutex<Histogram<u64>>>]>,
}

impl Results {
    /// Bytes of a lane: 30 times 128 counts, of the powers of two from 256 to [`LONGEST_NS`].
    pub(super) const LANE_BYTES: u64 = 32 << 10;

    /// Number of lanes of so many units.
    pub(super) fn lanes(units: u32) -> usize {
        LANES.min(units as usize).max(1)
    }

    pub(super) fn new(units: u32) -> Results {
        let lanes = (0..Results::lanes(units)).map(|_| CachePadded::new(Mutex::new(empty())));
        Results { errors: AtomicU64::new(0), lanes: lanes.collect() }
    }

    pub(super) fn record(&self, lane: usize, ns: u64) {
        self.lanes[lane % self.lanes.len()].lock().saturating_record(ns);
    }

    /// Number of RPCs that failed, except those that a stop has aborted.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Round-trip times of the RPCs that succeeded, in nanoseconds, with two significant digits. Its
    /// `len()` is the number of those RPCs.
    #[must_use]
    pub fn latency(&self) -> Histogram<u64> {
        let mut sum = empty();
        for lane in &self.lanes {
            sum.add(&*lane.lock()).expect("all lanes have the same bounds");
        }
        sum
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are in order")
}
