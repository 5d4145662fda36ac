//! The fake's clock and drive.

use lnet_api::{Clock, Drive, EventLoopHandle, Sleeper, wait_until};
use lnet_fake::{FakeClock, FakeDrive};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;

#[test]
fn time_passes_by_hand_and_never_backwards() {
    let clock = FakeClock::new();
    assert_eq!(clock.now_ns(), 0);
    clock.set_now_ns(5);
    clock.advance_ns(7);
    assert_eq!(clock.now_ns(), 12);
    assert!(panic_of(|| clock.set_now_ns(11)).contains("from 12 ns to 11 ns"));
    assert!(panic_of(|| clock.advance_ns(u64::MAX)).contains("cannot be moved"));
    assert_eq!(clock.now_ns(), 12);
}

#[test]
fn a_wait_ends_at_its_deadline_on_the_drives_clock() {
    let clock = FakeClock::new();
    let drive = FakeDrive::on(clock.clone());
    let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().unwrap());
    clock.set_now_ns(100);
    assert_eq!((drive.now_ns(), drive.clock().now_ns(), drive.shards()), (100, 100, 0));
    assert!(!wait_until(&*drive, &sleeper, Some(100), || false));
    assert!(wait_until(&*drive, &sleeper, None, || true));
    // No other thread moves the clock, so it advances exactly to the deadline.
    assert!(!wait_until(&*drive, &sleeper, Some(3_600_000_000_000), || false));
    assert_eq!(clock.now_ns(), 3_600_000_000_000);
}

/// A program that sleeps in its own event loop returns at once, with the clock at its deadline.
#[test]
fn an_event_loop_handles_deadline_comes_at_once() {
    let drive = FakeDrive::new();
    let loop_handle = EventLoopHandle::new().unwrap();
    assert!(loop_handle.arm(&*drive, Some(1_000_000), || false).unwrap());
    assert_eq!(drive.now_ns(), 1_000_000);
    let mut set = [PollFd::new(loop_handle.fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut set, PollTimeout::NONE).unwrap(), 1);
    assert!(!loop_handle.arm(&*drive, Some(1_000_000), || false).unwrap());
}
