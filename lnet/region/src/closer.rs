//! Unmapping and closing of memory in a separate thread.
//!
//! Unmapping takes up to 0.1 s for each GiB, and closing the last descriptor of a memfd, which
//! frees its pages, another third of a second. A process whose threads serve many clients installs
//! a separate thread for this, in which memory of files is unmapped and closed, whichever thread
//! drops it.
//!
//! # The queue
//!
//! Its length is bounded by existing resources: an entry is a mapping or a descriptor that this
//! process has, and the system limits the number of both (`vm.max_map_count`, `RLIMIT_NOFILE`). So
//! the queue needs no further limit. A thread that drops memory unmaps it itself only if there is
//! no memory for the queue's entry. Code that must bound the waiting memory counts memory until it
//! is unmapped and closed: [`WeakRegion::is_gone`](crate::WeakRegion::is_gone) is true only then.
//!
//! A mapping is unmapped in slices of [`SLICE_BYTES`], because the system locks the address space
//! for each call, and other threads may need to map memory.
//!
//! # Memory that is not sealed
//!
//! Unmapping waits for any process that removes pages of the memory at this moment, without a time
//! limit; threads that map memory wait behind it. So memory that another process has not sealed is
//! [sealed](crate::seal) first, in a second thread, which may wait for that process but blocks no
//! other thread. Memory that cannot be sealed stays mapped, and counts, until the process ends.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, OnceLock};

use memmap2::MmapRaw;
use nix::errno::Errno;
use nix::libc;
use nlx_fallible::TryArc;
use parking_lot::{Condvar, Mutex};

use crate::memory::{is_unsealed, seal};
use crate::{ForkGuard, RegionError};

/// Bytes that are unmapped by one call, which locks the address space for less than a millisecond.
pub const SLICE_BYTES: usize = 16 << 20;

static CLOSER: OnceLock<Closer> = OnceLock::new();

struct Closer {
    queues: Arc<CloserQueues>,
    fork_guard: ForkGuard,
}

/// The queues of both threads.
#[derive(Default)]
struct CloserQueues {
    /// Items to be unmapped, closed or dropped.
    closing: CloserQueue,
    /// Items to be sealed before they are closed.
    sealing: CloserQueue,
    /// Memory that can never be sealed. It stays mapped, and charged to its user, until the process
    /// ends.
    kept: CloserQueue,
    /// Number of items that wait to be closed or sealed, or are being processed.
    pending: AtomicUsize,
}

#[derive(Default)]
struct CloserQueue {
    items: Mutex<VecDeque<Retired>>,
    added: Condvar,
}

/// An item that is to be dropped in the closer's thread.
#[allow(dead_code, reason = "what it holds is only ever dropped")]
enum Retired {
    Descriptor(OwnedFd),
    Memory(Mapped),
    Value(Box<dyn Send>),
    Unsealed(Box<dyn Unsealed>),
}

/// A value with mapped memory that another process may not have sealed yet.
pub trait Unsealed: Send {
    /// Returns the descriptor of the memory.
    fn memory(&self) -> BorrowedFd<'_>;
}

/// An unused mapping with its file, if there is one. Dropping it unmaps the memory in slices, then
/// closes the descriptor, and finally drops the mark, whose absence shows that both are done.
pub(crate) struct Mapped {
    map: Option<MmapRaw>,
    fd: Option<OwnedFd>,
    _mark: Option<TryArc<()>>,
}

impl Mapped {
    pub(crate) fn new(map: MmapRaw, fd: Option<OwnedFd>, mark: Option<TryArc<()>>) -> Mapped {
        Mapped { map: Some(map), fd, _mark: mark }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            unmap(map);
        }
    }
}

/// Installs the threads that unmap and close memory of files, for the whole process. Further calls
/// do nothing. In a forked child the thread that drops memory unmaps it.
///
/// # Errors
/// [`RegionError::System`] if a thread cannot be started.
pub fn install() -> Result<(), RegionError> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    if CLOSER.get().is_some() {
        return Ok(());
    }
    let queues = Arc::<CloserQueues>::default();
    let [closing, sealing] = [queues.clone(), queues.clone()];
    start("nlx-memory", move || closing.close_all())?;
    start("nlx-unsealed", move || sealing.seal_all())?;
    let _ = CLOSER.set(Closer { queues, fork_guard: ForkGuard::here() });
    Ok(())
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), RegionError> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).map_err(|error| RegionError::System {
        bytes: 0,
        errno: error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
    })
}

/// Closes a descriptor of memory: in the closer's thread if it is installed, otherwise at once.
pub fn close(fd: OwnedFd) {
    dispose(Retired::Descriptor(fd));
}

/// Drops a value whose drop unmaps memory or frees much of it: in the closer's thread if it is
/// installed, otherwise at once.
pub fn discard(value: Box<dyn Send>) {
    dispose(Retired::Value(value));
}

/// Drops a value whose drop unmaps memory that may not be sealed, as [`discard`] does, and seals it
/// before if needed.
pub fn discard_unsealed(value: Box<dyn Unsealed>) {
    dispose(Retired::Unsealed(value));
}

/// Unmaps memory and closes its descriptor.
pub(crate) fn retire(mapped: Mapped) {
    dispose(Retired::Memory(mapped));
}

/// Returns the number of items that wait to be unmapped, closed or dropped, or are being processed:
/// 0 once the threads are idle.
#[must_use]
pub fn pending() -> usize {
    CLOSER
        .get()
        .filter(|closer| closer.fork_guard.in_owner_process())
        .map_or(0, |closer| closer.queues.pending.load(Acquire))
}

fn dispose(item: Retired) {
    let Some(closer) = CLOSER.get().filter(|closer| closer.fork_guard.in_owner_process()) else {
        return drop(item);
    };
    let queues = &closer.queues;
    queues.pending.fetch_add(1, Release);
    queues.put(&queues.closing, item);
}

impl Retired {
    /// Returns the descriptor of the memory if another process may still remove pages of it.
    fn unsealed(&self) -> Option<BorrowedFd<'_>> {
        let fd = match self {
            Retired::Memory(mapped) => mapped.fd.as_ref()?.as_fd(),
            Retired::Unsealed(value) => value.memory(),
            Retired::Descriptor(_) | Retired::Value(_) => return None,
        };
        is_unsealed(fd).then_some(fd)
    }
}

impl CloserQueues {
    /// Drops the items of the queue; passes on memory that must be sealed first.
    fn close_all(&self) {
        loop {
            let item = self.closing.next();
            match item.unsealed() {
                Some(_) => self.put(&self.sealing, item),
                None => self.end(|| drop(item)),
            }
        }
    }

    /// Seals the items of the queue, and passes them back.
    fn seal_all(&self) {
        loop {
            let item = self.sealing.next();
            match item.unsealed().map_or(Ok(()), seal) {
                Ok(()) => self.put(&self.closing, item),
                Err(_) => self.end(|| self.kept.push(item).unwrap_or_else(std::mem::forget)),
            }
        }
    }

    /// Adds an item to a queue; drops it here if there is no memory for the queue.
    fn put(&self, queue: &CloserQueue, item: Retired) {
        if let Err(item) = queue.push(item) {
            self.end(|| drop(item));
        }
    }

    fn end(&self, end: impl FnOnce()) {
        end();
        self.pending.fetch_sub(1, Release);
    }
}

impl CloserQueue {
    fn push(&self, item: Retired) -> Result<(), Retired> {
        let mut items = self.items.lock();
        if items.try_reserve(1).is_err() {
            return Err(item);
        }
        items.push_back(item);
        drop(items);
        self.added.notify_one();
        Ok(())
    }

    fn next(&self) -> Retired {
        let mut items = self.items.lock();
        loop {
            match items.pop_front() {
                Some(item) => return item,
                None => self.added.wait(&mut items),
            }
        }
    }
}

/// Unmaps a mapping slice by slice.
fn unmap(map: MmapRaw) {
    let (start, length) = (map.as_mut_ptr(), map.len());
    if length <= SLICE_BYTES {
        return drop(map);
    }
    // From here on the slices own the mapping.
    std::mem::forget(map);
    let mut at = 0;
    while at < length {
        let bytes = SLICE_BYTES.min(length - at);
        // SAFETY: `at` lies within the mapping, which begins at a page, is `length` bytes long and
        // belonged to the forgotten `map` alone; these bytes of it are unmapped here only, and
        // there is no reference to them.
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
        let kept: Vec<_> = pairs.into_iter().map(|(kept, added)| (kept, close(added.into()))).collect();
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

    /// Returns whether the page with this address is mapped. Other tests do not disturb the result,
    /// because no other test of this crate maps a region of this size.
    fn is_mapped(address: usize) -> bool {
        let mut resident = 0;
        let page = std::ptr::without_provenance_mut::<libc::c_void>(address & !4095);
        // SAFETY: it writes one byte, which is this function's own.
        unsafe { libc::mincore(page, 1, &raw mut resident) == 0 }
    }
}
