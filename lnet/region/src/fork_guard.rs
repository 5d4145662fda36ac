//! The process that owns an object: a forked child must not use objects of its parent.
//!
//! A child inherits the bytes of an object, but not the threads that serve the object, nor (on
//! purpose) the memory that the object shares with a network card. The object's sockets still
//! belong to the parent as well. So objects from before the fork must be neither used nor torn down
//! in the child. Each process has a mark in a page that the system zeroes at a fork.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use crate::RegionError;

/// The process that created an object. The check whether the calling process is that one costs one
/// load.
#[derive(Debug, Clone, Copy)]
pub struct ForkGuard {
    /// Identifies the process among all its ancestors and descendants: the process id, and above it
    /// a number.
    mark: u64,
    /// The word with this process's mark; without it, the process id is compared.
    page: Option<&'static AtomicU64>,
}

impl ForkGuard {
    /// Returns the guard of this process.
    pub fn here() -> ForkGuard {
        match page() {
            Some(page) => ForkGuard { mark: own_mark(page), page: Some(page) },
            None => ForkGuard { mark: new_mark(), page: None },
        }
    }

    /// Returns whether the calling process created the guard, and is not a forked child.
    #[inline]
    #[must_use]
    pub fn in_owner_process(&self) -> bool {
        match self.page {
            Some(page) => page.load(Relaxed) == self.mark,
            None => std::process::id() == self.process(),
        }
    }

    /// Returns the id of the process that created the guard.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.mark as u32
    }

    /// Checks that this process is not a forked child.
    ///
    /// # Errors
    /// [`RegionError::Forked`] in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), RegionError> {
        if self.in_owner_process() { Ok(()) } else { Err(RegionError::Forked { process: self.process() }) }
    }
}

/// Returns the mark of this process; the first caller creates it.
fn own_mark(page: &AtomicU64) -> u64 {
    match page.load(Relaxed) {
        0 => {
            let made = new_mark();
            page.compare_exchange(0, made, Relaxed, Relaxed).map_or_else(|other| other, |_| made)
        }
        mark => mark,
    }
}

fn new_mark() -> u64 {
    /// The last number of a mark. A child continues its parent's count, so that none of its marks
    /// equals an inherited one, even if it gets the process id of an ancestor.
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    u64::from(NUMBER.fetch_add(1, Relaxed)) << 32 | u64::from(std::process::id())
}

/// Returns the word that reads 0 after a fork, in memory that is never freed. `None` if the system
/// does not wipe pages (before Linux 4.14).
fn page() -> Option<&'static AtomicU64> {
    // An atomic, not a lock, because a child may find a lock that a thread of its parent held.
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
    let known = PAGE.load(Acquire);
    let word = match NonNull::new(known) {
        Some(word) => word,
        None => {
            let made = wiped::Page::map()?;
            match PAGE.compare_exchange(known, made.word().as_ptr(), AcqRel, Acquire) {
                Ok(_) => made.keep(),
                // Another thread has stored its page first.
                Err(first) => NonNull::new(first)?,
            }
        }
    };
    // SAFETY: it is the start of a page that stays mapped, readable and writable, in this process
    // and its children. All bit patterns are valid for it, and it is only accessed as an atomic; or
    // by the system, at a fork, before there is a thread in the child.
    Some(unsafe { word.as_ref() })
}

#[cfg(not(miri))]
mod wiped {
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU64;

    use nix::libc::c_void;
    use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Length of the page. No machine has smaller pages; the system rounds up.
    const BYTES: NonZeroUsize = NonZeroUsize::new(4096).expect("not 0");

    /// A page that reads as zeros in a forked child.
    pub(super) struct Page(NonNull<c_void>);

    impl Page {
        pub(super) fn map() -> Option<Page> {
            let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: a new mapping, at an address of the system's choice.
            let page = Page(unsafe { mmap_anonymous(None, BYTES, rights, MapFlags::MAP_PRIVATE) }.ok()?);
            // SAFETY: the page belongs to this value alone, and is unused.
            unsafe { madvise(page.0, BYTES.get(), MmapAdvise::MADV_WIPEONFORK) }.ok()?;
            Some(page)
        }

        pub(super) fn word(&self) -> NonNull<AtomicU64> {
            self.0.cast()
        }

        /// Keeps the page mapped permanently.
        pub(super) fn keep(self) -> NonNull<AtomicU64> {
            let word = self.word();
            std::mem::forget(self);
            word
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: no other code has the page: its address leaves by `keep` only.
            let _ = unsafe { munmap(self.0, BYTES.get()) };
        }
    }
}

/// Stub for Miri, which has no such pages.
#[cfg(miri)]
mod wiped {
    use std::ptr::NonNull;
    use std::sync::atomic::AtomicU64;

    pub(super) enum Page {}

    impl Page {
        pub(super) fn map() -> Option<Page> {
            None
        }

        pub(super) fn word(&self) -> NonNull<AtomicU64> {
            match *self {}
        }

        pub(super) fn keep(self) -> NonNull<AtomicU64> {
            match self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_process_have_one_mark() {
        let marks = |_| std::thread::spawn(|| ForkGuard::here().mark).join().unwrap();
        let all: Vec<u64> = (0..4).map(marks).collect();
        assert!(all.iter().all(|mark| *mark == ForkGuard::here().mark), "{all:x?}");
        assert!(ForkGuard::here().in_owner_process());
    }

    /// The state in a child is a wiped page, and an object of the parent.
    #[test]
    fn a_wiped_page_gets_a_mark_that_was_never_there_before() {
        static PAGE: AtomicU64 = AtomicU64::new(0);
        let page = &PAGE;
        let inherited = ForkGuard { mark: own_mark(page), page: Some(page) };
        assert!(inherited.in_owner_process());
        page.store(0, Relaxed);
        assert!(!inherited.in_owner_process(), "before the child has made anything");
        let own = ForkGuard { mark: own_mark(page), page: Some(page) };
        assert!(own.in_owner_process() && !inherited.in_owner_process());
        assert_eq!(inherited.check(), Err(RegionError::Forked { process: std::process::id() }));
    }

    #[test]
    fn without_such_a_page_the_process_id_tells() {
        let own = ForkGuard { mark: new_mark(), page: None };
        let other = ForkGuard { mark: own.mark ^ 1, page: None };
        assert!(own.in_owner_process() && !other.in_owner_process());
    }
}
