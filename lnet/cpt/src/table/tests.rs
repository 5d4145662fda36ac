use nix::errno::Errno;
use proptest::prelude::*;

use super::*;
use crate::fake::{FakeMachine, MACHINES};
use crate::{CptConfig, Distances, Estimate, Pattern, set_current, with_partition};

/// The topologies of all test machines. Created once, because each needs hundreds of files.
static TOPOLOGIES: std::sync::LazyLock<Vec<Topology>> =
    std::sync::LazyLock::new(|| MACHINES.iter().map(FakeMachine::topology).collect());

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn flat(list: &str) -> Topology {
    Topology::flat(&cpus(list)).unwrap()
}

fn config(text: &str) -> CptConfig {
    text.parse().unwrap()
}

fn lists(table: &CptTable) -> Vec<String> {
    (0..table.partitions()).map(|cpt| table.cpumask(cpt).to_string()).collect()
}

fn assert_covers(table: &CptTable, wanted: &CpuSet) {
    let mut all = CpuSet::new();
    for cpt in 0..table.partitions() {
        let part = table.cpumask(cpt);
        assert!(!part.is_empty() && all.intersection(part).is_empty(), "partition {cpt}");
        assert!(part.iter().all(|cpu| table.of_cpu(cpu) == Some(cpt)));
        all = all.union(part);
    }
    assert_eq!((&all, table.cpumask(None)), (wanted, wanted));
}

proptest! {
    /// For any number of partitions on any machine, whole or restricted: they have all CPUs without
    /// overlap, are of even sizes, and split no more cores than necessary.
    // Covers: S-301, S-303
    #[test]
    fn partitions_share_the_cpus_evenly_and_keep_cores_whole(
        machine in 0..MACHINES.len(),
        allowed in prop::collection::btree_set(0..128usize, 1..128),
        whole in any::<bool>(),
        choice in 0..256usize,
    ) {
        let allowed = CpuSet::of(allowed).unwrap();
        let machine = &TOPOLOGIES[machine];
        if !whole && machine.cpus().intersection(&allowed).is_empty() {
            return Ok(());
        }
        let topology = if whole { machine.clone() } else { machine.within(&allowed).unwrap() };
        let total = topology.cpus().len();
        let partitions = choice % total + 1;
        let table = CptTable::create(topology.clone(), partitions).unwrap();
        assert_covers(&table, topology.cpus());
        let cores = topology.cores_of(topology.cpus());
        if partitions <= cores.len() {
            for core in &cores {
                let owners: std::collections::BTreeSet<_> = core.iter().map(|cpu| table.of_cpu(cpu)).collect();
                prop_assert_eq!(owners.len(), 1, "core {} is whole", core);
            }
        }
        // Sizes are exactly the base and the remainder (lnet-semantics 20) where the cores permit
        // it.
        if partitions > cores.len() || topology.threads_per_core() == 1 {
            let (base, remainder) = (total / partitions, total % partitions);
            for cpt in 0..partitions {
                prop_assert_eq!(table.weight(cpt), base + usize::from(cpt < remainder));
            }
        }
    }

    /// Adding and removing, by CPU and by mask, agrees with a plain map.
    // Covers: S-301
    #[test]
    fn filling_agrees_with_a_plain_map(steps in prop::collection::vec((0..4usize, 0..5usize, 0..10usize), 0..60)) {
        let mut table = CptTable::alloc(flat("0-7"), 4).unwrap();
        let mut model = std::collections::BTreeMap::new();
        for (step, cpt, cpu) in steps {
            let outcome = if step == 0 { table.unset_cpu(cpt, cpu) } else { table.set_cpu(cpt, cpu) };
            let other = model.get(&cpu).copied();
            let expected = match step {
                _ if step > 0 && cpu > 7 => Err(CptError::NoSuchCpu { cpu }),
                _ if cpt > 3 => Err(CptError::NoSuchPartition { cpt, partitions: 4 }),
                0 => {
                    model.retain(|&c, &mut p| (c, p) != (cpu, cpt));
                    Ok(())
                }
                _ => match other {
                    Some(other) if other != cpt => Err(CptError::Overlap { cpu, cpt, other }),
                    _ => { model.insert(cpu, cpt); Ok(()) }
                },
            };
            prop_assert_eq!(outcome, expected);
            for cpu in 0..10 {
                prop_assert_eq!(table.of_cpu(cpu), model.get(&cpu).copied());
            }
            prop_assert_eq!(table.weight(None), model.len());
            prop_assert_eq!(table.check_filled().is_ok(), (0..4).all(|cpt| model.values().any(|&p| p == cpt)));
        }
    }
}

/// The default on each machine; sockets are split only if the number of partitions requires it.
// Covers: S-303
#[test]
fn defaults_keep_sockets_and_nodes_whole() {
    for (machine, number) in MACHINES.into_iter().zip([1, 4, 8, 8, 8]) {
        let table = CptConfig::default().create(machine.topology()).unwrap();
        assert_eq!(table.partitions(), number, "{machine:?}");
        assert_covers(&table, machine.topology().cpus());
        let sockets = |cpt| table.cpumask(cpt).iter().map(|cpu| machine.socket_of(cpu)).collect::<Vec<_>>();
        assert!((0..number).all(|cpt| sockets(cpt).windows(2).all(|pair| pair[0] == pair[1])));
        let per_node = CptTable::create_default(machine.topology(), Estimate::PerNode).unwrap();
        assert_eq!(per_node.partitions(), machine.nodes());
        assert!((0..machine.nodes()).all(|cpt| per_node.of_node(cpt) == Some(cpt)));
    }
}

/// With 10 CPUs on 5 cores and 4 partitions, the cuts move to the ends of cores.
// Covers: S-303
#[test]
fn cuts_move_to_the_ends_of_cores() {
    let machine = FakeMachine { sockets: 1, nodes_per_socket: 1, cores_per_node: 5, threads: 2 };
    let table = CptTable::create(machine.topology(), 4).unwrap();
    assert_eq!(lists(&table), ["0-1,5-6", "2,7", "3,8", "4,9"]);
}

/// Tables by pattern and by number, under the design's rules and under LNet's.
// Covers: S-302, S-303, S-315
#[test]
fn tunables_make_the_tables_they_describe() {
    let sixteen = || MACHINES[1].topology();
    let made = |text: &str| config(text).create(sixteen()).map(|table| lists(&table));
    let ok = |list: &[&str]| Ok(list.iter().map(|part| part.to_string()).collect::<Vec<_>>());
    assert_eq!(made("npartitions=1"), ok(&["0-15"]));
    assert_eq!(made("cpu_npartitions=2"), ok(&["0-3,8-11", "4-7,12-15"]));
    assert_eq!(made(r#"cpu_patterns="0[0,4] 1[1,5]" npartitions=7"#), ok(&["0,4", "1,5"]));
    assert_eq!(made("cpu_pattern=N"), ok(&["0-3,8-11", "4-7,12-15"]));
    assert_eq!(made("cpu_pattern=N cpu_npartitions=4 conflict=refuse").map(|parts| parts.len()), Ok(4));
    assert_eq!(made(r#"cpu_pattern="N 0[0-1]""#), ok(&["0-15"]));
    assert_eq!(made("cpu_pattern=X[0,1]"), ok(&["2-15"]));
    assert_eq!(made("cpu_pattern=x[0,4] cpu_npartitions=2"), ok(&["1-3,8-11", "5-7,12-15"]));
    assert_eq!(made(r#"cpu_pattern="N C[0]""#), ok(&["1-3,9-11", "5-7,13-15"]));
    assert_eq!(made("estimate=current").map(|parts| parts.len()), Ok(4));
    assert_eq!(
        made(r#"cpu_pattern="0[0-3] 1[4-7]" cpu_npartitions=3 conflict=refuse"#),
        Err(CptError::GroupCount { groups: 2, npartitions: 3 })
    );
    assert_eq!(made(r#"cpu_pattern="0[0-3] 1[3]""#), Err(CptError::Overlap { cpu: 3, cpt: 1, other: 0 }));
    for text in [r#"cpu_pattern="0[0] 1[99]""#, "cpu_pattern=X[0-15]", r#"cpu_pattern="N 0[0] 1[7]""#] {
        assert_eq!(made(text).unwrap_err().errno(), Errno::ENODEV, "{text}");
    }
    assert_eq!(made("cpu_npartitions=17").unwrap_err().errno(), Errno::EINVAL);
    assert!(!config("cpu_npartitions=16").is_excessive(&flat("0-15")));
    assert!(config("cpu_npartitions=16").is_excessive(&flat("0-3")));
    for text in ["npartitions", "npartitions=x", "cpus=1", "cpu_pattern=\"N", "estimate=9", "npartitions=257"]
    {
        assert_eq!(text.parse::<CptConfig>().unwrap_err().errno(), Errno::EINVAL, "{text}");
    }
    assert_eq!(config("cpu_pattern=\"\""), CptConfig::default());
}

/// In a container, those CPUs of the pattern that the container lacks are left out.
// Covers: S-302, S-303
#[test]
fn a_pattern_keeps_to_the_cpus_that_are_allowed() {
    let topology = MACHINES[1].topology_within(&cpus("2-5"));
    let table = CptTable::create_pattern(topology, &"0[0-3] 1[4-7]".parse::<Pattern>().unwrap()).unwrap();
    assert_eq!(lists(&table), ["2-3", "4-5"]);
}

/// A table prints in both text forms of lnet-semantics 18a.
// Covers: S-301
#[test]
fn tables_and_distances_print_a_line_per_partition() {
    let table = CptTable::create_default(MACHINES[1].topology(), Estimate::PerNode).unwrap();
    assert_eq!(table.to_string(), "0\t: 0 1 2 3 8 9 10 11\n1\t: 4 5 6 7 12 13 14 15\n");
    assert_eq!(Distances(&table).to_string(), "0\t: 0:10 1:12\n1\t: 0:12 1:10\n");
    assert_eq!((table.cores(0), table.weight(0), table.cores(None)), (4, 8, 8));
    assert_eq!((table.weight(9), table.online(9), table.distance(0, 9)), (0, false, None));
}

/// Nodes are used round robin.
// Covers: S-305
#[test]
fn nodes_are_spread_evenly() {
    let table = CptTable::create(MACHINES[3].topology(), 2).unwrap();
    let nodes: Vec<_> = (0..8).map(|_| table.spread_node(1).unwrap()).collect();
    assert_eq!(nodes, [4, 5, 6, 7, 4, 5, 6, 7]);
    assert_eq!(table.spread_node(None), Some(0));
    assert_eq!(CptTable::single().spread_node(0), None);
}

/// Nodes are added and removed as a whole.
// Covers: S-301, S-306
#[test]
fn nodes_join_and_leave() {
    let mut table = CptTable::alloc(MACHINES[1].topology(), 2).unwrap();
    table.set_node(0, 0).unwrap();
    table.set_node(1, 1).unwrap();
    assert!(table.has_affinity() && table.check_filled().is_ok());
    table.unset_node(0, 0).unwrap();
    assert_eq!(table.check_filled(), Err(CptError::Empty { cpt: 0 }));
    assert_eq!(table.set_node(0, 7), Err(CptError::NoSuchNode { node: 7 }));
    assert_eq!(table.nodemask(None), &"1".parse().unwrap());
}

/// A thread's own setting comes first, and threads without one spread over virtual partitions.
// Covers: S-301
#[test]
fn threads_of_virtual_partitions_belong_to_one_each() {
    for partitions in [1, 2, 4] {
        let table = CptTable::virtual_parts(partitions).unwrap();
        let own = table.current(false).unwrap();
        assert!(own < partitions);
        assert_eq!(table.current(true), Some(own), "it stays");
        for cpt in 0..partitions {
            assert_eq!(with_partition(cpt, || table.current(true)), Some(cpt));
        }
        assert_eq!(
            with_partition(partitions, || table.current(true)),
            Some(own),
            "not a partition of this table"
        );
        assert_eq!(set_current(None), None, "all is as before");
    }
    assert!(CptTable::virtual_parts(0).is_err() && CptTable::virtual_parts(MAX_PARTITIONS + 1).is_err());
    assert!(!CptTable::single().has_affinity());
}

/// A CPU without a partition has none, unless its number is hashed.
// Covers: S-301
#[test]
fn a_foreign_cpu_is_hashed_only_on_request() {
    let mut table = CptTable::alloc(flat("8000-8003"), 2).unwrap();
    table.set_cpumask(0, &cpus("8000")).unwrap();
    table.set_cpumask(1, &cpus("8001")).unwrap();
    assert_eq!(table.current(false), None);
    assert!(table.current(true).is_some_and(|cpt| cpt < 2));
}

/// The distance of a device's node is the largest from any node of the partition, as the machine
/// reports it.
// Covers: S-209
#[test]
fn a_node_is_as_far_as_from_the_farthest_node_of_a_partition() {
    for machine in MACHINES {
        for partitions in [1, 2] {
            let table = CptTable::create(machine.topology(), partitions).unwrap();
            for (cpt, node) in
                (0..partitions).flat_map(|cpt| (0..machine.nodes()).map(move |node| (cpt, node)))
            {
                let own = table.cpumask(cpt).iter().map(|cpu| machine.node_of(cpu));
                let expected = own.map(|own| machine.distance(own, node)).max().unwrap();
                assert_eq!(table.distance_to_node(cpt, node), expected, "{machine:?} {cpt} {node}");
            }
        }
    }
    assert_eq!(CptTable::virtual_parts(2).unwrap().distance_to_node(1, 5), LOCAL_DISTANCE);
}
