//! The transfer machines that take their receive buffers from a pool.

use std::sync::Arc;

/// Has a transfer machine take what it wants for; false if the machine is gone.
pub(crate) type Refill = Arc<dyn Fn() -> bool + Send + Sync>;

/// Names a customer of a pool; the default names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CustomerId(u64);

/// Who is to be served when a buffer comes in.
#[derive(Default)]
pub(super) struct Customers {
    entries: Vec<Customer>,
    /// The id given last.
    last_id: CustomerId,
    /// How many of them want for buffers.
    hungry: usize,
    /// The entry that is served next, so that none waits for ever behind the others.
    next: usize,
    /// Buffers that have come in: who could not use one is not offered the same again before another comes.
    arrivals: u64,
    /// A thread serves. It sees what comes meanwhile: the others need not.
    serving: bool,
}

struct Customer {
    id: CustomerId,
    refill: Refill,
    hungry: bool,
    refused_at: Option<u64>,
}

impl Customers {
    pub(super) fn join(&mut self, refill: Refill) -> CustomerId {
        self.last_id.0 += 1;
        let id = self.last_id;
        self.entries.push(Customer { id, refill, hungry: false, refused_at: None });
        id
    }

    pub(super) fn leave(&mut self, id: CustomerId) {
        self.sate(id);
        self.entries.retain(|entry| entry.id != id);
    }

    /// It found none; or, `refused`, could not use what it found.
    pub(super) fn starve(&mut self, id: CustomerId, refused: bool) {
        let refused_at = refused.then_some(self.arrivals);
        if let Some(entry) = self.entry(id) {
            let sated = !std::mem::replace(&mut entry.hungry, true);
            entry.refused_at = refused_at;
            self.hungry += usize::from(sated);
        }
    }

    pub(super) fn sate(&mut self, id: CustomerId) {
        if let Some(entry) = self.entry(id) {
            let hungry = std::mem::take(&mut entry.hungry);
            self.hungry -= usize::from(hungry);
        }
    }

    /// A buffer has come in. Whether anybody wants it.
    pub(super) fn arrival(&mut self) -> bool {
        self.arrivals += 1;
        self.hungry > 0
    }

    /// False if a thread serves already.
    pub(super) fn begin_serving(&mut self) -> bool {
        !std::mem::replace(&mut self.serving, true)
    }

    pub(super) fn end_serving(&mut self) {
        self.serving = false;
    }

    /// Whom to serve next.
    pub(super) fn next(&mut self) -> Option<(CustomerId, Refill)> {
        if self.hungry == 0 {
            return None;
        }
        let count = self.entries.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let entry = &self.entries[at];
            if entry.hungry && entry.refused_at != Some(self.arrivals) {
                self.next = at + 1;
                return Some((entry.id, entry.refill.clone()));
            }
        }
        None
    }

    fn entry(&mut self, id: CustomerId) -> Option<&mut Customer> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }
}
