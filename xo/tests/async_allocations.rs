//! An asynchronous machine allocates nothing in steady state, in any of its threads: slots are
//! reused.

// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use nlx::{AsyncMachine, Buffer, Domain, EndPoint, NodeConfig, Op};
use nlx_testkit::heap::WatchedHeap;

/// The allocations of all threads.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap {
    gives: |_| {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        true
    },
    takes: |_| {},
};

struct Pair {
    a: AsyncMachine,
    b: AsyncMachine,
    to_b: EndPoint,
}

impl Pair {
    fn new() -> (Pair, (Buffer, Buffer)) {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let [a, b] = [0; 2].map(|_| domain.machine().start_async("0@lo:12345:31:*").unwrap());
        let to_b = a.end_point(&b.address().to_string()).unwrap();
        let buffers = (domain.allocate(4096).unwrap(), domain.allocate(4096).unwrap());
        (Pair { a, b, to_b }, buffers)
    }

    /// Sends a message, and reads a buffer of the peer. Returns both buffers.
    async fn round(&self, ours: Buffer, theirs: Buffer) -> (Buffer, Buffer) {
        self.b.post(Op::receive(theirs).min_receive_size(4096)).unwrap();
        let ours = self.a.start(Op::send(ours, &self.to_b).length(4096)).await.unwrap().buffer;
        let theirs = self.b.next_message().await.unwrap().buffer.unwrap();
        let offered = self.b.start(Op::passive_send(theirs).length(4096));
        let offer = offered.offer().clone();
        let ours = self.a.start(Op::active_receive(ours, &offer)).await.unwrap().buffer;
        (ours, offered.await.unwrap().buffer)
    }
}

/// Polls in a loop, so that no executor adds to the count.
fn spin_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

#[test]
fn futures_allocate_nothing_once_the_slots_are_there() {
    let (pair, mut buffers) = Pair::new();
    // A table grows, or a lock allocates for a thread that sleeps on one for the first time, at
    // some rare moment: not in each of these windows.
    let mut windows = [0; 10];
    for allocations in &mut windows {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..200 {
            buffers = spin_on(pair.round(buffers.0, buffers.1));
        }
        *allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    }
    assert!(windows[1..].contains(&0), "in windows of 200 rounds: {windows:?}");
}
