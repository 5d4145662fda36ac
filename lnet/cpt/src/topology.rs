//! The CPUs of a machine: their cores, sockets and NUMA nodes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{CptError, CpuSet, NodeSet, sys};

mod sysfs;
#[cfg(test)]
mod tests;

/// The distance of a node to itself, as firmware reports it.
pub const LOCAL_DISTANCE: u32 = 10;
/// The distance between nodes if the machine reports none.
pub const REMOTE_DISTANCE: u32 = 20;

/// One logical CPU with its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The number of the CPU.
    pub number: usize,
    /// The NUMA node of the CPU.
    pub node: usize,
    /// The socket (package) of the CPU; only for comparison.
    pub socket: i32,
    /// The core of the CPU: the lowest CPU number among the core's hyper-threads.
    pub core: usize,
}

/// The CPUs that this process may use, with their cores, sockets and NUMA nodes.
///
/// CPUs that are offline, or excluded by the affinity mask or the control group of the process, are
/// not included: a table created in a container covers the container's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The CPUs, in the order in which they fill partitions: socket by socket, node by node, core
    /// by core.
    cpus: Vec<Cpu>,
    set: CpuSet,
    nodes: NodeSet,
    /// Distances between NUMA nodes, by (from, to); missing pairs have the defaults.
    distances: BTreeMap<(usize, usize), u32>,
    numa: bool,
}

impl Topology {
    /// Reads this machine, limited to the CPUs that the calling thread may use. Threads without a
    /// binding have the process's set.
    ///
    /// # Errors
    /// The errors of [`Topology::of_root`], and the system's error if it does not report the affinity
    /// ([`CptError::System`]).
    pub fn machine() -> Result<Topology, CptError> {
        Topology::of_root("/sys", &sys::affinity()?)
    }

    /// Reads the machine described by the files below `root` (laid out as `/sys`), limited to the
    /// `allowed` CPUs.
    ///
    /// Missing files are no error: without `cpu/online` the allowed CPUs are online, without `node`
    /// there is one node, and a CPU without `topology` is a separate core. Files with invalid
    /// content are errors.
    ///
    /// # Errors
    /// ENODEV if none of the allowed CPUs is online ([`CptError::NoCpus`]); EINVAL for a file with
    /// invalid content ([`CptError::Machine`]); the system's error for one that cannot be read
    /// ([`CptError::Read`]).
    pub fn of_root(root: impl AsRef<Path>, allowed: &CpuSet) -> Result<Topology, CptError> {
        sysfs::read(root.as_ref(), allowed)
    }

    /// Creates a machine of one node and one socket on which each of these CPUs is a core.
    ///
    /// # Errors
    /// ENODEV without a CPU ([`CptError::NoCpus`]).
    pub fn flat(cpus: &CpuSet) -> Result<Topology, CptError> {
        let cpus = cpus.iter().map(|number| Cpu { number, node: 0, socket: 0, core: number }).collect();
        Topology::of(cpus, NodeSet::of([0])?, BTreeMap::new(), false)
    }

    /// Returns the same machine, limited to the `allowed` CPUs.
    ///
    /// # Errors
    /// ENODEV if none is left ([`CptError::NoCpus`]).
    pub fn within(&self, allowed: &CpuSet) -> Result<Topology, CptError> {
        let cpus = self.cpus.iter().copied().filter(|cpu| allowed.contains(cpu.number)).collect();
        Topology::of(cpus, self.nodes.clone(), self.distances.clone(), self.numa)
    }

    fn of(
        mut cpus: Vec<Cpu>,
        nodes: NodeSet,
        distances: BTreeMap<(usize, usize), u32>,
        numa: bool,
    ) -> Result<Topology, CptError> {
        if cpus.is_empty() {
            return Err(CptError::NoCpus);
        }
        // The rank of each socket, by its first node and not by its own number.
        let mut rank: BTreeMap<i32, (usize, usize)> = BTreeMap::new();
        for cpu in &cpus {
            let first = rank.entry(cpu.socket).or_insert((cpu.node, cpu.number));
            *first = (*first).min((cpu.node, cpu.number));
        }
        cpus.sort_by_key(|cpu| (rank[&cpu.socket], cpu.node, cpu.core, cpu.number));
        let set = CpuSet::of(cpus.iter().map(|cpu| cpu.number))?;
        Ok(Topology { cpus, set, nodes, distances, numa })
    }

    /// Returns the usable CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.set
    }

    /// Returns all NUMA nodes, including those without a usable CPU.
    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// Returns whether the machine reports its NUMA nodes. Otherwise there is one node, with number
    /// 0.
    pub fn is_numa(&self) -> bool {
        self.numa
    }

    /// Returns the usable CPUs with their locations, in the order in which they fill partitions:
    /// sockets in the order of their nodes, within a socket node by node, within a node core by
    /// core.
    pub fn places(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Returns the usable CPUs of a node.
    pub fn cpus_of_node(&self, node: usize) -> CpuSet {
        self.select(|cpu| cpu.node == node)
    }

    /// Returns the nodes with a usable CPU.
    pub fn nodes_with_cpus(&self) -> NodeSet {
        self.nodes_of(&self.set)
    }

    /// Returns the nodes of these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        let nodes = self.cpus.iter().filter(|cpu| cpus.contains(cpu.number)).map(|cpu| cpu.node);
        NodeSet::of(nodes)
            .unwrap_or_else(|_| unreachable!("a topology holds only node numbers within the limit"))
    }

    /// Returns the cores of these CPUs, each as the set of its hyper-threads among them, in the
    /// order of [`places`](Topology::places).
    pub fn cores_of(&self, cpus: &CpuSet) -> Vec<CpuSet> {
        let members: Vec<Cpu> = self.cpus.iter().copied().filter(|cpu| cpus.contains(cpu.number)).collect();
        members.chunk_by(|a, b| a.same_core(b)).map(|core| set_of(core.iter())).collect()
    }

    /// Returns the maximum number of usable hyper-threads of one core.
    pub fn threads_per_core(&self) -> usize {
        self.cpus.chunk_by(Cpu::same_core).map(<[Cpu]>::len).max().unwrap_or(1)
    }

    /// Returns the distance from one node to another: [`LOCAL_DISTANCE`] within a node, larger for
    /// more distant memory.
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        let default = if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        self.distances.get(&(from, to)).copied().unwrap_or(default)
    }

    fn select(&self, wanted: impl Fn(&Cpu) -> bool) -> CpuSet {
        set_of(self.cpus.iter().filter(|cpu| wanted(cpu)))
    }
}

impl Cpu {
    /// Returns whether both CPUs are hyper-threads of one core.
    pub(crate) fn same_core(&self, other: &Cpu) -> bool {
        (self.socket, self.node, self.core) == (other.socket, other.node, other.core)
    }
}

fn set_of<'a>(cpus: impl Iterator<Item = &'a Cpu>) -> CpuSet {
    CpuSet::of(cpus.map(|cpu| cpu.number))
        .unwrap_or_else(|_| unreachable!("a topology holds only CPU numbers within the limit"))
}
