//! Memory that other processes also map.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use lnet_region::{IoVec, MAX_REGION_BYTES, Pages, Region, RegionError};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;

fn memfd(bytes: i64, seals: SealFlag) -> OwnedFd {
    let fd = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    fd
}

fn shared(bytes: usize) -> (Region, Region) {
    let ours = Region::memfd(bytes, Pages::Normal).unwrap();
    let theirs = Region::attach(ours.share().unwrap().try_clone_to_owned().unwrap()).unwrap();
    (ours, theirs)
}

#[test]
fn both_sides_see_each_others_bytes() {
    let (ours, theirs) = shared(10_000);
    assert!(ours.is_shared() && theirs.is_shared() && !ours.same(&theirs));
    assert_eq!((ours.len(), theirs.len()), (10_000, 10_000));
    let (ours, theirs) = (IoVec::whole(ours), IoVec::whole(theirs));
    ours.write(4090..5000).unwrap().fill(7);
    assert_eq!(theirs.read(4089..5001).unwrap().to_vec(), [&[0][..], &[7; 910], &[0]].concat());
    theirs.write(4091..4092).unwrap().fill(8);
    assert_eq!(ours.read(4090..4093).unwrap().to_vec(), [7, 8, 7]);
}

#[test]
fn another_process_writes_to_it() {
    let region = Region::memfd(4096, Pages::Normal).unwrap();
    let descriptor = region.share().unwrap().try_clone_to_owned().unwrap();
    let status = Command::new("sh").args(["-c", "printf hello"]).stdout(descriptor).status().unwrap();
    assert!(status.success());
    assert_eq!(IoVec::whole(region).read(0..6).unwrap().to_vec(), b"hello\0");
}

#[test]
fn memory_becomes_shared_only_without_slices_of_it() {
    let region = Region::memfd(4096, Pages::Normal).unwrap();
    let vec = IoVec::whole(region.clone());
    for lease in [0, 1] {
        let reader = (lease == 0).then(|| vec.read(5..6).unwrap());
        let writer = (lease == 1).then(|| vec.write(5..6).unwrap());
        assert_eq!(region.share().unwrap_err(), RegionError::InUse { start: 0, end: 4096 });
        assert!(!region.is_shared());
        drop((reader, writer));
    }
    region.share().unwrap();
    // A region that is shared already can be shared again while leases exist.
    let held = vec.write(5..6).unwrap();
    assert!(region.share().is_ok());
    assert_eq!(held.as_slice(), None);
    assert_eq!(Region::heap(5).unwrap().share().unwrap_err(), RegionError::NotShareable { bytes: 5 });
}

#[test]
fn the_size_cannot_be_changed() {
    let region = Region::memfd(8192, Pages::Normal).unwrap();
    let fd = region.share().unwrap();
    for bytes in [0, 4096, 16384] {
        assert_eq!(ftruncate(fd, bytes), Err(Errno::EPERM));
    }
    assert_eq!(fcntl(fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)), Err(Errno::EBUSY));
    // Another process can punch holes into the memory: they read as zeros.
    let vec = IoVec::whole(region.clone());
    vec.write(0..8192).unwrap().fill(1);
    fallocate(fd, FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 4096)
        .unwrap();
    assert_eq!(vec.read(4095..4097).unwrap().to_vec(), [0, 1]);
}

#[test]
fn what_is_no_sealed_memory_is_refused() {
    let all = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    assert!(Region::attach(memfd(4096, all)).is_ok());
    for seals in [SealFlag::empty(), SealFlag::F_SEAL_SHRINK, SealFlag::F_SEAL_GROW] {
        let error = Region::attach(memfd(4096, seals)).unwrap_err();
        assert_eq!(error, RegionError::NotRegion { what: "its seals", errno: Errno::EINVAL });
    }
    assert!(matches!(Region::attach(memfd(0, all)), Err(RegionError::Length { bytes: 0, .. })));
    let endless = MAX_REGION_BYTES as i64 + 4096;
    assert!(matches!(Region::attach(memfd(endless, all)), Err(RegionError::Length { .. })));
    let null = File::open("/dev/null").unwrap();
    let error = Region::attach(null.as_fd().try_clone_to_owned().unwrap()).unwrap_err();
    assert!(matches!(error, RegionError::NotRegion { what: "its type", .. }), "{error}");
    // Memory that may not be written cannot be a buffer.
    let unwritable = memfd(4096, all | SealFlag::F_SEAL_WRITE);
    assert!(matches!(Region::attach(unwritable), Err(RegionError::System { .. })));
}

#[test]
fn huge_pages_or_ordinary_ones_are_the_same_memory() {
    let region = Region::memfd(10_000, Pages::Huge).unwrap();
    assert_eq!(region.len(), 10_000);
    let vec = IoVec::whole(region);
    vec.write(9_990..10_000).unwrap().fill(3);
    assert_eq!(vec.read(9_989..10_000).unwrap().to_vec(), [&[0][..], &[3; 10]].concat());
}

/// A child inherits neither memory with a descriptor nor short memory in separate pages.
#[test]
fn forked_children_do_not_inherit_the_mapping() {
    for region in [Region::memfd(4096, Pages::Normal).unwrap(), Region::pages(100).unwrap()] {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let at = region.address_of(0);
        let bounds = |line: &str| {
            let (begin, end) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
        };
        let mut lines = maps.lines().skip_while(|line| !bounds(line).is_some_and(|map| map.contains(&at)));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("it is mapped");
        assert!(flags.split(' ').any(|flag| flag == "dc"), "do not copy on fork: {flags}");
    }
}

/// While another process writes without leases, a copy has only bytes that one of both wrote, and
/// nothing else happens.
#[test]
fn copies_from_under_a_hostile_writer_give_bytes_that_stood_there() {
    let (ours, theirs) = shared(4099);
    let (ours, theirs) = (IoVec::whole(ours), IoVec::whole(theirs));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lease = theirs.write(0..4099).unwrap();
            while !done.load(Relaxed) {
                lease.fill(0xaa);
                lease.fill(0x55);
            }
        });
        let target = IoVec::whole(Region::heap(4099).unwrap());
        for skip in 0..300 {
            let source = ours.read(skip..4099).unwrap();
            let mut lease = target.write(0..4099).unwrap();
            assert_eq!(lnet_region::copy(&source, &mut lease), 4099 - skip);
            let copied = lease.into_read();
            assert!(copied.to_vec().iter().all(|byte| [0, 0xaa, 0x55].contains(byte)));
        }
        done.store(true, Relaxed);
    });
}
