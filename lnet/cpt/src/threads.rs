use crate::CptTable;

/// The most threads of one pool, against tunables out of all proportion.
pub const MAX_POOL_THREADS: usize = 1024;
/// How many threads of a pool whose size nobody chose start at once (lnet-semantics 28).
const INITIAL_THREADS: usize = 6;

/// How large the thread pool of one partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// Threads that start at once.
    pub initial: usize,
    /// Threads there may be later.
    pub most: usize,
}

/// The scheduler threads of an LND in one partition (S-314, lnet-semantics 28).
///
/// `nscheds` is the tunable of that name; 0 chooses min(max(3, n/2), n), of which at most 6 start at once, where n is
/// the number of *cores* of the partition: hyper-threads bring no more threads.
pub fn threads_for(table: &CptTable, cpt: usize, nscheds: usize) -> PoolSize {
    if nscheds > 0 {
        let most = nscheds.min(MAX_POOL_THREADS);
        return PoolSize { initial: most, most };
    }
    let cores = table.cores(cpt).max(1);
    let most = (cores / 2).max(3).min(cores).min(MAX_POOL_THREADS);
    PoolSize { initial: most.min(INITIAL_THREADS), most }
}

/// The threads of an LND in one partition where the number of partitions decides (S-312): one, and one more for each
/// further hardware interface, but no more than the partition has cores.
pub fn threads_for_interfaces(table: &CptTable, cpt: usize, interfaces: usize) -> usize {
    interfaces.clamp(1, table.cores(cpt).clamp(1, MAX_POOL_THREADS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;

    fn one_partition(cpus: usize) -> CptTable {
        let cpus = crate::CpuSet::of(0..cpus).unwrap();
        CptTable::create(Topology::flat(&cpus).unwrap(), 1).unwrap()
    }

    /// S-314, lnet-semantics 28.
    #[test]
    fn pools_follow_the_cores() {
        let size = |cores, nscheds| threads_for(&one_partition(cores), 0, nscheds);
        for (cores, initial, most) in [(1, 1, 1), (2, 2, 2), (4, 3, 3), (8, 4, 4), (12, 6, 6), (64, 6, 32)] {
            assert_eq!(size(cores, 0), PoolSize { initial, most }, "{cores} cores");
        }
        assert_eq!(size(2, 9), PoolSize { initial: 9, most: 9 });
        assert_eq!(size(2, usize::MAX).most, MAX_POOL_THREADS);
    }

    /// S-312.
    #[test]
    fn more_interfaces_bring_more_threads_up_to_the_cores() {
        let table = one_partition(4);
        let threads: Vec<_> =
            [0, 1, 3, 9].map(|interfaces| threads_for_interfaces(&table, 0, interfaces)).into();
        assert_eq!(threads, [1, 1, 3, 4]);
    }
}
