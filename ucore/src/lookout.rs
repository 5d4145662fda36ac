//! For a program that sleeps in an event loop of its own: one descriptor that stands for all that could end a wait.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nlx_bev_cqueue::wake::{Sleeper, Waker, eventfd};
use nlx_bev_cqueue::{Heap, SharedMemory};
use parking_lot::Mutex;

use crate::alarm::Alarm;
use crate::ucore::now_ns;

/// The fewest slots of a queue: the words by which a local sleeper is woken lie in one that nothing travels through.
const SLOTS: u32 = nlx_bev_cqueue::MIN_SLOTS;

/// The timer is not set.
const NEVER: u64 = u64::MAX;

/// A waiter that sleeps elsewhere.
///
/// Its descriptor stands for three: the socket by which the helper tells of events, an eventfd by which this process does, and a
/// timer.
pub(crate) struct Lookout {
    epoll: Epoll,
    timer: TimerFd,
    state: Mutex<State>,
}

struct State {
    /// Told by the helper.
    events: Sleeper<SharedMemory>,
    /// Told by this process.
    news: Sleeper<Heap>,
    armed: bool,
    timer_ns: u64,
}

impl Lookout {
    /// Over the socket that the helper rings; `alarm` rings it too from now on.
    pub(crate) fn new(queue: SharedMemory, socket: OwnedFd, alarm: &Alarm) -> Result<Lookout, Errno> {
        let flags = OFlag::from_bits_retain(fcntl(&socket, FcntlArg::F_GETFL)?);
        fcntl(&socket, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        let (rings, bell) = eventfd().map_err(|error| error.errno())?;
        let memory = Heap::new(SLOTS).map_err(|error| error.errno())?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        epoll.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        alarm.set_elsewhere(Waker::descriptor(memory.clone(), rings));
        let news = Sleeper::descriptor(memory, bell).without_spin();
        let state = State { events: Sleeper::lookout(queue, socket), news, armed: false, timer_ns: NEVER };
        Ok(Lookout { epoll, timer, state: Mutex::new(state) })
    }

    /// Readable when the program should come back; of use while it is armed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Announces sleep, unless there is something to do: then it gives false, and nothing is armed.
    pub(crate) fn arm(&self, deadline_ns: Option<u64>, ready: impl FnOnce() -> bool) -> Result<bool, Errno> {
        let mut state = self.state.lock();
        self.end(&mut state);
        state.events.prepare_sleep();
        state.news.prepare_sleep();
        state.armed = true;
        point!(Armed);
        let late = deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns());
        let set = if late || ready() {
            Ok(false)
        } else {
            self.set_timer(&mut state, deadline_ns.unwrap_or(NEVER)).map(|()| true)
        };
        if set != Ok(true) {
            self.end(&mut state);
        }
        set
    }

    /// The program is back. False if nothing was armed.
    pub(crate) fn disarm(&self) -> bool {
        self.end(&mut self.state.lock())
    }

    fn end(&self, state: &mut State) -> bool {
        if !std::mem::replace(&mut state.armed, false) {
            return false;
        }
        // A socket whose other end the helper has closed stays readable: then the link has ended, and every wait with it.
        let _ = state.events.finish_sleep();
        let _ = state.news.finish_sleep();
        point!(Disarmed);
        if state.timer_ns != NEVER && state.timer_ns <= now_ns() {
            let _ = self.timer.unset();
            state.timer_ns = NEVER;
        }
        true
    }

    fn set_timer(&self, state: &mut State, next_ns: u64) -> Result<(), Errno> {
        if next_ns == state.timer_ns {
            return Ok(());
        }
        if next_ns == NEVER {
            self.timer.unset()?;
        } else {
            // A timer of 0 would never expire.
            let left = next_ns.saturating_sub(now_ns()).max(1);
            let left = TimeSpec::new((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64);
            self.timer.set(Expiration::OneShot(left), TimerSetTimeFlags::empty())?;
        }
        state.timer_ns = next_ns;
        Ok(())
    }
}
