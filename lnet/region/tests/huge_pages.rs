//! Huge pages that run out: real bus errors, healed by the guard. The test uses up the machine's
//! huge pages, and so runs alone, as root (`./test memory`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use lnet_region::{Arena, IoVec, Pages, Part, PartMut, Region, guard, receive, send};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::socket::MsgFlags;

const HUGE: usize = 2 << 20;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Sets the number of huge pages of the machine, and restores it when dropped.
struct Pool(String);

impl Pool {
    fn of(pages: usize) -> Pool {
        let before = std::fs::read_to_string(POOL).unwrap();
        let pool = Pool(before);
        pool.set(pages);
        pool
    }

    fn set(&self, pages: usize) {
        std::fs::write(POOL, pages.to_string()).unwrap();
        assert_eq!(std::fs::read_to_string(POOL).unwrap().trim(), pages.to_string(), "the machine has them");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        std::fs::write(POOL, self.0.trim()).unwrap();
    }
}

/// Creates shared memory of `bytes` bytes under the guard, all of them 7, whose first huge page has
/// been removed permanently.
fn robbed(bytes: usize, pool: &Pool, left: usize) -> Region {
    let region = Region::memfd(bytes, Pages::Huge).unwrap();
    let fd = region.share().unwrap();
    region.watch().unwrap();
    IoVec::whole(region.clone()).write(0..bytes).unwrap().fill(7);
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(fd, hole, 0, HUGE as i64).unwrap();
    // The free page goes back to the system.
    pool.set(left);
    region
}

#[test]
#[ignore = "takes the machine's huge pages; run by `./test memory`"]
fn huge_pages_that_run_out_harm_no_other_user() {
    guard::install().unwrap();
    let pool = Pool::of(4);

    // First case: this process accesses the missing page.
    let neighbour = Region::memfd(HUGE, Pages::Huge).unwrap();
    neighbour.share().unwrap();
    neighbour.watch().unwrap();
    IoVec::whole(neighbour.clone()).write(0..HUGE).unwrap().fill(9);
    let region = robbed(2 * HUGE, &pool, 2);
    let vec = IoVec::whole(region.clone());
    assert!(!region.has_faulted());
    assert_eq!(vec.read(HUGE - 2..HUGE + 2).unwrap().to_vec(), [0, 0, 7, 7]);
    assert!(region.has_faulted() && !neighbour.has_faulted());
    assert_eq!(IoVec::whole(neighbour.clone()).read(0..2).unwrap().to_vec(), [9, 9]);
    drop((vec, region));

    // Second case: the system accesses it, in both directions; the end of the memory lies within a
    // page.
    let (ours, theirs) = UnixStream::pair().unwrap();
    pool.set(3);
    let region = robbed(HUGE + 10, &pool, 2);
    let vec = IoVec::whole(region.clone());
    let lease = vec.read(100..200).unwrap();
    let mut parts: Vec<Part<'_>> = Vec::new();
    lease.gather(0, &mut parts, 1);
    assert_eq!(send(ours.as_fd(), &parts, MsgFlags::empty()), Ok(100));
    let mut got = [1; 100];
    assert_eq!(receive(theirs.as_fd(), &mut [PartMut::new(&mut got)], MsgFlags::empty()), Ok(100));
    assert_eq!((got, region.has_faulted()), ([0; 100], true));
    assert_eq!(vec.read(HUGE..HUGE + 10).unwrap().to_vec(), [7; 10]);
    drop((lease, vec, region));

    pool.set(3);
    let region = robbed(HUGE + 10, &pool, 2);
    let vec = IoVec::whole(region.clone());
    let mut lease = vec.write(0..100).unwrap();
    assert_eq!(send(ours.as_fd(), &[Part::new(&[5; 100])], MsgFlags::empty()), Ok(100));
    let mut parts: Vec<PartMut<'_>> = Vec::new();
    lease.scatter(0, &mut parts, 1);
    assert_eq!(receive(theirs.as_fd(), &mut parts, MsgFlags::empty()), Ok(100));
    drop(parts);
    drop(lease);
    assert_eq!((vec.read(99..101).unwrap().to_vec(), region.has_faulted()), (vec![5, 0], true));
    drop((vec, region));
    assert!(!neighbour.has_faulted());
    drop(neighbour);

    // The length of an arena is that of its pages. Without huge pages the arena uses ordinary ones.
    for pages in [2, 0] {
        pool.set(pages);
        let memory = Region::memfd(HUGE + 4096, Pages::Huge).unwrap();
        let fd = memory.share().unwrap().try_clone_to_owned().unwrap();
        // SAFETY: the memory is never written through `memory`.
        let arena = unsafe { Arena::trusted(vec![fd]) }.unwrap();
        assert_eq!(arena.len(), if pages == 2 { 2 * HUGE } else { HUGE + 4096 });
        let vec = IoVec::whole(arena.allocate(HUGE + 10).unwrap());
        vec.write(0..HUGE + 10).unwrap().fill(3);
        assert_eq!(IoVec::whole(memory).read(HUGE..HUGE + 1).unwrap().to_vec(), [3]);
    }
}
