//! Taking events, and waiting for them, through shared memory only.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nlx_bev_cqueue::producer_word;
use nlx_core::{BufferEvent, BufferHandle, CoreError};
use nlx_driver_proto::{Reason, Refusal, Reply, Request};
use nlx_sync::Wake;

use super::{ConsumerState, UcoreTm};
use crate::buffers::RegisteredBuffer;
use crate::refused::refused;
use crate::ucore::now_ns;
use crate::waiters::ClientLoopHandle;

/// Poll interval of a waiter that the system does not let sleep.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl UcoreTm {
    /// Removes the oldest events: those in the queue, then, if the helper is gone, the last events
    /// of operations that it has not ended.
    pub(super) fn take_events(&self, events: &mut [BufferEvent]) -> usize {
        if !self.in_owner_process() || events.is_empty() {
            return 0;
        }
        let mut consumer_state = self.consumer_state.lock();
        while !consumer_state.corrupt {
            // Read before the queue: events that the helper produced before its end are in the
            // queue then.
            let has_ended = self.link.has_ended();
            let ConsumerState { consumer, corrupt, .. } = &mut *consumer_state;
            let (mut places, mut is_empty) = (events.iter_mut(), true);
            let (mut taken, mut released) = (0, 0);
            // The time of the first event is used for all of them.
            let mut now = None;
            for event in consumer.drain(places.len()) {
                point!(EventTaken);
                is_empty = false;
                let now_ns = *now.get_or_insert_with(now_ns);
                if let Some(event) = self.settle(event, now_ns)
                    && let Some(place) = places.next()
                {
                    released += event.released;
                    *place = event;
                    taken += 1;
                }
            }
            // Numbers of this process: `settle` ignores those that are in the queue.
            let given_back = consumer.release(released);
            point!(RoomReleased);
            debug_assert!(given_back.is_ok(), "{}: {given_back:?}", self.address);
            if taken > 0 {
                return taken;
            }
            if let Some(corruption) = consumer.corruption() {
                *corrupt = true;
                self.link.violated(format!("the event queue of {} is corrupt: {corruption}", self.address));
            } else if is_empty {
                if has_ended {
                    break;
                }
                return 0;
            }
        }
        self.lost(&mut consumer_state).map_or(0, |event| {
            events[0] = event;
            1
        })
    }

    /// Applies an event to its operation. Returns `None` for an event of no operation in flight, or
    /// an impossible one.
    fn settle(&self, mut event: BufferEvent, now_ns: u64) -> Option<BufferEvent> {
        let handle = event.buffer();
        let Ok(slot) = self.domain.buffers.slot(handle) else { return self.unexpected(handle) };
        let mut slot = slot.lock();
        let found = slot.of_machine(self.number).filter(|buffer| buffer.handle() == handle);
        let of_event = |buffer: &&mut RegisteredBuffer| {
            buffer.operation().is_some_and(|operation| operation.is_of(self.number, &event))
        };
        let Some(buffer) = found.filter(of_event) else {
            drop(slot);
            return self.unexpected(handle);
        };
        let (receives, events, started_ns) = buffer.operation().map_or((false, 0, 0), |operation| {
            (operation.queue.receives(), operation.events, operation.started_ns)
        });
        // Measured in this process, because the helper starts an operation later than it: one that
        // ends at its deadline must have lasted for its whole timeout.
        event.time_ns = now_ns.saturating_sub(started_ns);
        let impossible = receives && event.status == 0 && buffer.receive(event.offset, event.length).is_err();
        point!(BytesTaken);
        event.released = 0;
        if event.unlinked() {
            event.released = events;
            buffer.end();
            self.link.leave();
            point!(OperationOver);
        }
        drop(slot);
        if impossible {
            self.link.violated(format!(
                "an event of {} bytes at {} of buffer {:#x}",
                event.length, event.offset, handle.0
            ));
            (event.length, event.offset) = (0, 0);
            event.set_status(Err(Errno::EPROTO));
        }
        Some(event)
    }

    /// Handles an event without an operation. After the link has ended, this is no fault: this side
    /// has ended operations that the helper may end as well.
    #[cold]
    fn unexpected(&self, buffer: BufferHandle) -> Option<BufferEvent> {
        if !self.link.has_ended() {
            self.link.violated(format!("an event for buffer {:#x}, which has no such operation", buffer.0));
        }
        None
    }

    /// Ends an operation that the helper has not ended, once it is gone.
    fn lost(&self, consumer_state: &mut ConsumerState) -> Option<BufferEvent> {
        if !self.link.has_ended() || consumer_state.consumer.needed() == 0 {
            return None;
        }
        let buffers = &self.domain.buffers;
        let used = buffers.used();
        for step in 0..used {
            let place = (consumer_state.lost_at % used + step) % used;
            let Some(mut slot) = buffers.at(place).map(|slot| slot.lock()) else { continue };
            let Some(buffer) = slot.of_machine(self.number) else { continue };
            let Some(event) = buffer.operation().map(|operation| operation.lost(buffer.handle(), now_ns()))
            else {
                continue;
            };
            let kept = buffer.abandon();
            drop(slot);
            point!(OperationLost);
            self.link.keep(kept);
            point!(LeasesKept);
            self.link.leave();
            consumer_state.lost_at = place + 1;
            let released = consumer_state.consumer.release(event.released);
            debug_assert!(released.is_ok(), "{}: {released:?}", self.address);
            return Some(event);
        }
        None
    }

    /// Returns whether [`UcoreTm::take_events`] has work.
    pub(super) fn has_events(&self) -> bool {
        let consumer_state = self.consumer_state.lock();
        !consumer_state.corrupt && !consumer_state.consumer.is_empty()
            || self.link.has_ended() && consumer_state.consumer.needed() > 0
    }

    /// Waits for events; see [`nlx_core::CoreTm::event_wait`].
    pub(super) fn wait(&self, deadline_ns: Option<u64>) -> bool {
        if !self.in_owner_process() {
            return false;
        }
        if !self.is_to_wake() && deadline_ns.is_none_or(|deadline_ns| now_ns() < deadline_ns) {
            self.sleep(deadline_ns);
        }
        self.has_events()
    }

    fn sleep(&self, deadline_ns: Option<u64>) {
        let left = |deadline_ns: u64| Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
        // A deadline beyond the end of the clock counts as none.
        let deadline = deadline_ns.and_then(|deadline_ns| Instant::now().checked_add(left(deadline_ns)));
        let sleeper = self.sleeper.lock();
        point!(SleepDue);
        loop {
            let slept = sleeper.sleep(deadline, || self.is_to_wake());
            point!(Awake);
            match slept {
                Ok(Wake::Ready | Wake::TimedOut) => return,
                Ok(Wake::Signalled) => {}
                Err(error) => {
                    tracing::debug!(%error, "a waiter cannot sleep; it polls instead");
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
            if self.is_to_wake() || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return;
            }
        }
    }

    /// Returns whether a wait is to end. Wake-ups and losses end one wait each.
    pub(super) fn is_to_wake(&self) -> bool {
        self.has_events() || self.woken.take() || self.take_news() || self.link.has_ended()
    }

    /// Returns whether messages were lost since the last call. Only a waiter may call it: a loss
    /// ends one wait.
    pub(super) fn take_news(&self) -> bool {
        let count = producer_word(&self.queue);
        self.noticed.load(Ordering::Relaxed) != count && self.noticed.swap(count, Ordering::Relaxed) != count
    }

    pub(super) fn wake_waiter(&self) {
        self.woken.ask();
        self.waiters.wake();
    }

    /// Returns the descriptor on which a program's event loop sleeps.
    pub(crate) fn get_loop_handle(&self) -> Result<&ClientLoopHandle, CoreError> {
        self.domain.check_here()?;
        let _making = self.making_loop_handle.lock();
        if let Some(loop_handle) = self.loop_handle.get() {
            return Ok(loop_handle);
        }
        let socket = match self.link.request(&Request::TmDescriptor { tm: self.tm })? {
            // Another thread has stopped the machine meanwhile.
            (Reply::Refused(Refusal { reason: Reason::NoTm, .. }), _) => {
                return Err(CoreError::Stopped { address: self.address });
            }
            (Reply::Refused(refusal), _) => return Err(refused("make a descriptor to sleep on", &refusal)),
            (_, fds) => fds.into_iter().next(),
        };
        let Some(socket) = socket else { return Err(self.link.violated("no socket to sleep on".into())) };
        let made = ClientLoopHandle::new(self.queue.clone(), socket, &self.waiters, self.spin)
            .map_err(no_loop_handle)?;
        point!(LookoutMade);
        Ok(self.loop_handle.get_or_init(|| made))
    }
}

pub(super) fn no_loop_handle(errno: Errno) -> CoreError {
    CoreError::system("make a descriptor to sleep on", errno)
}
