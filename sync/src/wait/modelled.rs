//! Replacements for the kernel's wait queue and descriptors in loom models. If a wake-up is lost,
//! the sleeper stays blocked, and loom reports the deadlock.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};

use loom::sync::{Condvar, Mutex};
use nix::errno::Errno;

use super::sleeper::{Slept, Until};
use super::{SLEEPING, SleepWord};
use crate::Ordering;

/// A counter of signals, which replaces a descriptor. A model whose threads sleep on more than a
/// bell implements this trait.
pub trait SignalCounter: Debug + Send + Sync {
    /// Adds one signal, and wakes the sleeper.
    fn ring(&self);
    /// Takes all signals and returns their number.
    fn read(&self) -> u64;
    /// Blocks until there is a signal, without taking it.
    fn wait(&self);
}

/// The default implementation of [`SignalCounter`]: a counter with a condition variable.
#[derive(Debug, Default)]
struct Counter {
    count: Mutex<u64>,
    changed: Condvar,
}

impl SignalCounter for Counter {
    fn ring(&self) {
        *self.count.lock().unwrap_or_else(|error| error.into_inner()) += 1;
        self.changed.notify_one();
    }

    fn read(&self) -> u64 {
        std::mem::take(&mut *self.count.lock().unwrap_or_else(|error| error.into_inner()))
    }

    fn wait(&self) {
        let mut count = self.count.lock().unwrap_or_else(|error| error.into_inner());
        while *count == 0 {
            count = self.changed.wait(count).unwrap_or_else(|error| error.into_inner());
        }
    }
}

/// The bell of a model.
#[derive(Clone, Debug)]
pub struct Bell(std::sync::Arc<dyn SignalCounter>);

impl Bell {
    /// Creates a bell without signals.
    ///
    /// # Errors
    ///
    /// None in a model.
    pub fn new() -> Result<Bell, Errno> {
        Ok(Bell::over(Counter::default()))
    }

    /// Creates a bell over the signals of a model.
    pub fn over(signals: impl SignalCounter + 'static) -> Bell {
        Bell(std::sync::Arc::new(signals))
    }

    /// Makes the bell readable.
    ///
    /// # Errors
    ///
    /// None in a model.
    pub fn ring(&self) -> Result<(), Errno> {
        self.0.ring();
        Ok(())
    }

    /// Takes the pending signals and returns their number.
    ///
    /// # Errors
    ///
    /// None in a model.
    pub fn silence(&self) -> Result<u64, Errno> {
        Ok(self.0.read())
    }

    pub(super) fn wait(&self, _: Until) -> Result<Slept, Errno> {
        self.0.wait();
        Ok(Slept::Signalled)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("a model has no descriptors")
    }
}

/// The threads that sleep on a word: replaces the kernel's wait queue.
#[derive(Debug, Default)]
pub(super) struct Futex {
    lock: Mutex<()>,
    changed: Condvar,
}

impl SleepWord {
    pub(super) fn futex_wait(&self, _: Until) -> Result<Slept, Errno> {
        let mut locked = self.futex.lock.lock().unwrap_or_else(|error| error.into_inner());
        while self.sleeping.load(Ordering::Relaxed) == SLEEPING {
            locked = self.futex.changed.wait(locked).unwrap_or_else(|error| error.into_inner());
        }
        Ok(Slept::Signalled)
    }

    pub(super) fn futex_wake(&self) -> Result<(), Errno> {
        drop(self.futex.lock.lock());
        self.futex.changed.notify_one();
        Ok(())
    }
}
