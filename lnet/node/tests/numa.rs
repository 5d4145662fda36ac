//! A node on two NUMA nodes of four CPUs each, which `./test verbs` creates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};

use lnet_api::{Md, MdOptions, MeSpec, Threshold, Unlink};
use lnet_cpt::bind_thread;
use lnet_nid::{MatchBits, Portal};
use lnet_node::NodeConfig;
use lnet_region::{IoVec, Region};
use nlx_testkit::numa::pages_of;
use nlx_testkit::station::{Station, exchange};

/// The length of the longest message.
const LNET_MTU: usize = 1 << 20;

/// A lock that each test holds, because the tests share the threads and pages of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the CPUs of the kernel's NUMA node, in the kernel's notation.
fn cpus_of_node(node: usize) -> String {
    fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).unwrap().trim().to_string()
}

/// Returns the different lists of CPUs of this process's scheduler threads, as the kernel reports
/// them.
fn bindings() -> BTreeSet<String> {
    let allowed = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t").map(str::to_string));
        line.filter(|_| status.starts_with("Name:\tlnet-sched-"))
    };
    fs::read_dir("/proc/self/task").unwrap().filter_map(|task| allowed(task.unwrap())).collect()
}

/// Scheduler threads are bound to the CPUs of the NUMA nodes in the pattern, or to those of one
/// NUMA node each if every NUMA node is a partition. With either setting, nodes exchange messages.
// Covers: S-306, S-312, S-315
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn scheduler_threads_are_bound_to_numa_nodes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let nodes = [0, 1].map(cpus_of_node);
    let start = |tunables: &str, net: &str| {
        let config = NodeConfig::new().cpt(tunables.parse().unwrap()).accept_port(21_945);
        Station::start(&config.net(net).unwrap())
    };
    let second = start(r#"cpu_pattern="N 0[1]""#, "tcp(127.47.0.1)");
    assert_eq!(bindings(), BTreeSet::from([nodes[1].clone()]));
    let both = start(r#"cpu_pattern="N""#, "tcp(127.47.0.2)");
    assert_eq!(bindings(), BTreeSet::from(nodes));
    assert_eq!(both.node.partitions().partitions(), 2);
    exchange(&second, &both, LNET_MTU);
    exchange(&both, &second, LNET_MTU);
}

/// A partition's tables of the engine lie on the partition's NUMA node, whichever thread fills
/// them, while the node answers over TCP.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn tables_lie_on_the_node_of_their_partition() {
    const ENTRIES: u64 = 20_000;
    /// The least memory of an entry and its MD; both take more, in whole pages.
    const ENTRY_BYTES: usize = 256;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let start = |net: &str| {
        let config = NodeConfig::new().cpt(r#"cpu_pattern="N""#.parse().unwrap()).accept_port(21_946);
        Station::start(&config.net(net).unwrap())
    };
    let (station, peer) = (start("tcp(127.47.0.3)"), start("tcp(127.47.0.4)"));
    exchange(&peer, &station, LNET_MTU);
    let table = station.node.partitions();
    let memory = IoVec::whole(Region::heap(8).unwrap());
    let post = |machine: u64| {
        for number in 0..ENTRIES {
            let me = MeSpec::new(Portal::new(30).unwrap(), MatchBits(machine << 52 | number));
            let md = Md {
                memory: memory.clone(),
                threshold: Threshold::Limited(1),
                max_size: 0,
                options: MdOptions::OP_PUT,
                user_ptr: 0,
                eq: None,
            };
            station.lnet.md_attach(station.lnet.me_attach(&me).unwrap(), md, Unlink::Auto).unwrap();
        }
    };
    for (machine, poster) in [(2, 1), (3, 0)] {
        let home = station.lnet.home(Portal::new(30).unwrap(), MatchBits(machine << 52));
        assert_eq!(home, 1 - poster);
        let filled = || {
            bind_thread(table, poster).unwrap();
            pages_of(|| post(machine)).0
        };
        let pages = std::thread::scope(|scope| scope.spawn(filled).join().unwrap());
        assert!(pages[home] * 4096 >= ENTRIES as usize * ENTRY_BYTES, "{pages:?} of partition {home}");
        assert!(pages[poster] * 20 < pages[home], "{pages:?} of partition {home}");
    }
    exchange(&peer, &station, LNET_MTU);
}
