//! A forked child: its parent's memory cannot be used there, and is not changed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lnet_region::{
    Arena, ForkGuard, Fragment, IoVec, LndSlot, Pages, ReadVec, Region, RegionError, WriteVec,
};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Runs `check` in a forked child; returns its result.
fn holds_in_a_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: in the child this one thread continues. It takes no lock that another thread of the
    // harness could have held, except the allocator's, which the C library makes usable in a child;
    // and it ends without returning to the harness.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            waitpid(child, None).unwrap() == WaitStatus::Signaled(child, Signal::SIGKILL, false)
        }
        ForkResult::Child => {
            if check() {
                // Not by an exit, because a leak checker would then report all objects that the
                // child has not dropped.
                let _ = raise(Signal::SIGKILL);
            }
            // SAFETY: the call does not return, and runs no code of the parent.
            unsafe { libc::_exit(1) }
        }
    }
}

fn arena() -> Arena {
    let memory = Region::memfd(1 << 20, Pages::Normal).unwrap();
    let fd = memory.share().unwrap().try_clone_to_owned().unwrap();
    // SAFETY: the memory is never written through `memory`, which is dropped here.
    unsafe { Arena::trusted(vec![fd]) }.unwrap()
}

fn regions() -> [Region; 5] {
    [
        arena().allocate(5000).unwrap(),
        Region::heap(5000).unwrap(),
        Region::heap(3 << 20).unwrap(),
        Region::from_vec(vec![7; 5000]).unwrap(),
        Region::memfd(5000, Pages::Normal).unwrap(),
    ]
}

#[test]
fn a_child_has_another_origin() {
    let fork_guard = ForkGuard::here();
    assert!(holds_in_a_child(|| {
        let forked = !fork_guard.in_owner_process();
        // A child of a child is not the owner either.
        let own = ForkGuard::here();
        forked
            && own.in_owner_process()
            && own.process() == std::process::id()
            && !fork_guard.in_owner_process()
    }));
    assert!(fork_guard.in_owner_process());
}

#[test]
fn memory_of_the_parent_is_refused() {
    let process = std::process::id();
    for region in regions() {
        let vec = IoVec::whole(region.clone());
        vec.write(0..5000).unwrap().fill(1);
        let refused = |outcome: Option<RegionError>| outcome == Some(RegionError::Forked { process });
        assert!(holds_in_a_child(|| {
            refused(vec.read(0..1).err())
                && refused(vec.write(0..1).err())
                && refused(vec.incoming(0..1).err())
                && refused(vec.outgoing(0..1).err())
                && refused(vec.check_read(0..1).err())
                && refused(vec.check_write(0..1).err())
                && refused(region.share().err())
                && !region.is_idle()
        }));
        assert!(region.is_idle());
        assert_eq!(vec.read(4999..5000).unwrap().to_vec(), [1]);
    }
    assert_eq!(RegionError::Forked { process }.errno(), Errno::ESTALE);
}

#[test]
fn leases_that_a_child_inherits_show_no_byte() {
    for region in regions() {
        let vec = IoVec::whole(region.clone());
        let (mut read, mut write) = (Some(vec.read(0..10).unwrap()), Some(vec.write(10..20).unwrap()));
        assert!(holds_in_a_child(|| {
            let (read, mut write): (ReadVec, WriteVec) = (read.take().unwrap(), write.take().unwrap());
            let nothing = read.as_slice() == Some(&[]) && write.as_mut_slice() == Some(&mut []);
            nothing && read.copy_to(0, &mut [0; 10]) == 0 && write.copy_from(0, b"hello") == 0
        }));
        assert!(!region.is_idle(), "what a child has dropped is held here");
        assert!(vec.read(10..11).is_err());
        drop((read, write));
        assert!(region.is_idle());
    }
}

#[test]
fn memory_of_the_childs_own_is_not_unmapped_with_what_it_has_inherited() {
    let mut inherited = Some(Region::heap(2 << 20).unwrap());
    assert!(holds_in_a_child(|| {
        // The system may place this mapping where the parent's is missing.
        let own = IoVec::whole(Region::heap(2 << 20).unwrap());
        own.write(0..own.len()).unwrap().fill(3);
        drop(inherited.take());
        own.read(0..own.len()).unwrap().as_slice().unwrap().iter().all(|byte| *byte == 3)
    }));
    assert!(inherited.is_some());
}

#[test]
fn what_an_lnd_has_registered_is_let_be() {
    struct Keys(Arc<AtomicU32>);
    impl Drop for Keys {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (slot, dropped) = (LndSlot::new(0).unwrap(), Arc::new(AtomicU32::new(0)));
    let mut region = Some(Region::heap(10).unwrap());
    let keys = Keys(dropped.clone());
    assert!(region.as_ref().unwrap().registration(slot, |_| Some(Box::new(keys))).is_some());
    assert!(holds_in_a_child(|| {
        let refused = region.as_ref().unwrap().registration(slot, |_| None).is_none();
        drop(region.take());
        refused && dropped.load(Ordering::Relaxed) == 0
    }));
    drop(region);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn an_arena_gives_a_child_nothing_and_takes_nothing_from_it() {
    let (process, arena) = (std::process::id(), arena());
    let mut region = Some(arena.allocate(100).unwrap());
    let used = arena.free_bytes();
    assert!(holds_in_a_child(|| {
        let refused = arena.allocate(1).err() == Some(RegionError::Forked { process });
        let placed = arena.place(&Fragment::new(region.clone().unwrap(), 5, 1).unwrap()) == Some(5);
        drop(region.take());
        refused && placed && arena.free_bytes() == 0 && !arena.is_unused()
    }));
    assert_eq!(arena.free_bytes(), used);
    drop(region);
    assert!(arena.is_unused());
}
