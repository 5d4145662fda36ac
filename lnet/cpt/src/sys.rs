//! The system calls that nix lacks or limits: affinity masks beyond 1024 CPUs, and the placement of
//! memory.

use nix::errno::Errno;
use nix::libc;

use crate::{CptError, CpuSet, MAX_CPUS, MAX_NODES, NodeSet};

const LONG_BITS: usize = libc::c_ulong::BITS as usize;

/// A CPU mask in the kernel's format.
type CpuMask = [libc::c_ulong; MAX_CPUS / LONG_BITS];
type NodeMask = [libc::c_ulong; MAX_NODES / LONG_BITS];

/// The rule by which pages get their NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumaPolicy {
    /// One node, and others once it is full.
    Preferred,
    /// Several nodes, page by page.
    Interleave,
}

impl NumaPolicy {
    /// Returns the kernel's constant for the rule, `MPOL_…`.
    fn mode(self) -> libc::c_int {
        match self {
            NumaPolicy::Preferred => libc::MPOL_PREFERRED,
            NumaPolicy::Interleave => libc::MPOL_INTERLEAVE,
        }
    }
}

/// The memory policy of a thread in the kernel's format: the nodes of pages that the thread is the
/// first to touch.
pub(crate) struct ThreadPolicy {
    mode: libc::c_int,
    nodes: NodeMask,
}

impl ThreadPolicy {
    /// Creates a policy over these nodes.
    pub(crate) fn new(policy: NumaPolicy, nodes: &NodeSet) -> ThreadPolicy {
        ThreadPolicy { mode: policy.mode(), nodes: node_mask(nodes) }
    }

    /// Sets this policy for the calling thread; returns the thread's previous one.
    pub(crate) fn replace(&self) -> Result<ThreadPolicy, Errno> {
        let before = ThreadPolicy::current()?;
        self.set().map(|()| before)
    }

    /// Returns whether this is the kernel's default policy, by which memory lies where the thread
    /// runs that touches it first.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self.mode, libc::MPOL_DEFAULT | libc::MPOL_LOCAL)
    }

    /// Returns the policy of the calling thread.
    pub(crate) fn current() -> Result<ThreadPolicy, Errno> {
        let mut before = ThreadPolicy { mode: libc::MPOL_DEFAULT, nodes: [0; MAX_NODES / LONG_BITS] };
        // SAFETY: without flags the kernel writes one int to `mode` and at most MAX_NODES bits to
        // `nodes`, which both live through the call. It uses one bit less than the size passed.
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

    /// Sets this policy for the calling thread.
    pub(crate) fn set(&self) -> Result<(), Errno> {
        // SAFETY: the kernel reads the MAX_NODES bits of `nodes`, which live through the call, and
        // changes only this thread's policy: no existing page moves.
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

/// Returns the CPUs on which the calling thread may run: its affinity within the control group's
/// set of CPUs.
pub(crate) fn affinity() -> Result<CpuSet, CptError> {
    let mut mask: CpuMask = [0; MAX_CPUS / LONG_BITS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`, which lives through
    // the call; the type is a plain array of the words that `cpu_set_t` consists of, and any words
    // are valid.
    let rc = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), (&raw mut mask).cast()) };
    Errno::result(rc).map_err(|errno| CptError::System { call: "sched_getaffinity", errno })?;
    CpuSet::of((0..MAX_CPUS).filter(|cpu| mask[cpu / LONG_BITS] >> (cpu % LONG_BITS) & 1 == 1))
}

/// Limits the calling thread to these CPUs. The kernel leaves out those that the control group
/// forbids.
pub(crate) fn set_affinity(cpus: &CpuSet) -> Result<(), CptError> {
    let mut mask: CpuMask = [0; MAX_CPUS / LONG_BITS];
    for cpu in cpus.iter() {
        mask[cpu / LONG_BITS] |= 1 << (cpu % LONG_BITS);
    }
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes of `mask`, which lives through the call.
    let rc = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), (&raw const mask).cast()) };
    Errno::result(rc).map(drop).map_err(|errno| CptError::System { call: "sched_setaffinity", errno })
}

/// Sets the nodes for the pages of a mapping, and moves to them the pages that only this process
/// maps.
pub(crate) fn place(
    start: *const u8,
    bytes: usize,
    policy: NumaPolicy,
    nodes: &NodeSet,
) -> Result<(), Errno> {
    const MPOL_MF_MOVE: usize = 1 << 1;
    let mask = node_mask(nodes);
    // SAFETY: mbind changes neither content nor addresses, whatever is mapped there, and fails where
    // nothing is. It reads the MAX_NODES bits of `mask`, which lives through the call; it uses one
    // bit less than the size passed.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            bytes,
            libc::c_long::from(policy.mode()),
            &raw const mask,
            MAX_NODES + 1,
            MPOL_MF_MOVE,
        )
    };
    Errno::result(rc).map(drop)
}

/// Returns the kernel's policy constant of the calling thread.
#[cfg(test)]
pub(crate) fn thread_policy() -> Result<libc::c_int, Errno> {
    policy(std::ptr::null(), 0)
}

/// Returns the kernel's policy constant of the page at `memory`.
#[cfg(test)]
pub(crate) fn policy_of(memory: &[u8]) -> Result<libc::c_int, Errno> {
    const MPOL_F_ADDR: usize = 2;
    policy(memory.as_ptr(), MPOL_F_ADDR)
}

#[cfg(test)]
fn policy(at: *const u8, flags: usize) -> Result<libc::c_int, Errno> {
    let mut mode: libc::c_int = -1;
    let no_mask = std::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: the kernel writes one int to `mode` and, without a mask, nothing else; it only looks
    // the address up.
    let rc = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, no_mask, 0usize, at, flags) };
    Errno::result(rc).map(|_| mode)
}
