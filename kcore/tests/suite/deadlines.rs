//! Waiting by a node's clock.

use nlx_core::{Core, OperationKind};

use super::pair;
use crate::bed::*;

/// Long enough that signals hit the sleep.
const WHILE_NS: u64 = 50_000_000;

// Covers: MT-230
#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let pair = pair();
    let Side { core, tm } = &pair.a;
    for deadline_ns in [0, core.now_ns(), core.now_ns() + WHILE_NS] {
        assert!(!tm.event_wait(Some(deadline_ns)));
        assert!(core.now_ns() >= deadline_ns);
    }
}

/// K10: signals make a wait neither shorter nor endless.
// Covers: MT-230
#[test]
fn a_wait_that_is_interrupted_ends_at_its_deadline() {
    let pair = pair();
    let Side { core, tm } = &pair.a;
    let signals = Signals::new();
    let mut interrupted = false;
    // On a busy machine a deadline may pass before the thread is seen asleep.
    while !interrupted {
        std::thread::scope(|scope| {
            let (waiter, waiter_thread) = asleep(scope, || {
                let deadline_ns = core.now_ns() + WHILE_NS;
                assert!(!tm.event_wait(Some(deadline_ns)));
                assert!(core.now_ns() >= deadline_ns);
            });
            for _ in 0..3 {
                interrupted |= signals.interrupt(&waiter, waiter_thread);
            }
            waiter.join().unwrap();
        });
    }
}

/// A pending event is found at once, whatever the deadline.
// Covers: MT-230
#[test]
fn a_deadline_in_the_past_finds_what_waits() {
    let pair = pair();
    let (buffer, _) = pair.b.buffer(64);
    pair.b.submit(buffer, OperationKind::PassiveSend { length: 1 }).unwrap();
    pair.b.tm.cancel(buffer, buffer.0).unwrap();
    for deadline_ns in [Some(0), Some(1), None] {
        assert!(pair.b.tm.event_wait(deadline_ns));
    }
    assert!(pair.next(&pair.b).unlinked());
    pair.assert_idle();
}
