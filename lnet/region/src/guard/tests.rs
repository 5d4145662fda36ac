//! Tests with real bus errors: files that are shortened under their mappings.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Barrier;

use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::sys::socket::MsgFlags;
use nix::unistd::ftruncate;

use super::*;
use crate::memory::OwnedMemory;
use crate::{IoVec, Part, PartMut, Region, copy, receive, send};

const PAGE: usize = 4096;

/// Creates shared memory over a file whose size is not sealed, all bytes 7; returns it with the
/// file.
fn mortal(pages: usize) -> (Region, OwnedFd) {
    let fd = memfd_create(c"mortal", MFdFlags::MFD_CLOEXEC).unwrap();
    ftruncate(&fd, (pages * PAGE) as i64).unwrap();
    let memory = OwnedMemory::map(fd.try_clone().unwrap(), pages * PAGE).unwrap();
    let region = Region::over(memory, pages * PAGE, true).unwrap();
    IoVec::whole(region.clone()).write(0..pages * PAGE).unwrap().fill(7);
    (region, fd)
}

/// Creates memory as `mortal` does, under the guard, and shortens the file to `to` pages.
fn cut(pages: usize, to: usize) -> IoVec {
    install().unwrap();
    let (region, fd) = mortal(pages);
    region.watch().unwrap();
    ftruncate(&fd, (to * PAGE) as i64).unwrap();
    IoVec::whole(region)
}

fn has_faulted(vec: &IoVec) -> bool {
    vec.fragments()[0].region().has_faulted()
}

fn bytes(vec: &IoVec, from: usize, to: usize) -> Vec<u8> {
    vec.read(from..to).unwrap().to_vec()
}

#[test]
fn what_is_gone_reads_as_zeros() {
    let vec = cut(4, 2);
    assert_eq!(bytes(&vec, 0, 2 * PAGE), [7; 2 * PAGE]);
    assert!(!has_faulted(&vec), "what is there is no fault");
    assert_eq!(bytes(&vec, 2 * PAGE - 1, 2 * PAGE + 1), [7, 0]);
    assert!(has_faulted(&vec));
    assert_eq!(bytes(&vec, 0, 4 * PAGE), [[7; 2 * PAGE], [0; 2 * PAGE]].concat());
}

#[test]
fn what_is_gone_can_be_written_and_copied() {
    let (one, two) = (cut(3, 1), cut(3, 2));
    one.write(PAGE - 3..3 * PAGE).unwrap().fill(5);
    assert_eq!(bytes(&one, PAGE - 4, PAGE + 1), [7, 5, 5, 5, 5]);
    assert!(has_faulted(&one) && !has_faulted(&two));
    let moved = copy(&one.read(0..3 * PAGE).unwrap(), &mut two.write(0..3 * PAGE).unwrap());
    assert_eq!(moved, 3 * PAGE);
    assert_eq!(bytes(&two, 0, 3 * PAGE), bytes(&one, 0, 3 * PAGE));
    assert!(has_faulted(&two));
}

/// Creates one buffer over the fragments of both.
fn joined(one: &IoVec, other: &IoVec) -> IoVec {
    IoVec::new([one.fragments(), other.fragments()].concat()).unwrap()
}

#[test]
fn what_is_gone_is_sent_as_zeros() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (whole, gone) = (cut(1, 1), cut(2, 0));
    let lease = joined(&whole, &gone).read(0..3 * PAGE).unwrap();
    let mut got = vec![0xff; 3 * PAGE];
    let mut done = 0;
    while done < got.len() {
        let mut parts: Vec<Part<'_>> = Vec::new();
        lease.gather(done, &mut parts, 8);
        let sent = send(ours.as_fd(), &parts, MsgFlags::empty()).unwrap();
        let mut room = [PartMut::new(&mut got[done..done + sent])];
        assert_eq!(receive(theirs.as_fd(), &mut room, MsgFlags::MSG_WAITALL), Ok(sent));
        done += sent;
    }
    assert_eq!(got, [&[7; PAGE][..], &[0; 2 * PAGE]].concat());
    assert!(has_faulted(&gone) && !has_faulted(&whole), "only who took memory away has done so");
}

#[test]
fn what_is_gone_can_be_received_into() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (whole, gone) = (cut(1, 1), cut(2, 0));
    let vec = joined(&whole, &gone);
    let mut lease = vec.write(0..3 * PAGE).unwrap();
    let sent = vec![9; 3 * PAGE];
    assert_eq!(send(ours.as_fd(), &[Part::new(&sent)], MsgFlags::empty()), Ok(sent.len()));
    let mut done = 0;
    while done < sent.len() {
        let mut parts: Vec<PartMut<'_>> = Vec::new();
        lease.scatter(done, &mut parts, 8);
        done += receive(theirs.as_fd(), &mut parts, MsgFlags::empty()).unwrap();
    }
    drop(lease);
    assert_eq!(bytes(&vec, 0, 3 * PAGE), sent);
    assert!(has_faulted(&gone) && !has_faulted(&whole));
}

/// A system call on faulting memory that is not watched returns its error to the caller.
#[test]
fn a_call_fails_without_a_watch() {
    install().unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let (region, fd) = mortal(1);
    ftruncate(&fd, 0).unwrap();
    let lease = IoVec::whole(region).read(0..10).unwrap();
    let mut parts: Vec<Part<'_>> = Vec::new();
    lease.gather(0, &mut parts, 1);
    assert_eq!(send(ours.as_fd(), &parts, MsgFlags::empty()), Err(Errno::EFAULT));
}

#[test]
fn many_threads_fault_at_once() {
    const THREADS: usize = 8;
    const PAGES: usize = 64;
    let (vec, neighbour) = (cut(PAGES, 0), cut(PAGES, PAGES));
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (vec, barrier) = (&vec, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for page in 0..PAGES {
                    let at = page * PAGE + thread;
                    // A fault of another thread may have replaced a written byte by zero.
                    assert_eq!(bytes(vec, at, at + 1), [0]);
                }
            });
        }
        // Ranges are added and removed at the same time.
        for _ in 0..200 {
            let (region, _) = mortal(1);
            region.watch().unwrap();
            assert!(!region.has_faulted());
        }
    });
    assert!(has_faulted(&vec) && !has_faulted(&neighbour));
    assert_eq!(bytes(&neighbour, 0, PAGES * PAGE), [7; PAGES * PAGE]);
}

/// A range that reuses the node of a faulted one has not faulted.
#[test]
fn a_range_that_is_no_longer_watched_leaves_nothing_behind() {
    for _ in 0..3 {
        let vec = cut(1, 0);
        assert!(!has_faulted(&vec));
        assert_eq!(bytes(&vec, 0, 1), [0]);
        assert!(has_faulted(&vec));
    }
}

/// Runs the test of this name in a separate process, with [`CHILD`] set; returns its exit status.
fn in_a_process(test: &str) -> std::process::ExitStatus {
    let program = std::env::current_exe().unwrap();
    let path = format!("guard::tests::{test}");
    Command::new(program).args([&path, "--exact"]).env(CHILD, test).output().unwrap().status
}

/// The environment variable that is set in the separate process of a test.
const CHILD: &str = "NLX_GUARD_CHILD";

fn is_the_process() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn a_fault_without_a_watch_ends_the_process() {
    if is_the_process() {
        let watched = cut(1, 0);
        assert_eq!(bytes(&watched, 0, 1), [0]);
        let (region, fd) = mortal(1);
        ftruncate(&fd, 0).unwrap();
        bytes(&IoVec::whole(region), 0, 1);
        unreachable!("there is nothing to read");
    }
    let status = in_a_process("a_fault_without_a_watch_ends_the_process");
    assert_eq!(status.signal(), Some(Signal::SIGBUS as i32), "{status}");
}

#[test]
fn a_signal_sent_from_outside_ends_the_process() {
    if is_the_process() {
        let usual = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the action has no handler.
        unsafe { sigaction(Signal::SIGBUS, &usual) }.unwrap();
        let watched = cut(1, 0);
        assert_eq!(bytes(&watched, 0, 1), [0]);
        raise(Signal::SIGBUS).unwrap();
        unreachable!("it is not to be survived");
    }
    let status = in_a_process("a_signal_sent_from_outside_ends_the_process");
    assert_eq!(status.signal(), Some(Signal::SIGBUS as i32), "{status}");
}

#[test]
fn a_handler_that_was_there_before_is_called() {
    extern "C" fn leave(_: i32) {
        // SAFETY: it ends the process and does nothing else.
        unsafe { libc::_exit(42) }
    }
    if is_the_process() {
        let before = SigAction::new(SigHandler::Handler(leave), SaFlags::empty(), SigSet::empty());
        // SAFETY: `leave` may run at any moment.
        unsafe { sigaction(Signal::SIGBUS, &before) }.unwrap();
        let watched = cut(1, 0);
        assert_eq!(bytes(&watched, 0, 1), [0]);
        raise(Signal::SIGBUS).unwrap();
        unreachable!("it has left");
    }
    let status = in_a_process("a_handler_that_was_there_before_is_called");
    assert_eq!(status.code(), Some(42), "{status}");
}
