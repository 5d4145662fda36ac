use crossbeam_utils::CachePadded;
use nlx_sync::{AtomicBool, AtomicI64, Ordering};

use crate::CptTable;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

/// A reference count split by partition (S-311), for objects such as event queues that messages of all
/// partitions refer to.
///
/// [`get`](PercptRef::get) and [`put`](PercptRef::put) touch a cache line of their partition alone. A reference may be
/// taken in one partition and given back in another: only the sum counts, and nobody looks at it while the object is
/// in use. Whoever retires the object calls [`kill`](PercptRef::kill): no new references are given out then, and
/// exactly one call, the kill or one of the puts, is told that the last reference is gone.
///
/// ```
/// use lnet_cpt::{CptTable, PercptRef};
///
/// let refs = PercptRef::new(&CptTable::virtual_parts(2)?);
/// assert!(refs.get(0));
/// assert!(!refs.kill(), "a reference is left");
/// assert!(!refs.get(1), "no new ones");
/// assert!(refs.put(1), "this was the last");
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
#[derive(Debug)]
pub struct PercptRef {
    /// Twice the references taken less those given back here, which may be negative, and [`RETIRED`] as the lowest
    /// bit. Once that is set the count has moved to `rest`, and the upper bits mean nothing.
    slots: Box<[CachePadded<AtomicI64>]>,
    /// What the slots of a killed count held together; [`BIAS`] more while they are being collected.
    rest: CachePadded<AtomicI64>,
    killed: AtomicBool,
}

const ONE: i64 = 2;
const RETIRED: i64 = 1;
/// More than there can be references: it keeps `rest` from zero while slots are being collected.
const BIAS: i64 = 1 << 61;

impl PercptRef {
    /// A count of zero.
    pub fn new(table: &CptTable) -> PercptRef {
        PercptRef::with_partitions(table.partitions())
    }

    fn with_partitions(partitions: usize) -> PercptRef {
        PercptRef {
            slots: (0..partitions).map(|_| CachePadded::new(AtomicI64::new(0))).collect(),
            rest: CachePadded::new(AtomicI64::new(0)),
            killed: AtomicBool::new(false),
        }
    }

    /// Takes a reference on behalf of a partition; `false` once the count is killed.
    ///
    /// # Panics
    ///
    /// If the table has no such partition.
    #[inline]
    #[must_use = "a killed count gives no reference"]
    pub fn get(&self, cpt: usize) -> bool {
        // Relaxed: whoever takes a reference has the object by other means already. One that comes too late adds to
        // bits that mean nothing any more.
        self.slots[cpt].fetch_add(ONE, Ordering::Relaxed) & RETIRED == 0
    }

    /// Gives a reference back; `true` if it was the last of a killed count. Each `get` that returned `true` allows one.
    ///
    /// # Panics
    ///
    /// If the table has no such partition.
    #[inline]
    #[must_use = "who is told that the last reference is gone must act"]
    pub fn put(&self, cpt: usize) -> bool {
        // SYNC percptref.put: Release here, acquired by the kill that collects the slot.
        let counted = self.slots[cpt].fetch_sub(ONE, Ordering::Release) & RETIRED == 0;
        !counted && self.settle(1)
    }

    /// Ends the giving out of references; `true` if none is left. Only the first call counts; others are `false`.
    #[must_use = "who is told that the last reference is gone must act"]
    pub fn kill(&self) -> bool {
        self.kill_with(BIAS)
    }

    fn kill_with(&self, bias: i64) -> bool {
        // Relaxed: it only picks the one that collects.
        if self.killed.swap(true, Ordering::Relaxed) {
            return false;
        }
        // Before anything is collected. A put that comes still earlier takes `rest` below zero, which is nobody's last.
        self.rest.fetch_add(bias, Ordering::Relaxed);
        for slot in &self.slots {
            // SYNC percptref.put: Acquire here.
            let held = slot.fetch_or(RETIRED, Ordering::Acquire) >> 1;
            self.rest.fetch_add(held, Ordering::Relaxed);
        }
        self.settle(bias)
    }

    /// The references that are out. It is exact only while nobody takes or gives any: under the exclusive lock of the
    /// partitions.
    pub fn sum(&self) -> i64 {
        // Relaxed: exclusivity orders, or the answer is not exact anyway.
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        let counting: i64 = slots.filter(|slot| slot & RETIRED == 0).map(|slot| slot >> 1).sum();
        counting + self.rest.load(Ordering::Relaxed)
    }

    /// Whether no reference is out; exact under the same condition as [`sum`](PercptRef::sum).
    pub fn is_zero(&self) -> bool {
        self.sum() == 0
    }

    /// Takes from the collected count; whether that leaves none.
    fn settle(&self, amount: i64) -> bool {
        // SYNC percptref.last: each put Releases, the last Acquires what all before it did to the object.
        self.rest.fetch_sub(amount, Ordering::AcqRel) == amount
    }
}
