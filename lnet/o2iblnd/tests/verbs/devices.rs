//! Devices whose link goes, and which go themselves.

use std::process::Command;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::verbs::{GidKind, Host, LinkLayer, Usage, devices};

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

/// What an operator is shown is what connections use.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn devices_are_listed_with_their_gids() {
    let list = devices().expect("the devices");
    let device = &list[0];
    let port = &device.ports[0];
    assert_eq!((list.len(), device.ports.len(), port.number, &device.note), (1, 1, 1, &None));
    assert_eq!(device.name, Host::new().open(ADDRESSES[0]).expect("the device").name());
    assert_eq!((port.is_active(), &port.link), (true, &LinkLayer::Ethernet));
    let node_guid = std::fs::read_to_string(format!("/sys/class/infiniband/{}/node_guid", device.name));
    let guid = format!("{:016x}", device.guid.expect("a GUID"));
    assert_eq!(guid, node_guid.expect("its GUID").trim().replace(':', ""));
    for address in ADDRESSES {
        let gid = port.gid_for(address).expect("its GID");
        assert_eq!((gid.usage, gid.kind), (Usage::Address(address), GidKind::RoceV2));
        assert_eq!(gid.netdev.as_deref(), Some("eth0"));
        let file = format!("/sys/class/infiniband/{}/ports/1/gids/{}", device.name, gid.index);
        let shown = std::fs::read_to_string(file).expect("the table").trim().parse();
        assert_eq!(Ok(gid.gid), shown);
        assert!(port.addresses.contains(&("eth0".to_owned(), address)));
    }
    assert_eq!(port.gids[0].usage, Usage::NotIpv4, "{}", port.gids[0].usage);
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
    assert!(!devices().expect("the devices")[0].ports[0].is_active());
    link("up");
    for node in &nodes {
        assert_eq!(change(node), DeviceChange::PortUp);
    }
    drop((nodes, _listeners));
    pair(&host);
}
