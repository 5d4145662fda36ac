//! Sleeping and waking: one protocol for threads of a process and for processes that share memory.
//!
//! A [`Sleeper`] announces sleep on a word ([`SleepWord`]), looks once more for something to do, and sleeps. A [`Waker`] changes
//! what the sleeper waits for, and then reads the word: only if sleep is announced, and only the one waker that takes the
//! announcement, makes a system call. While the sleeper is awake neither side makes one.
//!
//! | sleeper | waker |
//! | --- | --- |
//! | 1. set the word ([`SleepWord::announce`]) | 1. publish the news: an event in a queue, a flag |
//! | 2. full fence | 2. full fence |
//! | 3. look for news; if there is some, take the word back ([`SleepWord::withdraw`]) | 3. read the word; if it is set, clear it ([`SleepWord::claim`]) |
//! | 4. else sleep until the signal | 4. and if this waker cleared it, signal |
//!
//! The two fences have one order. If the waker's is first, the sleeper sees the news in step 3; else the waker sees the word. So
//! no wake-up is lost; one too many can happen, and the sleeper then finds nothing.
//!
//! ```text
//!  sleeper                      memory of both                   waker
//!  -------                      --------------                   -----
//!  nothing to do                sleeping = 0
//!  spins: looks, looks, ...                                      publishes event 7
//!    event 7 is there  <------- event 7                          fence; sleeping = 0: no system call
//!  takes it
//!
//!  spins in vain
//!  announces -----------------> sleeping = 1
//!  fence; looks: still nothing
//!  futex / poll                                                  publishes event 8
//!    .                          sleeping = 0 <------------------ fence; sleeping = 1: clears it
//!    .  <------------------------------------------------------- signal
//!  awake; event 8 is there
//! ```
//!
//! # The word
//!
//! The word lies in the sleeper ([`Sleeper::new`]: threads of one process share it by `Arc`), or wherever both sides see it: a
//! sleeper and a waker take anything that is [`AsRef`] of a [`SleepWord`], such as a word in the header of a queue in shared
//! memory.
//!
//! # Bells
//!
//! | signal | the sleeper sleeps in | for |
//! | --- | --- | --- |
//! | futex of the word | `futex` | a thread that waits for nothing else; needs no descriptor |
//! | [`Bell`], an eventfd | `ppoll`, with other descriptors, or epoll | sides that trust each other |
//! | [`Bell::socket_pair`] | the same | a waker that does not trust its sleeper |
//!
//! Both ends of an eventfd are one open file: the sleeper's process could make it block, fill it, and so stop the waker in its
//! `write`. A pipe's ends are two files with one lock: a `read` of the sleeper holds it while it copies into the sleeper's
//! memory, which takes for ever if a page of that memory never comes, and a `write` waits for it, even a non-blocking one, and
//! even in a process that is being killed. A socket's sender does not take the receiver's lock.
//!
//! # Spinning before sleep
//!
//! A sleep and its wake-up cost some microseconds, and 30 µs on machines whose idle processors are slow to wake up. A sleeper made with
//! [`Sleeper::spinning`] therefore polls for up to a limit before it sleeps ([`DEFAULT_SPIN`] in nlx). It spins only while that pays:
//!
//! - Each sleeper estimates how long its waits take. If that exceeds the limit it sleeps at once, and spins again only for one wait
//!   after 2, 4, 8, … 256 others. Short waits, or one that ended while it was spinning, turn spinning on again.
//! - A poll that took more than 50 µs, and a quarter of the limit, was preempted: another thread needs the processor. The sleeper then sleeps at once for 256 waits.
//! - Once in 10 ms, one of the spinning threads of a process reads the number of runnable threads from `/proc/loadavg`. While it is above
//!   the number of processors, no thread of the process spins.
//! - On a machine with one processor no thread spins.
//!
//! A waiter that sleeps in a system call of its own uses [`Sleeper::spin_wait`], or a [`Spin`]. A thread that sleeps costs nothing.
//!
//! # When the waker dies
//!
//! Between publishing and signalling the waker's process can be killed or stopped, and a sleeper may then sleep beside an event.
//! So [`Sleeper::sleep`] looks at least once a second.
//!
//! # Models
//!
//! Under loom the system's part (a futex, a descriptor, `ppoll`) is replaced by a lock and a condition variable; everything else is
//! the code that programs run. The models of `nlx-bev-cqueue` show that no wake-up is lost over either kind of signal, and that
//! one is if either fence is missing.

use crate::{AtomicU32, End, Ordering, Rule};

#[cfg(all(feature = "wait", not(loom)))]
mod bell;
#[cfg(feature = "wait")]
mod cards;
#[cfg(feature = "wait")]
mod handle;
#[cfg(feature = "wait")]
mod load;
#[cfg(all(feature = "wait", loom))]
mod modelled;
#[cfg(feature = "wait")]
mod sleeper;
#[cfg(feature = "wait")]
mod spin;

#[cfg(all(feature = "wait", loom))]
use modelled as bell;

#[cfg(feature = "wait")]
pub use bell::Bell;
#[cfg(feature = "wait")]
pub use cards::poll_cards;
#[cfg(feature = "wait")]
pub use handle::PollHandle;
#[cfg(feature = "wait")]
pub use load::has_spare_processor;
#[cfg(all(feature = "wait", loom))]
pub use modelled::Signals;
#[cfg(feature = "wait")]
pub use sleeper::{FutexWord, Sleeper, Wake, Waker};
#[cfg(feature = "wait")]
pub use spin::{DEFAULT_SPIN, MAX_SPIN, Spin, SpinWait};

/// SYNC sync.sleep: announcing sleep and publishing news are both followed by a full fence before the other side's word is
/// read, so at least one of the two sees the other.
pub const SLEEP: Rule = Rule::new("sync.sleep");

/// The value of the word while somebody sleeps or is about to.
const SLEEPING: u32 = 1;

/// The word by which a sleeper says that it sleeps or is about to. All zeros: it is awake.
///
/// It carries nothing but that. What the news is reaches the sleeper by the news' own ordering, or by the signal.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros), repr(transparent))]
#[derive(Debug)]
pub struct SleepWord {
    sleeping: AtomicU32,
    #[cfg(all(feature = "wait", loom))]
    futex: modelled::Futex,
}

impl SleepWord {
    /// The word of a sleeper that is awake.
    pub fn new() -> SleepWord {
        SleepWord {
            sleeping: AtomicU32::new(0),
            #[cfg(all(feature = "wait", loom))]
            futex: modelled::Futex::default(),
        }
    }

    /// The sleeper: "I am going to sleep". A full barrier: what the caller reads afterwards is at least as new as what a
    /// waker wrote before it saw the announcement. To be followed by a look for something to do.
    pub fn announce(&self) {
        self.sleeping.store(SLEEPING, Ordering::Relaxed);
        // SYNC sync.sleep: with SleepWord::claim.
        SLEEP.fence(End::Store);
    }

    /// The sleeper: "I am awake". Returns whether a waker has claimed the announcement, and has signalled or is about to.
    pub fn withdraw(&self) -> bool {
        self.sleeping.swap(0, Ordering::AcqRel) == 0
    }

    /// A waker that has published news: returns whether it must signal now.
    ///
    /// A waker that comes too late to take the announcement stores nothing, and so cannot clear a later one that it has not
    /// read. (A swap would be as right on every processor; loom lets the next waker find what it stored where that must find
    /// the next announcement.)
    #[inline]
    pub fn claim(&self) -> bool {
        // SYNC sync.sleep: with SleepWord::announce.
        SLEEP.fence(End::Load);
        let seen = self.sleeping.load(Ordering::Relaxed);
        let take = || self.sleeping.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        seen != 0 && take()
    }

    /// Writes any value, as a hostile process that shares the word may: for tests of that.
    pub fn scribble(&self, value: u32) {
        self.sleeping.store(value, Ordering::Relaxed);
    }

    /// Returns whether sleep is announced, at some moment.
    pub fn is_announced(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) != 0
    }
}

impl Default for SleepWord {
    fn default() -> SleepWord {
        SleepWord::new()
    }
}

impl AsRef<SleepWord> for SleepWord {
    fn as_ref(&self) -> &SleepWord {
        self
    }
}
