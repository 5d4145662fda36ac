use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::super::{Clock, Sleeper, Tokens};
use super::*;

/// A node that records how it is driven. Its time passes only during polls that find work.
struct Noted {
    tokens: Tokens,
    now_ns: AtomicU64,
    /// Duration of a poll that finds work; 0 at first.
    busy_ns: AtomicU64,
    /// The shards of the calling thread's partition; all at first.
    near: AtomicU64,
    has_spare: bool,
    polls: Mutex<Vec<usize>>,
    /// The number of further polls of each shard that find work.
    work: Mutex<Vec<usize>>,
    fds: Vec<Sleeper>,
    ending: ShutdownFlag,
}

impl Noted {
    fn new(shards: usize) -> Noted {
        Noted {
            tokens: Tokens::new(shards),
            now_ns: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            near: AtomicU64::new(u64::MAX),
            has_spare: true,
            polls: Mutex::default(),
            work: Mutex::new(vec![0; shards]),
            fds: (0..shards).map(|_| Sleeper::new().unwrap()).collect(),
            ending: ShutdownFlag::new().unwrap(),
        }
    }

    fn polls(&self) -> Vec<usize> {
        std::mem::take(&mut self.polls.lock().unwrap())
    }

    /// Gives a shard work for this number of polls, and wakes the waiter.
    fn arrive(&self, shard: usize, polls: usize) {
        self.work.lock().unwrap()[shard] = polls;
        self.fds[shard].prepare();
        self.fds[shard].wake();
    }

    /// Creates a node whose shards have endless work; each poll takes `busy_ns`.
    fn loaded(shards: usize, busy_ns: u64) -> Noted {
        let net = Noted::new(shards);
        net.busy_ns.store(busy_ns, Relaxed);
        (0..shards).for_each(|shard| net.arrive(shard, usize::MAX));
        net
    }

    /// Claims all free tokens, and those given to the scheduler threads in place of these.
    fn take_given(&self) -> u64 {
        let tokens = &self.tokens;
        let by_sched_thread = |shard| {
            tokens.sched_thread(shard).is_some_and(|sched_thread| tokens.claim_given(shard, &sched_thread))
        };
        let given = (0..tokens.count()).filter(|&shard| tokens.claim(shard) || by_sched_thread(shard));
        given.fold(0, |given, shard| given | 1 << shard)
    }
}

impl Clock for Noted {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
}

impl Drive for Noted {
    fn ending(&self) -> Option<&ShutdownFlag> {
        Some(&self.ending)
    }
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    fn poll(&self, shard: usize, _: usize) -> Poll {
        self.polls.lock().unwrap().push(shard);
        let left = &mut self.work.lock().unwrap()[shard];
        let work = usize::from(*left > 0);
        *left -= work;
        self.now_ns.fetch_add(work as u64 * self.busy_ns.load(Relaxed), Relaxed);
        Poll { work, deadline_ns: None }
    }
    fn near(&self) -> u64 {
        self.near.load(Relaxed)
    }
    fn has_spare_processor(&self) -> bool {
        self.has_spare
    }
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        self.fds[shard].fd().unwrap()
    }
}

fn sleeper() -> Arc<Sleeper> {
    Arc::new(Sleeper::new().unwrap())
}

/// `ready` returns true only once, as if it consumed a wake-up: the wait ends at the check at which
/// it does.
#[test]
fn the_first_true_ends_the_wait_at_whichever_look_it_comes() {
    const LOOKS: usize = 8;
    for look in 1..=LOOKS {
        let looks = Cell::new(0);
        let once = || {
            looks.set(looks.get() + 1);
            assert!(looks.get() <= LOOKS, "the answer of look {look} is lost");
            looks.get() == look
        };
        assert!(wait_with(&Noted::new(0), &sleeper(), None, once, |_, _, _, _| 0));
        assert_eq!(looks.get(), look);
    }
}

/// Returns the shards that a waiter polls between sleeps; each sleep ends with the readable shards
/// in `awake`.
fn polls_between_sleeps(net: &Noted, awake: &[u64]) -> Vec<Vec<usize>> {
    let rounds = RefCell::new(Vec::new());
    let sleep = |_: &dyn Drive, _: u64, _: &Sleeper, _: Option<u64>| {
        rounds.borrow_mut().push(net.polls());
        let number = rounds.borrow().len() - 1;
        let readable = awake[number];
        for shard in shards_of(readable) {
            net.arrive(shard, 1);
        }
        readable
    };
    let enough = || rounds.borrow().len() == awake.len();
    assert!(wait_with(net, &sleeper(), None, enough, sleep));
    rounds.into_inner()
}

/// One shard costs one poll after a sleep, and one more if that found work.
#[test]
fn one_shard_is_polled_as_often_as_it_has_work() {
    let net = Noted::new(1);
    let rounds = polls_between_sleeps(&net, &[0b1, 0, 0b1, 0]);
    assert_eq!(rounds, [vec![0], vec![0, 0], vec![0], vec![0, 0]]);
}

#[test]
fn after_a_sleep_the_readable_shards_are_polled_first() {
    let net = Noted::new(3);
    let rounds = polls_between_sleeps(&net, &[0b100, 0b011, 0, 0]);
    let [one, other] = [vec![2, 0, 1, 2], vec![0, 1, 0, 1, 2]];
    assert_eq!(rounds, [vec![0, 1, 2], one, other, vec![0, 1, 2]]);
}

/// The system's own result is used: the readable descriptors.
#[test]
fn a_sleep_tells_which_shards_are_readable() {
    let (net, sleeper) = (Noted::new(MAX_SHARDS), sleeper());
    for shard in [0, 5, MAX_SHARDS - 1] {
        net.arrive(shard, 1);
    }
    let readable = 1 | 1 << 5 | 1 << (MAX_SHARDS - 1);
    assert_eq!(sleep_on_descriptors(&net, u64::MAX, &sleeper, None), readable);
    assert_eq!(sleep_on_descriptors(&net, 0b10_0010, &sleeper, None), 0b10_0000);
    assert_eq!(sleep_on_descriptors(&net, 0b10, &sleeper, Some(0)), 0);
    sleeper.prepare();
    sleeper.wake();
    assert_eq!(sleep_on_descriptors(&net, 0b10, &sleeper, None), 0);
}

/// An event that the first polls of a round find ends the wait: the other shards are not polled.
#[test]
fn a_message_costs_one_poll_whatever_the_number_of_shards() {
    let net = Noted::new(4);
    let came = Cell::new(false);
    let sleep = |_: &dyn Drive, _: u64, _: &Sleeper, _: Option<u64>| {
        net.polls();
        came.set(true);
        0b1000
    };
    assert!(wait_with(&net, &sleeper(), None, || came.get(), sleep));
    assert_eq!(net.polls(), [3]);
}

/// Makes a sleeper that spins whatever the load of the machine.
fn spinning() -> Arc<Sleeper> {
    let sleeper = Sleeper::new().unwrap().spinning(crate::MAX_SPIN);
    sleeper.ignore_load();
    Arc::new(sleeper)
}

/// Repeats a wait that is ready after `looks_needed` checks until one ends without a sleep, because
/// a wait that is preempted ends with one. On one processor each wait sleeps.
fn without_sleep(looks_needed: usize, wait: impl Fn(&mut dyn FnMut() -> bool, &dyn Fn())) {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN).unwrap();
    let alone = online == Some(1);
    loop {
        let (looks, slept) = (Cell::new(0), Cell::new(false));
        let mut ready = || {
            looks.set(looks.get() + 1);
            slept.get() || looks.get() >= looks_needed
        };
        wait(&mut ready, &|| slept.set(true));
        if !slept.get() {
            return assert!(!alone && looks.get() >= looks_needed);
        } else if alone {
            return;
        }
    }
}

#[test]
fn an_event_that_comes_soon_needs_no_sleep() {
    let net = Noted::new(2);
    let sleeper = spinning();
    without_sleep(20, |ready, slept| {
        let sleep = |_: &dyn Drive, _: u64, _: &Sleeper, _: Option<u64>| {
            slept();
            0
        };
        assert!(wait_with(&net, &sleeper, None, ready, sleep));
    });
    let polls = net.polls();
    assert!([0, 1].iter().all(|shard| polls.iter().filter(|&polled| polled == shard).count() >= 19));
}

#[test]
fn a_sched_thread_spins_before_it_sleeps_too() {
    let net = Noted::new(1);
    let sched_thread = spinning();
    without_sleep(20, |over, slept| {
        let over = RefCell::new(over);
        let sleep = |_: &dyn Drive, _: u64, _: &Sleeper, _: Option<u64>| {
            slept();
            0
        };
        super::super::watch::drive_shard_with(&net, 0, &sched_thread, || (over.borrow_mut())(), sleep);
    });
}

/// A waiter drives shards that are added during its wait from its next round on.
#[test]
fn shards_may_come_during_a_wait() {
    let mut net = Noted::new(3);
    net.tokens = Tokens::new(1);
    let net = net;
    let sleeps = Cell::new(0);
    let sleep = |_: &dyn Drive, mask: u64, _: &Sleeper, _: Option<u64>| {
        sleeps.set(sleeps.get() + 1);
        assert_eq!(mask, if sleeps.get() == 1 { 0b1 } else { 0b111 });
        net.tokens.grow(3);
        net.tokens.grow(2);
        0
    };
    assert!(wait_with(&net, &sleeper(), None, || sleeps.get() == 2, sleep));
    assert_eq!(net.shards(), 3);
    assert!((0..3).all(|shard| net.tokens.claim(shard)), "all are free again");
}

/// A scheduler thread gives its shard to a polling thread, and also to a waiting one.
#[test]
fn a_sched_thread_gives_its_shard_to_a_waiter() {
    let net = Arc::new(Noted::new(2));
    let sched_thread = sleeper();
    net.tokens.set_sched_thread(1, sched_thread.clone());
    let serve = || {
        let (net, sched_thread) = (net.clone(), sched_thread.clone());
        std::thread::spawn(move || super::super::drive_shard(&*net, 1, &sched_thread, || false))
    };
    let thread = serve();
    while net.tokens.is_left_since(1, 0) {
        std::thread::yield_now();
    }
    while !net.tokens.claim(1) {
        (&*net as &dyn Drive).poll_free_shards();
    }
    thread.join().unwrap();
    net.tokens.release(1, 0);

    let thread = serve();
    while net.tokens.is_left_since(1, 0) {
        std::thread::yield_now();
    }
    let slept = Cell::new(false);
    let all_held = |drive: &dyn Drive, mask: u64, own: &Sleeper, next: Option<u64>| {
        slept.set(mask == 0b11);
        if slept.get() { 0 } else { sleep_on_descriptors(drive, mask, own, next) }
    };
    assert!(wait_with(&*net, &sleeper(), None, || slept.get(), all_held));
    thread.join().unwrap();
}

/// The end of the node ends the waits of threads that drive, that lack a token, and that begin
/// later; an event that is ready still counts.
#[test]
fn the_end_of_a_node_ends_every_wait() {
    let net = Arc::new(Noted::new(1));
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let net = net.clone();
            std::thread::spawn(move || wait_until(&*net, &sleeper(), None, || false))
        })
        .collect();
    while !net.tokens.wanted() {
        std::thread::yield_now();
    }
    net.ending.end();
    for waiter in waiters {
        assert!(!waiter.join().unwrap());
    }
    assert!(!wait_until(&*net, &sleeper(), None, || false));
    assert!(wait_until(&*net, &sleeper(), None, || true));
}

/// A driver that releases and reclaims a token repeatedly wakes the keeper at most once.
#[test]
fn who_keeps_watch_has_a_timer_as_long_as_tokens_change_hands() {
    let net = Noted::new(1);
    let sched_thread = sleeper();
    net.tokens.set_sched_thread(0, sched_thread.clone());
    assert!(net.tokens.claim(0));
    let watch = super::super::Watch::new(Duration::from_millis(5));
    let timed = RefCell::new(Vec::new());
    let sleep = |drive: &dyn Drive, _: u64, _: &Sleeper, until_ns: Option<u64>| {
        timed.borrow_mut().push(until_ns.is_some());
        match timed.borrow().len() {
            2 | 3 => {
                net.tokens.release(0, 0);
                assert!(net.tokens.claim(0));
            }
            6 => watch.end(drive),
            _ => {}
        }
        0
    };
    watch.serve_with(&net, 0, &sched_thread, sleep);
    assert_eq!(timed.into_inner(), [true, false, true, true, false, true]);
}

/// Returns the shards that a waiter has given away after each of `rounds` rounds. Other threads
/// take them at once.
fn given_after_rounds(net: &Noted, sleeper: &Arc<Sleeper>, rounds: usize) -> Vec<u64> {
    let (mut given, mut looks) = (Vec::new(), 0);
    let ready = || {
        looks += 1;
        // The first check precedes the first poll, and the second one precedes the first time that
        // the waiter gives shards away.
        if looks > 2 {
            given.push(given.last().unwrap_or(&0) | net.take_given());
        }
        given.len() == rounds
    };
    assert!(wait_with(net, sleeper, None, ready, |_, _, _, _| unreachable!("there is work")));
    given
}

fn with_sched_threads(net: Noted) -> Noted {
    (0..net.shards()).for_each(|shard| net.tokens.set_sched_thread(shard, sleeper()));
    net
}

/// Returns the half of `mask` that a waiter gives away: first those that did not deliver its last
/// awaited event, and among them those of other partitions.
fn expected_half(mask: u64, fed: u64, near: u64) -> u64 {
    let mut shards: Vec<usize> = (0..MAX_SHARDS).filter(|shard| mask >> shard & 1 == 1).collect();
    shards.sort_by_key(|shard| (fed >> shard & 1, near >> shard & 1, *shard));
    shards.truncate(shards.len() / 2);
    shards.into_iter().fold(0, |half, shard| half | 1 << shard)
}

/// A waiter keeps the shards that feed its queue, then those of its partition, for every
/// combination; it gives shards away only after it has had work for long enough.
// Covers: S-203
#[test]
fn a_loaded_waiter_gives_the_half_away_that_matters_least_to_it() {
    const SHARDS: usize = 4;
    const ALL: u64 = (1 << SHARDS) - 1;
    const ROUND_NS: u64 = SHARED_AFTER_NS / 2;
    for (fed, near) in (0..=ALL).flat_map(|fed| (0..=ALL).map(move |near| (fed, near))) {
        let net = with_sched_threads(Noted::loaded(SHARDS, ROUND_NS / SHARDS as u64));
        net.near.store(near, Relaxed);
        let sleeper = sleeper();
        sleeper.set_memo(fed);
        // The waiter gives the first half away after two rounds. Later rounds have half the shards,
        // and take half the time.
        let first = expected_half(ALL, fed, near);
        let second = first | expected_half(ALL & !first, fed, near);
        let given = given_after_rounds(&net, &sleeper, 6);
        assert_eq!(given, [0, first, first, first, first, second], "fed {fed:b}, near {near:b}");
        assert_eq!(sleeper.memo().count_ones(), 1, "one shard is left, and brings what it waits for");
    }
}

/// A waiter that keeps up with its work keeps its shards: a round with work on a single shard ends
/// the load.
#[test]
fn a_waiter_whose_load_has_breaks_keeps_its_shards() {
    let net = with_sched_threads(Noted::new(2));
    net.busy_ns.store(SHARED_AFTER_NS / 3, Relaxed);
    let rounds = Cell::new(0);
    let ready = || {
        rounds.set(rounds.get() + 1);
        net.arrive(0, 1);
        net.arrive(1, rounds.get() % 2);
        assert!(rounds.get() == 1 || net.take_given() == 0, "round {}", rounds.get());
        rounds.get() == 20
    };
    assert!(wait_with(&net, &sleeper(), None, ready, |_, _, _, _| unreachable!("there is work")));
}

/// Other waiting threads get the shards that did not bring the waiter's events. The waiter
/// determines from its own polls which shards brought its events, and still uses that in its next
/// wait.
// Covers: S-203
#[test]
fn a_waiter_keeps_the_shards_that_feed_its_queue() {
    const SHARDS: usize = 4;
    for fed in 0..SHARDS {
        let net = Noted::loaded(SHARDS, 0);
        let sleeper = sleeper();
        // The waiter's event comes from one shard only.
        let came = Cell::new(false);
        (0..SHARDS).filter(|&shard| shard != fed).for_each(|shard| net.work.lock().unwrap()[shard] = 0);
        let event = || came.replace(true);
        assert!(wait_with(&net, &sleeper, None, event, |_, _, _, _| unreachable!("there is work")));
        (0..SHARDS).for_each(|shard| net.arrive(shard, usize::MAX));
        net.busy_ns.store(SHARED_AFTER_NS, Relaxed);
        // The waiter gives half of its shards away in each round, the last but one in the second.
        let other = self::sleeper();
        net.tokens.join(&other);
        let given = given_after_rounds(&net, &sleeper, 3);
        net.tokens.leave(&other);
        let kept = given.iter().map(|given| (given >> fed & 1, given.count_ones())).collect::<Vec<_>>();
        assert_eq!(kept, [(0, 2), (0, 3), (0, 3)], "shard {fed}");
    }
}

/// Without another waiting thread, and without a processor for a scheduler thread, a waiter keeps
/// all shards.
#[test]
fn nothing_is_given_where_no_thread_could_drive_it() {
    let net = Noted::loaded(2, SHARED_AFTER_NS);
    assert_eq!(given_after_rounds(&net, &sleeper(), 3), [0; 3], "there are no sched_threads");
    let net = Noted { has_spare: false, ..with_sched_threads(Noted::loaded(2, SHARED_AFTER_NS)) };
    assert_eq!(given_after_rounds(&net, &sleeper(), 3), [0; 3], "they would find no processor");
    net.tokens.join(&sleeper());
    assert_eq!(given_after_rounds(&net, &sleeper(), 1), [0b01], "one that waits has one");
}
