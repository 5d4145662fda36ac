//! The interruption of a wait from another thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lnet_api::{Clock, Errno, Sleeper};
use lnet_region::ForkGuard;

use crate::Node;

/// Ends the wait of one thread from another, for example from the thread that handles the process's
/// signals.
///
/// ```
/// use lnet_node::{Interrupt, Node, NodeConfig};
///
/// let node = Node::start(&NodeConfig::new())?;
/// let interrupt = std::sync::Arc::new(Interrupt::new()?);
/// let other = interrupt.clone();
/// let thread = std::thread::spawn(move || other.raise());
/// assert!(node.wait(&interrupt, None), "this thread drives the node until the other has raised it");
/// # thread.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Interrupt {
    raised: AtomicBool,
    pub(crate) sleeper: Arc<Sleeper>,
}

impl Interrupt {
    /// Creates an interrupt that is not raised.
    ///
    /// # Errors
    /// EMFILE or ENFILE without descriptors.
    pub fn new() -> Result<Interrupt, Errno> {
        Ok(Interrupt { raised: AtomicBool::new(false), sleeper: Arc::new(Sleeper::new()?) })
    }

    /// Ends the current wait, and all later ones, until [`Interrupt::take`].
    pub fn raise(&self) {
        // SYNC interrupt.raised: a thread that finds it raised sees what the raising thread has
        // written before.
        self.raised.store(true, Ordering::Release);
        self.sleeper.wake();
    }

    /// Returns whether the interrupt has been raised, and not taken since.
    pub fn is_raised(&self) -> bool {
        // SYNC interrupt.raised
        self.raised.load(Ordering::Acquire)
    }

    /// Returns whether the interrupt was raised, and resets it.
    pub fn take(&self) -> bool {
        // SYNC interrupt.raised
        self.raised.swap(false, Ordering::AcqRel)
    }
}

impl Node {
    /// Drives the network in this thread until `interrupt` is raised (`true`) or the time is over
    /// (`false`). One thread at a time may wait with one interrupt.
    pub fn wait(&self, interrupt: &Interrupt, time: Option<Duration>) -> bool {
        let deadline_ns = time.map(|time| self.deadline_ns(time));
        self.driver().wait(&interrupt.sleeper, deadline_ns, || interrupt.is_raised())
    }

    /// Returns the end of a time limit that starts now, on the node's clock.
    pub(crate) fn deadline_ns(&self, time: Duration) -> u64 {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.driver().now_ns().saturating_add(time_ns)
    }
}

thread_local! {
    /// One sleeper per waiting thread, created once.
    static OWN: Cell<Option<(ForkGuard, Arc<Sleeper>)>> = const { Cell::new(None) };
}

/// Lends the calling thread's sleeper; a nested wait gets another one.
///
/// # Errors
/// EMFILE or ENFILE when there are no descriptors left.
pub(crate) fn with_sleeper<R>(wait: impl FnOnce(&Arc<Sleeper>) -> R) -> Result<R, Errno> {
    // A thread that is ending has no sleeper any more.
    let own = OWN.try_with(Cell::take).ok().flatten();
    // A sleeper from before a fork belongs to the parent process.
    let (fork_guard, sleeper) = match own.filter(|(fork_guard, _)| fork_guard.in_owner_process()) {
        Some(own) => own,
        None => (ForkGuard::here(), Arc::new(Sleeper::new()?)),
    };
    let result = wait(&sleeper);
    let _ = OWN.try_with(|own| own.set(Some((fork_guard, sleeper))));
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeConfig;

    #[test]
    fn it_stays_raised_until_it_is_taken() {
        let node = Node::start(&NodeConfig::new()).unwrap();
        let interrupt = Interrupt::new().unwrap();
        assert!(!node.wait(&interrupt, Some(Duration::from_millis(1))));
        interrupt.raise();
        assert!(node.wait(&interrupt, None) && node.wait(&interrupt, None));
        assert!(interrupt.take() && !interrupt.take());
        assert!(!node.wait(&interrupt, Some(Duration::ZERO)));
    }
}
