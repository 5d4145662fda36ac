use crate::CptTable;

/// The most threads of one partition, against tunables out of all proportion.
pub const MAX_POOL_THREADS: usize = 1024;

/// The most threads of a pool in one partition, of the scheduler threads of an LND for instance (S-314, lnet-semantics 28).
///
/// `nscheds` is the tunable of that name; 0 chooses min(max(3, n/2), n), where n is the number of *cores* of the partition:
/// hyper-threads bring no more threads.
#[must_use]
pub fn threads_for(table: &CptTable, cpt: usize, nscheds: usize) -> usize {
    let cores = table.cores(cpt).max(1);
    let most = if nscheds > 0 { nscheds } else { (cores / 2).max(3).min(cores) };
    most.min(MAX_POOL_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::MACHINES;
    use crate::{Estimate, Topology};

    /// S-314, lnet-semantics 28.
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

    /// S-314: hyper-threads do not count, and each partition counts its own cores.
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
