use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::unistd::{pipe2, read, write};

use crate::error::Error;
use crate::layout::WakeLine;
use crate::memory::Memory;
use crate::wake::futex;

/// What is written to a bell: the number that an eventfd takes. A pipe takes the same eight bytes, whole or not at all.
const SIGNAL: [u8; 8] = 1u64.to_ne_bytes();

/// How many signals a sleeper clears at once. One is the rule; a second may come late from a waker that was overtaken.
const CLEARED_AT_ONCE: usize = 8;

/// Makes an eventfd as a bell: the waker's descriptor and the sleeper's.
///
/// For halves that trust each other; see [the module](crate::wake).
///
/// # Errors
///
/// [`Error::System`] when there are no more descriptors.
pub fn eventfd() -> Result<(OwnedFd, OwnedFd), Error> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let bell: OwnedFd = EventFd::from_value_and_flags(0, flags).map_err(Error::system("eventfd"))?.into();
    let other = bell.try_clone().map_err(Error::io("fcntl"))?;
    Ok((bell, other))
}

/// Makes a pipe as a bell: the waker's descriptor, which is the end to write to, and the sleeper's.
///
/// For a waker that does not trust the sleeper; see [the module](crate::wake). A program in which `SIGPIPE` is not
/// ignored, as Rust programs do, dies when it rings for a sleeper that is gone.
///
/// # Errors
///
/// [`Error::System`] when there are no more descriptors.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let (reads, writes) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(Error::system("pipe2"))?;
    Ok((writes, reads))
}

/// How one side reaches the other.
#[derive(Debug)]
enum Bell {
    Futex,
    Descriptor(OwnedFd),
}

/// The producer's side: wakes the consumer if it sleeps.
///
/// Several wakers, in several threads, may share one word; a waker may also be used for news other than events, if the
/// sleeper looks for that news between announcing and sleeping.
///
/// # Examples
///
/// ```
/// use nlx_bev_cqueue::{Heap, Consumer, Producer};
/// use nlx_bev_cqueue::wake::{Sleeper, Wake, Waker};
///
/// let memory = Heap::new(8)?;
/// let (waker, mut sleeper) = (Waker::futex(memory.clone()), Sleeper::futex(memory.clone()));
/// let (mut producer, mut consumer) = (Producer::new(memory.clone())?, Consumer::new(memory)?);
///
/// let thread = std::thread::spawn(move || {
///     producer.push(10)?;
///     waker.wake()?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// });
/// while consumer.is_empty() {
///     sleeper.sleep(None, || !consumer.is_empty())?;
/// }
/// assert_eq!(consumer.pop(), Ok(10));
/// # thread.join().unwrap().unwrap();
/// # Ok::<(), nlx_bev_cqueue::Error>(())
/// ```
#[derive(Debug)]
pub struct Waker<M> {
    memory: M,
    bell: Bell,
}

impl<M: Memory> Waker<M> {
    /// For a sleeper that sleeps on the futex in `memory`.
    pub fn futex(memory: M) -> Self {
        Waker { memory, bell: Bell::Futex }
    }

    /// For a sleeper that sleeps on the other descriptor of [`eventfd`] or [`pipe`].
    pub fn descriptor(memory: M, bell: OwnedFd) -> Self {
        Waker { memory, bell: Bell::Descriptor(bell) }
    }

    /// Wakes the consumer if it sleeps or is about to; to be called after [`push`](crate::Producer::push). Says whether
    /// it did. Makes no system call otherwise, and never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell. It is no error that the sleeper is gone.
    #[inline]
    pub fn wake(&self) -> Result<bool, Error> {
        if !self.memory.header().wake.claim() {
            return Ok(false);
        }
        self.ring().map(|()| true)
    }

    #[cold]
    fn ring(&self) -> Result<(), Error> {
        match &self.bell {
            Bell::Futex => futex::wake(&self.memory.header().wake.sleeping),
            Bell::Descriptor(bell) => ring(bell),
        }
    }
}

/// Why [`Sleeper::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There was something to do; it did not sleep at all.
    Ready,
    /// A waker has signalled. Once in a while there is nothing to do all the same.
    Signalled,
    /// The deadline has passed.
    TimedOut,
}

/// The consumer's side: sleeps until a waker signals.
///
/// There is one for each queue.
#[derive(Debug)]
pub struct Sleeper<M> {
    memory: M,
    bell: Bell,
}

impl<M: Memory> Sleeper<M> {
    /// Sleeps on the futex in `memory`.
    pub fn futex(memory: M) -> Self {
        Sleeper { memory, bell: Bell::Futex }
    }

    /// Sleeps on the second descriptor of [`eventfd`] or [`pipe`].
    pub fn descriptor(memory: M, bell: OwnedFd) -> Self {
        Sleeper { memory, bell: Bell::Descriptor(bell) }
    }

    /// Sleeps until a waker signals or `deadline` (of the monotonic clock) has passed; not at all if `is_ready` finds
    /// something to do. `is_ready` is called once, after sleep has been announced.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell.
    pub fn sleep(
        &mut self,
        deadline: Option<Instant>,
        is_ready: impl FnOnce() -> bool,
    ) -> Result<Wake, Error> {
        self.prepare_sleep();
        if is_ready() {
            self.cancel_sleep()?;
            return Ok(Wake::Ready);
        }
        let slept = self.wait(deadline);
        self.finish_sleep()?;
        slept
    }

    /// Announces sleep, for a caller that sleeps in its own `poll` on the [`bell`](Sleeper::bell) and other descriptors.
    ///
    /// It must then look once more for something to do, and either sleep and call
    /// [`finish_sleep`](Sleeper::finish_sleep), or not sleep and call [`cancel_sleep`](Sleeper::cancel_sleep).
    pub fn prepare_sleep(&mut self) {
        self.line().announce();
    }

    /// Takes the announcement back, because there is something to do. Makes a system call only if a waker has signalled.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell.
    pub fn cancel_sleep(&mut self) -> Result<(), Error> {
        if self.line().withdraw() { self.silence() } else { Ok(()) }
    }

    /// Takes the announcement back after sleep, whatever ended it, and silences the bell.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell.
    pub fn finish_sleep(&mut self) -> Result<(), Error> {
        self.line().withdraw();
        // Whether or not this announcement was answered: the signal may be a late answer to one before, and would end
        // every sleep from now on.
        self.silence()
    }

    /// The descriptor to wait on, readable once a waker has signalled; none for a futex.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        match &self.bell {
            Bell::Futex => None,
            Bell::Descriptor(bell) => Some(bell.as_fd()),
        }
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<Wake, Error> {
        match &self.bell {
            Bell::Futex => futex::wait(&self.line().sleeping, super::SLEEPING, deadline),
            Bell::Descriptor(bell) => wait_readable(bell, deadline),
        }
    }

    fn silence(&self) -> Result<(), Error> {
        match &self.bell {
            Bell::Futex => Ok(()),
            Bell::Descriptor(bell) => silence(bell),
        }
    }

    fn line(&self) -> &WakeLine {
        &self.memory.header().wake
    }
}

/// The time left until `deadline`, for calls that take it; none for ever.
pub(crate) fn time_left(deadline: Option<Instant>) -> Option<TimeSpec> {
    /// Longer than any machine runs, and small enough for every form of time: a hundred years.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    deadline.map(|at| at.saturating_duration_since(Instant::now()).min(LONGEST).into())
}

fn ring(bell: &OwnedFd) -> Result<(), Error> {
    loop {
        match write(bell, &SIGNAL) {
            Err(Errno::EINTR) => {}
            // Full of signals that nobody has cleared: it rings already. Or nobody is there to hear it.
            Ok(_) | Err(Errno::EAGAIN | Errno::EPIPE) => return Ok(()),
            Err(errno) => return Err(Error::System { call: "write", errno }),
        }
    }
}

fn silence(bell: &OwnedFd) -> Result<(), Error> {
    let mut signals = [0; SIGNAL.len() * CLEARED_AT_ONCE];
    loop {
        match read(bell, &mut signals) {
            Err(Errno::EINTR) => {}
            // Silent. If the waker stands between claiming the word and ringing, the next sleep will be short.
            Ok(_) | Err(Errno::EAGAIN) => return Ok(()),
            Err(errno) => return Err(Error::System { call: "read", errno }),
        }
    }
}

fn wait_readable(bell: &OwnedFd, deadline: Option<Instant>) -> Result<Wake, Error> {
    loop {
        let mut bells = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut bells, time_left(deadline), None) {
            Err(Errno::EINTR) => {}
            Ok(0) => return Ok(Wake::TimedOut),
            Ok(_) => return Ok(Wake::Signalled),
            Err(errno) => return Err(Error::System { call: "ppoll", errno }),
        }
    }
}
