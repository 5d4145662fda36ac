use nix::errno::Errno;

use super::*;
use crate::fake::{MACHINES, put};

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Every CPU has the location that the machine's files give.
// Covers: S-303
#[test]
fn machines_are_read_as_they_are() {
    for machine in MACHINES {
        let topology = machine.topology();
        assert_eq!(topology.places().len(), machine.cpus());
        for cpu in topology.places() {
            assert_eq!((cpu.node, cpu.core), (machine.node_of(cpu.number), machine.core_of(cpu.number)));
            assert_eq!(cpu.socket as usize, machine.socket_of(cpu.number));
        }
        assert_eq!(topology.threads_per_core(), machine.threads);
        assert_eq!(topology.cores_of(topology.cpus()).len(), machine.cores());
        assert!(topology.is_numa());
        for (from, to) in (0..machine.nodes()).flat_map(|a| (0..machine.nodes()).map(move |b| (a, b))) {
            assert_eq!(topology.distance(from, to), machine.distance(from, to));
        }
    }
}

/// The topology has only the CPUs that a container permits.
// Covers: S-303
#[test]
fn forbidden_and_offline_cpus_do_not_occur() {
    let machine = MACHINES[2];
    let topology = machine.topology_within(&cpus("3,40,100-200"));
    assert_eq!(topology.cpus(), &cpus("3,40"));
    assert_eq!(topology.nodes(), &"0-1".parse().unwrap(), "the nodes are still there");
    assert_eq!(topology.nodes_with_cpus(), "0".parse().unwrap());
    let root = tempfile::tempdir().unwrap();
    machine.write(root.path());
    assert_eq!(Topology::of_root(root.path(), &cpus("900")), Err(CptError::NoCpus));
    assert_eq!(CptError::NoCpus.errno(), Errno::ENODEV);
}

#[test]
fn missing_files_leave_a_plain_machine() {
    let root = tempfile::tempdir().unwrap();
    let plain = Topology::of_root(root.path(), &cpus("0-3")).unwrap();
    assert_eq!(plain, Topology::flat(&cpus("0-3")).unwrap());
    assert!(!plain.is_numa());
    assert_eq!((plain.distance(0, 0), plain.distance(0, 1)), (LOCAL_DISTANCE, REMOTE_DISTANCE));
    put(root.path(), "cpu/online", &"0-1");
    assert_eq!(Topology::of_root(root.path(), &cpus("0-3")).unwrap().cpus(), &cpus("0-1"));
}

#[test]
fn wrong_content_is_an_error_that_names_the_file() {
    for (name, content) in [
        ("cpu/online", "0-99999"),
        ("cpu/online", "zero"),
        ("cpu/cpu1/topology/physical_package_id", "first"),
        ("cpu/cpu1/topology/thread_siblings_list", "0"),
        ("node/online", "0-5000"),
        ("node/node1/cpulist", "0"),
        ("node/node1/cpulist", "-"),
        ("node/node1/distance", "10"),
        ("node/node1/distance", "10 x"),
        ("node/node1/distance", &"1".repeat(70_000)),
    ] {
        let root = tempfile::tempdir().unwrap();
        MACHINES[1].write(root.path());
        put(root.path(), name, &content);
        let error = Topology::of_root(root.path(), &cpus("0-15")).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(error.errno(), Errno::EINVAL);
    }
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "cpu/online/directory", &"");
    let error = Topology::of_root(root.path(), &cpus("0")).unwrap_err();
    assert_eq!(error.errno(), Errno::EISDIR, "{error}");
}
