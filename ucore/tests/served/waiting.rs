//! Waiting: deadlines, wake-ups, and event loops of the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_core::{Core, CoreTm};

use crate::bed::*;

fn is_readable(tm: &dyn CoreTm, timeout: PollTimeout) -> bool {
    let mut set = [PollFd::new(tm.descriptor().unwrap(), PollFlags::POLLIN)];
    poll(&mut set, timeout).unwrap() == 1
}

fn hung() -> PollTimeout {
    PollTimeout::try_from(HUNG).unwrap()
}

/// U5: a wait whose deadline has passed still checks for events; a later deadline is kept; a check
/// changes nothing.
// Covers: MT-230, MT-231
#[test]
fn a_wait_looks_whatever_its_deadline() {
    let (_helper, domain, tm) = started();
    for over in [0, 1, domain.now_ns()] {
        assert!(!tm.event_wait(Some(over)) && !tm.pending());
    }
    let soon = domain.now_ns() + 20_000_000;
    assert!(!tm.event_wait(Some(soon)));
    assert!(domain.now_ns() >= soon);
    let posted = buffer(&*domain, 100);
    submit(&*tm, &posted.receive(1));
    let sent = buffer(&*domain, 100);
    submit(&*tm, &sent.send(7, tm.address()));
    until("an event is pending", || tm.pending());
    for deadline_ns in [Some(0), Some(soon), Some(u64::MAX), None] {
        assert!(tm.event_wait(deadline_ns) && tm.pending());
    }
    assert_eq!(events_until(&*tm, 2).len(), 2);
    assert!(!tm.pending() && tm.event_get().unwrap().is_none() && !tm.event_wait(Some(0)));
    tm.stop().unwrap();
}

#[test]
fn a_waiter_can_be_woken_without_an_event() {
    let (_helper, _domain, tm) = started();
    // Before any wait: the next wait ends, and only that one.
    tm.wake();
    assert!(!tm.event_wait(None));
    assert!(!tm.event_wait(Some(deadline(Duration::from_millis(1)))));
    for _ in 0..50 {
        let awake = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!tm.event_wait(None));
                awake.store(true, Ordering::Release);
            });
            tm.wake();
            until("the waiter is awake", || awake.load(Ordering::Acquire));
        });
    }
}

/// Both ways of sleeping are woken by each event, by wakes and by deadlines.
#[test]
fn an_event_loop_sleeps_on_one_descriptor() {
    let (_helper, domain) = served();
    let (sender, tm) = (start(&*domain), start(&*domain));
    let posted = buffer(&*domain, 1 << 16);
    submit(&*tm, &posted.receive(20));
    let sent = buffer(&*domain, 100);
    for _ in 0..20 {
        assert!(tm.arm(None).unwrap());
        submit(&*sender, &sent.send(7, tm.address()));
        assert!(is_readable(&*tm, hung()));
        tm.poll();
        assert_ok(&event(&*tm));
        assert_ok(&event(&*sender));
        assert!(!is_readable(&*tm, PollTimeout::ZERO));
    }
    assert!(tm.arm(None).unwrap());
    assert!(!is_readable(&*tm, PollTimeout::ZERO));
    tm.wake();
    assert!(is_readable(&*tm, hung()));
    // The check of the next announcement consumes it, and does not arm.
    assert!(!tm.arm(None).unwrap());
    assert!(tm.arm(Some(deadline(Duration::from_millis(5)))).unwrap());
    assert!(is_readable(&*tm, hung()));
    tm.poll();
    assert!(!is_readable(&*tm, PollTimeout::ZERO));
    assert!(!tm.arm(Some(0)).unwrap(), "over already");
    tm.stop().unwrap();
}

/// Messages for which there was no buffer end one wait, and are counted.
//
#[test]
fn lost_messages_end_a_wait() {
    let (_helper, domain) = served();
    let (sender, tm) = (start(&*domain), start(&*domain));
    let sent = buffer(&*domain, 100);
    submit(&*sender, &sent.send(7, tm.address()));
    assert_ok(&event(&*sender));
    assert!(!tm.event_wait(None));
    assert_eq!(tm.dropped(), 1);
    assert!(!tm.event_wait(Some(deadline(Duration::from_millis(1)))));
}
