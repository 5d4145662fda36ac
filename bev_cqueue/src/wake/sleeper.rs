use core::time::Duration;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use crate::error::Error;
use crate::layout::{Line, WakeLine};
use crate::memory::Memory;
use crate::wake::bell::{Bell, Slept};
use crate::wake::clock::Until;
use crate::wake::spin::Spin;

/// The longest that an event waits for a producer that was killed, or stopped, between pushing it and signalling: what a
/// person hardly notices, and a look in a second costs nothing.
const NAP: Duration = Duration::from_secs(1);

/// Why [`Sleeper::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There was something to do, and nobody had to signal it.
    Ready,
    /// A waker has signalled. Once in a while there is nothing to do all the same.
    Signalled,
    /// The deadline has passed.
    TimedOut,
}

/// The consumer's side: sleeps until a waker signals.
///
/// There is one for each queue. It looks for a while before it sleeps, see [the module](crate::wake#before-sleeping): the
/// first that a process makes measures for how long that pays, which takes a thread and some sleeps of microseconds.
#[derive(Debug)]
pub struct Sleeper<M> {
    memory: M,
    bell: Bell,
    line: Line,
    spin: Spin,
}

impl<M: Memory> Sleeper<M> {
    /// Sleeps on the futex in `memory`.
    pub fn futex(memory: M) -> Self {
        Sleeper { memory, bell: Bell::Futex, line: Line::Thread, spin: Spin::measured() }
    }

    /// Sleeps on the second descriptor of [`eventfd`](super::eventfd).
    pub fn descriptor(memory: M, bell: OwnedFd) -> Self {
        Sleeper { memory, bell: Bell::Descriptor(bell), line: Line::Thread, spin: Spin::measured() }
    }

    /// A second sleeper of the queue, for an event loop that sleeps on this descriptor (the second of
    /// [`socket_pair`](super::socket_pair)) among others, while a thread may sleep as the first one. It has a word of its own to announce that with, and does not spin.
    pub fn lookout(memory: M, bell: OwnedFd) -> Self {
        Sleeper { memory, bell: Bell::Descriptor(bell), line: Line::Loop, spin: Spin::never() }
    }

    /// The producer, when it waits until the consumer has taken what stands in the queue ([`taken`](crate::taken)): it sleeps
    /// on the futex of the second word. So the queue has this sleeper or a [`lookout`](Sleeper::lookout), not both. It does not
    /// spin.
    pub fn of_producer(memory: M) -> Self {
        Sleeper { memory, bell: Bell::Futex, line: Line::Loop, spin: Spin::never() }
    }

    /// The same sleeper, which sleeps at once: for a thread whose processor others have better use for.
    pub fn without_spin(self) -> Self {
        Sleeper { spin: Spin::never(), ..self }
    }

    /// Sleeps until a waker signals or `deadline` (of the monotonic clock) has passed; not at all if `is_ready` finds
    /// something to do. `is_ready` is called often while it spins, once after sleep has been announced, and once in a
    /// second of sleep. Signals (of the kind that interrupts system calls) do not end sleep.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell.
    pub fn sleep(
        &mut self,
        deadline: Option<Instant>,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Wake, Error> {
        if self.spin(deadline, &mut is_ready) {
            return Ok(Wake::Ready);
        }
        let deadline = deadline.map(Until::at).transpose()?;
        loop {
            self.prepare_sleep();
            point!(SleepAnnounced);
            if is_ready() {
                self.cancel_sleep()?;
                return Ok(Wake::Ready);
            }
            point!(SleepDue);
            let nap = Until::after(NAP)?;
            let last = deadline.filter(|deadline| *deadline <= nap);
            let slept = self.bell.wait(self.line(), last.unwrap_or(nap));
            point!(SleepOver);
            self.finish_sleep()?;
            match slept? {
                Slept::Signalled => return Ok(Wake::Signalled),
                Slept::TimedOut if last.is_some() => return Ok(Wake::TimedOut),
                Slept::TimedOut => {}
            }
        }
    }

    /// Looks for something to do for as long as it pays, see [the module](crate::wake#before-sleeping), but not beyond
    /// `deadline`. Whether `is_ready` has found something.
    ///
    /// [`sleep`](Sleeper::sleep) does so itself; this is for a caller that sleeps in its own `poll`.
    pub fn spin(&mut self, deadline: Option<Instant>, is_ready: impl FnMut() -> bool) -> bool {
        self.spin.look(deadline, is_ready)
    }

    /// Announces sleep, for a caller that sleeps in its own `poll` on the [`bell`](Sleeper::bell) and other descriptors.
    ///
    /// It must then look once more for something to do, and either sleep and call
    /// [`finish_sleep`](Sleeper::finish_sleep), or not sleep and call [`cancel_sleep`](Sleeper::cancel_sleep).
    pub fn prepare_sleep(&mut self) {
        self.spin.begin_sleep();
        self.line().announce();
    }

    /// Takes the announcement back, because there is something to do. Makes a system call only if a waker has signalled.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell.
    pub fn cancel_sleep(&mut self) -> Result<(), Error> {
        if self.line().withdraw() { self.bell.silence() } else { Ok(()) }
    }

    /// Takes the announcement back after sleep, whatever ended it, and silences the bell.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell.
    pub fn finish_sleep(&mut self) -> Result<(), Error> {
        self.spin.end_sleep();
        self.line().withdraw();
        // Whether or not this announcement was answered: the signal may be a late answer to one before, and would end
        // every sleep from now on.
        self.bell.silence()
    }

    /// The descriptor to wait on, readable once a waker has signalled; none for a futex.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.descriptor()
    }

    fn line(&self) -> &WakeLine {
        self.memory.header().line(self.line)
    }
}
