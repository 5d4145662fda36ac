//! The transfer machines that take their receive buffers from a pool.

use std::sync::Arc;

/// Posts the missing receive buffers of a machine. Returns false if the machine is dropped.
pub(crate) type Refill = Arc<dyn Fn() -> bool + Send + Sync>;

/// The id of a transfer machine at a pool; the default is the id of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PoolWaiterId(u64);

/// The machines of a pool, and those that lack buffers.
#[derive(Default)]
pub(super) struct PoolWaiters {
    entries: Vec<PoolWaiter>,
    /// The last id assigned.
    last_id: PoolWaiterId,
    /// The number of machines that lack buffers.
    wanting: usize,
    /// The index of the entry to serve first, so that each gets its turn.
    next: usize,
    /// Counts returned buffers: a machine that could not use one is served again only after another
    /// was returned.
    arrivals: u64,
    /// A thread serves machines. It also handles buffers that are returned during that time.
    serving: bool,
}

struct PoolWaiter {
    id: PoolWaiterId,
    refill: Refill,
    refill_wanted: bool,
    refused_at: Option<u64>,
}

impl PoolWaiters {
    pub(super) fn join(&mut self, refill: Refill) -> PoolWaiterId {
        self.last_id.0 += 1;
        let id = self.last_id;
        self.entries.push(PoolWaiter { id, refill, refill_wanted: false, refused_at: None });
        id
    }

    pub(super) fn leave(&mut self, id: PoolWaiterId) {
        self.refilled(id);
        self.entries.retain(|entry| entry.id != id);
    }

    /// Records that the machine found no buffer or, if `refused`, could not use the one it found.
    pub(super) fn want_refill(&mut self, id: PoolWaiterId, refused: bool) {
        let refused_at = refused.then_some(self.arrivals);
        if let Some(entry) = self.entry(id) {
            let is_new = !std::mem::replace(&mut entry.refill_wanted, true);
            entry.refused_at = refused_at;
            self.wanting += usize::from(is_new);
        }
    }

    pub(super) fn refilled(&mut self, id: PoolWaiterId) {
        if let Some(entry) = self.entry(id) {
            let was_wanted = std::mem::take(&mut entry.refill_wanted);
            self.wanting -= usize::from(was_wanted);
        }
    }

    /// Counts a returned buffer. Returns whether a machine lacks one.
    pub(super) fn arrival(&mut self) -> bool {
        self.arrivals += 1;
        self.wanting > 0
    }

    /// Returns false if another thread serves already.
    pub(super) fn begin_serving(&mut self) -> bool {
        !std::mem::replace(&mut self.serving, true)
    }

    pub(super) fn end_serving(&mut self) {
        self.serving = false;
    }

    /// Returns the machine to serve next.
    pub(super) fn next(&mut self) -> Option<(PoolWaiterId, Refill)> {
        if self.wanting == 0 {
            return None;
        }
        let count = self.entries.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let entry = &self.entries[at];
            if entry.refill_wanted && entry.refused_at != Some(self.arrivals) {
                self.next = at + 1;
                return Some((entry.id, entry.refill.clone()));
            }
        }
        None
    }

    fn entry(&mut self, id: PoolWaiterId) -> Option<&mut PoolWaiter> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }
}
