//! Nodes with addresses of a separate network namespace. Needs root, so `./test namespaces` runs
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use lnet_node::{NodeConfig, holder_of};
use nix::sched::{CloneFlags, unshare};
use nlx_testkit::namespace::{add_address, ip};
use nlx_testkit::station::{Station, exchange};

/// The length of the longest message.
const LNET_MTU: usize = 1 << 20;

/// Large NIDs, end to end: pings both ways, PUT with ACK and GET of the longest messages.
#[test]
#[ignore = "needs root: ./test namespaces"]
fn two_nodes_exchange_messages_over_ipv6() {
    // The new namespace is that of this thread, and of the threads and programs that it starts.
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link set lo up");
    let [one, other] = ["fd00::1", "fd00::2"].map(|address| {
        add_address(address);
        Station::start(&NodeConfig::new().net(&format!("tcp({address})")).unwrap())
    });
    assert_eq!(other.id().nid.to_string(), "fd00::2@tcp");
    assert!(holder_of(other.id().nid).is_some(), "it is claimed like any other");
    exchange(&one, &other, LNET_MTU);
    exchange(&other, &one, 1);
}
