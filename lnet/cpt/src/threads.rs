//! The threads of a partition: the size of a pool, and the CPUs of its threads.

use crate::{CptError, CptTable, CpuSet, sys};

/// The maximum number of threads of one partition, a bound on excessive tunables.
pub const MAX_POOL_THREADS: usize = 1024;

/// Returns the maximum number of threads of a pool in one partition, for instance of an LND's
/// scheduler threads (S-314, lnet-semantics 28).
///
/// `nscheds` is the tunable of that name; 0 chooses min(max(3, n/2), n), where n is the number of
/// *cores* of the partition: hyper-threads do not count.
#[must_use]
pub fn threads_for(table: &CptTable, cpt: usize, nscheds: usize) -> usize {
    let cores = table.cores(cpt).max(1);
    let most = if nscheds > 0 { nscheds } else { (cores / 2).max(3).min(cores) };
    most.min(MAX_POOL_THREADS)
}

/// Limits the calling thread to the CPUs of a partition, or with `None` to all CPUs of the table
/// (`cfs_cpt_bind`, S-306). Returns whether the thread was bound: a table without affinity (one
/// partition that covers all CPUs, or virtual partitions) leaves threads unchanged.
///
/// If the container forbids some of the CPUs, because its set has become smaller since the table
/// was created, the thread stays unchanged and the error contains these CPUs.
///
/// # Errors
/// EINVAL ([`CptError::NoSuchPartition`]) for a partition that the table does not have; ENODEV
/// ([`CptError::Empty`], [`CptError::NoCpus`]) for one without CPUs; EPERM
/// ([`CptError::Forbidden`]) if the container forbids some of them; otherwise the system's error
/// ([`CptError::System`]).
///
/// ```
/// use lnet_cpt::{CptTable, Topology, bind_thread};
///
/// let table = CptTable::create(Topology::machine()?, 1)?;
/// assert!(!bind_thread(&table, 0)?, "one partition covers all CPUs");
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
pub fn bind_thread(table: &CptTable, cpt: impl Into<Option<usize>>) -> Result<bool, CptError> {
    let cpt = cpt.into();
    if let Some(cpt) = cpt.filter(|&cpt| cpt >= table.partitions()) {
        return Err(CptError::NoSuchPartition { cpt, partitions: table.partitions() });
    }
    if !table.has_affinity() {
        return Ok(false);
    }
    let cpus = table.cpumask(cpt);
    if cpus.is_empty() {
        return Err(cpt.map_or(CptError::NoCpus, |cpt| CptError::Empty { cpt }));
    }
    bind_to(cpus).map(|()| true)
}

fn bind_to(cpus: &CpuSet) -> Result<(), CptError> {
    let before = sys::affinity()?;
    let outcome = sys::set_affinity(cpus);
    let now = sys::affinity()?;
    match outcome {
        Ok(()) if now == *cpus => Ok(()),
        Ok(()) => {
            sys::set_affinity(&before)?;
            Err(CptError::Forbidden { cpus: cpus.difference(&now) })
        }
        // The kernel returns EINVAL if it permits none of the CPUs.
        Err(CptError::System { errno: nix::errno::Errno::EINVAL, .. }) => {
            Err(CptError::Forbidden { cpus: cpus.clone() })
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::MACHINES;
    use crate::{Estimate, Topology};

    /// The thread counts of lnet-semantics 28.
    // Covers: S-314
    #[test]
    fn pools_follow_the_cores() {
        let size = |cores, nscheds| {
            let cpus = crate::CpuSet::of(0..cores).unwrap();
            threads_for(&CptTable::create(Topology::flat(&cpus).unwrap(), 1).unwrap(), 0, nscheds)
        };
        for (cores, expected) in [(1, 1), (2, 2), (4, 3), (8, 4), (12, 6), (64, 32)] {
            assert_eq!(size(cores, 0), expected, "{cores} cores");
        }
        assert_eq!((size(2, 9), size(2, usize::MAX)), (9, MAX_POOL_THREADS));
    }

    /// Hyper-threads do not count, and each partition counts its own cores.
    // Covers: S-314
    #[test]
    fn hyper_threads_bring_no_threads() {
        for machine in MACHINES {
            let table = CptTable::create_default(machine.topology(), Estimate::PerNode).unwrap();
            let cores = machine.cores_per_node;
            for cpt in 0..table.partitions() {
                assert_eq!(threads_for(&table, cpt, 0), (cores / 2).max(3).min(cores), "{machine:?}");
            }
        }
        let table = CptTable::virtual_parts(4).unwrap();
        assert_eq!([0, 8].map(|nscheds| threads_for(&table, 3, nscheds)), [1, 8]);
    }
}
