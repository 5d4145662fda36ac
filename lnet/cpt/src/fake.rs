//! Machines that exist only as files, laid out as the kernel's `/sys`.

use std::fs;
use std::path::Path;

use crate::{CpuSet, Topology};

/// A regular machine. CPUs are numbered in the kernel's way: first one hyper-thread of each core,
/// then the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FakeMachine {
    pub(crate) sockets: usize,
    pub(crate) nodes_per_socket: usize,
    pub(crate) cores_per_node: usize,
    pub(crate) threads: usize,
}

/// Machines of 2, 16, 64 and 128 CPUs.
pub(crate) const MACHINES: [FakeMachine; 5] = [
    FakeMachine { sockets: 1, nodes_per_socket: 1, cores_per_node: 2, threads: 1 },
    FakeMachine { sockets: 1, nodes_per_socket: 2, cores_per_node: 4, threads: 2 },
    FakeMachine { sockets: 2, nodes_per_socket: 1, cores_per_node: 16, threads: 2 },
    FakeMachine { sockets: 2, nodes_per_socket: 4, cores_per_node: 8, threads: 2 },
    FakeMachine { sockets: 4, nodes_per_socket: 1, cores_per_node: 8, threads: 4 },
];

impl FakeMachine {
    pub(crate) fn cores(&self) -> usize {
        self.nodes() * self.cores_per_node
    }

    pub(crate) fn nodes(&self) -> usize {
        self.sockets * self.nodes_per_socket
    }

    pub(crate) fn cpus(&self) -> usize {
        self.cores() * self.threads
    }

    pub(crate) fn core_of(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    pub(crate) fn node_of(&self, cpu: usize) -> usize {
        self.core_of(cpu) / self.cores_per_node
    }

    pub(crate) fn socket_of(&self, cpu: usize) -> usize {
        self.node_of(cpu) / self.nodes_per_socket
    }

    fn select(&self, wanted: impl Fn(usize) -> bool) -> CpuSet {
        CpuSet::of((0..self.cpus()).filter(|&cpu| wanted(cpu))).unwrap()
    }

    /// Writes the machine's files.
    pub(crate) fn write(&self, root: &Path) {
        let all = self.select(|_| true);
        put(root, "cpu/online", &all);
        put(root, "node/online", &format_args!("0-{}", self.nodes() - 1));
        for cpu in all.iter() {
            let file = |name| format!("cpu/cpu{cpu}/topology/{name}");
            put(root, &file("physical_package_id"), &self.socket_of(cpu));
            let siblings = self.select(|other| self.core_of(other) == self.core_of(cpu));
            put(root, &file("thread_siblings_list"), &siblings);
        }
        for node in 0..self.nodes() {
            put(root, &format!("node/node{node}/cpulist"), &self.select(|cpu| self.node_of(cpu) == node));
            let row: Vec<_> = (0..self.nodes()).map(|to| self.distance(node, to).to_string()).collect();
            put(root, &format!("node/node{node}/distance"), &row.join(" "));
        }
    }

    pub(crate) fn distance(&self, from: usize, to: usize) -> u32 {
        match (from == to, from / self.nodes_per_socket == to / self.nodes_per_socket) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 32,
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        self.topology_within(&self.select(|_| true))
    }

    /// Returns the topology as seen by a process that may only use these CPUs.
    pub(crate) fn topology_within(&self, allowed: &CpuSet) -> Topology {
        let root = tempfile::tempdir().unwrap();
        self.write(root.path());
        Topology::of_root(root.path(), allowed).unwrap()
    }
}

pub(crate) fn put(root: &Path, name: &str, content: &dyn std::fmt::Display) {
    let path = root.join("devices/system").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{content}\n")).unwrap();
}
