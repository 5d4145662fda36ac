use std::collections::BTreeMap;
use std::path::Path;

use crate::{CptError, CpuSet, NodeSet, sys};

mod sysfs;
#[cfg(test)]
mod tests;

/// The distance of a node to itself, as firmware tells it: memory at once.
pub const LOCAL_DISTANCE: u32 = 10;
/// The distance between nodes where the machine tells none.
pub const REMOTE_DISTANCE: u32 = 20;

/// One logical CPU and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// Its NUMA node.
    pub node: usize,
    /// Its socket (package); only good for comparison.
    pub socket: i32,
    /// Its core: the lowest CPU number among the hyper-threads of the core.
    pub core: usize,
}

/// The CPUs that this process may use, with their cores, sockets and NUMA nodes.
///
/// CPUs that are offline, or that the affinity mask or the control group of the process excludes, do not occur: a
/// table made in a container covers what the container has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// In the order in which they fill partitions: socket by socket, node by node, core by core.
    cpus: Vec<Cpu>,
    set: CpuSet,
    nodes: NodeSet,
    /// By (from, to); pairs that are missing here take the defaults.
    distances: BTreeMap<(usize, usize), u32>,
    numa: bool,
}

impl Topology {
    /// This machine, reduced to the CPUs that the calling thread may use. Threads that are not bound have the set
    /// of the process.
    ///
    /// # Errors
    /// As for [`Topology::of_root`], and what the system says if it does not tell the affinity ([`CptError::System`]).
    pub fn machine() -> Result<Topology, CptError> {
        Topology::of_root("/sys", &sys::affinity()?)
    }

    /// The machine that the files below `root` (laid out as `/sys`) describe, reduced to the `allowed` CPUs.
    ///
    /// Files that are missing are no error: without `cpu/online` the allowed CPUs are online, without `node` there is
    /// one node, and a CPU without `topology` is a core by itself. Files with wrong content are errors.
    ///
    /// # Errors
    /// ENODEV if none of the allowed CPUs is online ([`CptError::NoCpus`]); EINVAL for a file of wrong content
    /// ([`CptError::Machine`]); what the system says for one that cannot be read ([`CptError::Read`]).
    pub fn of_root(root: impl AsRef<Path>, allowed: &CpuSet) -> Result<Topology, CptError> {
        sysfs::read(root.as_ref(), allowed)
    }

    /// A machine of one node and one socket on which each of these CPUs is a core.
    ///
    /// # Errors
    /// ENODEV without a CPU ([`CptError::NoCpus`]).
    pub fn flat(cpus: &CpuSet) -> Result<Topology, CptError> {
        let cpus = cpus.iter().map(|number| Cpu { number, node: 0, socket: 0, core: number }).collect();
        Topology::of(cpus, NodeSet::of([0])?, BTreeMap::new(), false)
    }

    /// The same machine with only those CPUs that are in `allowed` too.
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
        // Sockets in the order of their first nodes, whatever their own numbers are.
        let mut rank: BTreeMap<i32, (usize, usize)> = BTreeMap::new();
        for cpu in &cpus {
            let first = rank.entry(cpu.socket).or_insert((cpu.node, cpu.number));
            *first = (*first).min((cpu.node, cpu.number));
        }
        cpus.sort_by_key(|cpu| (rank[&cpu.socket], cpu.node, cpu.core, cpu.number));
        let set = CpuSet::of(cpus.iter().map(|cpu| cpu.number))?;
        Ok(Topology { cpus, set, nodes, distances, numa })
    }

    /// The CPUs that may be used.
    pub fn cpus(&self) -> &CpuSet {
        &self.set
    }

    /// All NUMA nodes, also those without a CPU that may be used.
    pub fn nodes(&self) -> &NodeSet {
        &self.nodes
    }

    /// Whether the machine tells its NUMA nodes. Else there is one, of number 0.
    pub fn is_numa(&self) -> bool {
        self.numa
    }

    /// The usable CPUs with their places, in the order in which they fill partitions: sockets in the order of their
    /// nodes, within a socket node by node, within a node core by core.
    pub fn places(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The usable CPUs of a node.
    pub fn cpus_of_node(&self, node: usize) -> CpuSet {
        self.select(|cpu| cpu.node == node)
    }

    /// The nodes that have a usable CPU.
    pub fn nodes_with_cpus(&self) -> NodeSet {
        self.nodes_of(&self.set)
    }

    /// The nodes of these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        let nodes = self.cpus.iter().filter(|cpu| cpus.contains(cpu.number)).map(|cpu| cpu.node);
        NodeSet::of(nodes)
            .unwrap_or_else(|_| unreachable!("a topology holds only node numbers within the limit"))
    }

    /// The cores of these CPUs, each as the set of those of its hyper-threads that are among them; in the order of
    /// [`places`](Topology::places).
    pub fn cores_of(&self, cpus: &CpuSet) -> Vec<CpuSet> {
        let members: Vec<Cpu> = self.cpus.iter().copied().filter(|cpu| cpus.contains(cpu.number)).collect();
        members.chunk_by(|a, b| a.same_core(b)).map(|core| set_of(core.iter())).collect()
    }

    /// The most usable hyper-threads of one core.
    pub fn threads_per_core(&self) -> usize {
        self.cpus.chunk_by(Cpu::same_core).map(<[Cpu]>::len).max().unwrap_or(1)
    }

    /// The distance from one node to another: [`LOCAL_DISTANCE`] within a node, larger where memory is further away.
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        let default = if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        self.distances.get(&(from, to)).copied().unwrap_or(default)
    }

    fn select(&self, wanted: impl Fn(&Cpu) -> bool) -> CpuSet {
        set_of(self.cpus.iter().filter(|cpu| wanted(cpu)))
    }
}

impl Cpu {
    /// Whether both are hyper-threads of one core.
    pub(crate) fn same_core(&self, other: &Cpu) -> bool {
        (self.socket, self.node, self.core) == (other.socket, other.node, other.core)
    }
}

fn set_of<'a>(cpus: impl Iterator<Item = &'a Cpu>) -> CpuSet {
    CpuSet::of(cpus.map(|cpu| cpu.number))
        .unwrap_or_else(|_| unreachable!("a topology holds only CPU numbers within the limit"))
}
