//! The queue depths that a device accepts.

use parking_lot::Mutex;

use crate::config::NS_PER_S;

/// The time after a refusal during which no deeper queues are requested from the device. Later,
/// other queues may have been destroyed.
const REFUSED_NS: u64 = 10 * NS_PER_S;

/// The largest queue depth that an NI's device has not refused lately. Without this record, each
/// connecting peer would cause the same refusals again.
#[derive(Debug, Default)]
pub(crate) struct Depths(Mutex<Depth>);

#[derive(Debug, Default)]
struct Depth {
    most: u16,
    until_ns: u64,
}

impl Depths {
    /// Returns the depth to request from the device: `asked`, or the largest depth that the device
    /// has not refused lately if that is smaller.
    pub(crate) fn at_most(&self, asked: u16, now_ns: u64) -> u16 {
        let depth = self.0.lock();
        if now_ns < depth.until_ns { asked.min(depth.most) } else { asked }
    }

    /// Records that the device refused queues deeper than `most`.
    pub(crate) fn note(&self, most: u16, now_ns: u64) {
        *self.0.lock() = Depth { most, until_ns: now_ns.saturating_add(REFUSED_NS) };
    }
}
