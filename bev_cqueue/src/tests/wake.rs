//! Tests of sleeping and waking with real bells.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Barrier;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    Backlog, ControlMessage, ControlMessageOwned, MsgFlags, Shutdown, UnixAddr, connect, listen, recv,
    recvmsg, send, sendmsg, shutdown,
};
use nix::unistd::{close, write};
use nlx_sync::{Bell, SleepWord, Sleeper, Wake, Waker};

use crate::oracle::{OracleOp, Sample, Sequence, sample};
use crate::{Consumer, Heap, Producer, QueueWord};

pub(super) type Bells = fn(&Heap) -> (Waker<QueueWord<Heap>>, Sleeper<QueueWord<Heap>>);

pub(super) const BELLS: [Bells; 3] = [by_futex, by_eventfd, by_socket];

fn by_futex(memory: &Heap) -> (Waker<QueueWord<Heap>>, Sleeper<QueueWord<Heap>>) {
    let word = QueueWord::consumer(memory.clone());
    (Waker::futex(word.clone()), Sleeper::futex(word))
}

fn by_eventfd(memory: &Heap) -> (Waker<QueueWord<Heap>>, Sleeper<QueueWord<Heap>>) {
    let (word, bell) = (QueueWord::consumer(memory.clone()), Bell::new().unwrap());
    (Waker::ringing(word.clone(), bell.try_clone().unwrap()), Sleeper::ringing(word, bell))
}

fn by_socket(memory: &Heap) -> (Waker<QueueWord<Heap>>, Sleeper<QueueWord<Heap>>) {
    let (word, (theirs, ours)) = (QueueWord::event_loop(memory.clone()), Bell::socket_pair().unwrap());
    (Waker::ringing(word.clone(), theirs), Sleeper::ringing(word, ours))
}

fn rings(sleeper: &Sleeper<QueueWord<Heap>>) -> bool {
    let Some(bell) = sleeper.fd() else { return false };
    poll(&mut [PollFd::new(bell, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() > 0
}

#[test]
fn a_consumer_that_is_awake_is_never_signalled() {
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (waker, sleeper) = bells(&memory);
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
        let (waker, sleeper) = bells(&memory);
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
        let (waker, sleeper) = bells(&memory);
        let deadline = Instant::now() + std::time::Duration::from_millis(2);
        assert_eq!(sleeper.sleep(Some(deadline), || false), Ok(Wake::TimedOut));
        assert!(Instant::now() >= deadline);
        assert_eq!(sleeper.sleep(Some(deadline), || false), Ok(Wake::TimedOut), "a deadline in the past");
        assert_eq!(waker.wake(), Ok(false), "it is awake");
    }
}

/// A waker claims the word, but rings only after the sleeper has checked for its signal.
#[test]
fn a_signal_that_comes_late_makes_one_sleep_short_and_no_more() {
    let word = QueueWord::consumer(Heap::new(8).unwrap());
    let bell = Bell::new().unwrap();
    let sleeper = Sleeper::ringing(word.clone(), bell.try_clone().unwrap());
    sleeper.prepare();
    assert!(word.as_ref().claim());
    sleeper.finish();
    bell.ring().unwrap();
    assert_eq!(sleeper.sleep(None, || false), Ok(Wake::Signalled));
    assert!(!rings(&sleeper));
    assert_eq!(sleeper.sleep(Some(Instant::now()), || false), Ok(Wake::TimedOut));
}

#[test]
fn ringing_never_blocks_and_does_not_fail_for_a_sleeper_that_is_gone() {
    let word = SleepWord::new();
    let (theirs, ours) = socket_pair();
    // Some kilobytes at most wait for a sleeper that does not read.
    let full = (0..1 << 10).find_map(|_| write(&theirs, &[0; 8]).err());
    assert_eq!(full, Some(Errno::EAGAIN));
    fcntl(&theirs, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let waker = Waker::ringing(&word, Bell::socket(theirs));
    word.announce();
    assert_eq!(waker.wake(), Ok(true), "it rings already");
    drop(ours);
    // SIGPIPE is blocked, because a blocked signal stays pending even if it is ignored otherwise.
    let broken = SigSet::from_iter([Signal::SIGPIPE]);
    broken.thread_block().unwrap();
    let signals = SignalFd::with_flags(&broken, SfdFlags::SFD_NONBLOCK).unwrap();
    for _ in 0..2 {
        word.announce();
        assert_eq!(waker.wake(), Ok(true));
        assert_eq!(signals.read_signal(), Ok(None), "no SIGPIPE");
    }
}

/// A sleeper cannot send on its socket. Otherwise a waker that does not trust the sleeper would
/// have to read and close what it sends, including descriptors whose `close` may never return.
#[test]
fn who_sleeps_on_a_socket_cannot_send() {
    let (theirs, ours) = socket_pair();
    let readable =
        |end: &OwnedFd| poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
    assert_eq!(readable(&ours), Ok(0), "it does not ring yet");
    // Neither can a duplicate of its end, nor an end that was passed through a socket.
    let (left, right) = socket_pair();
    let copy = ours.try_clone().unwrap();
    send_with(left.as_raw_fd(), &[ours.as_raw_fd()]).unwrap();
    let travelled = received(&right);
    let harmless = Bell::new().unwrap();
    for end in [ours.as_raw_fd(), copy.as_raw_fd(), travelled] {
        assert!(connect(end, &UnixAddr::new_abstract(b"nlx, nobody").unwrap()).is_err(), "no other peer");
        for flags in [MsgFlags::MSG_NOSIGNAL, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_OOB] {
            assert_eq!(send(end, &[1], flags), Err(Errno::EPIPE));
        }
        assert_eq!(send_with(end, &[harmless.as_fd().as_raw_fd()]), Err(Errno::EPIPE));
        shutdown(end, Shutdown::Read).unwrap();
        assert_eq!(send_with(end, &[harmless.as_fd().as_raw_fd()]), Err(Errno::EPIPE));
    }
    assert!(listen(&ours, Backlog::new(1).unwrap()).is_err());
    close(travelled).unwrap();
    assert_eq!(recv(theirs.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT), Ok(0), "nothing has come");
}

/// Returns both ends of a socket pair; the sleeper's has been passed through a socket, as for
/// another process.
fn socket_pair() -> (OwnedFd, OwnedFd) {
    let (theirs, ours) = Bell::socket_pair().unwrap();
    (theirs.into(), ours.into())
}

/// Sends a byte with descriptors.
fn send_with(socket: RawFd, fds: &[RawFd]) -> Result<usize, Errno> {
    let rights = [ControlMessage::ScmRights(fds)];
    sendmsg::<()>(socket, &[IoSlice::new(&[1])], &rights, MsgFlags::MSG_NOSIGNAL, None)
}

/// Receives the descriptor that came with a byte.
fn received(socket: &OwnedFd) -> RawFd {
    let (mut byte, mut control) = ([0], nix::cmsg_space!([RawFd; 1]));
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags).unwrap();
    match message.cmsgs().unwrap().next() {
        Some(ControlMessageOwned::ScmRights(fds)) => fds[0],
        other => panic!("no descriptor: {other:?}"),
    }
}

/// A producer that dies between its push and its signal delays the event for at most a second.
// Covers: S-2
#[test]
fn an_event_without_a_signal_is_found() {
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (_waker, sleeper) = bells(&memory);
        let mut looks = 0;
        let slept = sleeper.sleep(None, || {
            looks += 1;
            looks > 1
        });
        assert_eq!(slept, Ok(Wake::Ready));
    }
}

/// The consumer is asleep, nearly asleep or awake when an event arrives. If a wake-up were lost,
/// the test would not end.
#[test]
fn no_wake_up_is_lost() {
    const EVENTS: u64 = 20_000;
    for bells in BELLS {
        let memory = Heap::new(8).unwrap();
        let (waker, sleeper) = bells(&memory);
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
                sequence.step(OracleOp::Drain(3), &mut consumer);
            }
        });
    }
}
