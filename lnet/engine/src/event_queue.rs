//! Event queues: a callback, a ring that is polled, or both (S-311).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use lnet_api::{EQ_COUNT_MAX, EqHandle, Event, EventHandler, Handler, LNetError, Polled, Sleeper};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::slab::{Key, NONE, Slab, slab};

/// A queue: the destination of its events.
#[derive(Clone)]
pub(crate) struct EventQueue {
    handler: Handler,
    /// The same queue, as one that can be polled; `None` if it has only a handler.
    polled: Option<Arc<PolledQueue>>,
}

impl EventQueue {
    /// Creates a queue that passes its events to `handler`.
    pub(crate) fn new(handler: Handler) -> EventQueue {
        EventQueue { handler, polled: None }
    }

    /// Creates a queue that keeps the last `count` events, and also passes each to `handler`.
    pub(crate) fn polled(
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EventQueue, LNetError> {
        let mut events = VecDeque::new();
        let no_memory = |_| LNetError::TooMany { objects: "events in a queue", limit: EQ_COUNT_MAX };
        events.try_reserve_exact(count).map_err(no_memory)?;
        let ring = Mutex::new(Ring { events, count, missed: 0 });
        let polled = Arc::new(PolledQueue { ring, handler, watchers: Watchers::default() });
        Ok(EventQueue { handler: Handler::Shared(polled.clone()), polled: Some(polled) })
    }

    /// Removes and returns the oldest event. Fails if the queue cannot be polled.
    fn poll(&self, eq: EqHandle) -> Result<Option<Polled>, LNetError> {
        let mut ring = self.as_polled(eq)?.ring.lock();
        let Some(event) = ring.events.pop_front() else { return Ok(None) };
        Ok(Some(Polled { eq, event, missed: std::mem::take(&mut ring.missed) }))
    }

    fn as_polled(&self, eq: EqHandle) -> Result<&Arc<PolledQueue>, LNetError> {
        let rule = "only a queue with a count can be polled";
        self.polled.as_ref().ok_or(LNetError::Invalid { field: "EQ", value: eq.0, rule })
    }

    /// Wakes all threads that wait for the queue.
    pub(crate) fn wake_watchers(&self) {
        if let Some(polled) = &self.polled {
            polled.watchers.wake();
        }
    }
}

/// A queue that keeps its events.
struct PolledQueue {
    ring: Mutex<Ring>,
    handler: Option<Arc<dyn EventHandler>>,
    watchers: Watchers,
}

/// The events of a polled queue. Its lock is taken with a partition's lock held; no lock is taken
/// under it.
struct Ring {
    events: VecDeque<Event>,
    count: usize,
    missed: u64,
}

impl EventHandler for PolledQueue {
    fn event(&self, event: &Event) {
        {
            let mut ring = self.ring.lock();
            if ring.events.len() == ring.count {
                ring.events.pop_front();
                ring.missed += 1;
            }
            ring.events.push_back(*event);
        }
        if let Some(handler) = &self.handler {
            handler.event(event);
        }
    }

    fn wake(&self) {
        self.watchers.wake();
        if let Some(handler) = &self.handler {
            handler.wake();
        }
    }
}

/// The threads that wait for a queue.
#[derive(Default)]
struct Watchers {
    /// Number of sleepers, so that a queue without waiters costs no lock.
    count: AtomicUsize,
    sleepers: Mutex<Vec<Arc<Sleeper>>>,
}

impl Watchers {
    fn enter(&self, sleeper: &Arc<Sleeper>) {
        let mut sleepers = self.sleepers.lock();
        sleepers.push(sleeper.clone());
        self.count.store(sleepers.len(), Ordering::SeqCst);
    }

    fn leave(&self, sleeper: &Arc<Sleeper>) {
        let mut sleepers = self.sleepers.lock();
        if let Some(at) = sleepers.iter().position(|listed| Arc::ptr_eq(listed, sleeper)) {
            sleepers.swap_remove(at);
        }
        self.count.store(sleepers.len(), Ordering::SeqCst);
    }

    fn wake(&self) {
        // SYNC eq.watch: pairs with the fence of `Sleeper::prepare`. Either this sees the watcher,
        // or the poll of the watcher after its announcement of sleep sees the events.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        // The sleepers are woken without the lock, as a wake-up is a system call. Rarely do more
        // sleepers than fit here wait for one queue.
        let sleepers: SmallVec<[Arc<Sleeper>; 8]> = self.sleepers.lock().iter().cloned().collect();
        sleepers.iter().for_each(|sleeper| sleeper.wake());
    }
}

/// Registration of a thread that waits for polled queues; see [`crate::Engine::eq_watch`].
#[must_use]
pub struct EqWatch {
    queues: SmallVec<[Arc<PolledQueue>; 4]>,
    sleeper: Arc<Sleeper>,
}

impl EqWatch {
    pub(crate) fn new(
        queues: &EventQueues,
        keys: impl Iterator<Item = (EqHandle, Option<Key>)>,
        sleeper: &Arc<Sleeper>,
    ) -> Result<EqWatch, LNetError> {
        let mut watch = EqWatch { queues: SmallVec::new(), sleeper: sleeper.clone() };
        for (eq, key) in keys {
            let queue = queues.named(eq, key)?.as_polled(eq)?.clone();
            queue.watchers.enter(sleeper);
            watch.queues.push(queue);
        }
        Ok(watch)
    }
}

impl Drop for EqWatch {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.watchers.leave(&self.sleeper));
    }
}

/// All event queues of a node.
pub(crate) struct EventQueues(Mutex<Slab<EventQueue>>);

impl EventQueues {
    pub(crate) fn new(limit: usize) -> EventQueues {
        EventQueues(Mutex::new(slab(limit)))
    }

    pub(crate) fn enter(&self, queue: EventQueue) -> Result<Key, LNetError> {
        let mut queues = self.0.lock();
        let limit = queues.limit();
        queues.insert(queue).ok_or(LNetError::TooMany { objects: "event queues", limit })
    }

    /// Returns the queue, if it still exists.
    pub(crate) fn find(&self, key: Key) -> Option<EventQueue> {
        self.0.lock().get(key).cloned()
    }

    fn named(&self, eq: EqHandle, key: Option<Key>) -> Result<EventQueue, LNetError> {
        key.and_then(|key| self.find(key)).ok_or(LNetError::NoSuch { object: "EQ", handle: eq.0 })
    }

    /// Removes a queue, to be dropped without any lock.
    pub(crate) fn remove(&self, key: Key) -> Option<EventQueue> {
        self.0.lock().remove(key)
    }

    /// Removes and returns the oldest event of the first of these queues that has one.
    pub(crate) fn poll(
        &self,
        keys: impl Iterator<Item = (EqHandle, Option<Key>)>,
    ) -> Result<Option<Polled>, LNetError> {
        for (eq, key) in keys {
            if let Some(polled) = self.named(eq, key)?.poll(eq)? {
                return Ok(Some(polled));
            }
        }
        Ok(None)
    }
}

/// The event queues that one partition's MDs use, counted there: so the creation and end of MDs
/// touch no data of other partitions (S-311: a reference count per partition).
#[derive(Default)]
pub(crate) struct QueueUses(Vec<Option<QueueUse>>);

struct QueueUse {
    key: Key,
    queue: EventQueue,
    users: usize,
}

impl QueueUses {
    /// Counts one more MD of a queue; returns the index of the queue's count.
    pub(crate) fn enter(
        &mut self,
        queues: &EventQueues,
        handle: EqHandle,
        key: Option<Key>,
    ) -> Result<u32, LNetError> {
        let gone = LNetError::NoSuch { object: "EQ", handle: handle.0 };
        let Some(key) = key else { return Err(gone) };
        let index = key.index as usize;
        if let Some(Some(known)) = self.0.get_mut(index)
            && known.key == key
        {
            known.users += 1;
            return Ok(key.index);
        }
        let queue = queues.find(key).ok_or(gone)?;
        if self.0.len() <= index {
            let no_memory = |_| LNetError::TooMany { objects: "event queues of a partition", limit: index };
            self.0.try_reserve(index + 1 - self.0.len()).map_err(no_memory)?;
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(QueueUse { key, queue, users: 1 });
        Ok(key.index)
    }

    /// Counts one MD less for a queue.
    pub(crate) fn leave(&mut self, index: u32) {
        if let Some(Some(queue)) = self.0.get_mut(index as usize) {
            queue.users -= 1;
        }
    }

    /// Returns the number of MDs that use a queue.
    pub(crate) fn users(&self, key: Key) -> usize {
        self.0
            .get(key.index as usize)
            .and_then(Option::as_ref)
            .filter(|known| known.key == key)
            .map_or(0, |known| known.users)
    }

    /// Returns the queues, and the number of MDs that use each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, usize)> {
        self.0.iter().flatten().map(|known| (known.key, known.users))
    }

    /// Removes a queue that no MD uses.
    pub(crate) fn forget(&mut self, key: Key) {
        if let Some(known) = self.0.get_mut(key.index as usize) {
            known.take_if(|known| known.key == key);
        }
    }

    /// Delivers an event to a queue in use, under the lock of the MD's partition; returns the
    /// handler to be woken.
    pub(crate) fn deliver(&self, index: u32, event: &Event) -> Option<&Handler> {
        if index == NONE {
            return None;
        }
        let handler = &self.0.get(index as usize)?.as_ref()?.queue.handler;
        handler.event(event);
        Some(handler)
    }
}
