//! Memory of which another process may remove pages is sealed before it is unmapped; memory that
//! cannot be sealed stays mapped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use lnet_region::closer::{self, Unsealed};
use lnet_region::{Pages, Region, WeakRegion, is_sealed};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nlx_testkit::until;

/// The time after which a test counts as hung.
const HUNG: Duration = Duration::from_secs(120);

fn all_is_done() {
    until("all are unmapped", || closer::pending() == 0);
}

/// Creates a region of one page; returns it with the descriptor that another process would have.
fn shared() -> (Region, OwnedFd) {
    let region = Region::memfd(4096, Pages::Normal).unwrap();
    let theirs = region.share().unwrap().try_clone_to_owned().unwrap();
    (region, theirs)
}

/// A value with memory, whose drop reports whether the memory is sealed by then.
struct Value(OwnedFd, std::sync::mpsc::Sender<bool>);

impl Unsealed for Value {
    fn memory(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.1.send(is_sealed(self.0.as_fd())).unwrap();
    }
}

#[test]
fn memory_is_sealed_before_it_is_unmapped() {
    closer::install().unwrap();
    let (region, theirs) = shared();
    let (refusing, cannot_be) = shared();
    fcntl(&cannot_be, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SEAL)).unwrap();
    assert_eq!([&theirs, &cannot_be].map(|fd| is_sealed(fd.as_fd())), [false; 2]);
    let weak = [&region, &refusing].map(Region::weak);
    drop((region, refusing));
    all_is_done();
    assert_eq!([&theirs, &cannot_be].map(|fd| is_sealed(fd.as_fd())), [true, false]);
    assert!(weak.iter().all(WeakRegion::is_released));
    assert_eq!(weak.map(|weak| weak.is_gone()), [true, false]);

    let (sender, receiver) = std::sync::mpsc::channel();
    for sealed_before in [false, true] {
        let (_region, theirs) = shared();
        if sealed_before {
            lnet_region::seal(theirs.as_fd()).unwrap();
        }
        closer::discard_unsealed(Box::new(Value(theirs, sender.clone())));
        assert!(receiver.recv_timeout(HUNG).unwrap());
    }
    let (pipe, _) = nix::unistd::pipe().unwrap();
    closer::discard_unsealed(Box::new(Value(pipe, sender)));
    assert!(!receiver.recv_timeout(HUNG).unwrap());
}
