//! The state that a transfer machine shares with its event callback.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lnet_api::{Drive, Errno, Event, EventHandler, EventKind, LNet, LNetError, MdHandle};
use nlx_bev_cqueue::{Consumer, Error, Producer};
use nlx_core::{
    Address, BufferEvent, CoreError, EventFlags, HdrData, MatchCounter, Operation, Queue, RandomCounters,
    Sequential, TmId,
};
use nlx_fallible::TryArc;
use nlx_sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, OnceLock, Ordering, rule};

use crate::agreed::{LEAVE, NEWS, NOTE, TEARDOWN, UNLINK_DUE, UNNAMED};
use crate::buffers::RegisteredBuffer;
use crate::event_sink::{EventSink, News};
use crate::flight::{Flight, FlightKey, OpRecord};
use crate::lnet_tm::Naming;
use crate::network::{AnomalyCounters, SharedNetwork};
use crate::pending_teardown::PendingTeardown;
use crate::rules::{EventAction, OpOutcome, decide};

/// A transfer machine as its event queue sees it. The event queue holds a reference, so everything
/// that a callback touches lives while LNet can call it (S-415).
pub(crate) struct TmShared<T: EventSink> {
    pub(crate) address: Address,
    pub(crate) lnet: Arc<dyn LNet>,
    pub(crate) drive: Arc<dyn Drive>,
    pub(crate) sink: TryArc<T>,
    faults: Arc<AnomalyCounters>,
    /// The producer lock: it serialises the many threads from which LNet calls.
    producer_state: Mutex<ProducerState<T>>,
    /// Set while some operation may have [`OpRecord::unlink_due`] set.
    unlinks_due: AtomicBool,
    /// The greatest [`News`] since the last wake-up. Most LNet events of a GET are none, and a
    /// needless wake-up is expensive. Raised under the producer lock.
    news: AtomicU32,
    /// Set once the transfer machine has been dropped.
    teardown: OnceLock<PendingTeardown>,
    /// The source of match bits of passive buffers, if not [`ProducerState::counters`].
    random: Option<RandomCounters>,
}

struct ProducerState<T: EventSink> {
    producer: Producer<BufferEvent, T::Memory>,
    flight: Flight,
    counters: Sequential,
    stopped: bool,
}

/// The producer, under its lock.
struct HeldProducer<'a, T: EventSink>(MutexGuard<'a, ProducerState<T>>);

impl<T: EventSink> Deref for HeldProducer<'_, T> {
    type Target = Producer<BufferEvent, T::Memory>;

    fn deref(&self) -> &Self::Target {
        &self.0.producer
    }
}

impl<T: EventSink> DerefMut for HeldProducer<'_, T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0.producer
    }
}

impl<T: EventSink> TmShared<T> {
    pub(crate) fn new(
        address: Address,
        network: &SharedNetwork,
        producer: Producer<BufferEvent, T::Memory>,
        sink: TryArc<T>,
        random: Option<RandomCounters>,
    ) -> TmShared<T> {
        let state = ProducerState {
            producer,
            flight: Flight::default(),
            counters: Sequential::up_to(MatchCounter::LAST),
            stopped: false,
        };
        TmShared {
            address,
            lnet: network.lnet.clone(),
            drive: network.drive.clone(),
            sink,
            faults: network.faults.clone(),
            producer_state: Mutex::new(state),
            unlinks_due: AtomicBool::new(false),
            news: AtomicU32::new(News::None as u32),
            teardown: OnceLock::default(),
            random,
        }
    }

    /// Enters an operation: associates its buffer and, if it is passive, chooses its match bits.
    /// From here on its events may come; the event that ends it may come before
    /// [`TmShared::set_md`].
    pub(crate) fn enter(
        &self,
        operation: &Operation,
        buffer: TryArc<RegisteredBuffer>,
        naming: Naming,
        started_ns: u64,
    ) -> Result<(FlightKey, MatchCounter), CoreError> {
        let (queue, events) = (operation.kind.queue(), operation.kind.events_max());
        let is_named_here = queue.is_passive() && matches!(naming, Naming::Here(_));
        let random =
            self.random.as_ref().filter(|_| is_named_here).map(RandomCounters::number).transpose()?;
        let mut state = self.producer_state.lock();
        if state.stopped {
            return Err(CoreError::Stopped { address: self.address });
        }
        let ProducerState { flight, counters, .. } = &mut *state;
        let counter = match (naming, random) {
            _ if !queue.is_passive() => MatchCounter::UNSOLICITED,
            (Naming::Client(counter), _) => counter,
            (Naming::Here(_), Some(number)) => number.counter(flight.next_slot()),
            (Naming::Here(_), None) => counters.next(|| flight.counters()),
        };
        let key = flight.enter(|key| {
            buffer.associate(key)?;
            Ok(OpRecord {
                key,
                live: true,
                queue,
                handle: buffer.handle(),
                buffer,
                cookie: operation.cookie,
                started_ns,
                events,
                left: events,
                counter,
                md: None,
                remembered: None,
                cancelled: false,
                unlink_due: false,
                abandoned: false,
            })
        })?;
        Ok((key, counter))
    }

    /// Stores the MD of an operation, unless the operation is over. Returns whether the MD is to be
    /// unlinked: the operation was cancelled or failed before its MD was known.
    pub(crate) fn set_md(&self, key: FlightKey, md: MdHandle) -> bool {
        let mut state = self.producer_state.lock();
        let is_unwanted = |op: &mut OpRecord| op.cancelled || std::mem::take(&mut op.unlink_due);
        let unwanted = state.flight.find(key).is_some_and(is_unwanted);
        // SYNC kcore.note
        let mut state = NOTE.hold(&self.producer_state, state);
        if let Some(op) = state.flight.find(key) {
            op.md = Some(md);
        }
        unwanted
    }

    /// Removes an operation that LNet refused and that has no MD. Returns false if an event has
    /// ended it already.
    pub(crate) fn withdraw(&self, key: FlightKey) -> bool {
        let mut state = self.producer_state.lock();
        let live = state.flight.find(key).is_some();
        self.leave(&mut state.flight, key);
        live
    }

    /// Marks an operation as cancelled. Returns its MD, if LNet has returned one yet.
    pub(crate) fn cancel(
        &self,
        buffer: &TryArc<RegisteredBuffer>,
        cookie: u64,
    ) -> Result<Option<MdHandle>, CoreError> {
        let gone = CoreError::NoSuchOperation { buffer: buffer.handle(), cookie };
        let mut state = self.producer_state.lock();
        let op = buffer.operation().and_then(|key| state.flight.find(key));
        match op.filter(|op| TryArc::ptr_eq(&op.buffer, buffer) && op.cookie == cookie && !op.abandoned) {
            Some(op) => {
                op.cancelled = true;
                Ok(op.md)
            }
            None => Err(gone),
        }
    }

    /// Ends an operation: releases its buffer, and notifies the sink.
    fn leave(&self, flight: &mut Flight, key: FlightKey) {
        if let Some(events) = flight.leave(key) {
            self.sink.left(events);
        }
    }

    /// Refuses new operations, or accepts them again.
    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.producer_state.lock().stopped = stopped;
    }

    /// Abandons the next operation in flight from slot `at` on, and refuses new ones: the client
    /// gets no more events of it. Searches up to `most` slots. Returns its MD, to be unlinked, and
    /// whether slots remain to be searched.
    pub(crate) fn abandon_next(&self, at: &mut usize, most: usize) -> (Option<MdHandle>, bool) {
        let mut state = self.producer_state.lock();
        state.stopped = true;
        let md = state.flight.live_from(at, most).and_then(|op| {
            op.abandoned = true;
            op.md
        });
        (md, *at < state.flight.slots())
    }

    /// Frees up to `most` slots of finished operations, once all others are abandoned. Returns
    /// their number.
    pub(crate) fn free_unused(&self, most: usize) -> usize {
        self.producer_state.lock().flight.free_unused(most)
    }

    /// Called when the transfer machine is dropped. Its leftovers are cleared at once, or by the
    /// callback of the last event.
    pub(crate) fn set_teardown(&self, teardown: PendingTeardown) -> Result<(), LNetError> {
        // SYNC kcore.teardown
        let set = |teardown| self.teardown.get_or_init(|| teardown);
        rule!(TEARDOWN, set(teardown).clear(), broken = (teardown.clear(), set(teardown)).0)
    }

    /// Returns the number of event slots reserved by the operations in flight, without those whose
    /// last event is in the queue.
    pub(crate) fn reserved(&self) -> usize {
        self.producer_state.lock().flight.live().filter(|op| !op.abandoned).map(|op| op.events as usize).sum()
    }

    /// Shrinks the ring of events, unless an event has just come. This needs both halves: the
    /// caller has the consumer's lock, and this takes the producer's lock for a few stores.
    pub(crate) fn shrink(&self, consumer: &mut Consumer<BufferEvent, T::Memory>, slots: u32) {
        let shrunk = consumer.shrink_with(slots, || HeldProducer(self.producer_state.lock()));
        debug_assert!(matches!(shrunk, Ok(()) | Err(Error::InUse { .. })), "{}: {shrunk:?}", self.address);
    }

    /// Handles an event of LNet: decides what it means, and produces the client's event.
    fn produce(&self, event: &Event, now_ns: u64) {
        let key = FlightKey::from_value(event.user_ptr);
        let mut state = self.producer_state.lock();
        let ProducerState { producer, flight, .. } = &mut *state;
        let Some(op) = flight.find(key) else {
            // An ACK's fields mean nothing to operations that do not ask for one (MT-21).
            if event.kind == EventKind::Ack && !event.unlinked {
                return;
            }
            self.faults.stale.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if op.abandoned {
            if event.unlinked {
                self.leave(flight, key);
                self.note_news(News::Bulk);
            }
            return;
        }
        let outcome = match decide(op.queue, op.remembered, event) {
            EventAction::Ignore => return,
            EventAction::Remember(outcome) => {
                op.remembered = Some(outcome);
                return;
            }
            EventAction::Unlink(outcome) => {
                op.remembered = Some(outcome);
                op.unlink_due = true;
                self.unlinks_due.store(true, Ordering::Relaxed);
                return;
            }
            EventAction::Deliver(outcome) => outcome,
            EventAction::Unexpected(outcome) => {
                self.faults.unexpected.fetch_add(1, Ordering::Relaxed);
                let Some(outcome) = outcome else { return };
                outcome
            }
        };
        if op.left == 1 && !event.unlinked {
            // The remaining slot is reserved for the last event.
            self.faults.unexpected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        op.left -= 1;
        let news = News::of(op.queue);
        let made = buffer_event(op, event, outcome, now_ns);
        let mut leave = || {
            if event.unlinked {
                self.leave(flight, key);
            }
        };
        // SYNC kcore.leave
        rule!(LEAVE, leave(), then = self.push(producer, made));
        self.note_news(news);
    }

    /// Records news, under the producer lock and after the event that it is about.
    fn note_news(&self, news: News) {
        // SYNC kcore.news
        self.news.fetch_max(news as u32, NEWS.chain());
    }

    // Inlined, so that an event is built in its place in the queue; out of line it would be copied
    // twice.
    #[inline(always)]
    fn push(&self, producer: &mut Producer<BufferEvent, T::Memory>, event: BufferEvent) {
        match producer.push(event) {
            Ok(()) => self.sink.given(),
            Err(_) => self.sink.overrun(&self.faults),
        }
    }

    /// Delivers an event that is not LNet's: that of a refused operation.
    pub(crate) fn deliver(&self, event: BufferEvent) {
        self.push(&mut self.producer_state.lock().producer, event);
        T::ring(&self.sink, News::Messages);
    }

    /// Refuses new operations, unless some are in flight. Returns whether they are refused.
    pub(crate) fn stop_if_idle(&self) -> bool {
        let mut state = self.producer_state.lock();
        state.stopped |= state.flight.is_empty();
        state.stopped
    }

    /// Unlinks the MDs of failed operations, which only an unlink can end.
    fn unlink_due_mds(&self) {
        if !self.unlinks_due.load(Ordering::Relaxed) {
            return;
        }
        let unlink = || {
            while let Some(md) = self.next_due_md() {
                // ENOENT means that its last event is on the way.
                let _ = self.lnet.md_unlink(md);
            }
        };
        // SYNC kcore.unlink_due
        rule!(UNLINK_DUE, self.unlinks_due.store(false, Ordering::Relaxed), then = unlink());
    }

    fn next_due_md(&self) -> Option<MdHandle> {
        let mut state = self.producer_state.lock();
        // SYNC kcore.unnamed
        let is_due = |op: &&mut OpRecord| op.unlink_due && rule!(UNNAMED, op.md.is_some(), broken = true);
        let op = state.flight.live().find(is_due)?;
        op.unlink_due = false;
        op.md
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn set_counter(&self, counter: MatchCounter) {
        self.producer_state.lock().counters.set_next(counter);
    }
}

impl<T: EventSink> EventHandler for TmShared<T> {
    fn event(&self, event: &Event) {
        self.produce(event, self.drive.now_ns());
    }

    fn wake(&self) {
        self.unlink_due_mds();
        // SYNC kcore.news
        match News::from_value(self.news.swap(News::None as u32, NEWS.chain())) {
            News::None => {}
            news => T::ring(&self.sink, news),
        }
        if let Some(teardown) = self.teardown.get() {
            // EBUSY means that the last event is yet to come, ENOENT that another attempt has
            // cleared them.
            let _ = teardown.clear();
        }
    }
}

#[inline(always)]
fn buffer_event(op: &OpRecord, event: &Event, outcome: OpOutcome, now_ns: u64) -> BufferEvent {
    let mut made = BufferEvent {
        buffer: op.handle.0,
        cookie: op.cookie,
        time_ns: now_ns.saturating_sub(op.started_ns),
        length: outcome.length,
        offset: outcome.offset,
        ..BufferEvent::ZERO
    };
    // LNet reports ETIMEDOUT when it aborts an operation that was unlinked in flight; the client
    // gets ECANCELED.
    made.set_status(match outcome.status {
        Err(Errno::ETIMEDOUT) if op.cancelled => Err(Errno::ECANCELED),
        status => status,
    });
    if event.unlinked {
        made.flags |= EventFlags::UNLINKED;
        made.released = op.events;
    }
    if op.queue == Queue::MessageReceive
        && outcome.status.is_ok()
        && let Some(sender) = sender_of(event)
    {
        made.set_sender(&sender);
    }
    made
}

/// Returns the sender of a message: from LNet's header, and from what the sender wrote beside the
/// payload (MT-22, MT-245).
fn sender_of(event: &Event) -> Option<Address> {
    if event.hdr_data == HdrData::NONE {
        return None;
    }
    let HdrData { tmid, portal } = HdrData::decode(event.hdr_data);
    let tmid = TmId::new(tmid).ok()?;
    Some(Address { nid: event.initiator.nid, pid: event.initiator.pid, portal, tmid })
}
