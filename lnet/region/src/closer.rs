//! Unmapping and closing memory in a thread of its own.
//!
//! To unmap memory takes up to 0.1 s for each GiB, and to close the last descriptor of a file in memory, which frees its
//! pages, a third of a second more. A process whose threads serve many installs a thread for that: whatever memory
//! of files it drops, in whatever thread, is unmapped and closed there.
//!
//! # The queue
//!
//! Its length is bounded by what exists already: an entry is a mapping or a descriptor that this process has, and the system
//! lets a process have so many of both (`vm.max_map_count`, `RLIMIT_NOFILE`). So there is always room, and no thread that drops
//! memory ever unmaps it itself. Whoever must bound how much waits counts memory until it is unmapped and closed:
//! [`WeakRegion::is_gone`](crate::WeakRegion::is_gone) is true only then.
//!
//! Other threads may map memory meanwhile, for which the system locks the address space: a mapping is unmapped in slices of
//! [`SLICE_BYTES`].

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use memmap2::MmapRaw;
use nix::errno::Errno;
use nix::libc;
use nlx_fallible::TryArc;
use parking_lot::{Condvar, Mutex};

use crate::{Origin, RegionError};

/// Bytes that are unmapped by one call: the address space is locked for less than a millisecond then.
pub const SLICE_BYTES: usize = 16 << 20;

static CLOSER: OnceLock<Closer> = OnceLock::new();

struct Closer {
    queue: Arc<CloserQueue>,
    origin: Origin,
}

#[derive(Default)]
struct CloserQueue {
    waiting: Mutex<Waiting>,
    given: Condvar,
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Retired>,
    /// The thread is at work on an item.
    busy: bool,
}

/// What is to end in that thread.
#[allow(dead_code, reason = "what it holds is only ever dropped")]
enum Retired {
    Descriptor(OwnedFd),
    Memory(Mapped),
    Value(Box<dyn Send>),
}

/// A mapping that nobody uses any more, with the file beneath it, if there is one. Dropped, it is unmapped in slices, then the
/// descriptor is closed, and last of all the mark goes by which others see that.
pub(crate) struct Mapped {
    map: Option<MmapRaw>,
    _fd: Option<OwnedFd>,
    _mark: Option<TryArc<()>>,
}

impl Mapped {
    pub(crate) fn new(map: MmapRaw, fd: Option<OwnedFd>, mark: Option<TryArc<()>>) -> Mapped {
        Mapped { map: Some(map), _fd: fd, _mark: mark }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            unmap(map);
        }
    }
}

/// From now on, memory of files is unmapped and closed by a thread that does nothing else, in the whole process. Calling it
/// again does nothing. Forked children do so by themselves.
///
/// # Errors
/// [`RegionError::System`] without a thread.
pub fn install() -> Result<(), RegionError> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    if CLOSER.get().is_some() {
        return Ok(());
    }
    let queue = Arc::<CloserQueue>::default();
    let taken_from = queue.clone();
    let thread = std::thread::Builder::new().name("nlx-memory".into());
    thread.spawn(move || taken_from.serve()).map_err(|error| RegionError::System {
        bytes: 0,
        errno: error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
    })?;
    let _ = CLOSER.set(Closer { queue, origin: Origin::here() });
    Ok(())
}

/// Closes a descriptor of memory: in the thread for it where there is one, else at once.
pub fn close(fd: OwnedFd) {
    give(Retired::Descriptor(fd));
}

/// Drops a value whose drop unmaps memory or frees much of it: in the thread for it where there is one, else at once.
pub fn discard(value: Box<dyn Send>) {
    give(Retired::Value(value));
}

/// Unmaps memory and closes its descriptor.
pub(crate) fn retire(mapped: Mapped) {
    give(Retired::Memory(mapped));
}

/// What waits to be unmapped, closed or dropped, and what the thread is at work on: 0 once it has done all.
#[must_use]
pub fn pending() -> usize {
    CLOSER.get().filter(|closer| closer.origin.is_here()).map_or(0, |closer| {
        let waiting = closer.queue.waiting.lock();
        waiting.items.len() + usize::from(waiting.busy)
    })
}

fn give(item: Retired) {
    let Some(closer) = CLOSER.get().filter(|closer| closer.origin.is_here()) else { return drop(item) };
    let mut waiting = closer.queue.waiting.lock();
    if waiting.items.try_reserve(1).is_err() {
        // Without memory for the queue there is nothing but to do it here.
        drop(waiting);
        return drop(item);
    }
    waiting.items.push_back(item);
    drop(waiting);
    closer.queue.given.notify_one();
}

impl CloserQueue {
    fn serve(&self) {
        loop {
            let item = self.next();
            // Without the lock: it may take long.
            drop(item);
        }
    }

    fn next(&self) -> Retired {
        let mut waiting = self.waiting.lock();
        waiting.busy = false;
        loop {
            if let Some(item) = waiting.items.pop_front() {
                waiting.busy = true;
                return item;
            }
            self.given.wait(&mut waiting);
        }
    }
}

/// Unmaps all of it, slice by slice.
fn unmap(map: MmapRaw) {
    let (start, length) = (map.as_mut_ptr(), map.len());
    if length <= SLICE_BYTES {
        return drop(map);
    }
    // From here on the slices own it.
    std::mem::forget(map);
    let mut at = 0;
    while at < length {
        let bytes = SLICE_BYTES.min(length - at);
        // SAFETY: `at` lies within the mapping, which begins at a page, is `length` bytes long and was the forgotten `map`'s
        // alone; these bytes of it are unmapped here only, and nobody refers to them.
        if unsafe { libc::munmap(start.add(at).cast(), bytes) } == 0 {
            at += bytes;
            continue;
        }
        // Pages that are larger than a slice are unmapped as a whole.
        // SAFETY: as above, for the rest of the mapping.
        unsafe { libc::munmap(start.add(at).cast(), length - at) };
        return;
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({} bytes)", self.map.as_ref().map_or(0, MmapRaw::len))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use memmap2::MmapOptions;

    use super::*;

    #[test]
    fn whatever_is_given_to_it_is_closed() {
        install().unwrap();
        install().unwrap();
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let kept: Vec<_> = pairs.into_iter().map(|(kept, given)| (kept, close(given.into()))).collect();
        for (mut kept, ()) in kept {
            assert_eq!(kept.read(&mut [0]).unwrap(), 0, "the other end is closed");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it maps memory")]
    fn a_mapping_of_several_slices_is_unmapped_whole() {
        for bytes in [1, SLICE_BYTES, SLICE_BYTES + 1, 3 * SLICE_BYTES, 3 * SLICE_BYTES + 4096] {
            let map = MmapRaw::from(MmapOptions::new().len(bytes).map_anon().unwrap());
            let pages = map.as_ptr().addr()..map.as_ptr().addr() + bytes;
            assert!(is_mapped(pages.start) && is_mapped(pages.end - 1));
            unmap(map);
            for address in pages.clone().step_by(SLICE_BYTES).chain([pages.end - 1]) {
                assert!(!is_mapped(address), "{address:#x} of {pages:x?}");
            }
        }
    }

    /// Whether the page with this address is mapped. Another test may map something there: no test of this crate maps as much.
    fn is_mapped(address: usize) -> bool {
        let mut resident = 0;
        let page = std::ptr::without_provenance_mut::<libc::c_void>(address & !4095);
        // SAFETY: it writes one byte, which is this function's own.
        unsafe { libc::mincore(page, 1, &raw mut resident) == 0 }
    }
}
