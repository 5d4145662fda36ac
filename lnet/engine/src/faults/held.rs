//! Messages that a rule delays. Their connections stand meanwhile, as with a lazy portal's: so what a peer has sent stays in
//! order.
//!
//! A message begins to wait when [`crate::Engine::advance`] is called next: the engine's clock may have stood for long when it
//! arrived. Messages whose time has come are looked at in the order of the moments at which they were to be, those of one
//! moment in the order in which they arrived.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::RxToken;
use parking_lot::{Mutex, MutexGuard};

use crate::message::{Admitted, Local, Waiting, Way};
use crate::names::RxName;
use crate::slab::{Key, Slab, slab};

/// Delayed messages.
pub(crate) struct Held {
    /// Taken before the locks of portals and partitions, never after.
    table: Mutex<HeldTable>,
    /// When [`crate::Engine::advance`] must look here; 0 if a message has just come. Changed under the lock.
    due_ns: AtomicU64,
}

/// When a message is due, and the number of its arrival.
type Due = (u64, u64);

/// The delayed messages, in the order in which they are due.
pub(crate) struct HeldTable {
    messages: Slab<HeldMessage>,
    /// Those that wait since the next call of [`crate::Engine::advance`], in the order in which they came.
    fresh: VecDeque<Key>,
    order: BTreeMap<Due, Key>,
    arrivals: u64,
}

struct HeldMessage {
    waiting: Waiting,
    delay_ns: u64,
    arrival: u64,
    /// Set when its time begins.
    due_ns: Option<u64>,
}

impl Held {
    /// For at most `limit` messages.
    pub(crate) fn new(limit: usize) -> Held {
        let table =
            HeldTable { messages: slab(limit), fresh: VecDeque::new(), order: BTreeMap::new(), arrivals: 0 };
        Held { table: Mutex::new(table), due_ns: AtomicU64::new(u64::MAX) }
    }

    /// The messages. The lock comes before those of portals and partitions.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HeldTable> {
        self.table.lock()
    }

    /// Takes note of when the next message is due, after a change of the table.
    pub(crate) fn update_due(&self, table: &HeldTable) {
        self.due_ns.store(table.next_ns(), Ordering::Relaxed);
    }

    /// When the first of those that wait is due, or begins to wait; `u64::MAX` if there are none.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns.load(Ordering::Relaxed)
    }
}

impl HeldTable {
    /// Enters a message; `None` if there are too many. The message itself is taken from `local`, if this node sent it.
    pub(crate) fn push(
        &mut self,
        Admitted { inbound, header }: Admitted<'_>,
        local: &mut Option<Local>,
        delay_ns: u64,
    ) -> Option<RxToken> {
        self.arrivals += 1;
        let waiting = Waiting { inbound: inbound.clone(), header: *header, local: None };
        let key =
            self.messages.insert(HeldMessage { waiting, delay_ns, arrival: self.arrivals, due_ns: None })?;
        let token = RxName::Held(key).token();
        let waiting = &mut self.messages[key.index].waiting;
        (waiting.inbound.held, waiting.local) = (token.0, local.take());
        self.fresh.push_back(key);
        Some(token)
    }

    /// Those that have come since the last call wait from now on.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        while let Some(key) = self.fresh.pop_front() {
            if let Some(message) = self.messages.get_mut(key) {
                let due_ns = now_ns.saturating_add(message.delay_ns);
                message.due_ns = Some(due_ns);
                self.order.insert((due_ns, message.arrival), key);
            }
        }
    }

    /// The first whose time has come.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Waiting> {
        let (&(due_ns, _), &key) = self.order.first_key_value()?;
        if due_ns > now_ns { None } else { self.take(key) }
    }

    /// Takes a message out; `None` if it is not here any more.
    pub(crate) fn take(&mut self, key: Key) -> Option<Waiting> {
        let message = self.messages.remove(key)?;
        match message.due_ns {
            Some(due_ns) => drop(self.order.remove(&(due_ns, message.arrival))),
            None => self.fresh.retain(|other| *other != key),
        }
        Some(message.waiting)
    }

    /// Takes out a message of which `which` is true by the way it came.
    pub(crate) fn take_first(&mut self, which: impl Fn(&Way) -> bool) -> Option<Waiting> {
        let goes = |&index: &u32| which(&self.messages[index].waiting.inbound.back);
        let index = self.messages.indices().find(goes)?;
        self.take(self.messages.key(index))
    }

    /// Where each came from, and itself if this node sent it.
    pub(crate) fn ways(&self) -> impl Iterator<Item = (&Way, Option<&Local>)> {
        let messages = self.messages.indices().map(|index| &self.messages[index]);
        messages.map(|message| (&message.waiting.inbound.back, message.waiting.local.as_ref()))
    }

    /// The number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// When the next one is due; 0 if some do not wait yet.
    fn next_ns(&self) -> u64 {
        let first_ns = self.order.first_key_value().map_or(u64::MAX, |(&(due_ns, _), _)| due_ns);
        if self.fresh.is_empty() { first_ns } else { 0 }
    }
}
