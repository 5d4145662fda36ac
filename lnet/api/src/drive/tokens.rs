//! The tokens of a node's shards: [`Tokens`] records the holder of each shard, the waiters that
//! lack one, and the scheduler threads, and wakes them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use nlx_sync::rule;
use smallvec::SmallVec;

use super::token::{FREE, Holder, Token, is_attended};
use super::{MAX_SHARDS, Sleeper, shards_of};
use crate::drive::rules::{LISTENERS, PASS_ON, RELEASE, ROUSE, SCHED_THREAD, WAITERS, WAKE};
use crate::drive::sync::{AtomicUsize, Mutex, Ordering, fence};

/// Capacity for shards. In a model it is smaller: models use at most two shards.
const ROOM: usize = if cfg!(all(test, loom)) { 2 } else { MAX_SHARDS };

/// Initial capacity of the list of waiters, so that waiting does not allocate: more than the usual
/// number of waiting threads.
const WAITERS_ROOM: usize = 64;

/// Value of `keeper` while no scheduler thread keeps watch without a timer.
const NO_KEEPER: usize = usize::MAX;

/// The tokens of a node's shards, the waiters that lack some, and the scheduler threads.
pub struct Tokens {
    shards: Box<[Token]>,
    /// The number of shards that exist; it only grows.
    count: AtomicUsize,
    /// The scheduler thread that keeps watch and sleeps without a timer, by its shard; or
    /// [`NO_KEEPER`].
    keeper: AtomicUsize,
    /// The number of releases: a spinning waiter checks for free tokens only when this number has
    /// changed, and so does not load the cache lines of the tokens. Not loom's atomic: before it
    /// sleeps a waiter checks the tokens in any case.
    releases: std::sync::atomic::AtomicUsize,
    /// The length of `waiting`, so that a release without waiters takes no lock.
    waiters: AtomicUsize,
    waiting: Mutex<VecDeque<Arc<Sleeper>>>,
    /// The length of `listening`.
    listeners: AtomicUsize,
    /// Programs that sleep in their own event loops and lack a token. They may not poll for a long
    /// time, so scheduler threads do not make way for them as for waiters; they are only woken when
    /// a token is released.
    listening: Mutex<Vec<Arc<Sleeper>>>,
}

impl Tokens {
    /// Creates free tokens for this number of shards, with capacity for [`MAX_SHARDS`].
    pub fn new(shards: usize) -> Tokens {
        let tokens = Tokens {
            shards: (0..ROOM).map(|_| Token::free()).collect(),
            count: AtomicUsize::new(0),
            keeper: AtomicUsize::new(NO_KEEPER),
            releases: std::sync::atomic::AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            waiting: Mutex::new(VecDeque::with_capacity(WAITERS_ROOM)),
            listeners: AtomicUsize::new(0),
            listening: Mutex::new(Vec::new()),
        };
        tokens.grow(shards);
        tokens
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Raises the number of shards to `shards`, at most [`MAX_SHARDS`]; it never falls. The caller
    /// must have created everything that belongs to the new shards.
    pub fn grow(&self, shards: usize) {
        // SYNC tokens.count: a thread that sees the number sees what belongs to the shards.
        self.count.fetch_max(shards.min(ROOM), Ordering::Release);
        // The new tokens are free, as if they had been released.
        self.after_release();
    }

    /// Takes a shard's token, if it is free. Until the token is released, no other thread drives
    /// the shard.
    pub fn claim(&self, shard: usize) -> bool {
        self.shards[shard].claim()
    }

    /// Claims a token like [`Tokens::claim`], even one of a waiter that has not polled the shard
    /// for a while because its handlers run.
    pub(crate) fn claim_left(&self, shard: usize, now_ns: u64) -> bool {
        self.shards[shard].claim_left(now_ns)
    }

    /// Claims a token that a waiter has given to this scheduler thread.
    pub(crate) fn claim_given(&self, shard: usize, sched_thread: &Arc<Sleeper>) -> bool {
        self.shards[shard].claim_given(Holder::of_sched_thread(sched_thread))
    }

    /// Releases a token, and wakes a waiter that lacks one, if there is any, so that it drives the
    /// shard.
    pub fn release(&self, shard: usize, now_ns: u64) {
        self.shards[shard].release(now_ns);
        self.after_release();
    }

    fn after_release(&self) {
        self.releases.fetch_add(1, Relaxed);
        // SYNC tokens.keeper: either this thread sees the keeper asleep without a timer, or the
        // keeper sees the token free. This is also the fence of `LISTENERS`.
        rule!(WAITERS, fence(Ordering::SeqCst));
        rule!(WAKE, self.wake_one());
        rule!(RELEASE, self.wake_keeper());
    }

    /// Returns whether a shard has not been polled since this time although a thread could.
    pub fn is_left_since(&self, shard: usize, since_ns: u64) -> bool {
        self.shards[shard].is_left_since(since_ns)
    }

    /// Returns the number of releases.
    pub(crate) fn releases(&self) -> usize {
        self.releases.load(Relaxed)
    }

    /// Takes a shard's token for a waiter, if it is free or its holder has not polled the shard for
    /// a while.
    pub(crate) fn take(&self, shard: usize, waiter: Holder, now_ns: u64) -> bool {
        self.shards[shard].take(waiter, now_ns)
    }

    /// Marks the start of a waiter's poll of a shard that it has taken; false if another thread has
    /// taken it since.
    pub(crate) fn begin(&self, shard: usize, waiter: Holder) -> bool {
        self.shards[shard].begin(waiter)
    }

    /// Marks the end of the waiter's poll.
    pub(crate) fn end(&self, shard: usize, waiter: Holder, now_ns: u64) {
        self.shards[shard].end(waiter, now_ns);
    }

    /// Marks a waiter as asleep on the shards of a mask. Returns those that no other thread has
    /// taken from it.
    pub(crate) fn doze(&self, mask: u64, waiter: Holder) -> u64 {
        shards_of(mask)
            .filter(|&shard| self.shards[shard].doze(waiter))
            .fold(0, |kept, shard| kept | 1 << shard)
    }

    /// Marks the end of the waiter's sleep. From now on a keeper must watch whether the waiter
    /// polls the shards.
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

    /// Releases a waiter's tokens of a mask together, so that the thread that this wakes can take
    /// them all.
    pub(crate) fn drop_by(&self, mask: u64, waiter: Holder, now_ns: u64) {
        let dropped = shards_of(mask).filter(|&shard| self.shards[shard].drop_by(waiter, now_ns)).count();
        if dropped > 0 {
            self.after_release();
        }
    }

    /// Gives a shard that a waiter has taken to the shard's scheduler thread. False if there is
    /// none, or if another thread has taken the shard.
    pub(crate) fn give(&self, shard: usize, waiter: Holder, now_ns: u64) -> bool {
        self.shards[shard].give(waiter, now_ns)
    }

    /// Returns whether a token was given to this scheduler thread.
    pub(crate) fn is_given(&self, shard: usize, sched_thread: &Arc<Sleeper>) -> bool {
        self.shards[shard].is_parked_by(Holder::of_sched_thread(sched_thread))
    }

    /// Returns whether no shard needs a keeper: each holder gets the events, because it sleeps on
    /// the shard, or has the token exclusively. A waiter that has the node's only shard does not
    /// poll others.
    pub(crate) fn all_attended(&self) -> bool {
        self.attended(Token::word)
    }

    /// Returns the result of [`Tokens::all_attended`], but from values that may be old.
    pub(crate) fn seem_attended(&self) -> bool {
        self.attended(Token::newest)
    }

    fn attended(&self, word: impl Fn(&Token) -> u64) -> bool {
        let alone = self.count() == 1;
        self.present().all(|token| if alone { word(token) != FREE } else { is_attended(word(token)) })
    }

    /// Announces that the scheduler thread that keeps watch is about to sleep without a timer. It
    /// must check [`Tokens::all_attended`] once more after its announcement of sleep, and call
    /// [`Tokens::clear_keeper`] afterwards.
    pub(crate) fn set_keeper(&self, shard: usize) {
        self.keeper.store(shard, Ordering::Relaxed);
    }

    /// Records that the keeper is awake, or has a timer.
    pub(crate) fn clear_keeper(&self) {
        self.keeper.store(NO_KEEPER, Ordering::Relaxed);
    }

    fn wake_keeper(&self) {
        let keeper = self.keeper.load(Ordering::Relaxed);
        if keeper != NO_KEEPER {
            self.shards[keeper].wake_sched_thread();
        }
    }

    /// Returns whether a waiter lacks a token.
    pub fn wanted(&self) -> bool {
        self.waiting() > 0
    }

    /// Returns the number of waiters that sleep, or are about to, because they lack a token.
    pub fn waiting(&self) -> usize {
        self.waiters.load(Ordering::SeqCst)
    }

    /// Adds a waiter that lacks a token to the list. It must try [`Tokens::take`] once more before
    /// it sleeps, and call [`Tokens::leave`] afterwards. Calls off the scheduler threads that
    /// drive.
    pub(crate) fn join(&self, sleeper: &Arc<Sleeper>) {
        {
            let mut waiting = self.waiting.lock();
            waiting.push_back(sleeper.clone());
            self.waiters.store(waiting.len(), Ordering::SeqCst);
        }
        // This is also the fence of `SCHED_THREAD`.
        rule!(WAITERS, fence(Ordering::SeqCst));
        rule!(SCHED_THREAD, self.present().for_each(Token::call_off));
    }

    /// Removes a waiter from the list. If a token is free, the next waiter is woken: a wake-up that
    /// this waiter may have received must not be lost.
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

    /// Adds a listener, which is woken when a token is released. It must check once more whether
    /// one [is free](Tokens::is_free) before it sleeps, and call [`Tokens::unlisten`] afterwards.
    pub(crate) fn listen(&self, sleeper: &Arc<Sleeper>) {
        {
            let mut listening = self.listening.lock();
            listening.push(sleeper.clone());
            self.listeners.store(listening.len(), Ordering::SeqCst);
        }
        rule!(LISTENERS, fence(Ordering::SeqCst));
    }

    /// Removes a listener.
    pub(crate) fn unlisten(&self, sleeper: &Arc<Sleeper>) {
        let mut listening = self.listening.lock();
        if let Some(at) = listening.iter().position(|listed| Arc::ptr_eq(listed, sleeper)) {
            listening.swap_remove(at);
        }
        self.listeners.store(listening.len(), Ordering::SeqCst);
    }

    /// Returns whether a shard's token has no holder at the moment.
    pub(crate) fn is_free(&self, shard: usize) -> bool {
        !self.shards[shard].is_held()
    }

    /// Wakes a waiter that lacks a token, to take one whose holder has not polled its shard for a
    /// while.
    pub(crate) fn offer(&self) {
        self.wake_one();
    }

    /// Sets the scheduler thread of a shard, which drives the shard while no waiter does. A waiter
    /// that lacks the shard's token wakes this thread while it drives. Only the first call for a
    /// shard has an effect.
    pub fn set_sched_thread(&self, shard: usize, sched_thread: Arc<Sleeper>) {
        self.shards[shard].sched_thread.get_or_init(|| sched_thread);
    }

    /// Returns the scheduler thread of a shard, if one was set.
    pub fn sched_thread(&self, shard: usize) -> Option<Arc<Sleeper>> {
        self.shards[shard].sched_thread.get().cloned()
    }

    /// Wakes a shard's scheduler thread, if it sleeps.
    pub(crate) fn wake_sched_thread(&self, shard: usize) {
        self.shards[shard].wake_sched_thread();
    }

    /// Marks a scheduler thread as on duty; from now on waiters call it off.
    pub(crate) fn sched_thread_begins(&self, shard: usize) {
        let token = &self.shards[shard];
        token.unwanted.store(false, Ordering::Relaxed);
        // The announcement of its sleep is the barrier between this store and its last check
        // whether it is called off.
        token.on_duty.store(true, Ordering::Relaxed);
    }

    /// Returns whether a scheduler thread should stop.
    pub(crate) fn is_called_off(&self, shard: usize) -> bool {
        self.wanted() || self.shards[shard].unwanted.load(Ordering::Relaxed)
    }

    /// Marks a scheduler thread as off duty, after it has released its token.
    pub(crate) fn sched_thread_ends(&self, shard: usize) {
        self.shards[shard].on_duty.store(false, Ordering::Relaxed);
    }

    /// Requests a shard's scheduler thread, if it drives, to leave the shard to polling threads.
    /// Each poll repeats the request.
    pub fn ask_sched_thread(&self, shard: usize) {
        let token = &self.shards[shard];
        if token.on_duty.load(Ordering::Relaxed) && !token.unwanted.swap(true, Ordering::Relaxed) {
            token.call_off();
        }
    }

    fn present(&self) -> impl Iterator<Item = &Token> {
        self.shards[..self.count()].iter()
    }

    /// Wakes a waiter, which then drives, or all listeners if there is no waiter.
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
        // This load follows the fence of `WAITERS`.
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
