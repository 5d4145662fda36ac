//! The table of CPU partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::topology::LOCAL_DISTANCE;
use crate::{CptError, CpuSet, NodeSet, Topology, current};

mod create;
mod print;
#[cfg(test)]
mod tests;

pub use print::Distances;

/// The maximum number of partitions in a table (lnet-semantics 20).
pub const MAX_PARTITIONS: usize = 256;

/// Marks a CPU without a partition in the flat map; no partition has this number.
const NO_PARTITION: u16 = u16::MAX;
const _: () = assert!(MAX_PARTITIONS < NO_PARTITION as usize);

static NO_CPUS: CpuSet = CpuSet::new();
static NO_NODES: NodeSet = NodeSet::new();

/// A table of CPU partitions (`struct cfs_cpt_table`).
///
/// Partitions do not overlap; together they may leave CPUs out. A table is changed through `&mut`
/// only, so a shared table (`Arc<CptTable>`) is immutable.
///
/// For an argument of type `impl Into<Option<usize>>`, a number selects that partition and `None`
/// the whole table (the negative index of the C interface). A partition that the table does not
/// have has no CPUs and no nodes.
#[derive(Debug)]
pub struct CptTable {
    topology: Option<Arc<Topology>>,
    parts: Vec<Part>,
    /// The partition of each CPU number, or [`NO_PARTITION`].
    partition_of: Box<[u16]>,
    cpus: CpuSet,
    nodes: NodeSet,
    covers_all: bool,
    rotor: AtomicUsize,
}

#[derive(Debug, Default)]
struct Part {
    cpus: CpuSet,
    nodes: NodeSet,
    /// Number of calls of `spread_node`, which returns the nodes in turn.
    rotor: AtomicUsize,
}

/// Functions that create and fill tables (S-301).
impl CptTable {
    /// Creates a table of `partitions` empty partitions, to be filled by `set_…`
    /// (`cfs_cpt_table_alloc`).
    ///
    /// # Errors
    /// EINVAL for no partition and for more than [`MAX_PARTITIONS`] ([`CptError::PartitionCount`]).
    pub fn alloc(topology: impl Into<Arc<Topology>>, partitions: usize) -> Result<CptTable, CptError> {
        let topology = topology.into();
        let map = vec![NO_PARTITION; topology.cpus().last().map_or(0, |last| last + 1)];
        Ok(CptTable {
            topology: Some(topology),
            partition_of: map.into(),
            ..CptTable::virtual_parts(partitions)?
        })
    }

    /// Creates one partition without affinity: the C interface's calls without a table.
    pub fn single() -> CptTable {
        CptTable::virtual_parts(1).unwrap_or_else(|_| unreachable!("one is a valid number of partitions"))
    }

    /// Creates partitions without CPUs: threads are assigned to them round robin, unless
    /// [`set_current`](crate::set_current) sets another partition. So a program runs with any
    /// number of partitions on any machine, as tests need.
    ///
    /// # Errors
    /// The errors of [`CptTable::alloc`].
    pub fn virtual_parts(partitions: usize) -> Result<CptTable, CptError> {
        check_count(partitions)?;
        Ok(CptTable {
            topology: None,
            parts: (0..partitions).map(|_| Part::default()).collect(),
            partition_of: Box::default(),
            cpus: CpuSet::new(),
            nodes: NodeSet::new(),
            covers_all: false,
            rotor: AtomicUsize::new(0),
        })
    }

    /// Adds a CPU to a partition (`cfs_cpt_set_cpu`). Adding it again has no effect.
    ///
    /// # Errors
    /// ENODEV for a CPU that the process may not use, or that does not exist
    /// ([`CptError::NoSuchCpu`]); EINVAL for a partition that the table does not have
    /// ([`CptError::NoSuchPartition`]) and for a CPU of another partition ([`CptError::Overlap`]).
    pub fn set_cpu(&mut self, cpt: usize, cpu: usize) -> Result<(), CptError> {
        if !self.usable().contains(cpu) {
            return Err(CptError::NoSuchCpu { cpu });
        }
        self.set_cpumask(cpt, &CpuSet::of([cpu])?)
    }

    /// Removes a CPU from a partition (`cfs_cpt_unset_cpu`). No effect if the partition does not
    /// have it.
    ///
    /// # Errors
    /// EINVAL for a partition that the table does not have ([`CptError::NoSuchPartition`]) and for
    /// a number above the limit ([`CptError::Number`]).
    pub fn unset_cpu(&mut self, cpt: usize, cpu: usize) -> Result<(), CptError> {
        self.unset_cpumask(cpt, &CpuSet::of([cpu])?)
    }

    /// Adds those of these CPUs that the process may use (`cfs_cpt_set_cpumask`): all, or on an
    /// error none.
    ///
    /// # Errors
    /// ENODEV if the process may use none of them ([`CptError::Empty`]); EINVAL as for
    /// [`CptTable::set_cpu`].
    pub fn set_cpumask(&mut self, cpt: usize, cpus: &CpuSet) -> Result<(), CptError> {
        self.check(cpt)?;
        let cpus = cpus.intersection(self.usable());
        let first = cpus.first().ok_or(CptError::Empty { cpt })?;
        debug_assert!(first < self.partition_of.len(), "the map covers every usable CPU");
        for cpu in cpus.iter() {
            match self.of_cpu(cpu) {
                Some(other) if other != cpt => return Err(CptError::Overlap { cpu, cpt, other }),
                _ => {}
            }
        }
        self.replace(cpt, self.parts[cpt].cpus.union(&cpus));
        Ok(())
    }

    /// Removes these CPUs from a partition (`cfs_cpt_unset_cpumask`).
    ///
    /// # Errors
    /// EINVAL for a partition that the table does not have ([`CptError::NoSuchPartition`]).
    pub fn unset_cpumask(&mut self, cpt: usize, cpus: &CpuSet) -> Result<(), CptError> {
        self.check(cpt)?;
        self.replace(cpt, self.parts[cpt].cpus.difference(cpus));
        Ok(())
    }

    /// Adds the usable CPUs of a NUMA node (`cfs_cpt_set_node`).
    ///
    /// # Errors
    /// ENODEV for a node that does not exist or has no usable CPU ([`CptError::NoSuchNode`]);
    /// EINVAL as for [`CptTable::set_cpu`].
    pub fn set_node(&mut self, cpt: usize, node: usize) -> Result<(), CptError> {
        let cpus = self.cpus_of_node(node)?;
        self.set_cpumask(cpt, &cpus)
    }

    /// Removes the CPUs of a NUMA node (`cfs_cpt_unset_node`).
    ///
    /// # Errors
    /// ENODEV for a node that does not exist or has no usable CPU ([`CptError::NoSuchNode`]);
    /// EINVAL as for [`CptTable::unset_cpumask`].
    pub fn unset_node(&mut self, cpt: usize, node: usize) -> Result<(), CptError> {
        let cpus = self.cpus_of_node(node)?;
        self.unset_cpumask(cpt, &cpus)
    }

    /// Checks that every partition has a CPU. A table from `create` satisfies this; check one that
    /// was filled by hand before use.
    ///
    /// # Errors
    /// ENODEV: the first partition without a CPU ([`CptError::Empty`]).
    pub fn check_filled(&self) -> Result<(), CptError> {
        match self.parts.iter().position(|part| part.cpus.is_empty()) {
            Some(cpt) if !self.is_virtual() => Err(CptError::Empty { cpt }),
            _ => Ok(()),
        }
    }

    fn cpus_of_node(&self, node: usize) -> Result<CpuSet, CptError> {
        let cpus = self.topology.as_ref().map(|topology| topology.cpus_of_node(node));
        cpus.filter(|cpus| !cpus.is_empty()).ok_or(CptError::NoSuchNode { node })
    }

    /// Replaces a partition's CPUs. The new ones must be usable and not in another partition.
    fn replace(&mut self, cpt: usize, cpus: CpuSet) {
        let Some(topology) = &self.topology else { return };
        let part = &mut self.parts[cpt];
        for cpu in part.cpus.iter() {
            self.partition_of[cpu] = NO_PARTITION;
        }
        for cpu in cpus.iter() {
            self.partition_of[cpu] = cpt as u16;
        }
        self.cpus = self.cpus.difference(&part.cpus).union(&cpus);
        part.nodes = topology.nodes_of(&cpus);
        part.cpus = cpus;
        self.nodes = topology.nodes_of(&self.cpus);
        self.covers_all = self.cpus == *topology.cpus();
    }

    fn usable(&self) -> &CpuSet {
        self.topology.as_ref().map_or(&NO_CPUS, |topology| topology.cpus())
    }

    fn check(&self, cpt: usize) -> Result<(), CptError> {
        if cpt < self.parts.len() {
            return Ok(());
        }
        Err(CptError::NoSuchPartition { cpt, partitions: self.parts.len() })
    }
}

/// Functions that query tables.
impl CptTable {
    /// Returns the number of partitions; at least one.
    pub fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// Returns the machine for which the table was created; `None` for virtual partitions.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_deref()
    }

    /// Returns whether the partitions have no CPUs: [`single`](CptTable::single),
    /// [`virtual_parts`](CptTable::virtual_parts).
    pub fn is_virtual(&self) -> bool {
        self.topology.is_none()
    }

    /// Returns whether threads and memory are placed. One partition that covers all CPUs switches
    /// affinity off (`npartitions=1`, S-303), and virtual partitions have no CPUs.
    pub fn has_affinity(&self) -> bool {
        let off = self.is_virtual() || (self.parts.len() == 1 && self.covers_all);
        !off
    }

    /// Returns the partition for which the calling thread acts (`cfs_cpt_current`). Called per
    /// message, and cheap: with one partition it makes no call at all, otherwise the CPU number
    /// comes from the vDSO and indexes a flat array.
    ///
    /// A partition set by [`set_current`](crate::set_current) comes first, then that of the
    /// thread's CPU. For a CPU without a partition it returns `None`, or with `remap` a hashed
    /// partition, so that it never returns `None`.
    #[inline]
    pub fn current(&self, remap: bool) -> Option<usize> {
        let partitions = self.parts.len();
        if partitions == 1 && (remap || self.covers_all || self.is_virtual()) {
            return Some(0);
        }
        if let Some(cpt) = current::current_override().filter(|&cpt| cpt < partitions) {
            return Some(cpt);
        }
        if self.is_virtual() {
            return Some(current::thread_number() % partitions);
        }
        // A kernel without the call reports no CPU; then the thread's own number is hashed instead.
        let cpu = nix::sched::sched_getcpu().unwrap_or_else(|_| usize::MAX - current::thread_number());
        self.of_cpu(cpu).or_else(|| remap.then_some(cpu % partitions))
    }

    /// Returns the partition of a CPU.
    #[inline]
    pub fn of_cpu(&self, cpu: usize) -> Option<usize> {
        self.partition_of.get(cpu).filter(|&&cpt| cpt != NO_PARTITION).map(|&cpt| usize::from(cpt))
    }

    /// Returns the first partition with a CPU of this node.
    pub fn of_node(&self, node: usize) -> Option<usize> {
        self.parts.iter().position(|part| part.nodes.contains(node))
    }

    /// Returns the CPUs of a partition, or of the whole table.
    pub fn cpumask(&self, cpt: impl Into<Option<usize>>) -> &CpuSet {
        match cpt.into() {
            Some(cpt) => self.parts.get(cpt).map_or(&NO_CPUS, |part| &part.cpus),
            None => &self.cpus,
        }
    }

    /// Returns the NUMA nodes of a partition, or of the whole table.
    pub fn nodemask(&self, cpt: impl Into<Option<usize>>) -> &NodeSet {
        match cpt.into() {
            Some(cpt) => self.parts.get(cpt).map_or(&NO_NODES, |part| &part.nodes),
            None => &self.nodes,
        }
    }

    /// Returns the number of CPUs; each hyper-thread counts.
    pub fn weight(&self, cpt: impl Into<Option<usize>>) -> usize {
        self.cpumask(cpt).len()
    }

    /// Returns the number of cores, by which thread pools are sized (S-314): a core counts once,
    /// with one or several of its hyper-threads in the partition. A virtual partition counts as one
    /// core.
    pub fn cores(&self, cpt: impl Into<Option<usize>>) -> usize {
        let cpt = cpt.into();
        match &self.topology {
            Some(topology) => topology.cores_of(self.cpumask(cpt)).len(),
            None => cpt.map_or(self.parts.len(), |cpt| usize::from(cpt < self.parts.len())),
        }
    }

    /// Returns whether the partition, or the table, has a CPU.
    pub fn online(&self, cpt: impl Into<Option<usize>>) -> bool {
        let cpt = cpt.into();
        match self.is_virtual() {
            true => cpt.is_none_or(|cpt| cpt < self.parts.len()),
            false => !self.cpumask(cpt).is_empty(),
        }
    }

    /// Returns the distance of partition `to`'s memory from the CPUs of partition `from`: the
    /// largest of the NUMA distances between their nodes. Virtual partitions share one node. `None`
    /// if a partition does not exist or is empty.
    pub fn distance(&self, from: usize, to: usize) -> Option<u32> {
        match &self.topology {
            Some(topology) => {
                let to = self.nodemask(to);
                let pairs = self.nodemask(from).iter().flat_map(|a| to.iter().map(move |b| (a, b)));
                pairs.map(|(a, b)| topology.distance(a, b)).max()
            }
            None => (from.max(to) < self.parts.len()).then_some(LOCAL_DISTANCE),
        }
    }

    /// Returns the distance of a NUMA node, for instance of a device, from the CPUs of a partition:
    /// the largest of the distances from their nodes. A partition without nodes, such as a virtual
    /// one, is near to all.
    pub fn distance_to_node(&self, from: usize, node: usize) -> u32 {
        let Some(topology) = &self.topology else { return LOCAL_DISTANCE };
        let distances = self.nodemask(from).iter().map(|from| topology.distance(from, node));
        distances.max().unwrap_or(LOCAL_DISTANCE)
    }

    /// Returns the next node of a partition, round robin, so that memory placed by it spreads
    /// evenly.
    pub fn spread_node(&self, cpt: impl Into<Option<usize>>) -> Option<usize> {
        let cpt = cpt.into();
        let rotor = match cpt {
            Some(cpt) => &self.parts.get(cpt)?.rotor,
            None => &self.rotor,
        };
        let nodes = self.nodemask(cpt);
        // Relaxed, because no other data depends on the counter.
        let turn = rotor.fetch_add(1, Ordering::Relaxed);
        nodes.iter().nth(turn.checked_rem(nodes.len())?)
    }
}

fn check_count(partitions: usize) -> Result<(), CptError> {
    if (1..=MAX_PARTITIONS).contains(&partitions) {
        return Ok(());
    }
    Err(CptError::PartitionCount { wanted: partitions, max: MAX_PARTITIONS })
}
