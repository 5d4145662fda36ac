use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::OwnedFd;

use crate::error::Error;
use crate::layout::Line;
use crate::memory::Memory;
use crate::wake::bell::Bell;

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
    line: Line,
}

impl<M: Memory> Waker<M> {
    /// For a sleeper that sleeps on the futex in `memory`.
    pub fn futex(memory: M) -> Self {
        Waker { memory, bell: Bell::Futex, line: Line::Thread }
    }

    /// For a sleeper that sleeps on the other descriptor of [`eventfd`](super::eventfd).
    pub fn descriptor(memory: M, bell: OwnedFd) -> Self {
        Waker { memory, bell: Bell::Descriptor(bell), line: Line::Thread }
    }

    /// For the sleeper that [`Sleeper::lookout`](super::Sleeper::lookout) makes over the second descriptor of
    /// [`socket_pair`](super::socket_pair), of which this is the first.
    pub fn lookout(memory: M, bell: OwnedFd) -> Self {
        Waker { memory, bell: Bell::Socket(bell), line: Line::Loop }
    }

    /// For the sleeper that [`Sleeper::of_producer`](super::Sleeper::of_producer) makes: to be used after events have been taken
    /// and their slots given back.
    pub fn of_consumer(memory: M) -> Self {
        Waker { memory, bell: Bell::Futex, line: Line::Loop }
    }

    /// Wakes the consumer if it sleeps or is about to; to be called after [`push`](crate::Producer::push). Says whether
    /// it did. Makes no system call otherwise, and never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the descriptor is not a bell. It is no error that the sleeper is gone.
    #[inline]
    pub fn wake(&self) -> Result<bool, Error> {
        point!(WakeDue);
        if !self.memory.header().line(self.line).claim() {
            return Ok(false);
        }
        self.ring().map(|()| true)
    }

    /// Tells the consumer a number that only grows, as [`Producer::tell`](crate::Producer::tell) does: for those that are not
    /// the producer, several at a time if need be. Of all that were told the greatest stays.
    pub fn tell(&self, word: u64) {
        // Nothing hangs on its order but itself.
        self.memory.header().producer.word.fetch_max(word, Relaxed);
    }

    #[cold]
    fn ring(&self) -> Result<(), Error> {
        point!(WakeClaimed);
        self.bell.ring(self.memory.header().line(self.line))?;
        point!(WakeRung);
        Ok(())
    }
}
