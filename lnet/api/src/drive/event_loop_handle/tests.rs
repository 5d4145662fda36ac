use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::{Clock, Tokens};
use super::*;

/// A node of one shard, whose clock runs as fast as the timer's.
struct Plain {
    tokens: Tokens,
    shard: Sleeper,
    work: AtomicU64,
    /// Set if the result of the last poll may be out of date: the next poll then makes a system
    /// call.
    stale: AtomicBool,
    started: std::time::Instant,
}

impl Plain {
    fn new() -> Plain {
        Plain {
            tokens: Tokens::new(1),
            shard: Sleeper::new().unwrap(),
            work: AtomicU64::new(0),
            stale: AtomicBool::new(false),
            started: std::time::Instant::now(),
        }
    }

    /// Makes the shard readable.
    fn arrive(&self) {
        self.work.store(1, Ordering::Relaxed);
        self.shard.prepare();
        self.shard.wake();
    }
}

impl Clock for Plain {
    fn now_ns(&self) -> u64 {
        1 + self.started.elapsed().as_nanos() as u64
    }
}

impl Drive for Plain {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
    fn poll(&self, _: usize, _: usize) -> Poll {
        let work = self.work.swap(0, Ordering::Relaxed) as usize;
        if work > 0 {
            self.shard.finish();
        }
        Poll { work, deadline_ns: None }
    }
    fn arm(&self, _: usize) -> bool {
        !self.stale.swap(false, Ordering::Relaxed)
    }
    fn wait_fd(&self, _: usize) -> BorrowedFd<'_> {
        self.shard.fd().unwrap()
    }
}

fn is_readable(event_loop_handle: &EventLoopHandle, timeout: PollTimeout) -> bool {
    let mut set = [PollFd::new(event_loop_handle.fd(), PollFlags::POLLIN)];
    poll(&mut set, timeout).unwrap() == 1
}

fn is_readable_now(event_loop_handle: &EventLoopHandle) -> bool {
    is_readable(event_loop_handle, PollTimeout::ZERO)
}

#[test]
fn a_shard_that_becomes_readable_is_reported_once() {
    let (drive, event_loop_handle) = (Plain::new(), EventLoopHandle::new().unwrap());
    for _ in 0..3 {
        assert!(event_loop_handle.arm(&drive, None, || false).unwrap());
        assert!(!is_readable_now(&event_loop_handle));
        drive.arrive();
        assert!(is_readable_now(&event_loop_handle));
        assert!(event_loop_handle.disarm(&drive) && !event_loop_handle.disarm(&drive));
        // The shard has used its wake-up, although no thread has read the event yet; the next call
        // finds it at once.
        assert!(!is_readable_now(&event_loop_handle));
        assert!(!event_loop_handle.arm(&drive, None, || false).unwrap(), "there was work");
    }
}

#[test]
fn what_comes_while_another_thread_drives_is_signalled_by_the_bell_alone() {
    let (drive, event_loop_handle) = (Plain::new(), EventLoopHandle::new().unwrap());
    assert!(drive.tokens.claim(0));
    assert!(event_loop_handle.arm(&drive, None, || false).unwrap());
    drive.arrive();
    assert!(!is_readable_now(&event_loop_handle), "the other one reads it");
    event_loop_handle.sleeper().wake();
    assert!(is_readable_now(&event_loop_handle));
    assert!(event_loop_handle.arm(&drive, None, || false).unwrap(), "armed again, without a look");
    assert!(!is_readable_now(&event_loop_handle));
    drive.tokens.release(0, 0);
    assert!(is_readable_now(&event_loop_handle), "the shard has no driver any more");
    assert!(!event_loop_handle.arm(&drive, None, || false).unwrap());
    assert!(event_loop_handle.arm(&drive, None, || false).unwrap());
}

#[test]
fn it_is_awake_at_its_deadline_and_not_armed_after_it() {
    let (drive, event_loop_handle) = (Plain::new(), EventLoopHandle::new().unwrap());
    for _ in 0..2 {
        let deadline_ns = drive.now_ns() + 2_000_000;
        assert!(event_loop_handle.arm(&drive, Some(deadline_ns), || false).unwrap());
        assert!(is_readable(&event_loop_handle, PollTimeout::from(60_000u16)));
        assert!(drive.now_ns() >= deadline_ns);
        assert!(!event_loop_handle.arm(&drive, Some(deadline_ns), || false).unwrap());
        assert!(!is_readable_now(&event_loop_handle), "the timer has been used up");
    }
    let far_ns = drive.now_ns() + 3_600_000_000_000;
    assert!(event_loop_handle.arm(&drive, Some(far_ns), || false).unwrap());
    assert!(event_loop_handle.arm(&drive, None, || false).unwrap());
    assert!(!is_readable_now(&event_loop_handle));
}

#[test]
fn news_before_the_announcement_is_seen() {
    let (drive, event_loop_handle) = (Plain::new(), EventLoopHandle::new().unwrap());
    let news = AtomicBool::new(true);
    event_loop_handle.sleeper().wake();
    assert!(!event_loop_handle.arm(&drive, None, || news.load(Ordering::Relaxed)).unwrap());
    assert!(!event_loop_handle.disarm(&drive) && !is_readable_now(&event_loop_handle));
}

/// After spinning, the shard is polled once more, and the waiter does not sleep if that poll finds
/// an event.
#[test]
fn old_news_is_no_reason_to_stay_awake() {
    let (net, event_loop_handle) = (Plain::new(), EventLoopHandle::new().unwrap());
    net.stale.store(true, Ordering::Relaxed);
    assert!(event_loop_handle.arm(&net, None, || false).unwrap());
    event_loop_handle.disarm(&net);
    net.stale.store(true, Ordering::Relaxed);
    net.arrive();
    assert!(!event_loop_handle.arm(&net, None, || false).unwrap());
}
