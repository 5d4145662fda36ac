//! End points: addresses of peers, counted.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use nlx_core::Address;
use parking_lot::Mutex;

/// Unused end points are kept, because their peers may send again. A table that has at least this
/// number of entries drops the unused ones before it grows.
const IDLE_MAX: usize = 1024;

/// The address of a peer, at one transfer machine. All end points of one address at one machine are
/// the same object; clones are counted.
pub struct EndPoint(Arc<EndPointEntry>);

struct EndPointEntry {
    address: Address,
    /// The number of `EndPoint` values. Rises from 0 to 1 only under the table's lock.
    users: AtomicUsize,
}

impl EndPoint {
    /// Returns the address. Its text can be passed to [`crate::Machine::end_point`] of any transfer
    /// machine.
    #[must_use]
    pub fn address(&self) -> Address {
        self.0.address
    }

    /// Returns the number of end points of this address at the transfer machine, including this one
    /// and those of messages in flight.
    #[must_use]
    pub fn references(&self) -> usize {
        self.0.users.load(Ordering::Relaxed)
    }

    fn new(known: &Arc<EndPointEntry>) -> EndPoint {
        known.users.fetch_add(1, Ordering::Relaxed);
        EndPoint(known.clone())
    }
}

impl Clone for EndPoint {
    fn clone(&self) -> EndPoint {
        EndPoint::new(&self.0)
    }
}

impl Drop for EndPoint {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PartialEq for EndPoint {
    fn eq(&self, other: &EndPoint) -> bool {
        self.address() == other.address()
    }
}

impl Eq for EndPoint {}

impl Hash for EndPoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl fmt::Display for EndPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

impl fmt::Debug for EndPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndPoint({self}, {} references)", self.references())
    }
}

/// The end points of a transfer machine, by address (X5). Finding a known end point allocates
/// nothing.
#[derive(Default)]
pub(crate) struct EndPoints {
    table: Mutex<EndPointTable>,
}

#[derive(Default)]
struct EndPointTable {
    by_address: HashMap<Address, Arc<EndPointEntry>, foldhash::fast::RandomState>,
    /// The last result: messages often come from one peer several times in a row.
    last: Option<Arc<EndPointEntry>>,
}

impl EndPoints {
    /// Returns the end point of an address.
    pub(crate) fn find(&self, address: Address) -> EndPoint {
        let mut table = self.table.lock();
        let EndPointTable { by_address, last } = &mut *table;
        if let Some(known) = last.as_ref().filter(|known| known.address == address) {
            return EndPoint::new(known);
        }
        if !by_address.contains_key(&address)
            && by_address.len() == by_address.capacity()
            && by_address.len() >= IDLE_MAX
        {
            forget_idle(by_address);
        }
        let known = by_address
            .entry(address)
            .or_insert_with(|| Arc::new(EndPointEntry { address, users: AtomicUsize::new(0) }));
        *last = Some(known.clone());
        EndPoint::new(known)
    }

    /// Returns whether end points of this address are in use.
    pub(crate) fn is_used(&self, address: Address) -> bool {
        self.table.lock().by_address.get(&address).is_some_and(is_used)
    }

    /// Returns the number of addresses in use.
    pub(crate) fn in_use(&self) -> usize {
        self.table.lock().by_address.values().filter(|known| is_used(known)).count()
    }
}

/// Removes unused end points, and shrinks the table to about twice the rest. Called only when the
/// table would grow otherwise, so that its cost is spread over the insertions since the last call.
fn forget_idle(by_address: &mut HashMap<Address, Arc<EndPointEntry>, foldhash::fast::RandomState>) {
    by_address.retain(|_, known| is_used(known));
    by_address.shrink_to(2 * by_address.len().max(IDLE_MAX));
}

fn is_used(known: &Arc<EndPointEntry>) -> bool {
    known.users.load(Ordering::Relaxed) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(tmid: u32, portal: u32) -> Address {
        format!("10.0.0.1@tcp:12345:{portal}:{tmid}").parse().unwrap()
    }

    // motr-transport 2.4
    // Covers: MT-22, MT-97, MT-98, X-5
    #[test]
    fn one_address_is_one_counted_end_point() {
        let end_points = EndPoints::default();
        let first = end_points.find(address(1, 1));
        let second = end_points.find(address(1, 1));
        assert!(Arc::ptr_eq(&first.0, &second.0));
        assert_eq!((first.references(), end_points.in_use()), (2, 1));
        let other = end_points.find(address(2, 1));
        assert_ne!(first, other);
        assert_eq!((other.references(), end_points.in_use()), (1, 2));
        drop((first, second));
        assert_eq!(end_points.in_use(), 1);
    }

    #[test]
    fn unused_end_points_are_forgotten() {
        let end_points = EndPoints::default();
        let kept = end_points.find(address(4095, 63));
        for portal in 1..=20 {
            for tmid in 1..=1000 {
                end_points.find(address(tmid, portal));
            }
        }
        assert!(end_points.table.lock().by_address.len() <= 4 * IDLE_MAX);
        assert_eq!(end_points.in_use(), 1);
        assert!(Arc::ptr_eq(&kept.0, &end_points.find(address(4095, 63)).0));
    }
}
