//! A node on two NUMA nodes of four CPUs each, which `./test verbs` makes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, reason = "the stations are a module of tests alone")]

mod station;

use std::collections::BTreeSet;
use std::fs;

use lnet_node::NodeConfig;
use station::{Station, exchange};

/// The longest message.
const LNET_MTU: usize = 1 << 20;

/// The CPUs of the kernel's NUMA node, as it writes them.
fn cpus_of_node(node: usize) -> String {
    fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).unwrap().trim().to_string()
}

/// Where the kernel lets this process's scheduler threads run: the different lists of CPUs.
fn bindings() -> BTreeSet<String> {
    let allowed = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t").map(str::to_string));
        line.filter(|_| status.starts_with("Name:\tlnet-sched-"))
    };
    fs::read_dir("/proc/self/task").unwrap().filter_map(|task| allowed(task.unwrap())).collect()
}

/// S-306, S-312, S-315: scheduler threads are bound to the CPUs of the NUMA nodes that the pattern names, and to those of
/// one each where every NUMA node is a partition; messages go between such nodes.
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn scheduler_threads_are_bound_to_numa_nodes() {
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
