//! Devices whose link goes, and which go themselves.

use std::process::Command;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::verbs::Host;

use crate::common::*;

fn link(state: &str) {
    let ip = Command::new("ip").args(["link", "set", "eth0", state]).status();
    assert!(ip.expect("ip").success());
}

fn change(node: &Node) -> DeviceChange {
    match node.happening() {
        Happening::Device { name, change } if *name == *node.device.name() => change,
        other => panic!("{}", told(&other)),
    }
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_device_is_opened_once() {
    let host = Host::new();
    let [one, other] = ADDRESSES.map(|address| host.open(address).expect("the device"));
    assert!(Arc::ptr_eq(&one, &other));
    let limits = one.limits();
    assert!(limits.queue_entries > 100 && limits.completions > 100 && limits.pieces > 2, "{limits:?}");
    assert!(limits.transfer_bytes >= 1 << 20 && limits.memory_bytes >= 1 << 20, "{limits:?}");
}

/// All shards of a device hear of its port.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn ports_go_down_and_up() {
    let host = Host::new();
    let nodes = [node(&host, 0), node(&host, 1)];
    let _listeners: Vec<_> = nodes.iter().map(Node::listen).collect();
    link("down");
    for node in &nodes {
        assert_eq!(change(node), DeviceChange::PortDown);
    }
    let closed = host.open(ADDRESSES[0]).err().expect("a port that is down");
    assert_eq!(closed.errno, Errno::ENETDOWN, "{closed}");
    link("up");
    for node in &nodes {
        assert_eq!(change(node), DeviceChange::PortUp);
    }
    drop((nodes, _listeners));
    pair(&host);
}
