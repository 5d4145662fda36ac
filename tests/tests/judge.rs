//! nlx before the judge: what real LNet nodes were measured to do, line by line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use lnet_node::{AcceptPolicy, Node, NodeConfig};
use nlx_tests::judge::{CHECKS, Outcome, Policy, Target, wire::Nid};

/// A node of a policy, and the judge's view of it.
fn node(judge: Ipv4Addr, address: Ipv4Addr, accept: AcceptPolicy) -> (Node, Target) {
    let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
    let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(port).accept(accept);
    let node = Node::start(&config).unwrap();
    let to = SocketAddrV4::new(address, port);
    let policy = match accept {
        AcceptPolicy::All => Policy::All,
        AcceptPolicy::Hello => Policy::Hello,
        _ => Policy::Secure,
    };
    let target = Target::new(to, Nid::new(address, 0), Nid::new(judge, 0));
    (node, Target { privileged: false, policy, ..target })
}

/// Runs every check; those named must apply.
fn pass(target: &Target) -> Vec<&'static str> {
    let mut applied = Vec::new();
    let mut failed = Vec::new();
    for check in CHECKS {
        match check.run(target) {
            Outcome::Pass => applied.push(check.name),
            Outcome::Fail(words) => failed.push(format!("{}: {words} ({})", check.name, check.enforces)),
            Outcome::DoesNotApply => {}
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    applied
}

/// Where hellos are believed, whatever port they come from.
#[test]
fn a_node_that_believes_hellos_passes() {
    let (_node, target) = node(Ipv4Addr::new(127, 4, 1, 1), Ipv4Addr::new(127, 4, 1, 2), AcceptPolicy::Hello);
    let applied = pass(&target);
    assert!(["hello-v3", "zc-ack", "push"].iter().all(|name| applied.contains(name)), "{applied:?}");
}

#[test]
fn a_node_that_names_peers_after_their_ports_passes() {
    let (_node, target) = node(Ipv4Addr::new(127, 4, 2, 1), Ipv4Addr::new(127, 4, 2, 2), AcceptPolicy::All);
    let applied = pass(&target);
    assert!(["all-identity", "all-ports", "ping"].iter().all(|name| applied.contains(name)), "{applied:?}");
}

#[test]
fn a_secure_node_closes_unprivileged_connections() {
    let (_node, target) =
        node(Ipv4Addr::new(127, 4, 3, 1), Ipv4Addr::new(127, 4, 3, 2), AcceptPolicy::Secure);
    assert_eq!(pass(&target), ["address", "secure"]);
}
