//! The transfer machines that take their receive buffers from a pool.

use std::sync::{Arc, Weak};

use parking_lot::MutexGuard;

use super::Shared;
use crate::Machine;

/// Who is to be served when a buffer comes in.
#[derive(Default)]
pub(super) struct Customers {
    entries: Vec<Customer>,
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
    machine: Weak<Machine>,
    hungry: bool,
    refused_at: Option<u64>,
}

impl Customers {
    pub(super) fn join(&mut self, machine: &Arc<Machine>) {
        let machine = Arc::downgrade(machine);
        self.entries.push(Customer { machine, hungry: false, refused_at: None });
    }

    pub(super) fn leave(&mut self, machine: &Machine) {
        self.sate(machine);
        self.entries.retain(|entry| !entry.is(machine));
    }

    /// It found none; or, `refused`, could not use what it found.
    pub(super) fn starve(&mut self, machine: &Machine, refused: bool) {
        let refused_at = refused.then_some(self.arrivals);
        if let Some(entry) = self.entry(machine) {
            let sated = !std::mem::replace(&mut entry.hungry, true);
            entry.refused_at = refused_at;
            self.hungry += usize::from(sated);
        }
    }

    pub(super) fn sate(&mut self, machine: &Machine) {
        if let Some(entry) = self.entry(machine) {
            let hungry = std::mem::take(&mut entry.hungry);
            self.hungry -= usize::from(hungry);
        }
    }

    /// A buffer has come in. Whether anybody wants it.
    pub(super) fn arrival(&mut self) -> bool {
        self.arrivals += 1;
        self.hungry > 0
    }

    /// Whom to serve next.
    fn next(&mut self) -> Option<Arc<Machine>> {
        if self.hungry == 0 {
            return None;
        }
        let count = self.entries.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let entry = &self.entries[at];
            if entry.hungry
                && entry.refused_at != Some(self.arrivals)
                && let Some(machine) = entry.machine.upgrade()
            {
                self.next = at + 1;
                return Some(machine);
            }
        }
        None
    }

    fn entry(&mut self, machine: &Machine) -> Option<&mut Customer> {
        self.entries.iter_mut().find(|entry| entry.is(machine))
    }
}

impl Customer {
    fn is(&self, machine: &Machine) -> bool {
        std::ptr::eq(self.machine.as_ptr(), machine)
    }
}

impl Shared {
    /// Gives what is free to the transfer machines that want for it. Called without any lock; each of them ends up with what
    /// it wants, or with what there was.
    pub(super) fn serve(&self) {
        let mut inner = self.inner.lock();
        if inner.customers.serving {
            return;
        }
        inner.customers.serving = true;
        while inner.free.len() > 0
            && let Some(machine) = inner.customers.next()
        {
            MutexGuard::unlocked(&mut inner, || {
                machine.top_up();
                drop(machine);
            });
        }
        inner.customers.serving = false;
    }
}
