//! Making, sealing and attaching memory.

use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use core::sync::atomic::Ordering::Relaxed;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{SysconfVar, ftruncate, sysconf};

use crate::{
    Consumer, Corruption, Error, Heap, MAX_SLOTS, MIN_SLOTS, Producer, PushError, QueueMemory, SharedMemory,
    Slot,
};

#[test]
fn no_memory_is_made_for_too_few_or_too_many_slots() {
    for slots in [0, 1, MAX_SLOTS + 1, u32::MAX] {
        let error = Error::SlotCount { slots, min: MIN_SLOTS, max: MAX_SLOTS };
        assert_eq!(Heap::new(slots).unwrap_err(), error);
        assert_eq!(SharedMemory::create(slots).unwrap_err(), error);
    }
    for slots in [MIN_SLOTS, MIN_SLOTS + 1, 1000, MAX_SLOTS] {
        let (memory, fd) = SharedMemory::create(slots).unwrap();
        assert_eq!((memory.slots().len(), memory.links().len()), (slots as usize, slots as usize));
        let attached = SharedMemory::attach(fd).unwrap();
        assert_eq!((attached.slots().len(), attached.links().len()), (slots as usize, slots as usize));
    }
}

/// A mapping of the caller works like one of the queue, unless it is too short.
#[test]
fn a_mapping_of_the_callers_holds_a_queue() {
    const SLOTS: u32 = 100;
    let bytes = Heap::bytes(SLOTS).unwrap();
    let map = |bytes| memmap2::MmapMut::map_anon(bytes).unwrap();
    assert_eq!(Heap::mapped(SLOTS, map(bytes - 1)).unwrap_err(), Error::NoMemory { slots: SLOTS as usize });
    assert_eq!(Heap::bytes(MIN_SLOTS - 1).unwrap_err(), Heap::mapped(MIN_SLOTS - 1, map(1)).unwrap_err());
    let memory = Heap::mapped(SLOTS, map(bytes)).unwrap();
    assert_eq!(memory.slots().len(), SLOTS as usize);
    let (mut producer, mut consumer) =
        (Producer::new(memory.clone()).unwrap(), Consumer::new(memory).unwrap());
    producer.push(10).unwrap();
    assert_eq!(consumer.pop(), Ok(10));
}

/// Values that one side writes at the ends of each part arrive at the other side.
// Covers: S-408
#[test]
fn two_mappings_show_the_same_memory() {
    let (ours, fd) = SharedMemory::create(777).unwrap();
    let theirs = SharedMemory::attach(fd).unwrap();
    for index in [0, 776] {
        ours.links()[index].0.store(index as u32 + 5, Relaxed);
        theirs.slots()[index].stamp.store(index as u64 + 6, Relaxed);
    }
    ours.header().wake.sleeping.scribble(7);
    for index in [0, 776] {
        assert_eq!(theirs.links()[index].0.load(Relaxed), index as u32 + 5);
        assert_eq!(ours.slots()[index].stamp.load(Relaxed), index as u64 + 6);
    }
    assert!(theirs.header().wake.sleeping.is_announced());
}

#[test]
fn slots_that_are_not_in_the_ring_cost_no_memory() {
    let (_memory, fd) = SharedMemory::create(MAX_SLOTS).unwrap();
    // The header and the first links are in the first page, the first slots in others, so few pages
    // are used.
    assert!(bytes_used(&fd) <= 4 * 4096, "{} bytes", bytes_used(&fd));
}

/// Memory is provided only when it is used, for any maximum size of the ring, also where the system
/// uses transparent huge pages for all memory.
// Covers: S-418
#[test]
fn on_the_heap_they_cost_none_either() {
    let memory = Heap::new(MAX_SLOTS).unwrap();
    let bytes = resident(memory.slots());
    assert!(bytes <= 64 << 10, "{bytes} bytes");
    memory.slots()[MAX_SLOTS as usize / 2].stamp.store(1, Relaxed);
    let with_one = resident(memory.slots());
    assert!(with_one > bytes && with_one <= bytes + (64 << 10), "{with_one} bytes");
}

/// Q3: the memory that a burst of events needed is returned to the system.
// Covers: S-410
#[test]
fn slots_put_aside_give_their_memory_back() {
    let (memory, fd) = SharedMemory::create(MAX_SLOTS).unwrap();
    let mut producer = Producer::<[u64; 15], _>::new(memory.clone()).unwrap();
    let mut consumer = Consumer::<[u64; 15], _>::new(memory).unwrap();
    for _ in 0..3 {
        consumer.provision(20_000).unwrap();
        (0..20_000).for_each(|number| producer.push([number; 15]).unwrap());
        let burst = bytes_used(&fd);
        assert!(burst >= 20_000 * 128);
        assert!(consumer.drain(usize::MAX).map(|event| event[14]).eq(0..20_000));
        consumer.release(20_000).unwrap();
        assert_eq!(bytes_used(&fd), burst);
        consumer.shrink(100).unwrap();
        producer.accept_shrink().unwrap();
        // The links remain, and so do slots that share 64 KiB with slots of the ring.
        let rest = bytes_used(&fd);
        assert!(rest <= 20_000 * 4 + 5 * 65536, "{rest} bytes of {burst}");
    }
}

/// On the heap, too, pages of slots that are cut off are returned to the system: they read as
/// zeros, and are provided again when they are needed.
#[test]
fn slots_put_aside_on_the_heap_are_forgotten() {
    let memory = Heap::new(MAX_SLOTS).unwrap();
    let mut producer = Producer::<u64, _>::new(memory.clone()).unwrap();
    let mut consumer = Consumer::<u64, _>::new(memory.clone()).unwrap();
    for _ in 0..3 {
        consumer.provision(20_000).unwrap();
        (0..20_000).for_each(|number| producer.push(number).unwrap());
        assert_ne!(memory.slots()[10_000].stamp.load(Relaxed), 0);
        assert!(consumer.drain(usize::MAX).eq(0..20_000));
        consumer.release(20_000).unwrap();
        consumer.shrink(100).unwrap();
        producer.accept_shrink().unwrap();
        assert_eq!(memory.slots()[10_000].stamp.load(Relaxed), 0);
    }
}

/// Returns the size in bytes of the pages beneath `slots` that the system has provided
/// (`/proc/PID/pagemap`: a word for each page, whose highest bits say that it is in memory or
/// swapped out).
fn resident(slots: &[Slot]) -> usize {
    let page = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as usize;
    let addresses = slots.as_ptr_range();
    let pages = addresses.start.addr() / page..addresses.end.addr().div_ceil(page);
    let mut words = vec![0; pages.len() * size_of::<u64>()];
    File::open("/proc/self/pagemap")
        .unwrap()
        .read_exact_at(&mut words, (pages.start * size_of::<u64>()) as u64)
        .unwrap();
    let words = words.chunks_exact(size_of::<u64>()).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    words.filter(|word| word >> 62 != 0).count() * page
}

/// Returns the memory that a file uses: `st_blocks` is in units of 512 bytes.
fn bytes_used(fd: &OwnedFd) -> i64 {
    nix::sys::stat::fstat(fd).unwrap().st_blocks * 512
}

// Covers: MT-219
#[test]
fn the_size_of_the_memory_cannot_be_changed() {
    let (_memory, fd) = SharedMemory::create(8).unwrap();
    for bytes in [0, 100, 1 << 20] {
        assert_eq!(ftruncate(&fd, bytes), Err(Errno::EPERM));
    }
    assert_eq!(fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)), Err(Errno::EBUSY));
}

/// A peer can neither remove pages so that access to them kills, nor prevent others from writing.
/// Holes that it punches read as zeros, which are checked like any other values.
// Covers: MT-219
#[test]
fn a_peer_that_punches_holes_harms_its_own_queue_alone() {
    let (memory, fd) = SharedMemory::create(1000).unwrap();
    let mut producer = Producer::<[u64; 15], _>::new(memory).unwrap();
    let mut consumer = Consumer::<[u64; 15], _>::new(SharedMemory::map_all(&fd).unwrap()).unwrap();
    consumer.provision(600).unwrap();
    (0..300).for_each(|number| producer.push([number; 15]).unwrap());
    let bytes = nix::sys::stat::fstat(&fd).unwrap().st_size;
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&fd, hole, 0, bytes).unwrap();
    assert_eq!(bytes_used(&fd), 0);
    let bad = (0..1000).find_map(|number| producer.push([number; 15]).err());
    assert!(matches!(bad, Some(PushError::Corrupt(Corruption::Shrunk { slots: 0, .. }))), "{bad:?}");
    while consumer.pop().is_ok() {}
}

/// Existing mappings remain: they can be written, and their pages cannot be removed.
// Covers: MT-219
#[test]
fn pages_cannot_be_removed_once_attached() {
    let (memory, fd) = SharedMemory::create(8).unwrap();
    let mut producer = Producer::<u64, _>::new(memory).unwrap();
    let theirs = SharedMemory::attach(fd.try_clone().unwrap()).unwrap();
    let mut consumer = Consumer::<u64, _>::new(theirs).unwrap();
    producer.push(1).unwrap();
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    assert_eq!(fallocate(&fd, hole, 0, 4096), Err(Errno::EPERM));
    let (pages, bytes) = consumer.memory().bytes();
    // SAFETY: the range is mapped, and nothing depends on its contents if the system removes the
    // pages.
    let removed = unsafe { nix::libc::madvise(pages.cast_mut().cast(), bytes, nix::libc::MADV_REMOVE) };
    assert_eq!((removed, Errno::last()), (-1, Errno::EPERM));
    let again = SharedMemory::attach(fd).unwrap_err();
    assert_eq!(again, Error::System { call: "mmap", errno: Errno::EPERM });
    assert_eq!(consumer.pop(), Ok(1));
}

/// A descriptor that cannot be written is useless for both halves, and refused.
#[test]
fn memory_that_cannot_be_written_is_not_attached() {
    let (_memory, fd) = SharedMemory::create(8).unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    let error = SharedMemory::attach(read_only.into()).unwrap_err();
    assert_eq!(error, Error::System { call: "mmap", errno: Errno::EACCES });
}

#[test]
fn memory_that_could_shrink_is_not_attached() {
    let (queue, fd) = SharedMemory::create(8).unwrap();
    drop(queue);
    let error = SharedMemory::attach(copy_of(&fd, SealFlag::F_SEAL_GROW)).unwrap_err();
    assert!(matches!(error, Error::Unsealed { .. }), "{error}");
    assert_eq!(error.errno(), Errno::EPERM);
    SharedMemory::attach(copy_of(&fd, all_seals())).unwrap();
}

#[test]
fn what_is_no_queue_is_not_attached() {
    let error = SharedMemory::attach(memfd(0, all_seals())).unwrap_err();
    assert!(matches!(error, Error::Size { bytes: 0, .. }), "{error}");
    let error = SharedMemory::attach(memfd(1 << 16, all_seals())).unwrap_err();
    assert!(matches!(error, Error::NotAQueue { magic: 0, .. }), "{error}");
    let error = SharedMemory::attach(File::open("/dev/null").unwrap().into()).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
}

#[test]
fn a_queue_of_another_version_or_size_is_not_attached() {
    let damaged = |damage: fn(&SharedMemory)| {
        let (memory, fd) = SharedMemory::create(8).unwrap();
        damage(&memory);
        SharedMemory::attach(fd).unwrap_err()
    };
    let error = damaged(|memory| memory.header().identity.version.store(99, Relaxed));
    assert!(matches!(error, Error::Version { version: 99, .. }), "{error}");
    let error = damaged(|memory| memory.header().identity.max_slots.store(9, Relaxed));
    assert!(matches!(error, Error::Size { .. }), "{error}");
    let error = damaged(|memory| memory.header().identity.max_slots.store(u32::MAX, Relaxed));
    assert!(matches!(error, Error::SlotCount { slots: u32::MAX, .. }), "{error}");
}

fn all_seals() -> SealFlag {
    SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK
}

fn memfd(bytes: i64, seals: SealFlag) -> OwnedFd {
    let fd = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    fd
}

/// Creates memory with the same bytes and other seals.
fn copy_of(fd: &OwnedFd, seals: SealFlag) -> OwnedFd {
    let copy = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let (mut from, mut to) = (File::from(fd.try_clone().unwrap()), File::from(copy.try_clone().unwrap()));
    from.rewind().unwrap();
    std::io::copy(&mut from, &mut to).unwrap();
    fcntl(&copy, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    copy
}
