//! Tables made by number, by node and by pattern.

use std::sync::Arc;

use super::{CptTable, check_count};
use crate::topology::Cpu;
use crate::{CptError, CpuSet, Estimate, Pattern, Topology};

impl CptTable {
    /// `partitions` partitions that share all usable CPUs evenly (`cfs_cpt_table_create`, S-303, lnet-semantics 20).
    ///
    /// Sockets are walked in the order of their NUMA nodes, within them nodes, then cores. Every partition gets
    /// CPUs / n, the first ones one more while there is a remainder; where such a cut would part the
    /// hyper-threads of a core it moves to the nearest end of a core. Only with more partitions than cores are cores
    /// parted.
    ///
    /// # Errors
    /// EINVAL for no partition, for more than [`MAX_PARTITIONS`](crate::MAX_PARTITIONS) ([`CptError::PartitionCount`]) and
    /// for more than there are CPUs ([`CptError::MoreThanCpus`]).
    ///
    /// ```
    /// use lnet_cpt::{CptTable, Topology};
    ///
    /// let table = CptTable::create(Topology::flat(&"0-6".parse()?)?, 3)?;
    /// let parts: Vec<String> = (0..3).map(|cpt| table.cpumask(cpt).to_string()).collect();
    /// assert_eq!(parts, ["0-2", "3-4", "5-6"]);
    /// # Ok::<(), lnet_cpt::CptError>(())
    /// ```
    pub fn create(topology: impl Into<Arc<Topology>>, partitions: usize) -> Result<CptTable, CptError> {
        let topology = topology.into();
        check_count(partitions)?;
        let places = topology.places();
        if partitions > places.len() {
            return Err(CptError::MoreThanCpus { wanted: partitions, cpus: places.len() });
        }
        let groups = distribute(places, partitions);
        CptTable::of_groups(topology, groups)
    }

    /// One partition per NUMA node that has usable CPUs: the pattern `N`.
    ///
    /// # Errors
    /// EINVAL for more nodes than there can be partitions ([`CptError::PartitionCount`]).
    pub fn create_per_node(topology: impl Into<Arc<Topology>>) -> Result<CptTable, CptError> {
        let topology = topology.into();
        let groups = topology.nodes_with_cpus().iter().map(|node| topology.cpus_of_node(node)).collect();
        CptTable::of_groups(topology, groups)
    }

    /// As many partitions as an estimate gives for this machine.
    ///
    /// # Errors
    /// EINVAL if the estimate gives more partitions than there can be, as for [`CptTable::create`].
    pub fn create_default(
        topology: impl Into<Arc<Topology>>,
        estimate: Estimate,
    ) -> Result<CptTable, CptError> {
        let topology = topology.into();
        match estimate {
            Estimate::PerNode => CptTable::create_per_node(topology),
            _ => {
                let partitions = estimate.partitions(&topology);
                CptTable::create(topology, partitions)
            }
        }
    }

    /// The table that a pattern describes (`cfs_cpt_table_create_pattern`, S-302, lnet-semantics 21).
    ///
    /// CPUs that the process may not use are left out; a partition of which nothing remains is an error.
    ///
    /// # Errors
    /// ENODEV for a partition of which no usable CPU is left ([`CptError::Empty`]); EINVAL for a CPU in two partitions
    /// ([`CptError::Overlap`]), for more partitions than there can be ([`CptError::PartitionCount`]), and as for
    /// [`CptTable::create`].
    pub fn create_pattern(
        topology: impl Into<Arc<Topology>>,
        pattern: &Pattern,
    ) -> Result<CptTable, CptError> {
        let topology = topology.into();
        match pattern {
            Pattern::PerNode => CptTable::create_per_node(topology),
            Pattern::Cpus(groups) => CptTable::of_groups(topology, groups.clone()),
            Pattern::Nodes(groups) => {
                let cpus = |nodes: &crate::NodeSet| {
                    nodes.iter().fold(CpuSet::new(), |cpus, node| cpus.union(&topology.cpus_of_node(node)))
                };
                let groups = groups.iter().map(cpus).collect();
                CptTable::of_groups(topology, groups)
            }
            Pattern::Reduced { groups, .. } => CptTable::create_reduced(topology, pattern, *groups),
        }
    }

    /// A `X[…]` or `C[…]` pattern, with this many partitions where it does not say one per node.
    pub(crate) fn create_reduced(
        topology: Arc<Topology>,
        pattern: &Pattern,
        partitions: usize,
    ) -> Result<CptTable, CptError> {
        let Pattern::Reduced { per_node, without, .. } = pattern else {
            return CptTable::create_pattern(topology, pattern);
        };
        let mut table = match per_node {
            true => CptTable::create_per_node(topology.clone())?,
            false => CptTable::create(topology.clone(), partitions)?,
        };
        for cpt in 0..table.partitions() {
            let excluded = without.among(table.cpumask(cpt), &topology);
            table.unset_cpumask(cpt, &excluded)?;
        }
        table.check_filled()?;
        Ok(table)
    }

    fn of_groups(topology: Arc<Topology>, groups: Vec<CpuSet>) -> Result<CptTable, CptError> {
        let mut table = CptTable::alloc(topology, groups.len())?;
        for (cpt, cpus) in groups.iter().enumerate() {
            table.set_cpumask(cpt, cpus)?;
        }
        Ok(table)
    }
}

/// Cuts the row of CPUs into `partitions` pieces (at most as many as there are CPUs).
fn distribute(places: &[Cpu], partitions: usize) -> Vec<CpuSet> {
    // The ends of cores, as numbers of CPUs; of CPUs where there are too few cores.
    let mut ends: Vec<usize> = Vec::new();
    for core in places.chunk_by(Cpu::same_core) {
        ends.push(ends.last().map_or(0, |end| *end) + core.len());
    }
    if ends.len() < partitions {
        ends = (1..=places.len()).collect();
    }
    let (base, remainder) = (places.len() / partitions, places.len() % partitions);
    let (mut groups, mut start, mut next) = (Vec::with_capacity(partitions), 0, 0);
    for cpt in 0..partitions {
        let wanted = (cpt + 1) * base + remainder.min(cpt + 1);
        // Each of those that follow needs one end of its own; the last takes the very end.
        let last = ends.len() - (partitions - cpt);
        let first = if cpt + 1 == partitions { last } else { next };
        // Of two ends equally near the later one.
        let cut = (first..=last).rev().min_by_key(|&index| ends[index].abs_diff(wanted)).unwrap_or(last);
        let numbers = places[start..ends[cut]].iter().map(|cpu| cpu.number);
        groups.push(CpuSet::of(numbers).unwrap_or_else(|_| unreachable!("the topology checked the numbers")));
        (start, next) = (ends[cut], cut + 1);
    }
    groups
}
