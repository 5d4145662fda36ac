//! Tables created by number, by node and by pattern.

use std::sync::Arc;

use super::{CptTable, check_count};
use crate::topology::Cpu;
use crate::{CptError, CpuSet, Estimate, Pattern, Topology};

impl CptTable {
    /// Creates `partitions` partitions that share all usable CPUs evenly (`cfs_cpt_table_create`,
    /// S-303, lnet-semantics 20).
    ///
    /// CPUs are assigned by sockets in the order of their NUMA nodes, within them by nodes, then by
    /// cores. Every partition gets CPUs / n, the first ones one more while there is a remainder; a
    /// cut between the hyper-threads of a core moves to the nearest end of a core. Cores are split
    /// only if there are more partitions than cores.
    ///
    /// # Errors
    /// EINVAL for no partition, for more than [`MAX_PARTITIONS`](crate::MAX_PARTITIONS)
    /// ([`CptError::PartitionCount`]) and for more than the number of CPUs
    /// ([`CptError::MoreThanCpus`]).
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

    /// Creates one partition per NUMA node with usable CPUs: the pattern `N`.
    ///
    /// # Errors
    /// EINVAL for more nodes than the maximum number of partitions ([`CptError::PartitionCount`]).
    pub fn create_per_node(topology: impl Into<Arc<Topology>>) -> Result<CptTable, CptError> {
        let topology = topology.into();
        let groups = topology.nodes_with_cpus().iter().map(|node| topology.cpus_of_node(node)).collect();
        CptTable::of_groups(topology, groups)
    }

    /// Creates the number of partitions that an estimate gives for this machine.
    ///
    /// # Errors
    /// EINVAL if the estimate exceeds the maximum number of partitions, as for
    /// [`CptTable::create`].
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

    /// Creates the table that a pattern describes (`cfs_cpt_table_create_pattern`, S-302,
    /// lnet-semantics 21).
    ///
    /// CPUs that the process may not use are left out; an empty partition is an error.
    ///
    /// # Errors
    /// ENODEV for a partition without a usable CPU ([`CptError::Empty`]); EINVAL for a CPU in two
    /// partitions ([`CptError::Overlap`]), for more partitions than the maximum
    /// ([`CptError::PartitionCount`]), and as for [`CptTable::create`].
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

    /// Creates the table of an `X[…]` or `C[…]` pattern, with this number of partitions unless it
    /// has one per node.
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

/// Cuts the sequence of CPUs into `partitions` pieces (at most the number of CPUs).
fn distribute(places: &[Cpu], partitions: usize) -> Vec<CpuSet> {
    // The ends of cores, as numbers of CPUs; the ends of CPUs if there are too few cores.
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
        // Each of the following partitions needs an end after this one; the last partition takes
        // the final one.
        let last = ends.len() - (partitions - cpt);
        let first = if cpt + 1 == partitions { last } else { next };
        // If two ends are equally near, the later one is chosen.
        let cut = (first..=last).rev().min_by_key(|&index| ends[index].abs_diff(wanted)).unwrap_or(last);
        let numbers = places[start..ends[cut]].iter().map(|cpu| cpu.number);
        groups.push(CpuSet::of(numbers).unwrap_or_else(|_| unreachable!("the topology checked the numbers")));
        (start, next) = (ends[cut], cut + 1);
    }
    groups
}
