//! Waiting until the helper has carried out what was submitted.
//!
//! The helper mostly does so at once, and on another processor: then looking for a while is the fastest. Where it has to have
//! this one first, or has much to do, looking only keeps the processor from others. So who has looked in vain sleeps at once
//! the next times, and more often so each time.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use nlx_bev_cqueue::wake::{Sleeper, Wake, Waker};
use nlx_bev_cqueue::{SharedMemory, taken};
use parking_lot::Mutex;

/// How long a client looks: about what it takes to wake a thread, and to be woken by it.
const LOOK: Duration = Duration::from_micros(20);

/// Looks between two questions for the time, which cost as much as some looks.
const LOOKS: usize = 16;

/// The most waits without a look after one in vain: what looks in vain cost is then little beside sleep.
const SLEEPS_MAX: u32 = 64;

/// The longest sleep. A helper that has not said anything by then is asked: it may be stopped, or may not look at the ring before
/// it is asked.
const PATIENCE: Duration = Duration::from_millis(100);

/// Who waits for the submission ring to be carried out.
pub(crate) struct Settling {
    memory: SharedMemory,
    waiting: Mutex<Waiting>,
    waker: Waker<SharedMemory>,
}

struct Waiting {
    sleeper: Sleeper<SharedMemory>,
    /// Waits without a look after the last one in vain, and those of them that are left.
    sleeps: u32,
    left: u32,
}

impl Settling {
    pub(crate) fn new(memory: SharedMemory) -> Settling {
        let sleeper = Sleeper::of_producer(memory.clone());
        let waker = Waker::of_consumer(memory.clone());
        Settling { memory, waiting: Mutex::new(Waiting { sleeper, sleeps: 0, left: 0 }), waker }
    }

    /// Waits until so many entries are carried out, or `has_ended`. False if that takes too long.
    pub(crate) fn wait(&self, entries: u64, has_ended: impl Fn() -> bool) -> bool {
        let is_over = || taken(&self.memory) >= entries || has_ended();
        if is_over() {
            return true;
        }
        // One at a time; who comes later may find that it is over.
        let mut waiting = self.waiting.lock();
        waiting.look(is_over) || waiting.sleep(is_over)
    }

    /// For who has ended the link.
    pub(crate) fn wake(&self) {
        // No error: it is a futex.
        let _ = self.waker.wake();
    }
}

impl Waiting {
    fn look(&mut self, is_over: impl Fn() -> bool) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return is_over();
        }
        let begun = Instant::now();
        while begun.elapsed() < LOOK {
            for _ in 0..LOOKS {
                if is_over() {
                    self.sleeps = 0;
                    return true;
                }
                spin_loop();
            }
        }
        self.sleeps = (2 * self.sleeps).clamp(1, SLEEPS_MAX);
        self.left = self.sleeps;
        false
    }

    fn sleep(&mut self, is_over: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !is_over() {
            match self.sleeper.sleep(Some(deadline), &is_over) {
                Ok(Wake::Ready | Wake::Signalled) => {}
                // It is late, or the system does not let it sleep.
                Ok(Wake::TimedOut) | Err(_) => return is_over(),
            }
        }
        true
    }
}
