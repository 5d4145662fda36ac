use std::collections::VecDeque;
use std::sync::Arc;

use super::Sleeper;
use crate::drive::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, fence, lock};

/// Waiters without a token for which there is room from the start, so that waiting takes no memory: as many as a program
/// has threads that wait, and then some.
const WAITERS_ROOM: usize = 64;

/// One token per shard, and the waiters that have none.
///
/// Each token stands on cache lines of its own: two CPUs that drive two shards must not slow each other down.
pub struct Tokens {
    shards: Box<[Token]>,
    /// How many `waiting` lists, so that a release without waiters takes no lock.
    waiters: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[repr(align(128))]
struct Token {
    held: AtomicBool,
    freed_ns: AtomicU64,
}

struct Waiting {
    sleepers: VecDeque<Arc<dyn Sleeper>>,
    steward: Option<Arc<dyn Sleeper>>,
}

impl Tokens {
    /// Free tokens for this many shards.
    pub fn new(shards: usize) -> Tokens {
        let free = || Token { held: AtomicBool::new(false), freed_ns: AtomicU64::new(0) };
        let shards = (0..shards).map(|_| free()).collect();
        let waiting = Waiting { sleepers: VecDeque::with_capacity(WAITERS_ROOM), steward: None };
        Tokens { shards, waiters: AtomicUsize::new(0), waiting: Mutex::new(waiting) }
    }

    /// Takes a shard's token, if it is free.
    pub fn claim(&self, shard: usize) -> bool {
        let held = &self.shards[shard].held;
        // SYNC tokens.hand-over: what the last driver did is seen by the next one.
        held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives a token back, and wakes a waiter that has none, if there is one: it will drive.
    pub fn release(&self, shard: usize, now_ns: u64) {
        let token = &self.shards[shard];
        token.freed_ns.store(now_ns, Ordering::Relaxed);
        // SYNC tokens.hand-over
        token.held.store(false, Ordering::Release);
        // SYNC tokens.waiters: either this sees the waiter that has enlisted, or that waiter sees the token free.
        fence(Ordering::SeqCst);
        self.wake_one();
    }

    /// Whether a shard has been free since `since_ns` or longer.
    pub fn free_since(&self, shard: usize, since_ns: u64) -> bool {
        let token = &self.shards[shard];
        !token.held.load(Ordering::Relaxed) && token.freed_ns.load(Ordering::Relaxed) <= since_ns
    }

    /// Whether some waiter lacks a token.
    pub fn wanted(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Notes a waiter that has no token. It must try [`Tokens::claim`] once more before it sleeps, and [`Tokens::leave`]
    /// afterwards. A steward that drives is asked to stop.
    pub fn join(&self, sleeper: &Arc<dyn Sleeper>) {
        let steward = {
            let mut waiting = lock(&self.waiting);
            waiting.sleepers.push_back(sleeper.clone());
            self.waiters.store(waiting.sleepers.len(), Ordering::SeqCst);
            waiting.steward.clone()
        };
        // SYNC tokens.waiters
        fence(Ordering::SeqCst);
        if let Some(steward) = steward {
            steward.wake();
        }
    }

    /// Takes a waiter off the list. If a token is free, the next waiter is woken: the wake-up that this one may have got
    /// must not be lost with it.
    pub fn leave(&self, sleeper: &Arc<dyn Sleeper>) {
        {
            let mut waiting = lock(&self.waiting);
            if let Some(at) = waiting.sleepers.iter().position(|listed| Arc::ptr_eq(listed, sleeper)) {
                waiting.sleepers.remove(at);
            }
            self.waiters.store(waiting.sleepers.len(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if self.shards.iter().any(|token| !token.held.load(Ordering::Relaxed)) {
            self.wake_one();
        }
    }

    /// Names the thread that drives when nobody waits; while it is named, a waiter that gets no token wakes it.
    pub fn set_steward(&self, steward: Option<Arc<dyn Sleeper>>) {
        lock(&self.waiting).steward = steward;
    }

    fn wake_one(&self) {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        let first = lock(&self.waiting).sleepers.front().cloned();
        if let Some(sleeper) = first {
            sleeper.wake();
        }
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.shards.iter().filter(|token| token.held.load(Ordering::Relaxed)).count();
        write!(f, "Tokens({held} of {} held)", self.shards.len())
    }
}
