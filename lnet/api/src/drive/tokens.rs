use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::{MAX_SHARDS, Sleeper, shards_of};
use crate::drive::rules::RELEASE;
use crate::drive::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, fence};

/// For how many shards there is room; a model checker has as many tokens as its models look at.
const ROOM: usize = if cfg!(all(test, loom)) { 2 } else { MAX_SHARDS };

/// Waiters without a token for which there is room from the start, so that waiting takes no memory: as many as a program
/// has threads that wait, and then some.
const WAITERS_ROOM: usize = 64;

/// One token per shard, the waiters that lack some, and the stewards.
///
/// Each token stands on cache lines of its own: two CPUs that drive two shards must not slow each other down.
pub struct Tokens {
    shards: Box<[Token]>,
    /// How many of them there are already; it only grows.
    count: AtomicUsize,
    /// How many `waiting` lists, so that a release without waiters takes no lock.
    waiters: AtomicUsize,
    waiting: Mutex<VecDeque<Arc<Sleeper>>>,
    /// How many `listening` lists.
    listeners: AtomicUsize,
    /// Those who sleep in loops of their own and lack a token. They may be away for long: so they are no waiters, for whom
    /// stewards make way, but only hear of tokens that become free.
    listening: Mutex<Vec<Arc<Sleeper>>>,
}

#[repr(align(128))]
struct Token {
    held: AtomicBool,
    /// Who holds it keeps it until he releases it, asleep and awake.
    kept: AtomicBool,
    freed_ns: AtomicU64,
    /// The shard's steward drives, or is about to.
    steward_on_duty: AtomicBool,
    /// A thread that polls found the steward on duty, and would rather drive itself.
    steward_unwanted: AtomicBool,
    steward: OnceLock<Arc<Sleeper>>,
}

impl Token {
    fn free() -> Token {
        Token {
            held: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            freed_ns: AtomicU64::new(0),
            steward_on_duty: AtomicBool::new(false),
            steward_unwanted: AtomicBool::new(false),
            steward: OnceLock::new(),
        }
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn call_off_steward(&self) {
        if self.steward_on_duty.load(Ordering::Relaxed) {
            self.wake_steward();
        }
    }

    fn wake_steward(&self) {
        if let Some(steward) = self.steward.get() {
            steward.wake();
        }
    }
}

impl Tokens {
    /// Free tokens for this many shards, and room for [`MAX_SHARDS`].
    pub fn new(shards: usize) -> Tokens {
        let tokens = Tokens {
            shards: (0..ROOM).map(|_| Token::free()).collect(),
            count: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            waiting: Mutex::new(VecDeque::with_capacity(WAITERS_ROOM)),
            listeners: AtomicUsize::new(0),
            listening: Mutex::new(Vec::new()),
        };
        tokens.grow(shards);
        tokens
    }

    /// How many shards there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// There are so many shards now, [`MAX_SHARDS`] at the most; never fewer than before. Whoever calls it has made all
    /// else that belongs to them.
    pub fn grow(&self, shards: usize) {
        // SYNC tokens.count: who sees the number sees what belongs to the shards.
        self.count.fetch_max(shards.min(ROOM), Ordering::Release);
        // SYNC tokens.waiters: the new tokens are free, as if they had been released.
        // SYNC tokens.kept: either who keeps watch sees that they are not kept, or this sees him asleep.
        fence(Ordering::SeqCst);
        self.wake_one();
        self.present().for_each(Token::wake_steward);
    }

    /// Takes a shard's token, if it is free.
    pub fn claim(&self, shard: usize) -> bool {
        let held = &self.shards[shard].held;
        // The line stays shared as long as somebody else holds it.
        // SYNC tokens.hand-over: what the last driver did is seen by the next one.
        !held.load(Ordering::Relaxed)
            && held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Says that the holder of a token keeps it, asleep and awake: until it is released, nobody looks whether its shard is
    /// neglected. To be called by the holder.
    pub fn keep(&self, shard: usize) {
        self.shards[shard].kept.store(true, Ordering::Relaxed);
    }

    /// Whether nobody need look at any shard.
    pub(crate) fn all_kept(&self) -> bool {
        self.present().all(|token| token.kept.load(Ordering::Relaxed))
    }

    /// Gives a token back, and wakes a waiter that lacks one, if there is one: it will drive.
    pub fn release(&self, shard: usize, now_ns: u64) {
        self.release_all(1 << shard, now_ns);
    }

    /// Gives the tokens of a mask back, together: who is woken by it can take them all.
    pub(crate) fn release_all(&self, mask: u64, now_ns: u64) {
        if mask == 0 {
            return;
        }
        let mut was_kept = false;
        for shard in shards_of(mask) {
            let token = &self.shards[shard];
            token.freed_ns.store(now_ns, Ordering::Relaxed);
            // The holder's own word.
            if token.kept.load(Ordering::Relaxed) {
                token.kept.store(false, Ordering::Relaxed);
                was_kept = true;
            }
            // SYNC tokens.hand-over
            token.held.store(false, Ordering::Release);
        }
        // SYNC tokens.waiters: either this sees the waiter that has enlisted, or that waiter sees the token free.
        // SYNC tokens.kept: either this sees who keeps watch asleep without a timer, or he sees the token free.
        fence(Ordering::SeqCst);
        self.wake_one();
        if was_kept && RELEASE.holds() {
            self.present().for_each(Token::wake_steward);
        }
    }

    /// Whether a shard has been free since `since_ns` or longer.
    pub fn free_since(&self, shard: usize, since_ns: u64) -> bool {
        let token = &self.shards[shard];
        !token.is_held() && token.freed_ns.load(Ordering::Relaxed) <= since_ns
    }

    /// Whether some waiter lacks a token.
    pub fn wanted(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Notes a waiter that lacks a token. It must try [`Tokens::claim`] once more before it sleeps, and [`Tokens::leave`]
    /// afterwards. Stewards that drive are asked to stop.
    pub(crate) fn join(&self, sleeper: &Arc<Sleeper>) {
        {
            let mut waiting = self.waiting.lock();
            waiting.push_back(sleeper.clone());
            self.waiters.store(waiting.len(), Ordering::SeqCst);
        }
        // SYNC tokens.waiters
        // SYNC tokens.steward: either this sees the steward on duty, or that steward sees the waiter.
        fence(Ordering::SeqCst);
        self.present().for_each(Token::call_off_steward);
    }

    /// Takes a waiter off the list. If a token is free, the next waiter is woken: the wake-up that this one may have got
    /// must not be lost with it.
    pub(crate) fn leave(&self, sleeper: &Arc<Sleeper>) {
        {
            let mut waiting = self.waiting.lock();
            if let Some(at) = waiting.iter().position(|listed| Arc::ptr_eq(listed, sleeper)) {
                waiting.remove(at);
            }
            self.waiters.store(waiting.len(), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
        if self.present().any(|token| !token.is_held()) {
            self.wake_one();
        }
    }

    /// Notes somebody who wants to hear when a token is released. They must look once more whether one [is
    /// free](Tokens::is_free) before they sleep, and [`Tokens::unlisten`] afterwards.
    pub(crate) fn listen(&self, sleeper: &Arc<Sleeper>) {
        {
            let mut listening = self.listening.lock();
            listening.push(sleeper.clone());
            self.listeners.store(listening.len(), Ordering::SeqCst);
        }
        // SYNC tokens.listeners: either who releases a token sees this listener, or the listener sees the token free.
        fence(Ordering::SeqCst);
    }

    /// Takes a listener off the list.
    pub(crate) fn unlisten(&self, sleeper: &Arc<Sleeper>) {
        let mut listening = self.listening.lock();
        if let Some(at) = listening.iter().position(|listed| Arc::ptr_eq(listed, sleeper)) {
            listening.swap_remove(at);
        }
        self.listeners.store(listening.len(), Ordering::SeqCst);
    }

    /// Whether nobody holds a shard's token at the moment.
    pub(crate) fn is_free(&self, shard: usize) -> bool {
        !self.shards[shard].is_held()
    }

    /// Names the thread that drives a shard when nobody waits, for good: a waiter that lacks the shard's token wakes it
    /// while it drives. The first one named stays.
    pub fn set_steward(&self, shard: usize, steward: Arc<Sleeper>) {
        self.shards[shard].steward.get_or_init(|| steward);
    }

    /// The thread that was named for a shard, if one was.
    pub fn steward(&self, shard: usize) -> Option<Arc<Sleeper>> {
        self.shards[shard].steward.get().cloned()
    }

    /// Wakes a shard's steward, if it sleeps.
    pub(crate) fn wake_steward(&self, shard: usize) {
        self.shards[shard].wake_steward();
    }

    /// A steward begins; from now on waiters call it off.
    pub(crate) fn steward_begins(&self, shard: usize) {
        let token = &self.shards[shard];
        token.steward_unwanted.store(false, Ordering::Relaxed);
        token.steward_on_duty.store(true, Ordering::Relaxed);
        // SYNC tokens.steward
        fence(Ordering::SeqCst);
    }

    /// Whether a steward should stop.
    pub(crate) fn steward_called_off(&self, shard: usize) -> bool {
        self.wanted() || self.shards[shard].steward_unwanted.load(Ordering::Relaxed)
    }

    /// A steward has stopped, its token released.
    pub(crate) fn steward_ends(&self, shard: usize) {
        self.shards[shard].steward_on_duty.store(false, Ordering::Relaxed);
    }

    /// Asks a shard's steward, if it is the one that drives, to leave the shard to threads that poll. They ask again.
    pub fn ask_steward(&self, shard: usize) {
        let token = &self.shards[shard];
        if token.steward_on_duty.load(Ordering::Relaxed)
            && !token.steward_unwanted.swap(true, Ordering::Relaxed)
        {
            token.call_off_steward();
        }
    }

    fn present(&self) -> impl Iterator<Item = &Token> {
        self.shards[..self.count()].iter()
    }

    /// Somebody is to look for a token: a waiter, who drives from then on, or else all who listen.
    fn wake_one(&self) {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return self.wake_listeners();
        }
        let first = self.waiting.lock().front().cloned();
        if let Some(sleeper) = first {
            sleeper.wake();
        }
    }

    fn wake_listeners(&self) {
        // SYNC tokens.listeners: whoever calls this has freed a token, and then fenced.
        if self.listeners.load(Ordering::SeqCst) == 0 {
            return;
        }
        let all: SmallVec<[Arc<Sleeper>; 4]> = self.listening.lock().iter().cloned().collect();
        all.iter().for_each(|sleeper| sleeper.wake());
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.present().filter(|token| token.is_held()).count();
        write!(f, "Tokens({held} of {} held)", self.count())
    }
}
