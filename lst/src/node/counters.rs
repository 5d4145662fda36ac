//! The counters of a node (lst 8), counted up by all its threads.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use lnet_proto::lst::{LnetCounters, Statistics};

/// Number of copies of each counter. Threads with different lanes do not share cache lines.
pub const LANES: usize = 8;

/// A counter of a node, since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Operations of LNet that failed, except cancelled ones.
    Errors,
    /// Requests sent, by units and by a console of the same program.
    Sent,
    /// Requests received, malformed ones included.
    Received,
    /// Requests dropped without reply, or whose reply failed.
    Dropped,
    /// Own RPCs that timed out.
    Expired,
    /// Bytes fetched as a server: data of WRITE tests, and lists of destinations.
    BulkGot,
    /// Bytes sent as a server: data of READ tests.
    BulkPut,
    /// BRW requests refused for their direction, check, features or length. This and what follows is
    /// no part of a STAT reply. Requests of [`Count::FATAL`] would have stopped a kernel node of some
    /// release (lst 13).
    FatalRequest,
    /// TESTs refused for a client whose transfers have a length of 0 or no multiple of 8.
    FatalLength,
    /// TESTs refused for a client whose offset takes its transfers to one page more.
    FatalOffset,
    /// TESTs refused in the other byte order, for a service that cannot be tested.
    FatalOrder,
    /// Framework requests refused of nodes that may not use this one.
    Strangers,
}

impl Count {
    /// Requests refused that would have stopped a kernel node of some release.
    pub const FATAL: [Count; 4] =
        [Count::FatalRequest, Count::FatalLength, Count::FatalOffset, Count::FatalOrder];
}

const COUNTS: usize = Count::Strangers as usize + 1;

/// The counters of a node.
#[derive(Debug, Default)]
pub struct Counters([CachePadded<[AtomicU64; COUNTS]>; LANES]);

impl Counters {
    /// Adds to a counter. Any number is a lane, modulo [`LANES`].
    pub fn add(&self, lane: usize, count: Count, amount: u64) {
        self.0[lane % LANES][count as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds the values of another node's counters.
    pub fn add_node(&self, other: &Counters) {
        for lane in &other.0 {
            for (sum, part) in self.0[0].iter().zip(lane.iter()) {
                sum.fetch_add(part.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Returns the value of a counter.
    #[must_use]
    pub fn total(&self, count: Count) -> u64 {
        let lanes = self.0.iter().map(|lane| lane[count as usize].load(Ordering::Relaxed));
        lanes.fold(0, u64::wrapping_add)
    }

    /// The node's part of a STAT reply; the session's part is zero.
    pub(super) fn statistics(&self, lnet: LnetCounters) -> Statistics {
        let wrapped = |count| self.total(count) as u32;
        Statistics {
            rpc_errors: wrapped(Count::Errors),
            rpcs_sent: wrapped(Count::Sent),
            rpcs_received: wrapped(Count::Received),
            rpcs_dropped: wrapped(Count::Dropped),
            rpcs_expired: wrapped(Count::Expired),
            bulk_got: self.total(Count::BulkGot),
            bulk_put: self.total(Count::BulkPut),
            lnet,
            ..Statistics::default()
        }
    }
}
