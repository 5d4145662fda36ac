//! Waking a consumer that sleeps, and only then.
//!
//! A word in the queue's memory says whether the consumer sleeps. While it is awake neither side makes a system call: the
//! producer looks at the word after each event (or batch of events) and finds it zero.
//!
//! | consumer ([`Sleeper`]) | producer ([`Waker`]) |
//! | --- | --- |
//! | 1. set the word | 1. push the event |
//! | 2. full fence | 2. full fence |
//! | 3. look at the queue; if there is an event, take the word back | 3. look at the word; if it is set, clear it |
//! | 4. else sleep until the signal | 4. and if it was this waker that cleared it, signal |
//!
//! The fences stand in one order. If the producer's is first, the consumer sees the event in step 3; else the producer
//! sees the word. So no wake-up is lost; one too many can happen, and the consumer then finds its queue empty.
//!
//! | bell | the consumer sleeps in | for |
//! | --- | --- | --- |
//! | futex | `futex` | a consumer that waits for nothing else; needs no descriptor |
//! | [`eventfd`] | `ppoll`, with descriptors of its own | halves that trust each other |
//! | [`pipe`] | the same | a producer that does not trust its consumer |
//!
//! Both ends of an eventfd are one open file: the consumer's process could make it block, fill it, and so stop the
//! producer in its `write`. A pipe's ends are two, and the producer's stays non-blocking whatever the other process does.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::WakeLine;
use crate::sync::SLEEP;

#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod futex;

#[cfg(not(loom))]
pub use bell::{Sleeper, Wake, Waker, eventfd, pipe};

/// The value of the word while the consumer sleeps or is about to.
pub(crate) const SLEEPING: u32 = 1;

impl WakeLine {
    /// The consumer: "I am going to sleep". To be followed by a look at the queue.
    pub(crate) fn announce(&self) {
        // A swap rather than a store, so that all changes of the word form one chain: a waker that was overtaken cannot
        // clear a later announcement without having read it. (Processors see to that anyway; loom only for swaps.)
        self.sleeping.swap(SLEEPING, Relaxed);
        // SYNC bevq.sleep: with WakeLine::claim.
        SLEEP.fence();
    }

    /// The consumer: "I am awake". Whether somebody has signalled, or is about to, because of the announcement.
    pub(crate) fn withdraw(&self) -> bool {
        self.sleeping.swap(0, Relaxed) == 0
    }

    /// A producer that has pushed: whether it is the one that must signal now.
    ///
    /// The event reaches the consumer by `bevq.put`; the word carries nothing, so its accesses are relaxed.
    #[inline]
    pub(crate) fn claim(&self) -> bool {
        // SYNC bevq.sleep: with WakeLine::announce.
        SLEEP.fence();
        self.sleeping.load(Relaxed) != 0 && self.sleeping.swap(0, Relaxed) != 0
    }
}
