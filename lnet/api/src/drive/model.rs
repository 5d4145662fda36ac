//! Every interleaving of waiters, tokens and arrivals: no wake-up is lost, and no two threads drive one shard.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lnet-api --release --lib model`

use std::os::fd::BorrowedFd;

use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};

use super::wait::wait_with;
use super::{Clock, Drive, Poll, Sleeper, Tokens};

/// What a kernel would know: who has been woken, and which messages lie unread.
#[derive(Default)]
struct Kernel {
    /// The counters of two eventfds.
    woken: [u64; 2],
    unread: Vec<usize>,
}

/// A node of one shard; message `n` is for waiter `n`.
struct Net {
    tokens: Tokens,
    kernel: Mutex<Kernel>,
    bell: Condvar,
    got: [AtomicBool; 2],
    sleepers: [Announced; 2],
    drivers: AtomicUsize,
}

#[derive(Default)]
struct Announced(AtomicBool);

struct Waiter {
    net: Arc<Net>,
    number: usize,
    owed: AtomicU64,
}

impl Net {
    fn new() -> Arc<Net> {
        Arc::new(Net {
            tokens: Tokens::new(1),
            kernel: Mutex::default(),
            bell: Condvar::new(),
            got: Default::default(),
            sleepers: Default::default(),
            drivers: AtomicUsize::new(0),
        })
    }

    fn wake(&self, number: usize) {
        fence(Ordering::SeqCst);
        let asleep = &self.sleepers[number].0;
        if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::AcqRel) {
            self.kernel.lock().unwrap().woken[number] += 1;
            self.bell.notify_all();
        }
    }

    fn arrive(&self, number: usize) {
        self.kernel.lock().unwrap().unread.push(number);
        self.bell.notify_all();
    }

    fn sleep(&self, number: usize, drives: bool) {
        let mut kernel = self.kernel.lock().unwrap();
        while !(kernel.woken[number] > 0 || (drives && !kernel.unread.is_empty())) {
            kernel = self.bell.wait(kernel).unwrap();
        }
    }
}

impl Sleeper for Waiter {
    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("the model sleeps without descriptors")
    }
    fn prepare(&self) {
        self.net.sleepers[self.number].0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
    fn finish(&self) {
        let taken = !self.net.sleepers[self.number].0.swap(false, Ordering::AcqRel);
        let owed = self.owed.load(Ordering::Relaxed) + u64::from(taken);
        let read = if owed > 0 {
            std::mem::take(&mut self.net.kernel.lock().unwrap().woken[self.number])
        } else {
            0
        };
        self.owed.store(owed - read, Ordering::Relaxed);
    }
    fn wake(&self) {
        self.net.wake(self.number);
    }
}

impl Clock for Net {
    fn now_ns(&self) -> u64 {
        0
    }
}

impl Drive for Net {
    fn shards(&self) -> usize {
        1
    }
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    fn poll(&self, _: usize, _: usize) -> Poll {
        assert_eq!(self.drivers.fetch_add(1, Ordering::Relaxed), 0, "two threads drive one shard");
        let message = self.kernel.lock().unwrap().unread.pop();
        if let Some(number) = message {
            self.got[number].store(true, Ordering::Release);
            self.wake(number);
        }
        self.drivers.fetch_sub(1, Ordering::Relaxed);
        Poll { work: usize::from(message.is_some()), deadline_ns: None }
    }
    fn arm(&self, _: usize) -> bool {
        true
    }
    fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
        unreachable!("the model sleeps without descriptors")
    }
}

fn wait_for_own_message(net: &Arc<Net>, number: usize) {
    let sleeper: std::sync::Arc<dyn Sleeper> =
        std::sync::Arc::new(Waiter { net: net.clone(), number, owed: AtomicU64::new(0) });
    let ready = || net.got[number].load(Ordering::Acquire);
    let sleep = |_: &dyn Drive, mask: u64, _: &dyn Sleeper, _: Option<u64>| net.sleep(number, mask != 0);
    assert!(wait_with(&**net, &sleeper, None, ready, sleep));
}

#[test]
fn each_waiter_gets_its_message_whoever_drives() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(|| {
        let net = Net::new();
        let waiters: Vec<_> = (0..2)
            .map(|number| {
                let net = net.clone();
                loom::thread::spawn(move || wait_for_own_message(&net, number))
            })
            .collect();
        net.arrive(1);
        net.arrive(0);
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(net.tokens.claim(0), "the last waiter left the token free");
        assert!(!net.tokens.wanted());
    });
}
