//! Waking those who wait for a transfer machine: a thread, and the event loop of a program that sleeps in one of its own. And
//! waiting for the helper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nlx_bev_cqueue::{QueueWord, SharedMemory, taken};
use nlx_sync::{Bell, PollHandle, Sleeper, Wake, Waker};
use parking_lot::Mutex;

use crate::ucore::now_ns;

/// Those of this process who may be asleep for a transfer machine.
#[derive(Debug)]
pub(crate) struct Waiters {
    thread: Waker<QueueWord<SharedMemory>>,
    /// Once a program has asked for a descriptor.
    event_loop: OnceLock<Arc<Sleeper>>,
}

impl Waiters {
    pub(crate) fn new(queue: SharedMemory) -> Waiters {
        Waiters { thread: Waker::futex(QueueWord::consumer(queue)), event_loop: OnceLock::new() }
    }

    /// Wakes those who sleep; the news has been published before. Costs no system call while nobody does.
    pub(crate) fn wake(&self) {
        point!(AlarmDue);
        // No error: a futex cannot be wrong.
        let _ = self.thread.wake();
        // After the fence in `wake`: either the loop's sleeper is seen here, or the loop, which looks once more after it has
        // announced sleep, sees the news.
        if let Some(event_loop) = self.event_loop.get() {
            event_loop.wake();
        }
    }
}

/// The key of the helper's socket.
const EVENTS: u64 = 0;

/// A waiter that sleeps in an event loop of the program's, on one descriptor.
///
/// It stands for the socket by which the helper tells of events, a sleeper that this process wakes, and a timer.
pub(crate) struct ClientLoopHandle {
    handle: PollHandle,
    /// Woken by the helper.
    events: Sleeper<QueueWord<SharedMemory>>,
    /// Whether sleep has been announced.
    is_armed: Mutex<bool>,
}

impl ClientLoopHandle {
    /// Over the socket that the helper rings; `waiters` has it woken too from now on.
    pub(crate) fn new(
        queue: SharedMemory,
        socket: OwnedFd,
        waiters: &Waiters,
        spin: Duration,
    ) -> Result<ClientLoopHandle, Errno> {
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let handle = PollHandle::new()?;
        handle.add(socket.as_fd(), EVENTS)?;
        // There is one event loop.
        waiters.event_loop.get_or_init(|| handle.sleeper().clone());
        let events = Sleeper::ringing(QueueWord::event_loop(queue), Bell::socket(socket)).spinning(spin);
        Ok(ClientLoopHandle { handle, events, is_armed: Mutex::new(false) })
    }

    /// Readable when the program should come back; of use while it is armed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Announces sleep, unless there is something to do: then it gives false, and nothing is armed. It spins before, as
    /// any wait does; what ends a sleep in the program's loop is not known here.
    pub(crate) fn arm(
        &self,
        deadline_ns: Option<u64>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool, Errno> {
        let mut is_armed = self.is_armed.lock();
        self.end(&mut is_armed);
        let is_late = || deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns());
        let mut spinning = self.events.spin_wait();
        if spinning.until(None, || ready() || is_late()) {
            return Ok(false);
        }
        spinning.unknown();
        self.events.prepare();
        self.handle.sleeper().prepare();
        *is_armed = true;
        point!(Armed);
        let set = if is_late() || ready() {
            Ok(false)
        } else {
            let left_ns = |next_ns: u64| next_ns.saturating_sub(now_ns());
            self.handle.set_timer(deadline_ns, left_ns).map(|()| true)
        };
        if set != Ok(true) {
            self.end(&mut is_armed);
        }
        set
    }

    /// The program is back. False if nothing was armed.
    pub(crate) fn disarm(&self) -> bool {
        self.end(&mut self.is_armed.lock())
    }

    fn end(&self, is_armed: &mut bool) -> bool {
        if !std::mem::replace(is_armed, false) {
            return false;
        }
        let mut is_rung = false;
        self.handle.finish(|_| is_rung = true);
        if is_rung {
            // A socket whose other end the helper has closed stays readable: then the link has ended, and every wait with it.
            let _ = self.events.finish_rung();
        } else {
            self.events.finish();
        }
        point!(Disarmed);
        true
    }
}

/// The longest sleep. A helper that has not said anything by then is asked: it may be stopped, or may not look at the ring before
/// it is asked.
const PATIENCE: Duration = Duration::from_millis(100);

/// Waits until the helper has carried out what was submitted.
///
/// The helper mostly does so at once, and on another processor: then spinning for a while is the fastest. Where it needs this
/// processor first, or has much to do, spinning only keeps the processor from others: the sleeper learns that
/// ([`nlx_sync::wait`]).
pub(crate) struct SubmitWaiter {
    memory: SharedMemory,
    /// One at a time waits.
    sleeper: Mutex<Sleeper<QueueWord<SharedMemory>>>,
    waker: Waker<QueueWord<SharedMemory>>,
}

impl SubmitWaiter {
    pub(crate) fn new(memory: SharedMemory, spin: Duration) -> SubmitWaiter {
        let word = QueueWord::producer(memory.clone());
        let sleeper = Mutex::new(Sleeper::futex(word.clone()).spinning(spin));
        SubmitWaiter { memory, sleeper, waker: Waker::futex(word) }
    }

    /// Waits until so many entries are carried out, or `has_ended`. False if that takes too long.
    pub(crate) fn wait(&self, entries: u64, has_ended: impl Fn() -> bool) -> bool {
        let is_over = || taken(&self.memory) >= entries || has_ended();
        if is_over() {
            return true;
        }
        // Who comes later may find that it is over.
        let sleeper = self.sleeper.lock();
        let deadline = Instant::now() + PATIENCE;
        while !is_over() {
            match sleeper.sleep(Some(deadline), is_over) {
                Ok(Wake::Ready | Wake::Signalled) => {}
                // It is late, or the system does not let it sleep.
                Ok(Wake::TimedOut) | Err(_) => return is_over(),
            }
        }
        true
    }

    /// For who has ended the link.
    pub(crate) fn wake(&self) {
        // No error: it is a futex.
        let _ = self.waker.wake();
    }
}
