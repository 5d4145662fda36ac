//! loom model of the driving protocol: checks, in every interleaving of waiters, scheduler threads
//! and arriving messages, that no wake-up is lost and that no two threads drive one shard.
//!
//! [`System`] replaces the kernel and the clock. Each thread of a model has a number, its *slot*:
//! the waiters first (waiter `n` waits for message `n`), then the scheduler threads of the shards,
//! then a handler that blocks and a program that does not drive. A thread sleeps in its slot until
//! one of the conditions in [`WakeOn`] holds. When all threads sleep and no condition holds, the
//! clock advances to the next timer or arrival; if there is none, the model has *stalled*. A stall
//! before all messages have been received means that a wake-up was lost.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lnet-api --release --lib model`

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use nlx_sync::wait::SignalCounter;
use nlx_sync::{Bell, SleepWord};

use super::token::TAKEN_AFTER_NS;
use super::wait::{SHARED_AFTER_NS, wait_with};
use super::watch::drive_shard_with;
use super::{Clock, Drive, Poll, Sleeper, Tokens, shards_of};

mod event_loop_handle;
mod hand_over;
mod share;
mod watch;

/// The maximum number of shards, and of threads of each part, in a model.
const MOST: usize = 2;

/// The slots of a handler that blocks, and of a program that does not drive.
const HANDLER_SLOT: usize = 2 * MOST;
const ONLOOKER_SLOT: usize = HANDLER_SLOT + 1;
/// The number of slots.
const SLOTS: usize = ONLOOKER_SLOT + 1;

/// The end of the model's time: nothing is due after it.
const LATEST_NS: u64 = 100;

/// The duration of a poll that finds a message, in models where polls take time. Two such polls are
/// enough load for a waiter to share its shards, and take less time than the delay after which
/// other waiters take an unpolled third shard.
const BUSY_NS: u64 = SHARED_AFTER_NS / 2;
const _: () = assert!(2 * BUSY_NS >= SHARED_AFTER_NS && 2 * BUSY_NS < TAKEN_AFTER_NS);

/// The waiter number of a message that no waiter expects.
const FOR_NONE: usize = MOST;

/// The state of the kernel: which threads have been woken, and which messages are unread.
#[derive(Debug, Default)]
struct Kernel {
    /// By slot: the number of times that the thread's bell has rung since it was last read.
    woken: [u64; SLOTS],
    /// For each shard, the waiters whose messages are unread.
    unread: [Vec<usize>; MOST],
    /// The future arrivals: time, shard, and the waiter that the message is for.
    due: Vec<(u64, usize, usize)>,
    /// By slot: the conditions that end the thread's sleep; `None` while it is awake.
    sleeping: [Option<WakeOn>; SLOTS],
    /// Set when all threads sleep and no timer or arrival is left to wake one.
    stalled: bool,
    /// For each part, set once all its threads have ended.
    gone: [bool; 2],
}

/// The role of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A thread that waits for its message.
    Waiter,
    /// A scheduler thread, which serves shards until the model's end.
    SchedThread,
}

/// The conditions that end a thread's sleep, beside a ring of its bell.
#[derive(Debug, Clone, Copy, Default)]
struct WakeOn {
    /// A shard of this mask is readable.
    mask: u64,
    /// The clock has reached this time.
    until_ns: Option<u64>,
    /// True if a stall of the model ends the sleep.
    stall: bool,
    /// All threads of this part have ended.
    gone: Option<Part>,
}

/// The model's kernel and clock.
#[derive(Debug, Default)]
struct System {
    kernel: Mutex<Kernel>,
    bell: Condvar,
    /// The time, in nanoseconds. Not loom's atomic: the exact moment of reading the clock makes no
    /// difference between interleavings.
    now_ns: std::sync::atomic::AtomicU64,
    /// The number of threads of each part, beside the first one; time passes when all threads
    /// sleep. Not loom's atomic: it grows while the first thread is awake, and shrinks under the
    /// kernel's lock.
    threads: [std::sync::atomic::AtomicUsize; 2],
}

/// A node of some shards; message `n` is for waiter `n`.
struct Net {
    tokens: Tokens,
    system: Arc<System>,
    sleepers: [std::sync::Arc<Sleeper>; SLOTS],
    got: [AtomicBool; MOST],
    /// The number of polls of each shard, as its driver counts it without synchronisation. It
    /// differs from `true_polls` if two threads drive the shard at the same time, or if the next
    /// driver does not see the writes of the last one.
    polls: [AtomicUsize; MOST],
    true_polls: [std::sync::atomic::AtomicUsize; MOST],
    /// Set when the two counts have differed.
    clash: std::sync::atomic::AtomicBool,
    /// The duration of a poll that finds a message. Not loom's atomic: it is set once.
    busy_ns: std::sync::atomic::AtomicU64,
    /// A bit for each inactive shard. Not loom's atomic: no interleaving depends on it alone.
    quiet: std::sync::atomic::AtomicU64,
    /// True if the handler of the first waiter's message blocks until the second's has come. Not
    /// loom's atomic: it is set once.
    blocks: std::sync::atomic::AtomicBool,
    over: AtomicBool,
}

/// The bell of a thread, counted in the model's kernel.
#[derive(Debug)]
struct CountedBell {
    system: Arc<System>,
    number: usize,
}

impl System {
    /// Sleeps in a slot until a condition of `wake_on` holds. Returns the readable shards of the
    /// mask.
    fn sleep(&self, number: usize, wake_on: WakeOn) -> u64 {
        let mut kernel = self.kernel.lock().unwrap();
        kernel.sleeping[number] = Some(wake_on);
        while !kernel.ends_sleep(number, wake_on, self.now_ns()) {
            if let Some(now_ns) = kernel.pass_time(self.now_ns(), self.threads()) {
                self.set_time(now_ns);
            } else {
                kernel = self.bell.wait(kernel).unwrap();
            }
        }
        kernel.sleeping[number] = None;
        kernel.readable(wake_on.mask)
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    fn set_time(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Relaxed);
        self.bell.notify_all();
    }

    fn threads(&self) -> usize {
        1 + self.threads.iter().map(|threads| threads.load(Relaxed)).sum::<usize>()
    }

    /// Ends a thread of a part.
    fn leave(&self, part: Part) {
        let mut kernel = self.kernel.lock().unwrap();
        if self.threads[part as usize].fetch_sub(1, Relaxed) == 1 {
            kernel.gone[part as usize] = true;
        }
        self.bell.notify_all();
    }
}

impl Kernel {
    fn readable(&self, mask: u64) -> u64 {
        let readable = shards_of(mask).filter(|&shard| !self.unread[shard].is_empty());
        readable.fold(0, |readable, shard| readable | 1 << shard)
    }

    /// Returns whether a condition that ends this sleep holds.
    fn ends_sleep(&self, number: usize, wake_on: WakeOn, now_ns: u64) -> bool {
        let is_late = wake_on.until_ns.is_some_and(|until_ns| until_ns <= now_ns);
        self.woken[number] > 0
            || self.readable(wake_on.mask) != 0
            || is_late
            || (wake_on.stall && self.stalled)
            || wake_on.gone.is_some_and(|part| self.gone[part as usize])
    }

    /// Returns the time to which the clock advances, and delivers what is due then; `None` while a
    /// thread is awake or about to wake. Without a timer or an arrival left, the model has stalled,
    /// and the time stays.
    fn pass_time(&mut self, now_ns: u64, threads: usize) -> Option<u64> {
        let asleep =
            || self.sleeping.iter().enumerate().filter_map(|(number, wake_on)| Some((number, (*wake_on)?)));
        let all_asleep = asleep().count() == threads;
        if !all_asleep || asleep().any(|(number, wake_on)| self.ends_sleep(number, wake_on, now_ns)) {
            return None;
        }
        let due = self.due.iter().map(|(at_ns, ..)| *at_ns);
        let next_ns = asleep().filter_map(|(_, wake_on)| wake_on.until_ns).chain(due).min();
        let next_ns = next_ns.filter(|next_ns| *next_ns <= LATEST_NS);
        self.stalled = next_ns.is_none();
        let now_ns = next_ns.unwrap_or(now_ns);
        for (_, shard, number) in self.due.extract_if(.., |(at_ns, ..)| *at_ns <= now_ns) {
            self.unread[shard].push(number);
        }
        Some(now_ns)
    }
}

impl Net {
    fn new(shards: usize) -> Arc<Net> {
        let system: Arc<System> = Arc::default();
        let sleeper = |number| {
            let bell = Bell::over(CountedBell { system: system.clone(), number });
            std::sync::Arc::new(Sleeper::ringing(SleepWord::new(), bell))
        };
        Arc::new(Net {
            tokens: Tokens::new(shards),
            sleepers: std::array::from_fn(sleeper),
            system,
            got: Default::default(),
            polls: Default::default(),
            true_polls: Default::default(),
            clash: Default::default(),
            busy_ns: Default::default(),
            quiet: Default::default(),
            blocks: Default::default(),
            over: AtomicBool::new(false),
        })
    }

    /// Returns the sleep function of a thread.
    fn sleep(&self, number: usize) -> impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64 {
        move |_, mask, _, until_ns| self.system.sleep(number, WakeOn { mask, until_ns, ..WakeOn::default() })
    }

    /// Delivers a message for a waiter to a shard.
    fn arrive(&self, shard: usize, number: usize) {
        self.system.kernel.lock().unwrap().unread[shard].push(number);
        self.system.bell.notify_all();
    }

    /// Sleeps in a slot, without driving, until a message has arrived or the model has stalled.
    fn expect(&self, number: usize, slot: usize) {
        let sleeper = &self.sleepers[slot];
        let mut over = false;
        while !over {
            sleeper.prepare();
            over = self.got[number].load(Ordering::Acquire) || self.is_stalled();
            if !over {
                self.system.sleep(slot, WakeOn { stall: true, ..WakeOn::default() });
            }
            sleeper.finish();
        }
    }

    /// Waits for a message as a driving thread.
    fn wait(&self, number: usize) {
        let ready = || self.got[number].load(Ordering::Acquire);
        assert!(wait_with(self, &self.sleepers[number], None, ready, self.sleep(number)));
    }

    fn is_stalled(&self) -> bool {
        self.system.kernel.lock().unwrap().stalled
    }

    /// Ends every wait in a model that has failed: a panic cannot be caught while the model's
    /// threads run.
    fn give_up(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.got.iter().for_each(|got| got.store(true, Ordering::SeqCst));
        self.sleepers.iter().for_each(|sleeper| sleeper.wake());
    }

    /// Checks the end state: every token is free, and the list of waiters is empty.
    fn check_end(&self) {
        assert!(!self.clash.load(Relaxed), "two threads drive one shard");
        for shard in 0..self.tokens.count() {
            assert!(self.tokens.claim(shard), "the token of shard {shard} is free");
        }
        assert!(!self.tokens.wanted());
    }
}

impl SignalCounter for CountedBell {
    fn ring(&self) {
        self.system.kernel.lock().unwrap().woken[self.number] += 1;
        self.system.bell.notify_all();
    }
    fn read(&self) -> u64 {
        std::mem::take(&mut self.system.kernel.lock().unwrap().woken[self.number])
    }
    fn wait(&self) {
        unreachable!("threads sleep by System::sleep")
    }
}

impl Clock for Net {
    fn now_ns(&self) -> u64 {
        self.system.now_ns()
    }
}

impl Drive for Net {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    fn is_active(&self, shard: usize) -> bool {
        self.quiet.load(Relaxed) & 1 << shard == 0
    }
    fn poll(&self, shard: usize, _: usize) -> Poll {
        let polls = self.polls[shard].load(Ordering::Relaxed);
        if polls != self.true_polls[shard].fetch_add(1, Relaxed) {
            self.clash.store(true, Relaxed);
            self.give_up();
        }
        let message = self.system.kernel.lock().unwrap().unread[shard].pop();
        if message.is_some() {
            self.system.now_ns.fetch_add(self.busy_ns.load(Relaxed), Relaxed);
        }
        if let Some(number) = message.filter(|&number| number != FOR_NONE) {
            self.got[number].store(true, Ordering::Release);
            self.sleepers[number].wake();
            for slot in [HANDLER_SLOT, ONLOOKER_SLOT] {
                self.sleepers[slot].wake();
            }
            if number == 0 && self.blocks.load(Relaxed) {
                self.expect(1, HANDLER_SLOT);
            }
        }
        self.polls[shard].store(polls + 1, Ordering::Relaxed);
        Poll { work: usize::from(message.is_some()), deadline_ns: None }
    }
}

type Running = loom::thread::JoinHandle<()>;

/// Starts a thread.
fn start(net: &Arc<Net>, part: Part, run: impl FnOnce(&Net) + 'static) -> Running {
    let net = net.clone();
    net.system.threads[part as usize].fetch_add(1, Relaxed);
    loom::thread::spawn(move || {
        run(&net);
        net.system.leave(part);
    })
}

/// Starts a thread that waits for its message.
fn waiter(net: &Arc<Net>, number: usize) -> Running {
    start(net, Part::Waiter, move |net| net.wait(number))
}

/// Starts a shard's scheduler thread, which has found the shard neglected.
fn sched_thread(net: &Arc<Net>, shard: usize) -> Running {
    let number = MOST + shard;
    let sleeper = net.sleepers[number].clone();
    net.tokens.set_sched_thread(shard, sleeper.clone());
    start(net, Part::SchedThread, move |net| {
        let over = || net.over.load(Ordering::SeqCst);
        drive_shard_with(net, shard, &sleeper, over, net.sleep(number));
    })
}

/// Sleeps until all threads of a part have ended, or the model has stalled; after a stall, ends all
/// waits.
fn until_gone(net: &Net, part: Part) {
    net.system.sleep(ONLOOKER_SLOT, WakeOn { stall: true, gone: Some(part), ..WakeOn::default() });
    if net.is_stalled() {
        net.give_up();
    }
}

fn end(
    net: &Net,
    waiters: impl IntoIterator<Item = Running>,
    sched_threads: impl IntoIterator<Item = Running>,
) {
    let waiters: Vec<Running> = waiters.into_iter().collect();
    if !waiters.is_empty() {
        until_gone(net, Part::Waiter);
    }
    for waiter in waiters {
        waiter.join().unwrap();
    }
    net.over.store(true, Ordering::SeqCst);
    (MOST..2 * MOST).for_each(|number| net.sleepers[number].wake());
    for sched_thread in sched_threads {
        sched_thread.join().unwrap();
    }
    assert!(!net.is_stalled(), "all threads sleep, and a message is unread");
    net.check_end();
}

/// Checks every interleaving with up to `preemptions` preemptions, in addition to the switches where
/// a thread sleeps or ends. Each further preemption makes the check ten times longer. To lose a
/// wake-up or get a second driver, one thread must be preempted between two steps, and rarely a
/// second thread too; so models use two preemptions, and three where that is cheap.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn one_shard_and_two_waiters() {
    let net = Net::new(1);
    let waiters = [0, 1].map(|number| waiter(&net, number));
    net.arrive(0, 1);
    net.arrive(0, 0);
    end(&net, waiters, []);
}

/// Checks two waiters with two shards: they may divide the shards, or one may have both.
fn two_shards_and_two_waiters() {
    let net = Net::new(2);
    let waiters = [0, 1].map(|number| waiter(&net, number));
    net.arrive(1, 0);
    net.arrive(0, 1);
    end(&net, waiters, []);
}

fn one_waiter_and_its_sched_thread() {
    let net = Net::new(1);
    let (sched_thread, waiter) = (sched_thread(&net, 0), waiter(&net, 0));
    net.arrive(0, 0);
    end(&net, [waiter], [sched_thread]);
}

/// Checks two scheduler threads that serve a shard each, and leave them to a waiter.
fn one_waiter_and_two_sched_threads() {
    let net = Net::new(2);
    let (sched_threads, waiter) = ([0, 1].map(|shard| sched_thread(&net, shard)), waiter(&net, 0));
    net.arrive(1, 0);
    end(&net, [waiter], sched_threads);
}

/// Checks two waiters that lack the shard of one scheduler thread: the one that it wakes passes the
/// shard on.
fn two_waiters_and_a_sched_thread() {
    let net = Net::new(1);
    let sched_thread = sched_thread(&net, 0);
    let waiters = [0, 1].map(|number| waiter(&net, number));
    net.arrive(0, 0);
    net.arrive(0, 1);
    end(&net, waiters, [sched_thread]);
}

/// A waiter that does not poll a shard for a while may lose it to another waiter at any moment.
fn a_shard_left_lying() {
    let net = Net::new(2);
    let waiters = [0, 1].map(|number| waiter(&net, number));
    net.arrive(0, 1);
    net.system.set_time(TAKEN_AFTER_NS);
    net.arrive(1, 0);
    end(&net, waiters, []);
}

/// A shard is added while one waiter drives and another sleeps for lack of a token.
fn a_shard_that_comes() {
    let net = Net::new(1);
    let waiters = [0, 1].map(|number| waiter(&net, number));
    net.tokens.grow(2);
    net.arrive(1, 1);
    net.arrive(0, 0);
    end(&net, waiters, []);
}

// Covers: S-203
#[test]
fn each_waiter_gets_its_message_with_any_driver() {
    check(3, one_shard_and_two_waiters);
}

#[test]
fn each_waiter_gets_its_message_on_whichever_shard() {
    check(2, two_shards_and_two_waiters);
}

/// A waiter takes a shard from its scheduler thread, or that thread wakes it; no thread sleeps for
/// ever on a shard without a driver.
#[test]
fn a_waiter_and_a_sched_thread_take_turns() {
    check(2, one_waiter_and_its_sched_thread);
}

/// A single scheduler thread is checked above with more preemptions; for two together one
/// preemption is enough, because the other thread continues at any point at which the first is
/// stopped.
// Covers: S-203
#[test]
fn a_waiter_takes_turns_with_two_sched_threads() {
    check(1, one_waiter_and_two_sched_threads);
}

#[test]
fn two_waiters_call_a_sched_thread_off() {
    check(2, two_waiters_and_a_sched_thread);
}

/// The two waiters never drive the shard at the same time.
// Covers: S-203
#[test]
fn a_shard_that_is_left_lying_is_taken() {
    check(2, a_shard_left_lying);
}

// Covers: S-203
#[test]
fn a_shard_that_comes_is_driven() {
    check(2, a_shard_that_comes);
}
