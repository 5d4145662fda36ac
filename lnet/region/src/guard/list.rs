//! The watched ranges, readable by a signal handler: without a lock, and without freed memory.

use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, fence};

use nlx_fallible::{NoMemory, try_box};
use parking_lot::Mutex;

/// The newest node. Nodes are added at the front and never removed, so their number is the maximum
/// number of ranges that were watched at a time.
static FIRST: AtomicPtr<RangeNode> = AtomicPtr::new(null_mut());

/// Nodes that watch no range now, for reuse.
static SPARE: Mutex<Vec<&'static RangeNode>> = Mutex::new(Vec::new());

/// Faults in watched ranges since the process started.
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of faults in watched ranges since the process started. While the number is
/// unchanged, no range has faulted.
pub(super) fn faults() -> usize {
    // SYNC guard.faults: a thread that sees the count sees the marks of the faulted ranges.
    FAULTS.load(Acquire)
}

/// Number of nodes. Changed under the lock of the spare nodes.
static NODES: AtomicUsize = AtomicUsize::new(0);

/// A watched range, or none.
///
/// A range is neither added nor removed while a thread faults in it, so its node does not change.
/// All other nodes may change while they are read, which `version` shows: it is odd during a
/// change, and higher after it.
#[derive(Debug)]
pub(super) struct RangeNode {
    version: AtomicUsize,
    start: AtomicUsize,
    /// Length of the range in bytes; 0 if no range is watched.
    length: AtomicUsize,
    page_bytes: AtomicUsize,
    faulted: AtomicBool,
    /// The next node, which never changes.
    next: *mut RangeNode,
}

// SAFETY: `next` is null or a node that is never freed, and is only read.
unsafe impl Sync for RangeNode {}
// SAFETY: as above.
unsafe impl Send for RangeNode {}

/// A consistent copy of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeCopy {
    pub(super) node: &'static RangeNode,
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) page_bytes: usize,
}

/// Adds a range.
pub(super) fn enter(range: Range<usize>, page_bytes: usize) -> Result<&'static RangeNode, NoMemory> {
    let spare = SPARE.lock().pop();
    let node = spare.map_or_else(new_node, Ok)?;
    node.set(range, page_bytes);
    Ok(node)
}

/// Removes the range of a node.
pub(super) fn leave(node: &'static RangeNode) {
    node.set(0..0, 0);
    SPARE.lock().push(node);
}

/// Returns the watches of all nodes that are not changing. Safe in a signal handler.
pub(super) fn all() -> impl Iterator<Item = RangeCopy> {
    // SYNC guard.first: nodes are complete before they can be found.
    let first = FIRST.load(Acquire);
    // SAFETY: a node is never freed, and there is no mutable reference to it.
    let nodes = std::iter::successors(unsafe { first.as_ref() }, |node| unsafe { node.next.as_ref() });
    nodes.filter_map(RangeNode::watch)
}

fn new_node() -> Result<&'static RangeNode, NoMemory> {
    // Each node has room reserved in the list of spare nodes, so that returning it cannot fail.
    let mut spare = SPARE.lock();
    let nodes = NODES.load(Relaxed) + 1;
    let room = spare.len();
    spare.try_reserve(nodes.saturating_sub(room)).map_err(|_| NoMemory)?;
    let node = Box::leak(try_box(RangeNode {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
        faulted: AtomicBool::new(false),
        next: FIRST.load(Relaxed),
    })?);
    NODES.store(nodes, Relaxed);
    // SYNC guard.first: nodes are complete before they can be found.
    while let Err(first) = FIRST.compare_exchange_weak(node.next, node, Release, Relaxed) {
        node.next = first;
    }
    Ok(node)
}

impl RangeNode {
    /// Sets the range of the node and clears its fault. Must be called only by the thread that
    /// takes the node from the spare nodes or returns it to them.
    fn set(&self, range: Range<usize>, page_bytes: usize) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        // SYNC guard.version: a reader of one of the words below sees the odd version, or a later
        // one.
        fence(Release);
        self.start.store(range.start, Relaxed);
        self.length.store(range.len(), Relaxed);
        self.page_bytes.store(page_bytes, Relaxed);
        self.faulted.store(false, Relaxed);
        // SYNC guard.version: a reader of this version sees the words.
        self.version.store(version.wrapping_add(2), Release);
    }

    /// Returns the watched range; `None` if there is none, or while it is being changed.
    fn watch(&'static self) -> Option<RangeCopy> {
        // SYNC guard.version
        let version = self.version.load(Acquire);
        let watch = RangeCopy {
            node: self,
            start: self.start.load(Relaxed),
            length: self.length.load(Relaxed),
            page_bytes: self.page_bytes.load(Relaxed),
        };
        // SYNC guard.version
        fence(Acquire);
        let stood_still = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        (stood_still && watch.length > 0).then_some(watch)
    }

    pub(super) fn has_faulted(&self) -> bool {
        self.faulted.load(Acquire)
    }

    pub(super) fn mark_faulted(&self) {
        self.faulted.store(true, Release);
        // SYNC guard.faults: counted after the mark is set.
        FAULTS.fetch_add(1, Release);
    }
}

impl RangeCopy {
    pub(super) fn contains(&self, address: usize) -> bool {
        (self.start..self.start + self.length).contains(&address)
    }
}
