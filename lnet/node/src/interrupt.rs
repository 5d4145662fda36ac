use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lnet_api::{Clock, Errno, Sleeper};
use lnet_region::ForkGuard;

use crate::Node;

/// Ends the waiting of one thread from another: from that which takes the process's signals, say.
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
    /// One that has not been raised.
    ///
    /// # Errors
    /// EMFILE or ENFILE without descriptors.
    pub fn new() -> Result<Interrupt, Errno> {
        Ok(Interrupt { raised: AtomicBool::new(false), sleeper: Arc::new(Sleeper::new()?) })
    }

    /// Ends the wait that is under way, and those to come, until [`Interrupt::take`].
    pub fn raise(&self) {
        // SYNC interrupt.raised: what the raising thread has written before is seen by whoever finds it raised.
        self.raised.store(true, Ordering::Release);
        self.sleeper.wake();
    }

    /// Whether it has been raised.
    pub fn is_raised(&self) -> bool {
        // SYNC interrupt.raised
        self.raised.load(Ordering::Acquire)
    }

    /// Whether it has been raised; it is not any more.
    pub fn take(&self) -> bool {
        // SYNC interrupt.raised
        self.raised.swap(false, Ordering::AcqRel)
    }
}

impl Node {
    /// Drives the network in this thread until `interrupt` is raised (`true`) or the time is over (`false`). One thread at
    /// a time may wait with one interrupt.
    pub fn wait(&self, interrupt: &Interrupt, time: Option<Duration>) -> bool {
        let deadline_ns = time.map(|time| self.deadline_ns(time));
        self.driver().wait(&interrupt.sleeper, deadline_ns, || interrupt.is_raised())
    }

    /// When so much time is over, on the node's clock.
    pub(crate) fn deadline_ns(&self, time: Duration) -> u64 {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.driver().now_ns().saturating_add(time_ns)
    }
}

thread_local! {
    /// A sleeper for each thread that waits, made once.
    static OWN: Cell<Option<(ForkGuard, Arc<Sleeper>)>> = const { Cell::new(None) };
}

/// Lends the calling thread's sleeper; a wait within a wait gets another.
///
/// # Errors
/// EMFILE or ENFILE when there are no descriptors left.
pub(crate) fn with_sleeper<R>(wait: impl FnOnce(&Arc<Sleeper>) -> R) -> Result<R, Errno> {
    // A thread that is ending has none.
    let own = OWN.try_with(Cell::take).ok().flatten();
    // That of the thread which forked this process is the parent's still.
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
