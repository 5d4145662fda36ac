//! A lock with one part per partition.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crossbeam_utils::CachePadded;
use nlx_sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use smallvec::SmallVec;

use crate::{CptTable, MAX_PARTITIONS};

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// The number of guards that [`PercptLock::lock_all`] keeps without an allocation: the engine's
/// maximum number of partitions.
const INLINE_GUARDS: usize = 64;

/// A lock per partition that can also be locked as a whole (`struct cfs_percpt_lock`, S-304,
/// lnet-semantics 23).
///
/// - [`lock(i)`](PercptLock::lock) locks only partition i: its own data `T` may be changed, the
///   shared data `G` read.
/// - [`lock_all`](PercptLock::lock_all) locks all partitions: everything may be changed. Use it for
///   configuration.
///
/// While a thread holds or awaits all locks, newcomers queue before their own lock, so that the
/// thread gets them soon. Each lock spins briefly, then sleeps on a futex. Do not block while
/// holding one. A thread that holds a lock of a `PercptLock` must release it before it requests
/// another one of the same `PercptLock`; otherwise it deadlocks with itself.
///
/// ```
/// use lnet_cpt::{CptTable, PercptLock};
///
/// // Peers per partition, and one list of networks for all.
/// let table = CptTable::virtual_parts(2)?;
/// let lock = PercptLock::new(&table, |_cpt| Vec::new(), vec!["tcp"]);
///
/// let mut mine = lock.lock(1);
/// mine.push("10.0.0.1@tcp");
/// assert_eq!(mine.shared().len(), 1);
/// drop(mine);
///
/// let mut all = lock.lock_all();
/// all.shared_mut().push("o2ib");
/// all.part(0).push("10.0.0.2@o2ib");
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
pub struct PercptLock<T, G = ()> {
    /// The private locks with their data, each on separate cache lines, so that partitions do not
    /// slow one another down.
    slots: Box<[CachePadded<Mutex<T>>]>,
    /// Held by the thread that holds or collects all locks.
    gate: Mutex<()>,
    /// True while the gate is held: a hint by which newcomers avoid the gate while no thread waits
    /// for all locks.
    closing: CachePadded<AtomicBool>,
    shared: UnsafeCell<G>,
}

// SAFETY: `slots` and the other fields are `Sync` for `T: Send`. Through `&PercptLock`, `shared` is
// accessible only as `&G` under a private lock, by several threads at once (`G: Sync`), or as `&mut
// G` by the thread that holds all the locks, which may be any thread (`G: Send`). The two exclude
// each other: `&G` lives no longer than the guard of one private lock, and `ExclusiveGuard` holds
// the guards of all of them, of which there is at least one.
unsafe impl<T: Send, G: Send + Sync> Sync for PercptLock<T, G> {}

impl<T, G> PercptLock<T, G> {
    /// Creates a lock with `part(i)` as the data of partition i, and `shared` for all
    /// (`cfs_percpt_lock_alloc`).
    pub fn new(table: &CptTable, part: impl FnMut(usize) -> T, shared: G) -> Self {
        Self::with_partitions(table.partitions(), part, shared)
    }

    /// Creates a lock for a number of partitions, at least 1 and at most [`MAX_PARTITIONS`].
    ///
    /// # Panics
    ///
    /// If the number is out of range.
    pub fn with_partitions(partitions: usize, part: impl FnMut(usize) -> T, shared: G) -> Self {
        assert!((1..=MAX_PARTITIONS).contains(&partitions), "a table has at least one partition");
        PercptLock {
            slots: (0..partitions).map(part).map(|data| CachePadded::new(Mutex::new(data))).collect(),
            gate: Mutex::new(()),
            closing: CachePadded::new(AtomicBool::new(false)),
            shared: UnsafeCell::new(shared),
        }
    }

    /// Returns the number of private locks.
    pub fn partitions(&self) -> usize {
        self.slots.len()
    }

    /// Locks one partition (`cfs_percpt_lock`).
    ///
    /// # Panics
    ///
    /// If the table has no such partition.
    // Tracked, because a test that counts locks records the caller's location.
    #[inline]
    #[track_caller]
    pub fn lock(&self, cpt: usize) -> PrivateGuard<'_, T, G> {
        // Relaxed, because only fairness depends on the flag; the private locks provide the
        // exclusion.
        if self.closing.load(Ordering::Relaxed) {
            self.wait_at_gate();
        }
        PrivateGuard { part: self.slots[cpt].lock(), lock: self, cpt }
    }

    /// Locks one partition if it is free and no thread awaits all of them.
    ///
    /// # Panics
    ///
    /// If the table has no such partition.
    pub fn try_lock(&self, cpt: usize) -> Option<PrivateGuard<'_, T, G>> {
        let slot = &self.slots[cpt];
        let part = if self.closing.load(Ordering::Relaxed) { None } else { slot.try_lock() }?;
        Some(PrivateGuard { part, lock: self, cpt })
    }

    /// Locks all partitions (`cfs_percpt_lock` with a negative index).
    pub fn lock_all(&self) -> ExclusiveGuard<'_, T, G> {
        let mut guard = self.close();
        guard.take(self.slots.len());
        guard
    }

    #[cold]
    fn wait_at_gate(&self) {
        drop(self.gate.lock());
    }

    /// Closes the gate for newcomers. The private locks are still to be taken.
    fn close(&self) -> ExclusiveGuard<'_, T, G> {
        let gate = self.gate.lock();
        self.closing.store(true, Ordering::Relaxed);
        ExclusiveGuard { parts: SmallVec::new(), lock: self, _gate: gate }
    }
}

/// The guard of one partition's lock.
#[must_use = "it unlocks when it is dropped"]
pub struct PrivateGuard<'a, T, G = ()> {
    part: MutexGuard<'a, T>,
    lock: &'a PercptLock<T, G>,
    cpt: usize,
}

impl<T, G> PrivateGuard<'_, T, G> {
    /// Returns the locked partition.
    pub fn partition(&self) -> usize {
        self.cpt
    }

    /// Returns the shared data, read-only.
    pub fn shared(&self) -> &G {
        // SAFETY: `self` holds a private lock for as long as the borrow lives. `&mut G` is created
        // only from an `ExclusiveGuard`, which holds that lock too; so none exists now.
        unsafe { &*self.lock.shared.get() }
    }
}

impl<T, G> PrivateGuard<'_, T, G> {
    /// Returns the partition's data, mutable, and the shared data, read-only.
    pub fn split(&mut self) -> (&mut T, &G) {
        // SAFETY: as for `shared`; the two do not overlap.
        let shared = unsafe { &*self.lock.shared.get() };
        (&mut self.part, shared)
    }
}

impl<T, G> Deref for PrivateGuard<'_, T, G> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T, G> DerefMut for PrivateGuard<'_, T, G> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.part
    }
}

/// The guard of all partitions' locks.
#[must_use = "it unlocks when it is dropped"]
pub struct ExclusiveGuard<'a, T, G = ()> {
    /// The guards of the private locks, in ascending order.
    parts: SmallVec<[MutexGuard<'a, T>; INLINE_GUARDS]>,
    lock: &'a PercptLock<T, G>,
    /// The guard of the gate, dropped last.
    _gate: MutexGuard<'a, ()>,
}

impl<'a, T, G> ExclusiveGuard<'a, T, G> {
    /// Takes the first `count` private locks, in ascending order.
    fn take(&mut self, count: usize) {
        let lock = self.lock;
        self.parts.extend(lock.slots[..count].iter().map(|slot| slot.lock()));
    }

    /// Returns the data of one partition.
    ///
    /// # Panics
    ///
    /// If the table has no such partition.
    pub fn part(&mut self, cpt: usize) -> &mut T {
        &mut self.parts[cpt]
    }

    /// Returns the data of each partition, in ascending order.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut T> + use<'_, 'a, T, G> {
        self.parts.iter_mut().map(|part| &mut **part)
    }

    /// Returns the shared data.
    pub fn shared(&self) -> &G {
        // SAFETY: as for `split`; the borrow of `self` excludes `&mut G`.
        unsafe { &*self.lock.shared.get() }
    }

    /// Returns the shared data, mutable.
    pub fn shared_mut(&mut self) -> &mut G {
        self.split().1
    }

    /// Returns the data of each partition and the shared data, both mutable.
    pub fn split(&mut self) -> (impl Iterator<Item = &mut T> + use<'_, 'a, T, G>, &mut G) {
        // SAFETY: `self` holds all the private locks for as long as the borrow lives, so no
        // `PrivateGuard` exists that could have lent a `&G`; it holds the gate, so no other
        // `ExclusiveGuard` exists; and it is borrowed mutably itself.
        let shared = unsafe { &mut *self.lock.shared.get() };
        (self.parts.iter_mut().map(|part| &mut **part), shared)
    }
}

impl<T, G> Drop for ExclusiveGuard<'_, T, G> {
    fn drop(&mut self) {
        // Releases the private locks in descending order; the gate is dropped after this.
        while self.parts.pop().is_some() {}
        self.lock.closing.store(false, Ordering::Relaxed);
    }
}
