//! Virtual nodes beside a node.

use super::*;

/// Virtual nodes ping each other over TCP, each for itself alone; one that has ended is not reached.
// Covers: S-202, S-313
#[test]
fn virtual_nodes_are_nodes_of_their_own() {
    let node = Node::start(&NodeConfig::new().accept_port(PORT)).unwrap();
    let (threads, count) = (node.threads(), 20);
    let nids: Vec<Nid> = (1..=count).map(|host| format!("127.44.60.{host}@tcp").parse().unwrap()).collect();
    let mut all: Vec<_> = nids.iter().map(|&nid| node.virtual_node(nid).unwrap()).collect();
    assert_eq!(node.threads(), threads.max(1), "they share the threads of the node");
    assert_eq!(node.nids(), []);
    let own = Node::start(&NodeConfig::new().net("tcp(127.44.61.1)").unwrap().accept_port(PORT)).unwrap();
    let ping = |nid| own.ping(nid, None, Duration::from_secs(20));
    for (virtual_node, &nid) in all.iter().zip(&nids) {
        assert_eq!(ping(nid).unwrap().nids, [nid]);
        assert_eq!(virtual_node.counters()().recv_count, 1);
    }
    let taken = node.virtual_node(nids[0]).err().unwrap();
    assert!(matches!(taken, NodeError::Start { nid, .. } if nid == nids[0]), "{taken}");
    all.remove(0);
    assert!(ping(nids[0]).is_err());
    assert!(ping(nids[1]).is_ok());
}
