//! A transfer machine: starting operations, taking events, waiting, stopping.

mod ending;
mod submit;
mod wait;

use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nlx_bev_cqueue::{Consumer, QueueWord, SharedMemory, producer_word};
use nlx_core::{
    Address, BufferEvent, BufferHandle, CoreError, CoreTm, DescriptorForm, MatchCounter, Operation,
    RandomCounters, Sequential, StartAddress, Submitted, TmOptions, WakeUp,
};
use nlx_driver_proto::{EVENTS_MAX, Entry, Reply, Request, StartTm};
use nlx_sync::Sleeper;
use parking_lot::Mutex;

use crate::arenas::allocate_near;
use crate::link::HelperLink;
use crate::refused::refused_start;
use crate::ucore::DomainState;
use crate::waiters::{ClientLoopHandle, Waiters};

/// A started transfer machine.
///
/// Lock order: [`ConsumerState`], a buffer's slot, the link's locks.
pub(crate) struct UcoreTm {
    domain: Arc<DomainState>,
    /// The link over which the machine was started. The machine ends with it.
    link: Arc<HelperLink>,
    /// The helper's handle of the machine.
    tm: u64,
    /// The machine's number in this process, which is never reused.
    number: u64,
    address: Address,
    /// The helper's number for memory near the machine.
    near: Option<NonZeroU32>,
    descriptors: DescriptorForm,
    counters: Mutex<Sequential>,
    /// The source of match bits of passive buffers, if not `counters`.
    random: Option<RandomCounters>,
    consumer_state: Mutex<ConsumerState>,
    /// Set while no operation can start: from the attempt to stop the machine on, and cleared if
    /// the helper refuses to stop it. Set under the lock of [`ConsumerState`], while nothing is in
    /// flight.
    stopped: AtomicBool,
    /// The memory of the event queue.
    queue: SharedMemory,
    pub(crate) sleeper: Mutex<Sleeper<QueueWord<SharedMemory>>>,
    /// The spin limit of waits.
    spin: Duration,
    waiters: Arc<Waiters>,
    /// [`CoreTm::wake`] was called, and no wait has consumed it yet.
    woken: WakeUp,
    /// Number of lost messages that waits have noticed.
    noticed: AtomicU64,
    /// The event loop's handle; created when the program first asks for a descriptor.
    loop_handle: OnceLock<ClientLoopHandle>,
    /// Held while the handle is made.
    making_loop_handle: Mutex<()>,
    /// Cleared once the helper has stopped the transfer machine, or is gone. Locked during a stop.
    open: Mutex<bool>,
}

/// The consumer's half of the event queue, and the state that belongs to it.
struct ConsumerState {
    consumer: Consumer<BufferEvent, SharedMemory>,
    /// Set once the queue was found corrupt: no further event is taken.
    corrupt: bool,
    /// Slot at which the search for operations without an end continues.
    lost_at: u32,
}

impl UcoreTm {
    pub(crate) fn start(
        domain: Arc<DomainState>,
        wanted: &StartAddress,
        options: &TmOptions,
    ) -> Result<UcoreTm, CoreError> {
        let random = options.match_counters.random()?;
        let spin = options.spin.unwrap_or(domain.options.spin);
        let link = domain.link();
        let events_max = options.events_max.clamp(1, link.welcome.events_max.clamp(1, EVENTS_MAX));
        let start = StartTm { address: *wanted, events_max, lazy: options.lazy };
        let (tm, address, near, fds) = match link.request(&Request::StartTm(start))? {
            (Reply::Started { tm, address, near }, fds) => (tm, address, near, fds),
            (Reply::Refused(refusal), _) => return Err(refused_start(wanted, &refusal)),
            (reply, _) => return Err(link.violated(format!("unexpected reply to a start: {reply:?}"))),
        };
        let (memory, consumer) = event_queue(fds).map_err(|reason| link.violated(reason))?;
        point!(EventsMapped);
        let consumer_state = ConsumerState { consumer, corrupt: false, lost_at: 0 };
        let waiters = Arc::new(Waiters::new(memory.clone()));
        link.add_waiters(&waiters);
        tracing::debug!(%address, ?spin, "a transfer machine has started");
        Ok(UcoreTm {
            number: domain.next_machine(),
            domain,
            link,
            tm,
            address,
            near,
            descriptors: options.descriptors,
            counters: Mutex::new(Sequential::up_to(MatchCounter::LAST)),
            random,
            consumer_state: Mutex::new(consumer_state),
            stopped: AtomicBool::new(false),
            sleeper: Mutex::new(Sleeper::futex(QueueWord::consumer(memory.clone())).spinning(spin)),
            queue: memory,
            spin,
            waiters,
            woken: WakeUp::default(),
            noticed: AtomicU64::new(0),
            loop_handle: OnceLock::new(),
            making_loop_handle: Mutex::new(()),
            open: Mutex::new(true),
        })
    }

    /// Returns whether this is the process that started the machine.
    fn in_owner_process(&self) -> bool {
        self.domain.fork_guard.in_owner_process()
    }
}

fn event_queue(fds: Vec<OwnedFd>) -> Result<(SharedMemory, Consumer<BufferEvent, SharedMemory>), String> {
    let fd = fds.into_iter().next().ok_or("no event queue")?;
    let memory = SharedMemory::attach(fd).map_err(|error| error.to_string())?;
    let consumer = Consumer::new(memory.clone()).map_err(|error| error.to_string())?;
    Ok((memory, consumer))
}

impl CoreTm for UcoreTm {
    fn address(&self) -> Address {
        self.address
    }

    fn submit_all(
        &self,
        started_ns: Option<u64>,
        operations: &[Operation],
        outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
    ) {
        self.submit_in_order(started_ns, operations, outcome);
    }

    fn cancel(&self, buffer: BufferHandle, cookie: u64) -> Result<(), CoreError> {
        self.domain.check_here()?;
        let mut slot = self.domain.buffers.slot(buffer)?.lock();
        slot.buffer(buffer)?;
        let found = slot.of_machine(self.number).and_then(|found| found.operation());
        if found.is_none_or(|operation| operation.cookie != cookie) {
            return Err(CoreError::NoSuchOperation { buffer, cookie });
        }
        // Pushed under the buffer's lock, so that it follows the operation's own entry. Without a
        // helper the operation ends anyway.
        if self.link.push(&Entry::Cancel { tm: self.tm, buffer, cookie }).is_ok() {
            self.link.wake_helper();
        }
        Ok(())
    }

    fn events_get(&self, events: &mut [BufferEvent]) -> Result<usize, CoreError> {
        Ok(self.take_events(events))
    }

    fn event_wait(&self, deadline_ns: Option<u64>) -> bool {
        self.wait(deadline_ns)
    }

    fn pending(&self) -> bool {
        self.in_owner_process() && self.has_events()
    }

    fn poll(&self) {
        if self.in_owner_process()
            && let Some(loop_handle) = self.loop_handle.get()
        {
            loop_handle.disarm();
            self.take_news();
        }
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>, CoreError> {
        Ok(self.get_loop_handle()?.fd())
    }

    fn arm(&self, deadline_ns: Option<u64>) -> Result<bool, CoreError> {
        let armed = self.get_loop_handle()?.arm(deadline_ns, || self.is_to_wake());
        armed.map_err(wait::no_loop_handle)
    }

    fn wake(&self) {
        if self.in_owner_process() {
            self.wake_waiter();
        }
    }

    fn near(&self, allocate: &mut dyn FnMut()) {
        allocate_near(self.near, allocate);
    }

    fn dropped(&self) -> u64 {
        if self.in_owner_process() { producer_word(&self.queue) } else { 0 }
    }

    fn has_ended(&self) -> bool {
        self.link.has_ended()
    }

    fn needed(&self) -> usize {
        if self.in_owner_process() { self.consumer_state.lock().consumer.needed() as usize } else { 0 }
    }

    fn stop(&self) -> Result<(), CoreError> {
        self.domain.check_here()?;
        self.end()
    }
}

impl Drop for UcoreTm {
    /// Cancels the operations in flight, and waits for them for a limited time. Operations that
    /// have not ended by then keep their memory, and the machine its address, until the helper is
    /// gone.
    fn drop(&mut self) {
        if self.in_owner_process() {
            self.end_in_use();
        } else {
            // In a forked child the transfer machine belongs to the parent.
            std::mem::forget((self.domain.clone(), self.link.clone(), self.waiters.clone()));
        }
    }
}
