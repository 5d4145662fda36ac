//! Calls and services allocate nothing in the steady state, over LNet and over a transfer machine.
//! The only test of its program, because it counts the allocations of all threads.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "portals/bed.rs"]
mod bed;
#[path = "support/cores.rs"]
mod cores;
#[path = "machines/bed.rs"]
mod machines;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use nlx_testkit::heap::WatchedHeap;
use nlx_testkit::until;

use bed::{Ask, Bed, LENGTH, small};

/// Counts the allocations of all threads that are not exempt.
#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap {
    gives: |_| {
        if !IS_EXEMPT.try_with(Cell::get).unwrap_or(true) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        true
    },
    takes: |_| {},
};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Attempts in which the heap must be left alone once.
const ATTEMPTS: u32 = 20;

/// In the steady state neither side allocates: not to call, to serve, to reply, or to continue.
// Covers: S-313
#[test]
fn calls_allocate_nothing() {
    IS_EXEMPT.set(true);
    over_portals();
    over_a_machine();
}

/// Checks that `repeat`, which makes this number of calls and returns the number of allocations so
/// far, comes to a steady state. Tables grow to their final size, and on a busy machine the pool
/// starts another thread; what every call allocated would show in each attempt.
fn settles(mut repeat: impl FnMut(usize) -> usize) {
    let counts: Vec<usize> = (0..=ATTEMPTS).map(|_| repeat(300)).collect();
    assert!(counts.windows(2).any(|pair| pair[0] == pair[1]), "{counts:?}");
}

/// A client of the Core's operations alone, whose own are counted, too.
fn over_a_machine() {
    let bed = machines::Bed::over(cores::Cores::in_process());
    let raw = bed.client();
    settles(|times| {
        IS_EXEMPT.set(false);
        for call in 0..times {
            raw.echo(call as u64);
        }
        IS_EXEMPT.set(true);
        ALLOCATIONS.load(Ordering::Relaxed)
    });
}

fn over_portals() {
    let bed = Bed::new(2, small());
    let collector = bed.caller.owner();
    collector.only_counts.store(true, Ordering::Relaxed);
    let (line, call) = bed.prepare(2, Ask::Echo);
    let mut calls = 0;
    settles(|times| {
        for _ in 0..times {
            // Beginning a call is counted, waiting for it is not.
            IS_EXEMPT.set(false);
            bed.caller.begin(&line, LENGTH, &call).unwrap();
            IS_EXEMPT.set(true);
            calls += 1;
            until("the call ends", || collector.count.load(Ordering::Acquire) == calls);
        }
        ALLOCATIONS.load(Ordering::Relaxed)
    });
}
