//! Waking the waiters of a transfer machine, a thread and the event loop of a program, and waiting
//! for the helper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nlx_bev_cqueue::{QueueWord, SharedMemory, taken};
use nlx_sync::{Bell, PollHandle, Sleeper, Wake, Waker};
use parking_lot::Mutex;

use crate::ucore::now_ns;

/// The sleepers of this process for a transfer machine.
#[derive(Debug)]
pub(crate) struct Waiters {
    thread: Waker<QueueWord<SharedMemory>>,
    /// Set once a program has requested a descriptor.
    event_loop: OnceLock<Arc<Sleeper>>,
}

impl Waiters {
    pub(crate) fn new(queue: SharedMemory) -> Waiters {
        Waiters { thread: Waker::futex(QueueWord::consumer(queue)), event_loop: OnceLock::new() }
    }

    /// Wakes the sleepers, after the news has been published. Costs no system call while none
    /// sleeps.
    pub(crate) fn wake(&self) {
        point!(AlarmDue);
        // Cannot fail: it is a futex.
        let _ = self.thread.wake();
        // After the fence in `wake`: either the loop's sleeper is seen here, or the loop, which
        // checks once more after it has announced sleep, sees the news.
        if let Some(event_loop) = self.event_loop.get() {
            event_loop.wake();
        }
    }
}

/// Epoll key of the helper's socket.
const EVENTS: u64 = 0;

/// A waiter that sleeps in an event loop of the program, on one descriptor.
///
/// The descriptor combines the socket by which the helper signals events, a sleeper that this
/// process wakes, and a timer.
pub(crate) struct ClientLoopHandle {
    handle: PollHandle,
    /// Woken by the helper.
    pub(crate) events: Sleeper<QueueWord<SharedMemory>>,
    /// Set while the event loop's sleep is announced.
    is_armed: Mutex<bool>,
}

impl ClientLoopHandle {
    /// Creates the handle for the socket that the helper rings, and registers its sleeper with
    /// `waiters`.
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

    /// Returns the descriptor, which becomes readable when the program should call `poll`; only
    /// meaningful while armed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Announces sleep. Returns false, without arming, if there is work. It spins before, as any
    /// wait does; the events that end a sleep in the program's loop are not known here.
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

    /// Ends the announced sleep. Returns false if nothing was armed.
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
            // A socket whose other end the helper has closed stays readable: then the link has
            // ended, and every wait with it.
            let _ = self.events.finish_rung();
        } else {
            self.events.finish();
        }
        point!(Disarmed);
        true
    }
}

/// The longest sleep before a request makes the helper carry out the entries: it may be stopped, or
/// may not poll the ring without one.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// Waits until the helper has carried out the submissions.
///
/// The helper usually does so at once, and on another processor: then spinning for a while is
/// fastest. Where it needs this processor first, or has much to do, spinning only keeps the
/// processor from other threads: the sleeper adapts to that ([`nlx_sync::wait`]).
pub(crate) struct SubmitWaiter {
    memory: SharedMemory,
    /// One thread waits at a time.
    pub(crate) sleeper: Mutex<Sleeper<QueueWord<SharedMemory>>>,
    waker: Waker<QueueWord<SharedMemory>>,
}

impl SubmitWaiter {
    pub(crate) fn new(memory: SharedMemory, spin: Duration) -> SubmitWaiter {
        let word = QueueWord::producer(memory.clone());
        let sleeper = Mutex::new(Sleeper::futex(word.clone()).spinning(spin));
        SubmitWaiter { memory, sleeper, waker: Waker::futex(word) }
    }

    /// Waits until `entries` entries are carried out, or `has_ended`. Returns false if that takes
    /// too long.
    pub(crate) fn wait(&self, entries: u64, has_ended: impl Fn() -> bool) -> bool {
        let is_over = || taken(&self.memory) >= entries || has_ended();
        if is_over() {
            return true;
        }
        // A thread that had to wait for this lock may find that it is over.
        let sleeper = self.sleeper.lock();
        let deadline = Instant::now() + MAX_SLEEP;
        while !is_over() {
            match sleeper.sleep(Some(deadline), is_over) {
                Ok(Wake::Ready | Wake::Signalled) => {}
                // Timed out, or the system does not let it sleep.
                Ok(Wake::TimedOut) | Err(_) => return is_over(),
            }
        }
        true
    }

    /// Wakes the waiters. Called after the link has ended.
    pub(crate) fn wake(&self) {
        // Cannot fail: it is a futex.
        let _ = self.waker.wake();
    }
}
