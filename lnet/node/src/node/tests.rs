use std::fs;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_cpt::{CptTable, Topology};

use crate::{Node, NodeConfig, NodeError};

const PORT: u16 = 21_944;

/// S-315, S-307: an interface's credits are shared out among the partitions it is bound to.
#[test]
fn an_interface_lies_in_the_partitions_it_is_bound_to() {
    // So few that the rule for all four partitions is the second one: enough for eight peers (lnet-semantics 13).
    const CREDITS: u32 = 100;
    const PEER_CREDITS: u32 = 4;
    let shares = [CREDITS / 2, CREDITS, PEER_CREDITS * 8];
    let text = "tcp(127.44.0.1)[0,2],tcp1:1(127.44.0.1),tcp2(127.44.0.1)";
    let table = Arc::new(CptTable::virtual_parts(4).unwrap());
    let mut config = NodeConfig::new().networks(text).unwrap().partitions(table.clone()).accept_port(PORT);
    config.tcp().credits = CREDITS;
    config.tcp().peer_credits = PEER_CREDITS;
    let node = Node::start(&config).unwrap();
    for (&nid, share) in node.nids().iter().zip(shares) {
        let credits = node.engine().ni_statistics(nid).unwrap().credits;
        assert!(credits > 0 && credits % i64::from(share) == 0, "{nid}: {credits} in shares of {share}");
    }
    assert_eq!(node.nids().len(), shares.len());
    assert!(Arc::ptr_eq(node.partitions(), &table));
}

/// S-315: a partition that the node does not have is refused before anything is started.
#[test]
fn a_partition_that_is_not_there_is_refused() {
    let config = NodeConfig::new().cpt("cpu_npartitions=1".parse().unwrap()).accept_port(PORT);
    let config = config.net("tcp(127.44.0.2)").unwrap().net("tcp(127.44.0.3)[0-1]").unwrap();
    let error: NodeError = Node::start(&config).unwrap_err();
    assert_eq!(error.errno(), Errno::EINVAL);
    assert!(error.to_string().contains("no CPU partition 1: the node has 1"), "{error}");
}

/// S-306, S-312: the scheduler thread keeps off the CPUs that the pattern leaves out.
#[test]
fn the_scheduler_thread_runs_on_the_cpus_of_the_pattern() {
    let machine = Topology::machine().unwrap();
    let last = machine.cpus().last().unwrap();
    let pattern = format!(r#"cpu_pattern="0[{last}]""#);
    let config = NodeConfig::new().cpt(pattern.parse().unwrap()).net("tcp(127.44.0.4)").unwrap();
    let node = Node::start(&config.accept_port(PORT)).unwrap();
    assert_eq!(node.partitions().cpumask(0).to_string(), last.to_string());
    // Other tests of this process have such threads too, on all CPUs.
    let bound = fs::read_dir("/proc/self/task").unwrap().any(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        status.starts_with("Name:\tlnet-sched-") && status.contains(&format!("Cpus_allowed_list:\t{last}\n"))
    });
    assert!(bound, "no scheduler thread is bound to CPU {last}");
}
