//! Memory near a partition's CPUs.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use memmap2::MmapMut;
use nix::errno::Errno;

use crate::sys::{self, NumaPolicy, ThreadPolicy};
use crate::{CptError, CptTable, NodeSet};

/// From this length on the pages of a block interleave over the nodes of its partition; shorter
/// blocks use the nodes in turn. Sixteen pages of 4 KiB: a shorter block is often used as a whole,
/// and is better kept together.
pub const INTERLEAVED_BYTES: usize = 64 * 1024;

/// The placement of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// On this NUMA node, or on others once it is full.
    Node(usize),
    /// Page by page over these nodes.
    Interleaved(NodeSet),
    /// By the system's choice: the table has no affinity, the machine reports no nodes, or the
    /// thread has its own memory policy (`numactl --membind`, `--interleave`), which takes
    /// precedence.
    Anywhere,
    /// By the system's choice, because it refused the placement: `EPERM` and `ENOSYS` in containers
    /// and on kernels without NUMA, `EINVAL` if no node of the partition has memory.
    Refused(Errno),
}

/// Zeroed, page-aligned memory of a partition; unmapped when dropped.
pub struct CptMemory {
    map: MmapMut,
    placement: Placement,
}

/// Allocates `bytes` bytes of memory near the CPUs of a partition, or with `None` of the whole
/// table, spread evenly over their NUMA nodes (`cfs_cpt_malloc`, `cfs_cpt_vmalloc`,
/// `cfs_page_cpt_alloc`; S-305).
///
/// A system that refuses the placement still provides the memory: see [`CptMemory::placement`].
///
/// # Errors
/// EINVAL for a partition that the table does not have ([`CptError::NoSuchPartition`]) and for a
/// length of 0 or above `isize::MAX` ([`CptError::Length`]); without memory ENOMEM, or another
/// error of the system ([`CptError::System`]).
///
/// ```
/// use lnet_cpt::{CptTable, Placement, alloc_in};
///
/// let memory = alloc_in(&CptTable::single(), 0, 100)?;
/// assert_eq!(*memory, [0; 100]);
/// assert_eq!(memory.placement(), &Placement::Anywhere);
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
pub fn alloc_in(
    table: &CptTable,
    cpt: impl Into<Option<usize>>,
    bytes: usize,
) -> Result<CptMemory, CptError> {
    let cpt = cpt.into();
    if let Some(cpt) = cpt.filter(|&cpt| cpt >= table.partitions()) {
        return Err(CptError::NoSuchPartition { cpt, partitions: table.partitions() });
    }
    let max = isize::MAX as usize;
    if bytes == 0 || bytes > max {
        return Err(CptError::Length { bytes, max });
    }
    let map = MmapMut::map_anon(bytes).map_err(|error| CptError::System {
        call: "mmap",
        errno: error.raw_os_error().map_or(Errno::ENOMEM, Errno::from_raw),
    })?;
    let placement = place(table, cpt, map.as_ptr(), bytes);
    Ok(CptMemory { map, placement })
}

/// Runs `work` while memory that the calling thread touches first comes from a partition's NUMA
/// nodes, or with `None` from those of the whole table, spread evenly over them (S-305): for
/// structures that `work` builds with the program's own allocator. The thread's memory policy is
/// restored afterwards, also on a panic.
///
/// Pages that the allocator already uses stay in place. So this suits structures that are built
/// once or grow in large steps; use [`alloc_in`] for a separate large block. It costs three system
/// calls where memory is placed, and nothing where it is not: for a table without affinity, or a
/// machine without NUMA nodes. If the system refuses a policy, memory lies where the thread runs;
/// if the thread has its own policy (`numactl`), that one applies.
///
/// ```
/// use lnet_cpt::{CptTable, near};
///
/// let list: Vec<u32> = near(&CptTable::single(), 0, || (0..3).collect());
/// assert_eq!(list, [0, 1, 2]);
/// ```
pub fn near<R>(table: &CptTable, cpt: impl Into<Option<usize>>, work: impl FnOnce() -> R) -> R {
    struct Restore {
        policy: ThreadPolicy,
        is_near: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            // This cannot fail, because the kernel accepted this policy before.
            let _ = self.policy.set();
            IS_NEAR.set(self.is_near);
        }
    }
    let _restore = nodes_of(table, cpt.into()).filter(|_| may_place()).and_then(|nodes| {
        let policy = if nodes.len() == 1 { NumaPolicy::Preferred } else { NumaPolicy::Interleave };
        let policy = ThreadPolicy::new(policy, nodes).replace().ok()?;
        Some(Restore { policy, is_near: IS_NEAR.replace(true) })
    });
    work()
}

thread_local! {
    /// True while the thread is inside [`near`]: its memory policy is then this module's.
    static IS_NEAR: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread has only a default memory policy: the kernel's, or this module's.
fn may_place() -> bool {
    // If the system does not report the policy, the attempt to place shows whether it can.
    IS_NEAR.get() || ThreadPolicy::current().map_or(true, |policy| policy.is_default())
}

/// Returns the nodes for memory of a partition, if it is placed.
fn nodes_of(table: &CptTable, cpt: Option<usize>) -> Option<&NodeSet> {
    let nodes = table.nodemask(cpt);
    let placed = table.has_affinity() && !nodes.is_empty() && table.topology().is_some_and(|t| t.is_numa());
    placed.then_some(nodes)
}

fn place(table: &CptTable, cpt: Option<usize>, start: *const u8, bytes: usize) -> Placement {
    let Some(nodes) = nodes_of(table, cpt).filter(|_| may_place()) else { return Placement::Anywhere };
    let wanted = match table.spread_node(cpt) {
        Some(node) if bytes < INTERLEAVED_BYTES || nodes.len() == 1 => Placement::Node(node),
        _ => Placement::Interleaved(nodes.clone()),
    };
    let placed = match &wanted {
        Placement::Node(node) => {
            NodeSet::of([*node]).map(|node| sys::place(start, bytes, NumaPolicy::Preferred, &node))
        }
        _ => Ok(sys::place(start, bytes, NumaPolicy::Interleave, nodes)),
    };
    match placed {
        Ok(Ok(())) => wanted,
        Ok(Err(errno)) => Placement::Refused(errno),
        Err(error) => Placement::Refused(error.errno()),
    }
}

/// The memory of a table's partitions, for code that builds partitioned state without the table.
/// The default places nothing.
#[derive(Debug, Clone, Default)]
pub struct PartitionMemory(Option<Arc<CptTable>>);

impl PartitionMemory {
    /// Creates the memory of this table's partitions. On a machine of one NUMA node nothing is
    /// placed.
    #[must_use]
    pub fn of(table: &Arc<CptTable>) -> PartitionMemory {
        let several = table.topology().is_some_and(|topology| topology.nodes().len() > 1);
        PartitionMemory(nodes_of(table, None).filter(|_| several).map(|_| table.clone()))
    }

    /// Returns whether memory is placed. If not, the methods cost nothing.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        self.0.is_some()
    }

    /// Runs `work` under [`near`] for the table.
    pub fn near<R>(&self, cpt: impl Into<Option<usize>>, work: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(table) => near(table, cpt, work),
            None => work(),
        }
    }

    /// Allocates memory with [`alloc_in`] for the table.
    pub fn alloc(&self, cpt: impl Into<Option<usize>>, bytes: usize) -> Result<CptMemory, CptError> {
        match &self.0 {
            Some(table) => alloc_in(table, cpt, bytes),
            None => alloc_in(&CptTable::single(), None, bytes),
        }
    }

    /// Places an existing mapping, which begins at a page boundary, near the CPUs of a partition as
    /// [`alloc_in`] does. Pages that other processes share follow too, when they are touched first
    /// after this call; those that only this process maps are moved. For a partition that the table
    /// does not have, nothing changes.
    pub fn place(&self, cpt: usize, start: *const u8, bytes: usize) -> Placement {
        match self.0.as_ref().filter(|table| cpt < table.partitions()) {
            Some(table) => place(table, Some(cpt), start, bytes),
            None => Placement::Anywhere,
        }
    }
}

/// Equal if both have the same table.
impl PartialEq for PartitionMemory {
    fn eq(&self, other: &PartitionMemory) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl Eq for PartitionMemory {}

impl CptMemory {
    /// Returns the placement of the memory.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the mapping itself, which keeps its placement.
    pub fn into_map(self) -> MmapMut {
        self.map
    }
}

impl Deref for CptMemory {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl DerefMut for CptMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

impl fmt::Debug for CptMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CptMemory({} bytes, {:?})", self.len(), self.placement)
    }
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;
    use crate::Topology;
    use crate::fake::MACHINES;

    /// The kernel reports the policy that was set; if it refuses, the placement is
    /// [`Placement::Refused`].
    // Covers: S-305
    #[test]
    fn the_kernel_knows_the_placement() {
        let machine = Topology::machine().unwrap();
        let partitions = machine.cpus().len();
        let table = CptTable::create(machine, partitions).unwrap();
        let mut memory = alloc_in(&table, 0, 4096).unwrap();
        memory[0] = 1;
        match memory.placement() {
            Placement::Node(_) => assert_eq!(sys::policy_of(&memory), Ok(libc::MPOL_PREFERRED)),
            Placement::Anywhere => assert!(!table.has_affinity() || !table.topology().unwrap().is_numa()),
            other => assert!(matches!(other, Placement::Refused(_)), "{other:?}"),
        }
        let node = NodeSet::of([0]).unwrap();
        let block = MmapMut::map_anon(1 << 20).unwrap();
        if sys::place(block.as_ptr(), block.len(), NumaPolicy::Interleave, &node).is_ok() {
            assert_eq!(sys::policy_of(&block), Ok(libc::MPOL_INTERLEAVE));
        }
    }

    /// While state is built near a partition the thread has a policy, and afterwards its previous
    /// one, after a success and after a panic. Where memory is not placed, or may not be, the
    /// policy does not change.
    // Covers: S-305
    #[test]
    fn the_policy_of_a_thread_is_restored() {
        let before = sys::thread_policy();
        let machine = Topology::machine().unwrap();
        let (partitions, nodes) = (machine.cpus().len(), machine.nodes().clone());
        let table = Arc::new(CptTable::create(machine, partitions).unwrap());
        let preferred = ThreadPolicy::new(NumaPolicy::Preferred, &nodes);
        let may = preferred.replace().is_ok_and(|policy| policy.set().is_ok());
        let placed = nodes_of(&table, Some(0)).is_some() && may;
        let expected = if placed { Ok(libc::MPOL_PREFERRED) } else { before };
        assert_eq!((near(&table, 0, sys::thread_policy), sys::thread_policy()), (expected, before));
        let failed = std::panic::catch_unwind(|| near(&table, 0, || panic!("the work fails")));
        assert_eq!((failed.is_err(), sys::thread_policy()), (true, before));
        let memory = PartitionMemory::of(&table);
        assert_eq!(memory.is_placed(), nodes_of(&table, None).is_some() && nodes.len() > 1);
        let expected = if memory.is_placed() { expected } else { before };
        assert_eq!(memory.near(0, sys::thread_policy), expected);
        assert_eq!(PartitionMemory::default().near(0, sys::thread_policy), before);
        assert!(!PartitionMemory::of(&Arc::new(CptTable::single())).is_placed());
    }

    /// Where the nodes of the table do not exist on the machine, the memory is provided
    /// nevertheless.
    // Covers: S-305
    #[test]
    fn a_refused_placement_is_reported() {
        let table = CptTable::create_default(MACHINES[3].topology(), crate::Estimate::PerNode).unwrap();
        let absent = !std::path::Path::new("/sys/devices/system/node/node7").exists();
        let memory = alloc_in(&table, 7, 100).unwrap();
        assert_eq!(matches!(memory.placement(), Placement::Refused(_)), absent);
        assert_eq!(*memory, [0; 100]);
    }
}
