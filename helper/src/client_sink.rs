//! The destination of events of a client's transfer machine.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use nlx_bev_cqueue::{QueueWord, SharedMemory};
use nlx_core::RegionError;
use nlx_fallible::TryArc;
use nlx_kcore::{AnomalyCounters, EventSink, LossSink, News};
use nlx_sync::{Bell, Waker};
use parking_lot::Mutex;

use super::Violation;
use super::counters::{ClientCounters, RelaxedCounter};
use super::seal::Seal;
use super::wakeups;
use super::watched::WatchedQueue;

/// The sink of a client's transfer machine, as LNet's callback sees it. It outlives the client as
/// long as LNet has parts of the transfer machine; it then writes into memory that only the
/// departed client may still have.
pub(super) struct ClientSink {
    /// Wakes a thread of the client that sleeps on the queue itself.
    thread: Waker<QueueWord<SharedMemory>>,
    /// Wakes an event loop of the client that sleeps on a socket; set once the client has requested
    /// such a socket.
    loop_handle: OnceLock<Waker<QueueWord<SharedMemory>>>,
    /// Set while a signal to the event loop is deferred.
    deferred: AtomicBool,
    memory: SharedMemory,
    watched: WatchedQueue,
    counters: TryArc<ClientCounters>,
    /// Operations in flight of this transfer machine, and the events that they may still produce.
    pub(super) operations: RelaxedCounter,
    pub(super) reserved: RelaxedCounter,
    pub(super) dropped: RelaxedCounter,
    broken: AtomicBool,
    /// Set once the client has sealed the memory. Before that nothing of it is touched, and no
    /// operation starts.
    open: AtomicBool,
    /// Reports whether the client has sealed the memory.
    seal: Mutex<Seal>,
}

impl ClientSink {
    pub(super) fn new(
        memory: SharedMemory,
        seal: Seal,
        counters: TryArc<ClientCounters>,
    ) -> Result<ClientSink, RegionError> {
        Ok(ClientSink {
            thread: Waker::futex(QueueWord::consumer(memory.clone())),
            loop_handle: OnceLock::new(),
            deferred: AtomicBool::new(false),
            watched: WatchedQueue::new(memory.clone())?,
            memory,
            counters,
            operations: RelaxedCounter::default(),
            reserved: RelaxedCounter::default(),
            dropped: RelaxedCounter::default(),
            broken: AtomicBool::new(false),
            open: AtomicBool::new(false),
            seal: Mutex::new(seal),
        })
    }

    /// Returns whether the memory may be touched. Until then the call costs a system call, which
    /// does not block.
    pub(super) fn is_open(&self) -> bool {
        if self.open.load(Acquire) {
            return true;
        }
        if !self.seal.lock().is_set() {
            return false;
        }
        self.open.store(true, Release);
        // Losses before the seal could not be written into the queue.
        if self.dropped.get() > 0 {
            self.write_losses();
        }
        true
    }

    fn write_losses(&self) {
        nlx_bev_cqueue::raise_producer_word(&self.memory, self.dropped.get());
        self.wake();
    }

    /// Wakes the client's thread and its event loop, if they sleep. Never blocks.
    ///
    /// The futex lies in this process's mapping, and this end of the socket pair belongs to this
    /// process. A signal fails only without memory, and is sent later then. It waits neither for
    /// the client to read its end nor for the memory in which the client receives; a client that
    /// has closed its end is no error. The futex wakes one thread. The signal wakes every watcher
    /// of the socket, which can take long ([`ClientSignals`](super::signals::ClientSignals)).
    pub(super) fn wake(&self) {
        // The call has a full fence between the event and the following check for a loop handle. An
        // event loop that is being set up checks the queue after it has announced its sleep, and
        // announces that after it was set here.
        let _ = self.thread.wake();
        if let Some(loop_handle) = self.loop_handle.get() {
            let signals = &self.counters.signals;
            if signals.send(|| self.wake_loop(loop_handle)) {
                self.defer_signal();
            }
        }
    }

    /// Sets the end of a socket pair by which an event loop is woken, too.
    pub(super) fn set_loop_handle(&self, bell: Bell) {
        let _ = self.loop_handle.set(Waker::ringing(QueueWord::event_loop(self.memory.clone()), bell));
    }

    /// Sends the deferred signal to the event loop, if there is one. Returns whether the event loop
    /// slept. Later signals are deferred again, and noted.
    pub(super) fn send_deferred(&self) -> bool {
        // The event was in the queue before, so this check for a sleeper comes after it, as in
        // `wake`.
        self.deferred.swap(false, AcqRel)
            && self.loop_handle.get().is_some_and(|loop_handle| self.wake_loop(loop_handle))
    }

    /// Wakes the event loop if it sleeps, and returns whether it slept. Without memory for the
    /// signal (ENOMEM, ENOBUFS) the signal is deferred.
    fn wake_loop(&self, loop_handle: &Waker<QueueWord<SharedMemory>>) -> bool {
        loop_handle.wake().unwrap_or_else(|_| {
            self.defer_signal();
            false
        })
    }

    /// Defers the signal to the event loop to [`ClientSink::send_deferred`].
    fn defer_signal(&self) {
        self.deferred.store(true, Release);
        self.counters.signals.note_pending();
    }

    /// Checks that no page of the queue's memory was lost.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.watched.check("an event queue")
    }

    /// Returns whether an event was lost because the client had not provisioned room for it, as it
    /// must.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }
}

impl EventSink for ClientSink {
    type Memory = SharedMemory;

    fn ring(this: &TryArc<ClientSink>, news: News) {
        wakeups::wake(this, news);
    }

    fn entered(&self, events: u32) {
        self.operations.add(1);
        self.reserved.add(events.into());
        self.counters.operations.add(1);
        self.counters.started.add(1);
    }

    fn given(&self) {
        self.counters.events.add(1);
    }

    fn left(&self, events: u32) {
        self.operations.sub(1);
        self.reserved.sub(events.into());
        self.counters.operations.sub(1);
    }

    /// Records that the queue is broken. The client is at fault: it must provision the queue.
    #[cold]
    fn overrun(&self, _: &AnomalyCounters) {
        self.broken.store(true, Relaxed);
        self.counters.broken.store(true, Relaxed);
    }
}

impl LossSink for ClientSink {
    fn lost(&self) {
        self.dropped.add(1);
        if self.is_open() {
            self.write_losses();
        }
    }
}
