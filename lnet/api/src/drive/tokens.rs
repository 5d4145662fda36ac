use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use nlx_sync::rule;
use smallvec::SmallVec;

use super::token::{FREE, Holder, Token, is_attended};
use super::{MAX_SHARDS, Sleeper, shards_of};
use crate::drive::rules::{LISTENERS, PASS_ON, RELEASE, ROUSE, STEWARD, WAITERS, WAKE};
use crate::drive::sync::{AtomicUsize, Mutex, Ordering, fence};

/// For how many shards there is room; a model checker has as many tokens as its models look at.
const ROOM: usize = if cfg!(all(test, loom)) { 2 } else { MAX_SHARDS };

/// Waiters without a token for which there is room from the start, so that waiting takes no memory: as many as a program
/// has threads that wait, and then some.
const WAITERS_ROOM: usize = 64;

/// Nobody keeps watch asleep without a timer.
const NOBODY: usize = usize::MAX;

/// One token per shard, the waiters that lack some, and the scheduler threads.
pub struct Tokens {
    shards: Box<[Token]>,
    /// How many of them there are already; it only grows.
    count: AtomicUsize,
    /// The scheduler thread that keeps watch and sleeps without a timer, by its shard; or [`NOBODY`].
    keeper: AtomicUsize,
    /// How often tokens have been released: a waiter that spins looks for free tokens when it has changed, and leaves the tokens
    /// themselves to those who drive. Not loom's: before it sleeps it looks at the tokens in any case.
    releases: std::sync::atomic::AtomicUsize,
    /// How many `waiting` lists, so that a release without waiters takes no lock.
    waiters: AtomicUsize,
    waiting: Mutex<VecDeque<Arc<Sleeper>>>,
    /// How many `listening` lists.
    listeners: AtomicUsize,
    /// Those who sleep in loops of their own and lack a token. They may be away for long: so they are no waiters, for whom
    /// scheduler threads make way, but only hear of tokens that become free.
    listening: Mutex<Vec<Arc<Sleeper>>>,
}

impl Tokens {
    /// Free tokens for this many shards, and room for [`MAX_SHARDS`].
    pub fn new(shards: usize) -> Tokens {
        let tokens = Tokens {
            shards: (0..ROOM).map(|_| Token::free()).collect(),
            count: AtomicUsize::new(0),
            keeper: AtomicUsize::new(NOBODY),
            releases: std::sync::atomic::AtomicUsize::new(0),
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
        // The new tokens are free, as if they had been released.
        self.after_release();
    }

    /// Takes a shard's token, if it is free: until it is released nobody else drives the shard.
    pub fn claim(&self, shard: usize) -> bool {
        self.shards[shard].claim()
    }

    /// The same if a waiter has the token and has not polled the shard for long, because its handlers run.
    pub(crate) fn claim_left(&self, shard: usize, now_ns: u64) -> bool {
        self.shards[shard].claim_left(now_ns)
    }

    /// The same if a waiter has given the token to this scheduler thread.
    pub(crate) fn claim_given(&self, shard: usize, sched_thread: &Arc<Sleeper>) -> bool {
        self.shards[shard].claim_given(Holder::of_steward(sched_thread))
    }

    /// Gives a token back, and wakes a waiter that lacks one, if there is one: it will drive.
    pub fn release(&self, shard: usize, now_ns: u64) {
        self.shards[shard].release(now_ns);
        self.after_release();
    }

    fn after_release(&self) {
        self.releases.fetch_add(1, Relaxed);
        // SYNC tokens.keeper: either this sees the keeper asleep without a timer, or the keeper sees the token free. It is the
        // fence of `LISTENERS`, too.
        rule!(WAITERS, fence(Ordering::SeqCst));
        rule!(WAKE, self.wake_one());
        rule!(RELEASE, self.wake_keeper());
    }

    /// Whether nobody has polled a shard since then although somebody could.
    pub fn is_left_since(&self, shard: usize, since_ns: u64) -> bool {
        self.shards[shard].is_left_since(since_ns)
    }

    /// How often tokens have been released.
    pub(crate) fn releases(&self) -> usize {
        self.releases.load(Relaxed)
    }

    /// A waiter takes a shard's token, if it is free or its holder has left it lying.
    pub(crate) fn take(&self, shard: usize, waiter: Holder, now_ns: u64) -> bool {
        self.shards[shard].take(waiter, now_ns)
    }

    /// A waiter begins to poll a shard that it has taken; false if somebody else has taken it since.
    pub(crate) fn begin(&self, shard: usize, waiter: Holder) -> bool {
        self.shards[shard].begin(waiter)
    }

    /// It has polled it.
    pub(crate) fn end(&self, shard: usize, waiter: Holder, now_ns: u64) {
        self.shards[shard].end(waiter, now_ns);
    }

    /// A waiter is about to sleep on the shards of a mask. Gives those that nobody has taken from it.
    pub(crate) fn doze(&self, mask: u64, waiter: Holder) -> u64 {
        shards_of(mask)
            .filter(|&shard| self.shards[shard].doze(waiter))
            .fold(0, |kept, shard| kept | 1 << shard)
    }

    /// It is awake again. From now on somebody must look whether it does too much else.
    pub(crate) fn rouse(&self, mask: u64, waiter: Holder, now_ns: u64) {
        if mask == 0 {
            return;
        }
        shards_of(mask).for_each(|shard| self.shards[shard].end(waiter, now_ns));
        // SYNC tokens.keeper
        fence(Ordering::SeqCst);
        if self.count() > 1 {
            rule!(ROUSE, self.wake_keeper());
        }
    }

    /// A waiter lets go of the tokens of a mask, together: who is woken by it can take them all.
    pub(crate) fn drop_by(&self, mask: u64, waiter: Holder, now_ns: u64) {
        let dropped = shards_of(mask).filter(|&shard| self.shards[shard].drop_by(waiter, now_ns)).count();
        if dropped > 0 {
            self.after_release();
        }
    }

    /// A waiter gives a shard that it has taken to the shard's scheduler thread. False if there is none, or somebody has taken it.
    pub(crate) fn give(&self, shard: usize, waiter: Holder, now_ns: u64) -> bool {
        self.shards[shard].give(waiter, now_ns)
    }

    /// Whether a token was given to this scheduler thread.
    pub(crate) fn is_given(&self, shard: usize, sched_thread: &Arc<Sleeper>) -> bool {
        self.shards[shard].is_parked_by(Holder::of_steward(sched_thread))
    }

    /// Whether nobody need look at any shard: whoever has a token sees what comes, asleep, or because nobody else may drive the
    /// shard. A waiter that has the only shard has nothing else to do.
    pub(crate) fn all_attended(&self) -> bool {
        self.attended(Token::word)
    }

    /// The same, perhaps as it was a moment ago.
    pub(crate) fn seem_attended(&self) -> bool {
        self.attended(Token::newest)
    }

    fn attended(&self, word: impl Fn(&Token) -> u64) -> bool {
        let alone = self.count() == 1;
        self.present().all(|token| if alone { word(token) != FREE } else { is_attended(word(token)) })
    }

    /// The scheduler thread that keeps watch is about to sleep without a timer. It must look once more whether all shards are attended to,
    /// after its announcement of sleep, and call [`Tokens::keeper_looks`] afterwards.
    pub(crate) fn keeper_rests(&self, shard: usize) {
        self.keeper.store(shard, Ordering::Relaxed);
    }

    /// It is awake, or has a timer.
    pub(crate) fn keeper_looks(&self) {
        self.keeper.store(NOBODY, Ordering::Relaxed);
    }

    fn wake_keeper(&self) {
        let keeper = self.keeper.load(Ordering::Relaxed);
        if keeper != NOBODY {
            self.shards[keeper].wake_steward();
        }
    }

    /// Whether some waiter lacks a token.
    pub fn wanted(&self) -> bool {
        self.waiting() > 0
    }

    /// Returns how many waiters lack a token: those that sleep for want of it, or are about to.
    pub fn waiting(&self) -> usize {
        self.waiters.load(Ordering::SeqCst)
    }

    /// Notes a waiter that lacks a token. It must try [`Tokens::take`] once more before it sleeps, and [`Tokens::leave`]
    /// afterwards. SchedThreads that drive are asked to stop.
    pub(crate) fn join(&self, sleeper: &Arc<Sleeper>) {
        {
            let mut waiting = self.waiting.lock();
            waiting.push_back(sleeper.clone());
            self.waiters.store(waiting.len(), Ordering::SeqCst);
        }
        // It is the fence of `STEWARD`, too.
        rule!(WAITERS, fence(Ordering::SeqCst));
        rule!(STEWARD, self.present().for_each(Token::call_off_steward));
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
            rule!(PASS_ON, self.wake_one());
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
        rule!(LISTENERS, fence(Ordering::SeqCst));
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

    /// Has a waiter that lacks a token look for one: its holder has left it lying.
    pub(crate) fn offer(&self) {
        self.wake_one();
    }

    /// Names the thread that drives a shard when nobody waits, for good: a waiter that lacks the shard's token wakes it
    /// while it drives. The first one named stays.
    pub fn set_steward(&self, shard: usize, sched_thread: Arc<Sleeper>) {
        self.shards[shard].sched_thread.get_or_init(|| sched_thread);
    }

    /// The thread that was named for a shard, if one was.
    pub fn sched_thread(&self, shard: usize) -> Option<Arc<Sleeper>> {
        self.shards[shard].sched_thread.get().cloned()
    }

    /// Wakes a shard's scheduler thread, if it sleeps.
    pub(crate) fn wake_steward(&self, shard: usize) {
        self.shards[shard].wake_steward();
    }

    /// A scheduler thread begins; from now on waiters call it off.
    pub(crate) fn steward_begins(&self, shard: usize) {
        let token = &self.shards[shard];
        token.steward_unwanted.store(false, Ordering::Relaxed);
        // The announcement of its sleep is the barrier between this and its last look whether it is called off.
        token.steward_on_duty.store(true, Ordering::Relaxed);
    }

    /// Whether a scheduler thread should stop.
    pub(crate) fn steward_called_off(&self, shard: usize) -> bool {
        self.wanted() || self.shards[shard].steward_unwanted.load(Ordering::Relaxed)
    }

    /// A scheduler thread has stopped, its token released.
    pub(crate) fn steward_ends(&self, shard: usize) {
        self.shards[shard].steward_on_duty.store(false, Ordering::Relaxed);
    }

    /// Asks a shard's scheduler thread, if it is the one that drives, to leave the shard to threads that poll. They ask again.
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
        // After the fence of `WAITERS`.
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
