//! What the kernel reports about NUMA nodes and pages.

use std::fs;
use std::path::PathBuf;

use lnet_cpt::CpuSet;
use nix::errno::Errno;
use nix::libc;

/// A NUMA node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) cpus: CpuSet,
    /// The distance to each node, including itself.
    pub(crate) distances: Vec<u32>,
}

/// Returns the nodes from 0 upwards.
pub(crate) fn nodes() -> Vec<Node> {
    let folder = |number| PathBuf::from(format!("/sys/devices/system/node/node{number}"));
    let read = |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let folders = (0..).map(folder).take_while(|folder| folder.exists());
    let node = |folder: PathBuf| Node {
        cpus: read(folder.join("cpulist")).trim().parse().unwrap(),
        distances: read(folder.join("distance"))
            .split_whitespace()
            .map(|text| text.parse().unwrap())
            .collect(),
    };
    folders.map(node).collect()
}

/// Returns the node of each page of `memory`, including a partial last one; `ENOENT` for an
/// untouched page.
pub(crate) fn nodes_of_pages(memory: &[u8]) -> Vec<Result<usize, Errno>> {
    let pages: Vec<_> = memory.chunks(4096).map(<[u8]>::as_ptr).collect();
    let mut status = vec![libc::c_int::MIN; pages.len()];
    // SAFETY: without target nodes, move_pages moves nothing: it reads the `pages.len()` addresses,
    // which it looks up in this process (0), and writes one number each to `status`. Both vectors
    // live through the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            pages.len(),
            pages.as_ptr(),
            std::ptr::null::<libc::c_int>(),
            status.as_mut_ptr(),
            0,
        )
    };
    Errno::result(rc).expect("the kernel has NUMA");
    status.into_iter().map(|node| usize::try_from(node).map_err(|_| Errno::from_raw(-node))).collect()
}

/// Binds memory that this thread touches first to a node from now on, as `numactl --membind` does.
pub(crate) fn bind_memory(node: usize) {
    let mask: libc::c_ulong = 1 << node;
    // SAFETY: the kernel reads the 64 bits of `mask`, using one less than the size passed, and
    // changes only this thread's policy.
    let rc = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, &raw const mask, 65usize) };
    Errno::result(rc).expect("the kernel has NUMA");
}
