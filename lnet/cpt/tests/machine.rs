//! Tests against the machine on which they run.

use lnet_cpt::{CptError, CptTable, CpuSet, Estimate, Placement, Topology, alloc_in, bind_thread};
use nix::errno::Errno;

/// Runs a test on a separate thread, so that the test may change the thread's affinity.
fn on_a_thread(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(test).join().expect("the test passes"));
}

/// The default table covers exactly the CPUs that this process may use.
// Covers: S-301, S-303
#[test]
fn the_table_covers_the_allowed_cpus() {
    let cpus = Topology::machine().unwrap().cpus().clone();
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let allowed = (0..nix::sched::CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap());
    assert_eq!(cpus, CpuSet::of(allowed).unwrap());
    for estimate in [Estimate::Seed, Estimate::Current, Estimate::Classic, Estimate::PerNode] {
        let table = CptTable::create_default(Topology::machine().unwrap(), estimate).unwrap();
        assert_eq!(table.cpumask(None), &cpus);
        assert!(table.current(false).is_some());
    }
}

/// With a partition per CPU, a bound thread runs in its partition, sees the machine reduced to it,
/// and can return to all CPUs.
// Covers: S-306
#[test]
fn a_bound_thread_is_in_its_partition() {
    on_a_thread(|| {
        let machine = Topology::machine().unwrap();
        let all = machine.cpus().clone();
        let table = CptTable::create(machine, all.len()).unwrap();
        for cpt in 0..table.partitions() {
            let bound = bind_thread(&table, cpt).unwrap();
            assert_eq!(bound, table.has_affinity());
            assert_eq!(table.current(false), Some(cpt));
            assert_eq!(Topology::machine().unwrap().cpus(), table.cpumask(cpt));
        }
        bind_thread(&table, None).unwrap();
        assert_eq!(Topology::machine().unwrap().cpus(), &all);
        assert!(bind_thread(&table, table.partitions()).is_err());
    });
}

/// A refused binding: the error has the CPUs that the system forbids, and the thread stays
/// unchanged.
// Covers: S-306
#[test]
fn forbidden_cpus_are_named() {
    on_a_thread(|| {
        let here = Topology::machine().unwrap().cpus().clone();
        let both = here.union(&"8000".parse().unwrap());
        let mut table = CptTable::alloc(Topology::flat(&both).unwrap(), 2).unwrap();
        table.set_cpumask(0, &here).unwrap();
        table.set_cpu(1, 8000).unwrap();
        let absent = CptError::Forbidden { cpus: "8000".parse().unwrap() };
        assert_eq!(bind_thread(&table, 1), Err(absent.clone()));
        assert_eq!(bind_thread(&table, None), Err(absent.clone()));
        assert_eq!(absent.errno(), Errno::EPERM);
        assert_eq!(Topology::machine().unwrap().cpus(), &here);
    });
}

/// Memory is zeroed, on separate pages, and provided whether or not the system places it.
// Covers: S-305
#[test]
fn memory_comes_in_any_case() {
    let machine = Topology::machine().unwrap();
    let partitions = machine.cpus().len();
    let table = CptTable::create(machine, partitions).unwrap();
    for (cpt, bytes) in (0..partitions).flat_map(|cpt| [1, 4096, 100_000, 1 << 20].map(|bytes| (cpt, bytes)))
    {
        let mut memory = alloc_in(&table, cpt, bytes).unwrap();
        assert_eq!((memory.len(), memory.as_ptr().addr() % 4096), (bytes, 0));
        assert!(memory.iter().all(|&byte| byte == 0));
        memory.fill(0xa5);
        if let Placement::Node(node) = memory.placement() {
            assert!(table.nodemask(cpt).contains(*node));
        }
    }
    assert!(alloc_in(&table, partitions, 1).is_err());
    assert_eq!(alloc_in(&table, 0, 0).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(alloc_in(&table, 0, usize::MAX).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(alloc_in(&table, 0, isize::MAX as usize).unwrap_err().errno(), Errno::ENOMEM);
}
