//! Regions in one piece of shared memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use lnet_region::{Arena, Fragment, IoVec, LndSlot, Pages, Region, RegionError};
use nix::errno::Errno;
use proptest::prelude::*;

const ARENA_BYTES: usize = 1 << 20;

/// Creates an arena; returns it with the memory as the process that created it has mapped it.
fn arena(bytes: usize, pages: Pages) -> (Arena, IoVec) {
    let memory = Region::memfd(bytes, pages).unwrap();
    let fd = memory.share().unwrap().try_clone_to_owned().unwrap();
    // SAFETY: the tests write by `memory` only where they hold a lease to receive.
    (unsafe { Arena::trusted(vec![fd]) }.unwrap(), IoVec::whole(memory))
}

fn whole(region: &Region) -> Fragment {
    Fragment::new(region.clone(), 0, region.len()).unwrap()
}

#[test]
fn a_region_is_private_memory_that_the_other_process_sees() {
    let (arena, theirs) = arena(ARENA_BYTES, Pages::Normal);
    arena.allocate(1).unwrap();
    let (first, second) = (arena.allocate(100).unwrap(), arena.allocate(5000).unwrap());
    assert!(!first.is_shared() && !first.same(&second));
    assert_eq!((first.len(), second.len()), (100, 5000));
    assert_eq!(first.share().unwrap_err(), RegionError::NotShareable { bytes: 100 });

    let place = |region: &Region| arena.place(&whole(region)).unwrap() as usize;
    let (one, two) = (IoVec::whole(first.clone()), IoVec::whole(second.clone()));
    one.write(0..100).unwrap().as_mut_slice().unwrap().fill(1);
    two.write(0..5000).unwrap().as_mut_slice().unwrap().fill(2);
    let seen = |at: usize, length: usize| theirs.read(at..at + length).unwrap().to_vec();
    assert_eq!(seen(place(&first), 101), [&[1; 100][..], &[0]].concat());
    assert_eq!(seen(place(&second), 5001), [&[2; 5000][..], &[0]].concat());

    // Received bytes of the arena can be lent.
    let incoming = one.incoming(10..20).unwrap();
    theirs.write(place(&first) + 10..place(&first) + 20).unwrap().fill(7);
    drop(incoming);
    assert_eq!(one.read(9..21).unwrap().as_slice().unwrap(), [&[1][..], &[7; 10], &[1]].concat());
    // Leases of different regions are independent.
    let held = one.write(0..100).unwrap();
    assert!(two.write(0..5000).is_ok() && one.read(0..1).is_err());
    drop(held);
}

#[test]
fn a_region_keeps_the_memory_after_the_arena_has_been_dropped() {
    let (arena, theirs) = arena(ARENA_BYTES, Pages::Normal);
    let region = arena.allocate(ARENA_BYTES).unwrap();
    let weak = region.weak();
    drop(arena);
    let vec = IoVec::whole(region);
    vec.write(0..ARENA_BYTES).unwrap().fill(9);
    assert_eq!(theirs.read(ARENA_BYTES - 1..ARENA_BYTES).unwrap().to_vec(), [9]);
    assert!(!weak.is_gone());
    drop(vec);
    assert!(weak.is_gone());
}

#[test]
fn places_are_those_of_this_arena_alone() {
    let ((one, _), (two, _)) = (arena(ARENA_BYTES, Pages::Normal), arena(ARENA_BYTES, Pages::Normal));
    let (region, other) = (one.allocate(4096).unwrap(), one.clone().allocate(4096).unwrap());
    let fragment = Fragment::new(other.clone(), 17, 20).unwrap();
    assert_eq!((one.place(&fragment), two.place(&fragment)), (Some(4096 + 17), None));
    assert_eq!(one.place(&whole(&region)), Some(0));
    assert_eq!(one.place(&whole(&Region::heap(5).unwrap())), None);
    assert!(one.same(&one.clone()) && !one.same(&two));
}

#[test]
fn what_is_not_there_is_refused() {
    let (arena, _) = arena(ARENA_BYTES, Pages::Normal);
    assert!(matches!(arena.allocate(0), Err(RegionError::Length { bytes: 0, .. })));
    assert!(matches!(arena.allocate(usize::MAX), Err(RegionError::Length { .. })));
    let too_long = arena.allocate(ARENA_BYTES + 1).unwrap_err();
    assert_eq!(too_long, RegionError::System { bytes: ARENA_BYTES + 1, errno: Errno::ENOMEM });
    let held: Vec<Region> = (0..ARENA_BYTES / 4096).map(|_| arena.allocate(4090).unwrap()).collect();
    assert_eq!((arena.free_bytes(), arena.allocate(1).unwrap_err().errno()), (0, Errno::ENOMEM));
    drop(held);
    assert!(arena.is_unused());
    assert!(arena.allocate(ARENA_BYTES).is_ok());
    let null = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: the object is never written.
    assert!(matches!(unsafe { Arena::trusted(vec![null.into()]) }, Err(RegionError::NotRegion { .. })));
}

#[test]
fn memory_of_several_descriptors_is_one_piece() {
    let parts: Vec<Region> =
        [8192, 4096, 12288].map(|bytes| Region::memfd(bytes, Pages::Normal).unwrap()).into();
    let fds = parts.iter().map(|part| part.share().unwrap().try_clone_to_owned().unwrap()).collect();
    // SAFETY: the memory is never written through `parts`.
    let arena = unsafe { Arena::trusted(fds) }.unwrap();
    assert_eq!(arena.len(), 8192 + 4096 + 12288);
    let region = arena.allocate(arena.len()).unwrap();
    let bytes: Vec<u8> = (0..arena.len()).map(|at| (at / 64) as u8).collect();
    IoVec::whole(region).write(0..bytes.len()).unwrap().copy_from(0, &bytes);
    let seen = parts.iter().flat_map(|part| IoVec::whole(part.clone()).read(0..part.len()).unwrap().to_vec());
    assert_eq!(seen.collect::<Vec<_>>(), bytes);
}

#[test]
fn an_arena_has_no_holes() {
    let fd =
        |bytes| Region::memfd(bytes, Pages::Normal).unwrap().share().unwrap().try_clone_to_owned().unwrap();
    // SAFETY: the objects are never written.
    let trusted = |fds| unsafe { Arena::trusted(fds) };
    assert!(matches!(trusted(Vec::new()), Err(RegionError::Length { bytes: 0, .. })));
    let broken = trusted(vec![fd(100), fd(4096)]).unwrap_err();
    assert_eq!(broken, RegionError::NotRegion { what: "its length", errno: Errno::EINVAL });
    assert_eq!(trusted(vec![fd(4096), fd(100)]).unwrap().len(), 4196);
}

#[test]
fn huge_pages_or_ordinary_ones_are_the_same_arena() {
    let (arena, theirs) = arena(4 << 20, Pages::Huge);
    assert_eq!(arena.len(), 4 << 20);
    let region = arena.allocate(3 << 20).unwrap();
    let vec = IoVec::whole(region.clone());
    vec.write((3 << 20) - 1..3 << 20).unwrap().fill(4);
    let end = arena.place(&whole(&region)).unwrap() as usize + (3 << 20);
    assert_eq!(theirs.read(end - 1..end + 1).unwrap().to_vec(), [4, 0]);
}

/// Buffers in one arena share the registration of its memory with a device.
// Covers: S-401
#[test]
fn the_regions_of_an_arena_have_one_registration() {
    struct Keys(Arc<AtomicUsize>);
    impl Drop for Keys {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (arena, _) = arena(ARENA_BYTES, Pages::Normal);
    let (slot, dropped) = (LndSlot::new(0).unwrap(), Arc::new(AtomicUsize::new(0)));
    let (first, second) = (arena.allocate(64).unwrap(), arena.allocate(9000).unwrap());
    let keys = Keys(dropped.clone());
    assert!(first.registration(slot, |_| Some(Box::new(keys))).is_some());
    assert!(second.registration(slot, |_| unreachable!("the arena is known")).is_some());

    let (start, bytes) = first.extent();
    assert_eq!((start, bytes), second.extent());
    assert_eq!(bytes, arena.len());
    for region in [&first, &second] {
        assert_eq!(region.address_of(0), start + arena.place(&whole(region)).unwrap());
        assert_eq!(region.address_of(63), region.address_of(0) + 63);
    }
    drop((first, second));
    assert!(arena.allocate(64).unwrap().registration(slot, |_| None).is_some());
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    drop(arena);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

proptest! {
    /// No two regions have a byte in common. All begin as zeros, whatever their memory had before,
    /// and all are returned.
    #[test]
    fn regions_are_zeroed_and_belong_to_one_owner(
        steps in prop::collection::vec((prop_oneof![1usize..200, 4000usize..30_000], any::<usize>()), 1..60)
    ) {
        let (arena, theirs) = arena(16 * 4096, Pages::Normal);
        let mut held: Vec<(Region, u8)> = Vec::new();
        let mut byte = 0u8;
        for (bytes, which) in steps {
            match arena.allocate(bytes) {
                Ok(region) => {
                    byte = byte.wrapping_add(1).max(1);
                    let vec = IoVec::whole(region.clone());
                    prop_assert!(vec.read(0..bytes).unwrap().as_slice().unwrap().iter().all(|byte| *byte == 0));
                    vec.write(0..bytes).unwrap().fill(byte);
                    held.push((region, byte));
                }
                Err(error) => prop_assert_eq!(error.errno(), Errno::ENOMEM),
            }
            if which % 3 == 0 && !held.is_empty() {
                held.swap_remove(which % held.len());
            }
            for (region, byte) in &held {
                let start = arena.place(&whole(region)).unwrap() as usize;
                let there = theirs.read(start..start + region.len()).unwrap().to_vec();
                prop_assert!(there.iter().all(|other| other == byte));
            }
        }
        drop(held);
        prop_assert!(arena.is_unused());
    }
}

/// Threads that allocate and drop concurrently, each checking its bytes.
#[test]
fn threads_allocate_and_drop_at_once() {
    const THREADS: usize = 4;
    let (arena, _) = arena(ARENA_BYTES, Pages::Normal);
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (arena, barrier) = (&arena, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let mut held = Vec::new();
                for round in 0..2000 {
                    let bytes = 1 + (round * 37 + thread * 1001) % 9000;
                    let vec = IoVec::whole(arena.allocate(bytes).unwrap());
                    assert!(vec.read(0..bytes).unwrap().as_slice().unwrap().iter().all(|byte| *byte == 0));
                    vec.write(0..bytes).unwrap().fill(1 + thread as u8);
                    held.push(vec);
                    if held.len() > 10 {
                        let old = held.swap_remove(round % 11);
                        let bytes = old.read(0..old.len()).unwrap();
                        assert!(bytes.as_slice().unwrap().iter().all(|byte| *byte == 1 + thread as u8));
                    }
                }
            });
        }
    });
    assert!(arena.is_unused());
}
