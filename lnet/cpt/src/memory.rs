use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use nix::errno::Errno;

use crate::sys::{self, Policy};
use crate::{CptError, CptTable, NodeSet};

/// From this length on the pages of a block interleave over the nodes of its partition; shorter blocks take the nodes
/// in turn. Sixteen pages of 4 KiB: one block of less would often be used as one and is better kept together.
pub const INTERLEAVED_BYTES: usize = 64 * 1024;

/// Where memory has been placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// On this node, or on others once it is full.
    Node(usize),
    /// Page by page over these nodes.
    Interleaved(NodeSet),
    /// Where the system likes: the table has no affinity, or the machine tells no nodes.
    Anywhere,
    /// Where the system likes, because it would not place it: `EPERM` and `ENOSYS` in containers and on kernels
    /// without NUMA, `EINVAL` if no node of the partition has memory.
    Refused(Errno),
}

/// Zeroed, page-aligned memory of a partition; unmapped when dropped.
pub struct CptMemory {
    map: MmapMut,
    placement: Placement,
}

/// Makes `bytes` bytes of memory near the CPUs of a partition, or of the whole table with `None`, spread evenly over
/// their NUMA nodes (`cfs_cpt_malloc`, `cfs_cpt_vmalloc`, `cfs_page_cpt_alloc`; S-305).
///
/// A system that refuses the placement still gives the memory: [`CptMemory::placement`] tells.
///
/// # Errors
/// EINVAL for a partition that the table does not have ([`CptError::NoSuchPartition`]) and for a length of 0 or above
/// `isize::MAX` ([`CptError::Length`]); ENOMEM, or what else the system says, without memory ([`CptError::System`]).
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
    let mut map = MmapMut::map_anon(bytes).map_err(|error| CptError::System {
        call: "mmap",
        errno: error.raw_os_error().map_or(Errno::ENOMEM, Errno::from_raw),
    })?;
    let placement = place(table, cpt, &mut map);
    Ok(CptMemory { map, placement })
}

fn place(table: &CptTable, cpt: Option<usize>, memory: &mut [u8]) -> Placement {
    let nodes = table.nodemask(cpt);
    if !table.has_affinity() || nodes.is_empty() || !table.topology().is_some_and(|t| t.is_numa()) {
        return Placement::Anywhere;
    }
    let wanted = match table.spread_node(cpt) {
        Some(node) if memory.len() < INTERLEAVED_BYTES || nodes.len() == 1 => Placement::Node(node),
        _ => Placement::Interleaved(nodes.clone()),
    };
    let placed = match &wanted {
        Placement::Node(node) => {
            NodeSet::of([*node]).map(|node| sys::place(memory, Policy::Preferred, &node))
        }
        _ => Ok(sys::place(memory, Policy::Interleave, nodes)),
    };
    match placed {
        Ok(Ok(())) => wanted,
        Ok(Err(errno)) => Placement::Refused(errno),
        Err(error) => Placement::Refused(error.errno()),
    }
}

impl CptMemory {
    /// Where it has been placed.
    pub fn placement(&self) -> &Placement {
        &self.placement
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

    /// S-305: on this machine the kernel holds the policy that we tell; where it refuses, the memory says so.
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
        let mut block = MmapMut::map_anon(1 << 20).unwrap();
        if sys::place(&mut block, Policy::Interleave, &node).is_ok() {
            assert_eq!(sys::policy_of(&block), Ok(libc::MPOL_INTERLEAVE));
        }
    }

    /// S-305: the nodes of a machine that is not this one cannot all be used; the memory comes all the same.
    #[test]
    fn a_refused_placement_is_told() {
        let table = CptTable::create_default(MACHINES[3].topology(), crate::Estimate::PerNode).unwrap();
        let absent = !std::path::Path::new("/sys/devices/system/node/node7").exists();
        let memory = alloc_in(&table, 7, 100).unwrap();
        assert_eq!(matches!(memory.placement(), Placement::Refused(_)), absent);
        assert_eq!(*memory, [0; 100]);
    }
}
