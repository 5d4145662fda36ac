//! How deep the queues are that a device makes.

use parking_lot::Mutex;

use crate::config::NS_PER_S;

/// A device that has refused queues is not asked for deeper ones before: by then others may have gone.
const REFUSED_NS: u64 = 10 * NS_PER_S;

/// How deep the queues are that the device of an NI has not refused lately. Each peer that connects would have it refuse them again.
#[derive(Debug, Default)]
pub(crate) struct Depths(Mutex<Depth>);

#[derive(Debug, Default)]
struct Depth {
    most: u16,
    until_ns: u64,
}

impl Depths {
    /// How deep queues are worth a try.
    pub(crate) fn at_most(&self, asked: u16, now_ns: u64) -> u16 {
        let depth = self.0.lock();
        if now_ns < depth.until_ns { asked.min(depth.most) } else { asked }
    }

    /// Deeper ones than these were refused.
    pub(crate) fn note(&self, most: u16, now_ns: u64) {
        *self.0.lock() = Depth { most, until_ns: now_ns.saturating_add(REFUSED_NS) };
    }
}
