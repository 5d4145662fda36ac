//! Sleeping and waking: one protocol for threads of a process and for processes that share memory.
//!
//! A [`Sleeper`] announces sleep on a word ([`SleepWord`]), checks once more whether it has work,
//! and sleeps. A [`Waker`] first changes the data that the sleeper waits for, and then reads the
//! word. Only if sleep is announced, and only for the one waker that clears the announcement, does
//! it make a system call. While the sleeper is awake neither side makes one.
//!
//! | sleeper | waker |
//! | --- | --- |
//! | 1. set the word ([`SleepWord::announce`]) | 1. publish the data: an event in a queue, a flag |
//! | 2. full fence | 2. full fence |
//! | 3. check for data; if there is some, take the word back ([`SleepWord::withdraw`]) | 3. read the word; if it is set, clear it ([`SleepWord::claim`]) |
//! | 4. otherwise sleep until the signal | 4. if this waker cleared it, signal |
//!
//! The two fences are totally ordered. If the waker's is first, the sleeper sees the data in step
//! 3; otherwise the waker sees the word. So no wake-up is lost. A spurious wake-up is possible; the
//! sleeper then finds no work.
//!
//! ```text
//!  sleeper                      memory of both                   waker
//!  -------                      --------------                   -----
//!  no work                      sleeping = 0
//!  spins: checks, checks, ...                                    publishes event 7
//!    event 7 is there  <------- event 7                          fence; sleeping = 0: no system call
//!  takes it
//!
//!  spins in vain
//!  announces -----------------> sleeping = 1
//!  fence; checks: still nothing
//!  futex / poll                                                  publishes event 8
//!    .                          sleeping = 0 <------------------ fence; sleeping = 1: clears it
//!    .  <------------------------------------------------------- signal
//!  awake; event 8 is there
//! ```
//!
//! # The word
//!
//! The word lies in the sleeper ([`Sleeper::new`]: threads of one process share it by `Arc`), or in
//! memory that both sides see: a sleeper and a waker accept any [`AsRef`] of a [`SleepWord`], such
//! as a word in the header of a queue in shared memory.
//!
//! # Bells
//!
//! | signal | the sleeper sleeps in | for |
//! | --- | --- | --- |
//! | futex of the word | `futex` | a thread that waits on nothing else; needs no descriptor |
//! | [`Bell`], an eventfd | `ppoll`, with other descriptors, or epoll | sides that trust each other |
//! | [`Bell::socket_pair`] | the same | a waker that does not trust its sleeper |
//!
//! Both ends of an eventfd are one open file: the sleeper's process could make it blocking, fill
//! it, and so block the waker in `write`. The two ends of a pipe share one lock: a `read` of the
//! sleeper holds it while it copies into the sleeper's memory, which never ends if a page of that
//! memory never arrives. A `write` waits for that lock, even a non-blocking one, and even in a
//! process that is being killed. The sender on a socket does not take the receiver's lock.
//!
//! # Spinning before sleep
//!
//! A sleep and its wake-up cost some microseconds, and 30 µs on machines whose idle processors are
//! slow to wake. A sleeper made with [`Sleeper::spinning`] therefore polls for up to a limit before
//! it sleeps ([`DEFAULT_SPIN`] in nlx). It spins only while that pays:
//!
//! - Each sleeper estimates how long its waits take. If the estimate exceeds the limit, it sleeps
//!   at once, and retries spinning only for one wait after 2, 4, 8, … 256 others. Short waits, or
//!   one that ended during a spin, turn spinning on again.
//! - A poll that took more than 50 µs, and more than a quarter of the limit, was preempted: another
//!   thread needs the processor. The sleeper then sleeps at once for 256 waits.
//! - Every 10 ms, one of the spinning threads of a process reads the number of runnable threads
//!   from `/proc/loadavg`. While it exceeds the number of processors, no thread of the process
//!   spins.
//! - On a machine with one processor no thread spins.
//!
//! A waiter that sleeps in a system call other than [`Sleeper::sleep`] uses [`Sleeper::spin_wait`],
//! or a [`Spin`]. A sleeping thread takes no processor time.
//!
//! # When the waker dies
//!
//! The waker's process can be killed or stopped between publishing and signalling; the sleeper then
//! sleeps although an event waits. So [`Sleeper::sleep`] checks at least once a second.
//!
//! # Models
//!
//! Under loom a lock and a condition variable replace the system's part (a futex, a descriptor,
//! `ppoll`); everything else is the code that programs run. The models of `nlx-bev-cqueue` show
//! that no wake-up is lost with either kind of signal, and that one is lost if either fence is
//! missing.

use crate::{AtomicU32, Ordering, Rule, RuleEnd};

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
pub use modelled::SignalCounter;
#[cfg(feature = "wait")]
pub use sleeper::{FutexWord, Sleeper, Wake, Waker};
#[cfg(feature = "wait")]
pub use spin::{DEFAULT_SPIN, MAX_SPIN, Spin, SpinWait};

/// SYNC sync.sleep: the sleeper announces, the waker publishes; each then executes a full fence
/// before it reads what the other wrote. So at least one of them sees the other's write.
pub const SLEEP: Rule = Rule::new("sync.sleep");

/// The value of the word while a thread sleeps or is about to.
const SLEEPING: u32 = 1;

/// The word by which a sleeper announces that it sleeps or is about to. It is zero while the
/// sleeper is awake.
///
/// The word orders no other data: the data that the sleeper waits for needs an ordering independent
/// of it, or reaches the sleeper with the signal.
#[cfg_attr(not(loom), derive(zerocopy::FromZeros), repr(transparent))]
#[derive(Debug)]
pub struct SleepWord {
    sleeping: AtomicU32,
    #[cfg(all(feature = "wait", loom))]
    futex: modelled::Futex,
}

impl SleepWord {
    /// Creates the word of a sleeper that is awake.
    pub fn new() -> SleepWord {
        SleepWord {
            sleeping: AtomicU32::new(0),
            #[cfg(all(feature = "wait", loom))]
            futex: modelled::Futex::default(),
        }
    }

    /// Announces that the sleeper is about to sleep. This is a full barrier: later reads return
    /// data at least as new as what a waker wrote before it read the word without seeing the
    /// announcement. The caller must then check once more for work.
    pub fn announce(&self) {
        self.sleeping.store(SLEEPING, Ordering::Relaxed);
        // SYNC sync.sleep: with SleepWord::claim.
        SLEEP.fence(RuleEnd::Store);
    }

    /// Takes the announcement back: the sleeper is awake. Returns whether a waker has claimed the
    /// announcement, and has signalled or is about to.
    pub fn withdraw(&self) -> bool {
        self.sleeping.swap(0, Ordering::AcqRel) == 0
    }

    /// Clears the announcement of sleep after a waker has published data, and returns whether this
    /// waker must signal.
    ///
    /// A waker that is too late to claim the announcement stores nothing, and so cannot clear a
    /// later announcement that it has not read. (A swap would be correct on every processor too,
    /// but under loom the next waker could read the value stored by the swap instead of the next
    /// announcement.)
    #[inline]
    pub fn claim(&self) -> bool {
        // SYNC sync.sleep: with SleepWord::announce.
        SLEEP.fence(RuleEnd::Load);
        let seen = self.sleeping.load(Ordering::Relaxed);
        let take = || self.sleeping.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        seen != 0 && take()
    }

    /// Writes any value, as a hostile process that shares the word may do. For tests.
    pub fn scribble(&self, value: u32) {
        self.sleeping.store(value, Ordering::Relaxed);
    }

    /// Returns whether sleep is announced now, without ordering.
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
