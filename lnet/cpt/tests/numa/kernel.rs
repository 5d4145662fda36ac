//! What the kernel says.

use std::fs;
use std::path::PathBuf;

use lnet_cpt::CpuSet;
use nix::errno::Errno;
use nix::libc;

/// A NUMA node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) cpus: CpuSet,
    /// To each node, itself among them.
    pub(crate) distances: Vec<u32>,
}

/// The nodes from 0 upwards.
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

/// On which node each page of `memory` lies, the last one in part; for a page that nobody has touched, `ENOENT`.
pub(crate) fn nodes_of_pages(memory: &[u8]) -> Vec<Result<usize, Errno>> {
    let pages: Vec<_> = memory.chunks(4096).map(<[u8]>::as_ptr).collect();
    let mut status = vec![libc::c_int::MIN; pages.len()];
    // SAFETY: without nodes to move to, move_pages moves nothing: it reads the `pages.len()` addresses, which it looks
    // up in this process (0), and writes as many numbers to `status`. Both vectors live through the call.
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

/// From now on the memory that this thread touches first lies on a node, as if `numactl --membind` had started it.
pub(crate) fn bind_memory(node: usize) {
    let mask: libc::c_ulong = 1 << node;
    // SAFETY: the kernel reads the 64 bits of `mask`, of which it counts one less than it is told, and changes the policy of this
    // thread alone.
    let rc = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, &raw const mask, 65usize) };
    Errno::result(rc).expect("the kernel has NUMA");
}
