//! Tests against a machine with two NUMA nodes of four CPUs each, which `./test verbs` creates:
//! they compare with the kernel's reports on CPUs and pages, not with this crate's own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kernel;

use lnet_cpt::{
    CptConfig, CptTable, Estimate, INTERLEAVED_BYTES, Placement, Topology, alloc_in, bind_thread, near,
};

const PAGE: usize = 4096;

/// A length greater than that of a huge page of x86-64 and a part of another one, wherever the
/// kernel aligns the memory.
const LONG: usize = 5 << 20;

/// Runs a test on a separate thread, so that the test may change the thread's affinity.
fn on_a_thread<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(test).join().expect("the test passes"))
}

fn table(tunables: &str) -> CptTable {
    let config: CptConfig = tunables.parse().unwrap();
    config.create(Topology::machine().unwrap()).unwrap()
}

/// Creates a table with a partition per node, in the order of the nodes.
fn per_node() -> CptTable {
    table(r#"cpu_pattern="N""#)
}

/// Partitions per node are the kernel's nodes, with the kernel's distances. Under every estimate,
/// the default table of this machine has the same nodes.
// Covers: S-301, S-303
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn partitions_are_the_kernels_nodes() {
    let nodes = kernel::nodes();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    let by_estimate = [Estimate::Seed, Estimate::Current, Estimate::Classic, Estimate::PerNode]
        .map(|estimate| CptTable::create_default(Topology::machine().unwrap(), estimate).unwrap());
    for table in by_estimate.into_iter().chain([per_node(), table("cpu_npartitions=2")]) {
        // Under some estimates a node has more than one partition; no partition has CPUs of two
        // nodes.
        assert_eq!(table.partitions() % nodes.len(), 0, "{table}");
        let share = table.partitions() / nodes.len();
        for cpt in 0..table.partitions() {
            let (number, node) = (cpt / share, &nodes[cpt / share]);
            assert!(table.cpumask(cpt).is_subset(&node.cpus), "{table}");
            assert_eq!(table.weight(cpt), node.cpus.len() / share, "{table}");
            assert_eq!(table.nodemask(cpt).iter().collect::<Vec<_>>(), [number]);
            for (to, distance) in node.distances.iter().enumerate() {
                assert_eq!(table.distance(cpt, to * share), Some(*distance), "{cpt} {to}");
            }
        }
    }
}

/// The kernel runs a bound thread only on the CPUs of its partition's node, and on each of them if
/// necessary.
// Covers: S-306
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn a_bound_thread_runs_on_its_node() {
    on_a_thread(|| {
        let table = per_node();
        for _ in 0..50 {
            for (cpt, node) in kernel::nodes().iter().enumerate() {
                assert!(bind_thread(&table, cpt).unwrap());
                std::thread::yield_now();
                assert!(node.cpus.contains(nix::sched::sched_getcpu().unwrap()));
                assert_eq!(table.current(false), Some(cpt));
                // A thread started by a bound thread stays there too.
                let child = std::thread::spawn(|| nix::sched::sched_getcpu().unwrap()).join().unwrap();
                assert!(node.cpus.contains(child), "{child}");
            }
        }
        bind_thread(&table, None).unwrap();
        assert_eq!(Topology::machine().unwrap().cpus(), table.cpumask(None));
    });
}

/// Each page of a partition's memory lies on the partition's node, also if a CPU of another node
/// touches it first.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn pages_lie_on_the_node_of_their_partition() {
    let table = &per_node();
    for (owner, toucher) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for bytes in [1, PAGE, INTERLEAVED_BYTES - 1, INTERLEAVED_BYTES, 1 << 20, LONG] {
            on_a_thread(|| {
                bind_thread(table, toucher).unwrap();
                let mut memory = alloc_in(table, owner, bytes).unwrap();
                assert_eq!(memory.placement(), &Placement::Node(owner));
                memory.fill(0xa5);
                let nodes = kernel::nodes_of_pages(&memory);
                assert_eq!(nodes, vec![Ok(owner); bytes.div_ceil(PAGE)], "{owner} {toucher} {bytes}");
            });
        }
    }
}

/// Memory follows the policy under which the operator starts the program.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn a_policy_of_the_operator_is_obeyed() {
    let table = &per_node();
    on_a_thread(|| {
        kernel::bind_memory(0);
        let mut memory = alloc_in(table, 1, 64 * PAGE).unwrap();
        assert_eq!(memory.placement(), &Placement::Anywhere);
        memory.fill(0xa5);
        assert_eq!(kernel::nodes_of_pages(&memory), [Ok(0); 64]);
        let list = near(table, 1, || vec![0xa5_u8; LONG]);
        assert!(kernel::nodes_of_pages(&list).iter().all(|node| *node == Ok(0)));
    });
}

/// Without a placement pages lie where they are first touched. The test above would detect a
/// placement without effect.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn pages_without_placement_lie_where_they_are_touched() {
    let single = &table("cpu_npartitions=1");
    for (toucher, node) in [(0, 0), (1, 1)] {
        on_a_thread(|| {
            bind_thread(&per_node(), toucher).unwrap();
            let mut memory = alloc_in(single, 0, 64 * PAGE).unwrap();
            assert_eq!(memory.placement(), &Placement::Anywhere);
            memory.fill(0xa5);
            assert_eq!(kernel::nodes_of_pages(&memory), [Ok(node); 64]);
        });
    }
}

/// Memory of several nodes is spread evenly: the pages of a long block, and short blocks one after
/// another. The kernel skips a node without a free page at the moment, so most of several attempts
/// must be even.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn memory_of_several_nodes_is_spread_evenly() {
    const TRIES: usize = 5;
    // Two cases: a partition of both nodes, without one CPU so that its threads have an affinity;
    // and memory of the whole table.
    for (table, cpt) in [(table(r#"cpu_pattern="X[7]""#), Some(0)), (per_node(), None)] {
        let filled = |pages: usize| {
            let mut block = alloc_in(&table, cpt, pages * PAGE).unwrap();
            block.fill(0xa5);
            block
        };
        let long: Vec<_> = std::iter::repeat_with(|| {
            let block = filled(256);
            assert_eq!(block.placement(), &Placement::Interleaved(table.nodemask(cpt).clone()));
            kernel::nodes_of_pages(&block)
        })
        .take(TRIES)
        .collect();
        let is_even = |nodes: &&Vec<_>| {
            [0, 1].map(|node| nodes.iter().filter(|&&at| at == Ok(node)).count()) == [128; 2]
        };
        assert!(long.iter().filter(is_even).count() > TRIES / 2, "{long:?}");

        let short: Vec<Vec<_>> = std::iter::repeat_with(|| {
            let blocks: Vec<_> = (0..10).map(|_| filled(3)).collect();
            blocks.iter().map(|block| kernel::nodes_of_pages(block)).collect()
        })
        .take(TRIES)
        .collect();
        let is_even = |nodes: &&Vec<Vec<_>>| {
            [0, 1].map(|node| nodes.iter().filter(|at| ***at == [Ok(node); 3]).count()) == [5; 2]
        };
        assert!(short.iter().filter(is_even).count() > TRIES / 2, "{short:?}");
    }
}

/// Patterns of nodes, of CPU numbers, and of cores left out, on the kernel's own nodes.
// Covers: S-302
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn patterns_name_the_kernels_nodes() {
    let nodes = kernel::nodes();
    let swapped = table(r#"cpu_pattern="N 0[1] 1[0]""#);
    let crossed = table(r#"cpu_pattern="0[4-7] 1[0-3]""#);
    for table in [&swapped, &crossed] {
        for (cpt, node) in [(0, 1), (1, 0)] {
            assert_eq!(table.cpumask(cpt), &nodes[node].cpus);
            let mut memory = alloc_in(table, cpt, PAGE).unwrap();
            memory.fill(0xa5);
            assert_eq!(kernel::nodes_of_pages(&memory), [Ok(node)]);
            assert_eq!(table.of_node(node), Some(cpt));
        }
    }
    let both = table(r#"cpu_pattern="N 0[0-1]""#);
    assert_eq!((both.partitions(), both.weight(0)), (1, 8));
    assert!(!both.has_affinity(), "one partition of all CPUs");
    let without = table(r#"cpu_pattern="N C[0]""#);
    for (cpt, node) in nodes.iter().enumerate() {
        let first = node.cpus.first().unwrap();
        assert_eq!(
            without.cpumask(cpt).iter().collect::<Vec<_>>(),
            node.cpus.iter().filter(|&cpu| cpu != first).collect::<Vec<_>>()
        );
    }
}
