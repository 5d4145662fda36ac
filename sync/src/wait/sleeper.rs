use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::SleepWord;
use super::bell::Bell;
use super::spin::{Spin, SpinWait};
use crate::plain::{AtomicU64, Ordering};

/// The maximum delay of an event whose waker was killed or stopped between publishing and
/// signalling. A user hardly notices a second, and one check a second costs nothing.
const NAP: Duration = Duration::from_secs(1);

/// The reason why [`Sleeper::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The sleeper found work without a signal.
    Ready,
    /// A waker has signalled. There may be no work, though.
    Signalled,
    /// The deadline has passed.
    TimedOut,
}

/// The event that ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(loom, expect(dead_code, reason = "time does not pass in a model"))]
pub(super) enum Slept {
    Signalled,
    TimedOut,
}

/// The waker's side: wakes the sleeper of a word if it sleeps.
///
/// Several wakers, in several threads and processes, may share one word. The sleeper must check for
/// work between announcing and sleeping.
#[derive(Debug)]
pub struct Waker<W> {
    word: W,
    /// The bell to ring; `None` if the sleeper sleeps on the futex of the word.
    bell: Option<Bell>,
}

/// A word whose sleeper may sleep on its futex, such as one in memory that processes share. The
/// word of a process-local [`Sleeper`] does not implement this: that sleeper also sleeps in a poll
/// with other descriptors, which a futex wake does not end.
pub trait FutexWord: AsRef<SleepWord> {}

impl<W: FutexWord> Waker<W> {
    /// Creates the waker of a sleeper that sleeps on the futex of the word.
    pub fn futex(word: W) -> Waker<W> {
        Waker { word, bell: None }
    }
}

impl<W: AsRef<SleepWord>> Waker<W> {
    /// Creates the waker of a sleeper that sleeps on the bell's other end.
    pub fn ringing(word: W, bell: Bell) -> Waker<W> {
        Waker { word, bell: Some(bell) }
    }

    /// Wakes the sleeper if it sleeps or is about to; returns whether it did so. Must be called
    /// after the data was published. Makes no system call if the sleeper is awake, and never
    /// blocks.
    ///
    /// # Errors
    ///
    /// When the descriptor is not a bell: EBADF, EINVAL, ENOTSOCK; when the system has no memory
    /// for a signal: ENOMEM, ENOBUFS. After such a failure sleep stays announced, and the next call
    /// tries again. A closed sleeper's end is not an error.
    #[inline]
    pub fn wake(&self) -> Result<bool, Errno> {
        point!(WakeDue);
        if !self.word.as_ref().claim() {
            return Ok(false);
        }
        match self.ring() {
            Ok(()) => Ok(true),
            Err(errno) => {
                self.word.as_ref().announce();
                Err(errno)
            }
        }
    }

    #[cold]
    fn ring(&self) -> Result<(), Errno> {
        point!(WakeClaimed);
        match &self.bell {
            Some(bell) => bell.ring()?,
            None => self.word.as_ref().futex_wake()?,
        }
        point!(WakeRung);
        Ok(())
    }
}

/// The sleeper's side: sleeps until a waker signals. Only one thread at a time may use it.
#[derive(Debug)]
pub struct Sleeper<W = SleepWord> {
    waker: Waker<W>,
    /// Announcements that wakers claimed and whose signals have not been read yet. Only the
    /// sleeping thread uses it.
    unread_signals: AtomicU64,
    memo: AtomicU64,
    spin: Spin,
}

impl Sleeper {
    /// Creates a process-local sleeper with a new word and a new eventfd.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<Sleeper, Errno> {
        Ok(Sleeper::ringing(SleepWord::new(), Bell::new()?))
    }

    /// Wakes the sleeper if it has announced sleep; makes no system call otherwise.
    #[inline]
    pub fn wake(&self) {
        // This cannot fail, because this sleeper made the bell.
        let _ = self.waker.wake();
    }
}

impl<W: FutexWord> Sleeper<W> {
    /// Creates a sleeper that sleeps on the futex of the word.
    pub fn futex(word: W) -> Sleeper<W> {
        Sleeper::of(Waker::futex(word))
    }
}

impl<W: AsRef<SleepWord>> Sleeper<W> {
    /// Creates a sleeper that sleeps on a bell, in [`Sleeper::sleep`] or in the caller's `poll`.
    pub fn ringing(word: W, bell: Bell) -> Sleeper<W> {
        Sleeper::of(Waker::ringing(word, bell))
    }

    fn of(waker: Waker<W>) -> Sleeper<W> {
        Sleeper { waker, unread_signals: AtomicU64::new(0), memo: AtomicU64::new(0), spin: Spin::default() }
    }

    /// Returns the sleeper with adaptive [spinning](crate::wait#spinning-before-sleep) for up to
    /// `limit` before each sleep.
    pub fn spinning(self, limit: Duration) -> Sleeper<W> {
        self.spin_for(limit);
        self
    }

    /// Sets the spin limit, from the next wait on. Zero turns spinning off; the maximum is
    /// [`MAX_SPIN`](crate::MAX_SPIN).
    pub fn spin_for(&self, limit: Duration) {
        self.spin.set(limit);
    }

    /// Returns the spin limit in force; zero if spinning is off.
    pub fn spin_limit(&self) -> Duration {
        self.spin.limit()
    }

    /// Returns a word that the caller keeps from one wait to the next; 0 at first. The sleeper does
    /// not interpret it.
    pub fn memo(&self) -> u64 {
        self.memo.load(Ordering::Relaxed)
    }

    /// Sets the word of [`Sleeper::memo`].
    pub fn set_memo(&self, memo: u64) {
        self.memo.store(memo, Ordering::Relaxed);
    }

    /// Makes the sleeper spin on an overcommitted machine, too; see [`Spin::ignore_load`].
    #[doc(hidden)]
    pub fn ignore_load(&self) {
        self.spin.ignore_load();
    }

    /// Starts a wait whose caller polls and sleeps by other means than [`Sleeper::sleep`].
    pub fn spin_wait(&self) -> SpinWait<'_> {
        self.spin.wait()
    }

    /// Sleeps until a waker signals or `deadline` (of the monotonic clock) has passed; does not
    /// sleep if `is_ready` returns true. `is_ready` is called often during the spin, once after
    /// sleep has been announced, and once per second of sleep. Signals (of the kind that interrupts
    /// system calls) do not end the sleep.
    ///
    /// # Errors
    ///
    /// When the descriptor is not a bell: EBADF, EINVAL.
    pub fn sleep(
        &self,
        deadline: Option<Instant>,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Wake, Errno> {
        let mut spinning = self.spin_wait();
        if spinning.until(deadline, &mut is_ready) {
            return Ok(Wake::Ready);
        }
        let deadline = deadline.map(Until::at).transpose()?;
        loop {
            self.prepare();
            point!(SleepAnnounced);
            if is_ready() {
                spinning.event();
                self.finish();
                return Ok(Wake::Ready);
            }
            point!(SleepDue);
            let nap = Until::after(NAP)?;
            let last = deadline.filter(|deadline| *deadline <= nap);
            let slept = match &self.waker.bell {
                Some(bell) => bell.wait(last.unwrap_or(nap)),
                None => self.word().futex_wait(last.unwrap_or(nap)),
            };
            point!(SleepOver);
            spinning.slept();
            match slept {
                Ok(Slept::Signalled) => {
                    spinning.event();
                    return self.finish_rung().map(|()| Wake::Signalled);
                }
                Ok(Slept::TimedOut) if last.is_some() => {
                    spinning.event();
                    self.finish();
                    return Ok(Wake::TimedOut);
                }
                Ok(Slept::TimedOut) => self.finish(),
                Err(errno) => {
                    self.finish();
                    return Err(errno);
                }
            }
        }
    }

    /// Announces sleep, for a caller that sleeps in a `poll` on the [descriptor](Sleeper::fd) and
    /// others. This is a full barrier.
    ///
    /// The caller must then check once more for work, sleep if there is none, and call
    /// [`finish`](Sleeper::finish) in both cases: so no wake-up is lost.
    pub fn prepare(&self) {
        self.word().announce();
    }

    /// Takes the announcement back, after a sleep or instead of one, and reads the signals of
    /// wakers that claimed it. Makes a system call only if a waker did.
    ///
    /// A waker that claimed the announcement may not have signalled yet: then its signal ends a
    /// later sleep early, and is read after that sleep.
    pub fn finish(&self) {
        // An error means that the descriptor is not a bell; it is ignored here, because `sleep`
        // returns it.
        let _ = self.end(false);
    }

    /// Ends a sleep as [`finish`](Sleeper::finish) does, after the descriptor was seen readable:
    /// reads it even if no waker claimed the announcement, for a bell that another party rings
    /// without reading the word.
    ///
    /// # Errors
    ///
    /// When the descriptor is not a bell: EBADF, EINVAL.
    pub fn finish_rung(&self) -> Result<(), Errno> {
        self.end(true)
    }

    fn end(&self, is_rung: bool) -> Result<(), Errno> {
        let claimed = self.word().withdraw();
        let Some(bell) = &self.waker.bell else { return Ok(()) };
        let unread_signals = self.unread_signals.load(Ordering::Relaxed) + u64::from(claimed);
        if unread_signals > 0 || is_rung {
            let read = bell.silence();
            self.unread_signals
                .store(unread_signals.saturating_sub(*read.as_ref().unwrap_or(&0)), Ordering::Relaxed);
            read?;
        }
        Ok(())
    }

    /// Returns the descriptor to wait on, readable once a waker has signalled; `None` with a futex.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.waker.bell.as_ref().map(Bell::as_fd)
    }

    pub(super) fn word(&self) -> &SleepWord {
        self.waker.word.as_ref()
    }
}

/// The longest time to sleep: a hundred years, longer than any machine runs, and short enough for
/// every time format.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A point in time of the monotonic clock. It is absolute, so that an interrupted sleep continues
/// to the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Until(Duration);

#[cfg_attr(loom, expect(dead_code, reason = "time does not pass in a model"))]
impl Until {
    /// Returns the time `duration` from now.
    pub(super) fn after(duration: Duration) -> Result<Until, Errno> {
        Ok(Until(now()? + duration.min(LONGEST)))
    }

    /// Returns the time of an [`Instant`].
    pub(super) fn at(instant: Instant) -> Result<Until, Errno> {
        Until::after(instant.saturating_duration_since(Instant::now()))
    }

    /// Returns the deadline for calls that take an absolute time.
    pub(super) fn absolute(self) -> TimeSpec {
        self.0.into()
    }

    /// Returns the remaining time for calls that take a duration from now.
    pub(super) fn left(self) -> Result<TimeSpec, Errno> {
        Ok(self.0.saturating_sub(now()?).into())
    }
}

fn now() -> Result<Duration, Errno> {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(sleeper: &Sleeper) -> bool {
        let mut set = [PollFd::new(sleeper.fd().unwrap(), PollFlags::POLLIN)];
        poll(&mut set, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn only_a_sleeper_is_signalled() {
        let sleeper = Sleeper::new().unwrap();
        sleeper.wake();
        assert!(!is_readable(&sleeper), "it was awake");
        sleeper.prepare();
        sleeper.wake();
        sleeper.wake();
        assert!(is_readable(&sleeper));
        sleeper.finish();
        assert!(!is_readable(&sleeper), "the wake-up is used up");
    }

    #[test]
    fn a_late_signal_is_read_after_the_sleep_that_it_ended() {
        let sleeper = Sleeper::new().unwrap();
        sleeper.prepare();
        // A waker claims the announcement, and is stopped before it signals.
        assert!(sleeper.word().claim());
        sleeper.finish();
        sleeper.prepare();
        sleeper.waker.ring().unwrap();
        assert!(is_readable(&sleeper));
        sleeper.finish();
        assert!(!is_readable(&sleeper));
    }

    #[test]
    fn a_bell_that_rings_for_no_announcement_ends_one_sleep() {
        for (theirs, ours) in
            [Bell::socket_pair().unwrap(), Bell::new().map(|bell| (bell.try_clone().unwrap(), bell)).unwrap()]
        {
            let sleeper = Sleeper::ringing(SleepWord::new(), ours);
            theirs.ring().unwrap();
            assert_eq!(sleeper.sleep(None, || false), Ok(Wake::Signalled));
            assert_eq!(sleeper.sleep(Some(Instant::now()), || false), Ok(Wake::TimedOut));
        }
    }

    #[test]
    fn a_descriptor_that_is_no_bell_is_an_error() {
        let not_a_bell = std::fs::File::open("/").unwrap();
        let sleeper = Sleeper::ringing(SleepWord::new(), Bell::eventfd(not_a_bell.into()));
        assert_eq!(sleeper.sleep(None, || false), Err(Errno::EISDIR));
    }
}
