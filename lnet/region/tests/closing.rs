//! Memory is unmapped and closed in a separate thread, one after the other: blocking that thread
//! blocks no other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use lnet_region::{Pages, Region, closer};
use nlx_testkit::until;

/// The time after which a test counts as hung.
const HUNG: Duration = Duration::from_secs(120);

/// A value whose drop reports its start, and waits until the other end of its channel is gone.
struct Gate(Sender<()>, std::sync::mpsc::Receiver<()>);

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        let _ = self.1.recv();
    }
}

/// Returns the number of mappings of regions that this process has.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:nlx-region")).count()
}

#[test]
fn dropping_memory_does_not_unmap_it() {
    closer::install().unwrap();
    let (begun, has_begun) = channel();
    let (release, released) = channel::<()>();
    closer::discard(Box::new(Gate(begun, released)));
    has_begun.recv_timeout(HUNG).unwrap();
    assert_eq!(closer::pending(), 1);

    let regions: Vec<_> = (0..20).map(|_| Region::memfd(40 << 20, Pages::Normal).unwrap()).collect();
    let weak: Vec<_> = regions.iter().map(Region::weak).collect();
    let clone = regions[0].clone();
    assert_eq!(mappings(), 20);
    drop(regions);
    // All regions but the clone are dropped, and all are still mapped, so none counts as gone.
    assert_eq!((mappings(), closer::pending()), (20, 20));
    assert!(weak.iter().all(|weak| !weak.is_gone()));

    drop(release);
    until("all are unmapped", || closer::pending() == 0);
    assert_eq!(mappings(), 1);
    assert!(weak.iter().skip(1).all(|weak| weak.is_gone()) && !weak[0].is_gone());
    drop(clone);
    until("the last is unmapped", || weak[0].is_gone());
    assert_eq!(mappings(), 0);
}
