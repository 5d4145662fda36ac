//! Sleeping and waking, with real bells.

use std::os::fd::AsFd;
use std::sync::Barrier;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::oracle::{Op, Sample, Sequence, sample};
use crate::wake::{Sleeper, Wake, Waker, eventfd, pipe};
use crate::{Consumer, Heap, Memory, Producer};

pub(super) type Bells = fn(&Heap) -> (Waker<Heap>, Sleeper<Heap>);

pub(super) const BELLS: [Bells; 3] = [by_futex, by_eventfd, by_pipe];

fn by_futex(memory: &Heap) -> (Waker<Heap>, Sleeper<Heap>) {
    (Waker::futex(memory.clone()), Sleeper::futex(memory.clone()).without_spin())
}

fn by_eventfd(memory: &Heap) -> (Waker<Heap>, Sleeper<Heap>) {
    let (theirs, ours) = eventfd().unwrap();
    (Waker::descriptor(memory.clone(), theirs), Sleeper::descriptor(memory.clone(), ours).without_spin())
}

fn by_pipe(memory: &Heap) -> (Waker<Heap>, Sleeper<Heap>) {
    let (theirs, ours) = pipe().unwrap();
    (Waker::descriptor(memory.clone(), theirs), Sleeper::descriptor(memory.clone(), ours).without_spin())
}

fn rings(sleeper: &Sleeper<Heap>) -> bool {
    let Some(bell) = sleeper.bell() else { return false };
    poll(&mut [PollFd::new(bell, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() > 0
}

#[test]
fn a_consumer_that_is_awake_is_never_signalled() {
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (waker, mut sleeper) = bells(&memory);
        assert_eq!(waker.wake(), Ok(false));
        assert_eq!(sleeper.sleep(None, || true), Ok(Wake::Ready));
        assert_eq!(waker.wake(), Ok(false));
        assert!(!rings(&sleeper));
    }
}

#[test]
fn a_signal_before_sleeping_is_not_lost_and_only_the_first_waker_gives_it() {
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (waker, mut sleeper) = bells(&memory);
        for _ in 0..3 {
            let slept = sleeper.sleep(None, || {
                assert_eq!(waker.wake(), Ok(true));
                assert_eq!(waker.wake(), Ok(false));
                false
            });
            assert_eq!(slept, Ok(Wake::Signalled));
            assert!(!rings(&sleeper), "the bell is silent again");
        }
    }
}

#[test]
fn a_deadline_ends_sleep() {
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (waker, mut sleeper) = bells(&memory);
        let deadline = Instant::now() + std::time::Duration::from_millis(2);
        assert_eq!(sleeper.sleep(Some(deadline), || false), Ok(Wake::TimedOut));
        assert!(Instant::now() >= deadline);
        assert_eq!(sleeper.sleep(Some(deadline), || false), Ok(Wake::TimedOut), "a deadline in the past");
        assert_eq!(waker.wake(), Ok(false), "it is awake");
    }
}

/// The waker claims the word, and only rings when the sleeper has already looked for its signal.
#[test]
fn a_signal_that_comes_late_makes_one_sleep_short_and_no_more() {
    let memory = Heap::new(8).unwrap();
    let (theirs, ours) = eventfd().unwrap();
    let mut sleeper = Sleeper::descriptor(memory.clone(), ours);
    sleeper.prepare_sleep();
    assert!(memory.header().wake.claim());
    sleeper.cancel_sleep().unwrap();
    write(theirs.as_fd(), &1u64.to_ne_bytes()).unwrap();
    assert_eq!(sleeper.sleep(None, || false), Ok(Wake::Signalled));
    assert!(!rings(&sleeper));
    assert_eq!(sleeper.sleep(Some(Instant::now()), || false), Ok(Wake::TimedOut));
}

#[test]
fn ringing_never_blocks_and_does_not_fail_for_a_sleeper_that_is_gone() {
    let memory = Heap::new(8).unwrap();
    let (theirs, ours) = pipe().unwrap();
    while write(&theirs, &[0; 4096]).is_ok() {}
    assert_eq!(write(&theirs, &[0]), Err(Errno::EAGAIN), "the pipe is full");
    let waker = Waker::descriptor(memory.clone(), theirs);
    memory.header().wake.announce();
    assert_eq!(waker.wake(), Ok(true));
    drop(ours);
    memory.header().wake.announce();
    assert_eq!(waker.wake(), Ok(true));
}

/// S-2: a producer that dies between its push and its signal holds the event up for a while, and not for ever.
#[test]
fn an_event_is_found_though_nobody_signals_it() {
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (_waker, mut sleeper) = bells(&memory);
        let mut looks = 0;
        let slept = sleeper.sleep(None, || {
            looks += 1;
            looks > 1
        });
        assert_eq!(slept, Ok(Wake::Ready));
    }
}

/// Each event finds the consumer asleep, nearly asleep or awake; if a wake-up were lost, this would not end.
#[test]
fn no_wake_up_is_lost() {
    const EVENTS: u64 = 20_000;
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (waker, mut sleeper) = bells(&memory);
        let mut producer = Producer::<Sample, _>::new(memory.clone()).unwrap();
        let mut consumer = Consumer::<Sample, _>::new(memory).unwrap();
        consumer.grow(6).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let backoff = crossbeam_utils::Backoff::new();
                start.wait();
                for number in 1..=EVENTS {
                    while producer.push(sample(number)).is_err() {
                        backoff.snooze();
                    }
                    waker.wake().unwrap();
                }
            });
            start.wait();
            let mut sequence = Sequence::default();
            while sequence.seen < EVENTS {
                sleeper.sleep(None, || !consumer.is_empty()).unwrap();
                sequence.step(Op::Drain(3), &mut consumer);
            }
        });
    }
}
