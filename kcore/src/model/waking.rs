//! Waiters: no wake-up is lost, although the sleeper is only made by the first wait (S-412, S-415).

use loom::sync::atomic::{AtomicBool, Ordering};
use nlx_sync::Wake;

use super::lnet::Payload;
use super::*;
use crate::agreed::{BELL, NEWS};
use crate::local_sink::Waiters;

/// Runs the first round of [`lnet_api::wait_until`], which makes the sleeper and sleeps unless
/// there is news.
fn first_wait(waiters: &Waiters, ready: impl Fn() -> bool) {
    let slept = waiters.sleeper().expect("a sleeper").sleep(None, &ready);
    assert!(slept == Ok(Wake::Ready) || ready(), "woken without news");
}

/// Sleeps until there is news. It may take several sleeps: a late wake-up for earlier news ends a
/// sleep too early.
pub(super) fn wait(waiters: &Waiters, ready: impl Fn() -> bool) {
    let sleeper = waiters.sleeper().expect("a sleeper");
    let mut is_ready = ready();
    while !is_ready {
        is_ready = sleeper.sleep(None, &ready) == Ok(Wake::Ready);
    }
}

/// News and the first wait, with nothing else that could order them.
fn a_bell_is_rung_at_the_first_wait() {
    check(|| {
        let shared = Arc::new((Waiters::default(), AtomicBool::new(false)));
        let ringing = thread::spawn({
            let shared = shared.clone();
            move || {
                let (waiters, news) = &*shared;
                news.store(true, Ordering::Relaxed);
                waiters.wake();
            }
        });
        let (waiters, news) = &*shared;
        first_wait(waiters, || news.load(Ordering::Relaxed));
        ringing.join().unwrap();
    });
}

// Covers: S-412
#[test]
fn a_ring_and_the_first_wait() {
    a_bell_is_rung_at_the_first_wait();
}

#[test]
fn a_bell_without_its_fence_is_not_heard() {
    needs(BELL, a_bell_is_rung_at_the_first_wait, "deadlock");
}

/// The same with a real callback, whose news is an event in the queue.
// Covers: S-415
#[test]
fn an_event_and_the_first_wait() {
    check(|| {
        let (rig, buffer) = Rig::receiving();
        let lnet = rig.lnet.clone();
        let arriving = thread::spawn(move || lnet.arrive(0, &Payload::default()));
        first_wait(&rig.tm.shared().sink.waiters, || rig.tm.pending());
        assert_eq!(buffer.ended(&events(&rig.tm)), Ok(()));
        arriving.join().unwrap();
        rig.finish(&[&buffer]);
    });
}

/// The same with only a call of `wake`.
// Covers: S-412
#[test]
fn a_wake_up_and_the_first_wait() {
    check(|| {
        let rig = Arc::new(Rig::new());
        let other = rig.clone();
        let waking = thread::spawn(move || other.tm.wake());
        first_wait(&rig.tm.shared().sink.waiters, || rig.tm.woken.take());
        waking.join().unwrap();
        assert!(!rig.tm.woken.take(), "it is used up");
        rig.finish(&[]);
    });
}

/// Two events of two threads; one thread may wake the waiter for both. The waiter sleeps until it
/// has both; a missed wake-up would make it sleep for ever.
fn no_event_is_slept_through() {
    check_bounded(3, || {
        let rig = Rig::new();
        let buffers = [0, 1].map(|number| rig.buffer(number));
        for buffer in &buffers {
            rig.submit(buffer, OperationKind::PassiveReceive).expect("it starts");
        }
        let arriving = [0, 1].map(|number| {
            let lnet = rig.lnet.clone();
            thread::spawn(move || lnet.arrive(number, &Payload::default()))
        });
        let mut taken = Vec::new();
        while taken.len() < 2 {
            wait(&rig.tm.shared().sink.waiters, || rig.tm.pending());
            taken.extend(events(&rig.tm));
        }
        for buffer in &buffers {
            assert_eq!(buffer.ended(&taken), Ok(()));
        }
        for thread in arriving {
            thread.join().unwrap();
        }
        rig.finish(&[&buffers[0], &buffers[1]]);
    });
}

#[test]
fn two_events_and_a_waiter() {
    no_event_is_slept_through();
}

#[test]
fn an_event_without_a_bell_does_not_end_the_sleep() {
    needs(NEWS, no_event_is_slept_through, "deadlock");
}
