//! Waking a consumer that sleeps, and only then.
//!
//! The queue is its own event counter: an event's number stands in its slot, and a consumer looks for it there. What is
//! missing to sleep on it is one word in the queue's memory that says whether the consumer sleeps. While it is awake neither
//! side makes a system call: the producer looks at the word after each event (or batch of events) and finds it zero.
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
//! ```text
//!  consumer                    shared memory                    producer
//!  --------                    -------------                    --------
//!  queue empty                 sleeping = 0
//!  spins: looks, looks, ...                                     push: stamp of event 7
//!    event 7 is there  <------ slot: event 7                    fence; sleeping = 0: no system call
//!  takes it
//!
//!  spins in vain
//!  announces: swap ----------> sleeping = 1
//!  fence; looks: still empty
//!  futex / ppoll                                                push: stamp of event 8
//!    .                         sleeping = 0 <------------------ fence; sleeping = 1: swap
//!    .  <------------------------------------------------------ signal
//!  awake; event 8 is there
//! ```
//!
//! A producer that waits until what it has pushed is taken ([`taken`](crate::taken)) sleeps in the same way, with the parts
//! exchanged and a word of its own ([`Sleeper::of_producer`], [`Waker::of_consumer`]).
//!
//! # Before sleeping
//!
//! Falling asleep and being woken costs some microseconds, and more for a processor that was idle for long. A sleeper
//! therefore looks at its queue for as long as that first: what sleep costs is measured once in each process, and 20 µs are
//! the most. It does not on a machine with one processor, nor after waits that took longer than that; some short ones,
//! and it does again.
//!
//! # When the producer dies
//!
//! Between pushing and signalling the producer can be killed or stopped, and a consumer may then sleep beside an event. So
//! [`Sleeper::sleep`] looks at the queue at least once a second. (Who sees a process die, by its socket or otherwise, may
//! also call a [`Waker`] of their own, and wake the consumer at once.)
//!
//! # Bells
//!
//! | bell | the consumer sleeps in | for |
//! | --- | --- | --- |
//! | futex | `futex` | a consumer that waits for nothing else; needs no descriptor |
//! | [`eventfd`] | `ppoll`, with descriptors of its own, or epoll, or tokio | halves that trust each other |
//! | [`socket_pair`], of a [`lookout`](Waker::lookout) | the same | a producer that does not trust its consumer |
//!
//! Both ends of an eventfd are one open file: the consumer's process could make it block, fill it, and so stop the
//! producer in its `write`. A pipe's ends are two files with one lock: a `read` of the consumer holds it while it copies into
//! the consumer's memory, which takes for ever if a page of that memory is one that never comes, and a `write` waits for it,
//! even a non-blocking one, and even in a process that is being killed. A socket's sender does not take the receiver's lock.

use core::sync::atomic::Ordering::Relaxed;

use crate::layout::WakeLine;
use crate::rules::SLEEP;
use nlx_sync::End;

#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod futex;
#[cfg(not(loom))]
mod sleeper;
#[cfg(not(loom))]
mod spin;
#[cfg(not(loom))]
mod waker;

#[cfg(not(loom))]
pub use bell::{eventfd, socket_pair};
#[cfg(not(loom))]
pub use sleeper::{Sleeper, Wake};
#[cfg(not(loom))]
pub use waker::Waker;

#[cfg(all(test, not(loom)))]
pub(crate) use spin::Spin;

/// The value of the word while the consumer sleeps or is about to.
pub(crate) const SLEEPING: u32 = 1;

impl WakeLine {
    /// The consumer: "I am going to sleep". To be followed by a look at the queue.
    pub(crate) fn announce(&self) {
        // A swap rather than a store, so that all changes of the word form one chain: a waker that was overtaken cannot
        // clear a later announcement without having read it. (Processors see to that anyway; loom only for swaps.)
        self.sleeping.swap(SLEEPING, Relaxed);
        // SYNC bevq.sleep: with WakeLine::claim.
        SLEEP.fence(End::Store);
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
        SLEEP.fence(End::Load);
        self.sleeping.load(Relaxed) != 0 && self.sleeping.swap(0, Relaxed) != 0
    }
}
