//! Messages that a rule delays. They block their connections, as those on a lazy portal do: so the
//! messages of a peer stay in order.
//!
//! The delay of a message starts with the next call of [`crate::Engine::advance`]: the engine's
//! clock may be old when it arrives. Messages are dispatched in the order of their due times, those
//! with the same one in the order of their arrival.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::RxToken;
use parking_lot::{Mutex, MutexGuard};

use crate::message::{AdmittedMessage, Local, Path, WaitingMessage};
use crate::names::RxName;
use crate::slab::{Key, Slab, slab};

/// Delayed messages.
pub(crate) struct DelayedMessages {
    /// Locked before portals and partitions, never after.
    table: Mutex<DelayedTable>,
    /// Time at which [`crate::Engine::advance`] must check the table; 0 if a message has just
    /// arrived. Changed under the lock.
    due_ns: AtomicU64,
}

/// The time at which a message is due, and the number of its arrival.
type Due = (u64, u64);

/// The table of the delayed messages, ordered by due time.
pub(crate) struct DelayedTable {
    messages: Slab<HeldMessage>,
    /// Messages whose delay starts with the next call of [`crate::Engine::advance`], in order of
    /// arrival.
    fresh: VecDeque<Key>,
    order: BTreeMap<Due, Key>,
    arrivals: u64,
}

struct HeldMessage {
    waiting: WaitingMessage,
    delay_ns: u64,
    arrival: u64,
    /// Time at which the delay ends; `None` until the delay has started.
    due_ns: Option<u64>,
}

impl DelayedMessages {
    /// Creates a table for at most `limit` messages.
    pub(crate) fn new(limit: usize) -> DelayedMessages {
        let table = DelayedTable {
            messages: slab(limit),
            fresh: VecDeque::new(),
            order: BTreeMap::new(),
            arrivals: 0,
        };
        DelayedMessages { table: Mutex::new(table), due_ns: AtomicU64::new(u64::MAX) }
    }

    /// Locks and returns the table. The lock comes before those of portals and partitions.
    pub(crate) fn lock(&self) -> MutexGuard<'_, DelayedTable> {
        self.table.lock()
    }

    /// Updates the time of the next due message, after a change of the table.
    pub(crate) fn update_due(&self, table: &DelayedTable) {
        self.due_ns.store(table.next_ns(), Ordering::Relaxed);
    }

    /// Returns the time at which the first message is due, or 0 if a delay has yet to start;
    /// `u64::MAX` if there are none.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns.load(Ordering::Relaxed)
    }
}

impl DelayedTable {
    /// Adds a message; `None` if there are too many. Takes the message from `local`, if this node
    /// sent it.
    pub(crate) fn push(
        &mut self,
        AdmittedMessage { inbound, header }: AdmittedMessage<'_>,
        local: &mut Option<Local>,
        delay_ns: u64,
    ) -> Option<RxToken> {
        self.arrivals += 1;
        let waiting = WaitingMessage { inbound: inbound.clone(), header: *header, local: None };
        let key =
            self.messages.insert(HeldMessage { waiting, delay_ns, arrival: self.arrivals, due_ns: None })?;
        let token = RxName::Held(key).token();
        let waiting = &mut self.messages[key.index].waiting;
        (waiting.inbound.held, waiting.local) = (token.0, local.take());
        self.fresh.push_back(key);
        Some(token)
    }

    /// Starts the delays of the messages that have arrived since the last call.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        while let Some(key) = self.fresh.pop_front() {
            if let Some(message) = self.messages.get_mut(key) {
                let due_ns = now_ns.saturating_add(message.delay_ns);
                message.due_ns = Some(due_ns);
                self.order.insert((due_ns, message.arrival), key);
            }
        }
    }

    /// Removes and returns the first due message.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<WaitingMessage> {
        let (&(due_ns, _), &key) = self.order.first_key_value()?;
        if due_ns > now_ns { None } else { self.take(key) }
    }

    /// Removes a message; `None` if it is not here any more.
    pub(crate) fn take(&mut self, key: Key) -> Option<WaitingMessage> {
        let message = self.messages.remove(key)?;
        match message.due_ns {
            Some(due_ns) => drop(self.order.remove(&(due_ns, message.arrival))),
            None => self.fresh.retain(|other| *other != key),
        }
        Some(message.waiting)
    }

    /// Removes a message that arrived over a path for which `which` holds.
    pub(crate) fn take_first(&mut self, which: impl Fn(&Path) -> bool) -> Option<WaitingMessage> {
        let goes = |&index: &u32| which(&self.messages[index].waiting.inbound.back);
        let index = self.messages.indices().find(goes)?;
        self.take(self.messages.key(index))
    }

    /// Returns the path of each message, and the message itself if this node sent it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&Path, Option<&Local>)> {
        let messages = self.messages.indices().map(|index| &self.messages[index]);
        messages.map(|message| (&message.waiting.inbound.back, message.waiting.local.as_ref()))
    }

    /// Returns the number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the time at which the next message is due; 0 if a delay has yet to start.
    fn next_ns(&self) -> u64 {
        let first_ns = self.order.first_key_value().map_or(u64::MAX, |(&(due_ns, _), _)| due_ns);
        if self.fresh.is_empty() { first_ns } else { 0 }
    }
}
