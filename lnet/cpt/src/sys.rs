//! The system calls that nix lacks or limits: affinity masks beyond 1024 CPUs, and the placement of memory.

use nix::errno::Errno;
use nix::libc;

use crate::{CptError, CpuSet, MAX_CPUS, MAX_NODES, NodeSet};

const LONG_BITS: usize = libc::c_ulong::BITS as usize;

/// A mask as the kernel reads and writes it.
type CpuMask = [libc::c_ulong; MAX_CPUS / LONG_BITS];
type NodeMask = [libc::c_ulong; MAX_NODES / LONG_BITS];

/// How pages choose their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The one node named, and others once it is full.
    Preferred,
    /// The nodes named, page by page.
    Interleave,
}

impl Policy {
    /// The kernel's number.
    fn mode(self) -> libc::c_int {
        match self {
            Policy::Preferred => libc::MPOL_PREFERRED,
            Policy::Interleave => libc::MPOL_INTERLEAVE,
        }
    }
}

/// The memory policy of a thread, as the kernel has it: where pages come from that the thread is the first to touch.
pub(crate) struct ThreadPolicy {
    mode: libc::c_int,
    nodes: NodeMask,
}

impl ThreadPolicy {
    /// This policy over these nodes.
    pub(crate) fn new(policy: Policy, nodes: &NodeSet) -> ThreadPolicy {
        ThreadPolicy { mode: policy.mode(), nodes: node_mask(nodes) }
    }

    /// Sets it for the calling thread; returns the one that the thread had before.
    pub(crate) fn replace(&self) -> Result<ThreadPolicy, Errno> {
        let before = ThreadPolicy::current()?;
        self.set().map(|()| before)
    }

    /// Whether it is the kernel's own: memory lies where the thread runs that touches it first.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self.mode, libc::MPOL_DEFAULT | libc::MPOL_LOCAL)
    }

    /// The one of the calling thread.
    pub(crate) fn current() -> Result<ThreadPolicy, Errno> {
        let mut before = ThreadPolicy { mode: libc::MPOL_DEFAULT, nodes: [0; MAX_NODES / LONG_BITS] };
        // SAFETY: without flags the kernel writes one int to `mode` and at most MAX_NODES bits to `nodes`, which both live
        // through the call. It counts one bit less than it is told.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut before.mode,
                before.nodes.as_mut_ptr(),
                MAX_NODES + 1,
                std::ptr::null::<u8>(),
                0usize,
            )
        };
        Errno::result(rc).map(|_| before)
    }

    /// Sets it for the calling thread.
    pub(crate) fn set(&self) -> Result<(), Errno> {
        // SAFETY: the kernel reads the MAX_NODES bits of `nodes`, which live through the call, and changes the policy of
        // this thread alone: no page that exists moves.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                libc::c_long::from(self.mode),
                self.nodes.as_ptr(),
                MAX_NODES + 1,
            )
        };
        Errno::result(rc).map(drop)
    }
}

fn node_mask(nodes: &NodeSet) -> NodeMask {
    let mut mask: NodeMask = [0; MAX_NODES / LONG_BITS];
    for node in nodes.iter() {
        mask[node / LONG_BITS] |= 1 << (node % LONG_BITS);
    }
    mask
}

/// The CPUs the calling thread may run on: its affinity within the control group's set of CPUs.
pub(crate) fn affinity() -> Result<CpuSet, CptError> {
    let mut mask: CpuMask = [0; MAX_CPUS / LONG_BITS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`, which lives through the call; the type
    // is a plain array of the words that `cpu_set_t` consists of, and any words are valid.
    let rc = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), (&raw mut mask).cast()) };
    Errno::result(rc).map_err(|errno| CptError::System { call: "sched_getaffinity", errno })?;
    CpuSet::of((0..MAX_CPUS).filter(|cpu| mask[cpu / LONG_BITS] >> (cpu % LONG_BITS) & 1 == 1))
}

/// Lets the calling thread run on these CPUs only. The kernel leaves out those that the control group forbids.
pub(crate) fn set_affinity(cpus: &CpuSet) -> Result<(), CptError> {
    let mut mask: CpuMask = [0; MAX_CPUS / LONG_BITS];
    for cpu in cpus.iter() {
        mask[cpu / LONG_BITS] |= 1 << (cpu % LONG_BITS);
    }
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes of `mask`, which lives through the call.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), (&raw const mask).cast()) };
    Errno::result(rc).map(drop).map_err(|errno| CptError::System { call: "sched_setaffinity", errno })
}

/// Sets where the pages of `memory` will come from. Pages that exist already stay where they are.
pub(crate) fn place(memory: &mut [u8], policy: Policy, nodes: &NodeSet) -> Result<(), Errno> {
    let mask = node_mask(nodes);
    // SAFETY: mbind changes no content of `memory` (MPOL_MF_MOVE is not asked for), which the caller borrows
    // exclusively; it reads the MAX_NODES bits of `mask`, which lives through the call. It counts one bit less than
    // it is told.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            memory.as_mut_ptr(),
            memory.len(),
            libc::c_long::from(policy.mode()),
            &raw const mask,
            MAX_NODES + 1,
            0usize,
        )
    };
    Errno::result(rc).map(drop)
}

/// The policy number that the kernel holds for the calling thread.
#[cfg(test)]
pub(crate) fn thread_policy() -> Result<libc::c_int, Errno> {
    policy(std::ptr::null(), 0)
}

/// The policy number that the kernel holds for the page at `memory`.
#[cfg(test)]
pub(crate) fn policy_of(memory: &[u8]) -> Result<libc::c_int, Errno> {
    const MPOL_F_ADDR: usize = 2;
    policy(memory.as_ptr(), MPOL_F_ADDR)
}

#[cfg(test)]
fn policy(at: *const u8, flags: usize) -> Result<libc::c_int, Errno> {
    let mut mode: libc::c_int = -1;
    let no_mask = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: the kernel writes one int to `mode`; no mask is asked for; the address is only looked up.
    let rc = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, no_mask, 0usize, at, flags) };
    Errno::result(rc).map(|_| mode)
}
