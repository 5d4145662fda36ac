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
//!
//! # Memory that is not sealed
//!
//! To unmap memory waits for who takes pages of it away at this moment, and that can be another process, for as long as it likes; who
//! maps memory waits behind. So memory that another process has not sealed is [sealed](crate::seal) first, in a thread apart, which
//! may wait for the same and keeps nobody else waiting. What cannot be sealed any more stays mapped, and counts, until the process
//! ends.

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

/// Bytes that are unmapped by one call: the address space is locked for less than a millisecond then.
pub const SLICE_BYTES: usize = 16 << 20;

static CLOSER: OnceLock<Closer> = OnceLock::new();

struct Closer {
    todo: Arc<Todo>,
    fork_guard: ForkGuard,
}

/// What there is to do.
#[derive(Default)]
struct Todo {
    /// To be unmapped, closed or dropped.
    closing: Queue,
    /// To be sealed before that.
    apart: Queue,
    /// Memory that can never be sealed. It stays mapped, and charged to its user, until the process ends.
    kept: Queue,
    /// How much waits to be closed or sealed, or is being worked on.
    pending: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    items: Mutex<VecDeque<Retired>>,
    given: Condvar,
}

/// What is to end in that thread.
#[allow(dead_code, reason = "what it holds is only ever dropped")]
enum Retired {
    Descriptor(OwnedFd),
    Memory(Mapped),
    Value(Box<dyn Send>),
    Unsealed(Box<dyn Unsealed>),
}

/// What has memory mapped that another process may not have sealed yet.
pub trait Unsealed: Send {
    /// The memory's descriptor.
    fn memory(&self) -> BorrowedFd<'_>;
}

/// A mapping that nobody uses any more, with the file beneath it, if there is one. Dropped, it is unmapped in slices, then the
/// descriptor is closed, and last of all the mark goes by which others see that.
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
    let todo = Arc::<Todo>::default();
    let [closing, apart] = [todo.clone(), todo.clone()];
    start("nlx-memory", move || closing.close_all())?;
    start("nlx-unsealed", move || apart.seal_all())?;
    let _ = CLOSER.set(Closer { todo, fork_guard: ForkGuard::here() });
    Ok(())
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), RegionError> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).map_err(|error| RegionError::System {
        bytes: 0,
        errno: error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
    })
}

/// Closes a descriptor of memory: in the thread for it where there is one, else at once.
pub fn close(fd: OwnedFd) {
    give(Retired::Descriptor(fd));
}

/// Drops a value whose drop unmaps memory or frees much of it: in the thread for it where there is one, else at once.
pub fn discard(value: Box<dyn Send>) {
    give(Retired::Value(value));
}

/// Drops a value whose drop unmaps memory that may not be sealed, as [`discard`] does, and seals it before if it has to.
pub fn discard_unsealed(value: Box<dyn Unsealed>) {
    give(Retired::Unsealed(value));
}

/// Unmaps memory and closes its descriptor.
pub(crate) fn retire(mapped: Mapped) {
    give(Retired::Memory(mapped));
}

/// What waits to be unmapped, closed or dropped, and what the threads are at work on: 0 once they have done all.
#[must_use]
pub fn pending() -> usize {
    CLOSER
        .get()
        .filter(|closer| closer.fork_guard.in_owner_process())
        .map_or(0, |closer| closer.todo.pending.load(Acquire))
}

fn give(item: Retired) {
    let Some(closer) = CLOSER.get().filter(|closer| closer.fork_guard.in_owner_process()) else {
        return drop(item);
    };
    let todo = &closer.todo;
    todo.pending.fetch_add(1, Release);
    todo.put(&todo.closing, item);
}

impl Retired {
    /// The memory that another process may still take pages of away.
    fn unsealed(&self) -> Option<BorrowedFd<'_>> {
        let fd = match self {
            Retired::Memory(mapped) => mapped.fd.as_ref()?.as_fd(),
            Retired::Unsealed(value) => value.memory(),
            Retired::Descriptor(_) | Retired::Value(_) => return None,
        };
        is_unsealed(fd).then_some(fd)
    }
}

impl Todo {
    /// Ends what is given to it, but for memory that is to be sealed before.
    fn close_all(&self) {
        loop {
            let item = self.closing.next();
            match item.unsealed() {
                Some(_) => self.put(&self.apart, item),
                None => self.end(|| drop(item)),
            }
        }
    }

    /// Seals what is given to it, and passes it back.
    fn seal_all(&self) {
        loop {
            let item = self.apart.next();
            match item.unsealed().map_or(Ok(()), seal) {
                Ok(()) => self.put(&self.closing, item),
                Err(_) => self.end(|| self.kept.push(item).unwrap_or_else(std::mem::forget)),
            }
        }
    }

    /// Without memory for the queue there is nothing but to end it here.
    fn put(&self, queue: &Queue, item: Retired) {
        if let Err(item) = queue.push(item) {
            self.end(|| drop(item));
        }
    }

    fn end(&self, end: impl FnOnce()) {
        end();
        self.pending.fetch_sub(1, Release);
    }
}

impl Queue {
    fn push(&self, item: Retired) -> Result<(), Retired> {
        let mut items = self.items.lock();
        if items.try_reserve(1).is_err() {
            return Err(item);
        }
        items.push_back(item);
        drop(items);
        self.given.notify_one();
        Ok(())
    }

    fn next(&self) -> Retired {
        let mut items = self.items.lock();
        loop {
            match items.pop_front() {
                Some(item) => return item,
                None => self.given.wait(&mut items),
            }
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
