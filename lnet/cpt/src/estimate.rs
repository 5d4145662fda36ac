//! The default number of partitions of a machine.

use crate::Topology;

/// Rules for the number of partitions if it is not configured. "CPUs" are usable CPUs;
/// hyper-threads count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Estimate {
    /// The rule of S-303, the default: 1 up to 4 CPUs, otherwise the largest power of two N with N²
    /// ≤ CPUs.
    #[default]
    Seed,
    /// LNet's estimate since 2.11: 1 up to 4 CPUs, otherwise the smallest N ≥ 2 with CPUs ≤ 2 ×
    /// threads per core × N, decreased until it divides the CPUs.
    Current,
    /// LNet's estimate of 2.3 to 2.10: a power of two N with CPUs ≤ 2N², fitted to the number of
    /// NUMA nodes.
    Classic,
    /// One partition per NUMA node with CPUs: today's LNet without configuration (pattern `N`).
    PerNode,
}

/// Up to this number of CPUs one partition is enough, under every estimate except
/// [`Estimate::PerNode`].
const SMALL_MACHINE_CPUS: usize = 4;

impl Estimate {
    /// Returns the number for this machine: at least 1; at most
    /// [`MAX_PARTITIONS`](crate::MAX_PARTITIONS), except that [`PerNode`](Estimate::PerNode) counts
    /// all nodes.
    pub fn partitions(self, topology: &Topology) -> usize {
        let nodes = topology.nodes_with_cpus().len();
        self.partitions_for(topology.cpus().len(), topology.threads_per_core(), nodes)
    }

    /// Returns the number for a machine with these CPUs, hyper-threads per core and NUMA nodes;
    /// zeros count as ones.
    pub fn partitions_for(self, cpus: usize, threads_per_core: usize, nodes: usize) -> usize {
        let (threads_per_core, nodes) = (threads_per_core.max(1), nodes.max(1));
        let estimate = match self {
            Estimate::PerNode => return nodes,
            _ if cpus <= SMALL_MACHINE_CPUS => 1,
            Estimate::Seed => 1 << cpus.isqrt().ilog2(),
            Estimate::Current => divisor_below(cpus, cpus.div_ceil(2 * threads_per_core).max(2)),
            Estimate::Classic => divisor_below(cpus, classic(cpus, nodes)),
        };
        estimate.min(crate::MAX_PARTITIONS)
    }
}

fn classic(cpus: usize, nodes: usize) -> usize {
    let mut most = 2usize;
    while cpus > 2 * most * most {
        most *= 2;
    }
    let mut fitted = nodes;
    while fitted > most {
        fitted /= 2;
    }
    while fitted * 2 <= most {
        fitted *= 2;
    }
    fitted
}

/// Returns the largest number up to `most` that divides `cpus`.
fn divisor_below(cpus: usize, most: usize) -> usize {
    (1..=most).rev().find(|number| cpus.is_multiple_of(*number)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// lnet-semantics 20: the worked examples (CPUs, threads per core, nodes; current, 2012,
    /// pattern `N`).
    // Covers: S-303
    #[test]
    fn the_worked_examples_come_out() {
        for (cpus, threads, nodes, current, classic, per_node) in [
            (4, 1, 1, 1, 1, 1),
            (8, 1, 1, 4, 2, 1),
            (32, 2, 2, 8, 4, 2),
            (64, 2, 2, 16, 8, 2),
            (256, 2, 8, 64, 16, 8),
        ] {
            assert_eq!(Estimate::Current.partitions_for(cpus, threads, nodes), current, "{cpus} CPUs");
            assert_eq!(Estimate::Classic.partitions_for(cpus, threads, nodes), classic, "{cpus} CPUs");
            assert_eq!(Estimate::PerNode.partitions_for(cpus, threads, nodes), per_node, "{cpus} CPUs");
        }
    }

    /// The examples of the design, and the borders of the rule.
    // Covers: S-303
    #[test]
    fn the_default_follows_the_square_root() {
        for (cpus, partitions) in
            [(1, 1), (4, 1), (5, 2), (15, 2), (16, 4), (32, 4), (63, 4), (64, 8), (256, 16)]
        {
            assert_eq!(Estimate::Seed.partitions_for(cpus, 2, 1), partitions, "{cpus} CPUs");
        }
    }

    proptest! {
        /// Every estimate agrees with its definition, on any machine.
        // Covers: S-303
        #[test]
        fn estimates_keep_their_definitions(cpus in 5..=crate::MAX_CPUS, threads in 1..9usize, nodes in 1..65usize) {
            let seed = Estimate::Seed.partitions_for(cpus, threads, nodes);
            prop_assert!(seed.is_power_of_two() && seed * seed <= cpus && 4 * seed * seed > cpus);
            for estimate in [Estimate::Current, Estimate::Classic] {
                let number = estimate.partitions_for(cpus, threads, nodes);
                prop_assert!((1..=crate::MAX_PARTITIONS).contains(&number));
                prop_assert!(number == crate::MAX_PARTITIONS || cpus % number == 0);
            }
        }
    }
}
