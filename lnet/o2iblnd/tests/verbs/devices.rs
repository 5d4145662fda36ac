//! Devices whose link goes down, and devices that are removed.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::verbs::{GidKind, LinkLayer, Usage, devices};

use crate::common::*;

fn change(node: &Node) -> DeviceChange {
    match node.cm_event() {
        CmEvent::Device { name, change } if *name == *node.device.name() => change,
        other => panic!("{}", describe(&other)),
    }
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_device_is_opened_once() {
    let host = new_host();
    let [one, other] = [ADDRESSES[0]; 2].map(|address| host.open(address).expect("the device"));
    assert!(Arc::ptr_eq(&one, &other));
    let limits = one.limits();
    assert!(limits.queue_entries > 100 && limits.completions > 100 && limits.pieces > 2, "{limits:?}");
    assert!(limits.transfer_bytes >= 1 << 20 && limits.memory_bytes >= 1 << 20, "{limits:?}");
}

/// The list for operators shows the GIDs that connections use.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn devices_are_listed_with_their_gids() {
    let list = devices().expect("the devices");
    let open = new_host().open(ADDRESSES[0]).expect("the device");
    let device = list.iter().find(|device| device.name == open.name()).expect("it is listed");
    let port = &device.ports[0];
    assert_eq!((device.ports.len(), port.number, &device.note), (1, 1, &None));
    assert_eq!((port.is_active(), &port.link), (true, &LinkLayer::Ethernet));
    let node_guid = std::fs::read_to_string(format!("/sys/class/infiniband/{}/node_guid", device.name));
    let guid = format!("{:016x}", device.guid.expect("a GUID"));
    assert_eq!(guid, node_guid.expect("its GUID").trim().replace(':', ""));
    for gid in port.gids.iter().filter(|gid| gid.usage.is_used()) {
        let address = gid.address().expect("an IPv4 address");
        assert_eq!(port.gid_for(address), Some(gid));
        assert_eq!((gid.usage, gid.kind), (Usage::Address(address), GidKind::RoceV2));
        assert_eq!(gid.netdev.as_deref(), Some(&*netdev()));
        let file = format!("/sys/class/infiniband/{}/ports/1/gids/{}", device.name, gid.index);
        let shown = std::fs::read_to_string(file).expect("the table").trim().parse();
        assert_eq!(Ok(gid.gid), shown);
        assert!(port.addresses.contains(&(netdev(), address)));
    }
    assert!(port.gid_for(ADDRESSES[0]).is_some());
    assert_eq!(port.gids[0].usage, Usage::NotIpv4, "{}", port.gids[0].usage);
}

/// All shards of a device receive its port's events.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn ports_go_down_and_up() {
    let host = new_host();
    let nodes = [node(&host, 0), node(&host, 1)];
    let _listeners: Vec<_> = nodes.iter().map(Node::listen).collect();
    link(&["down"]);
    for node in &nodes {
        assert_eq!(change(node), DeviceChange::PortDown);
    }
    let closed = host.open(ADDRESSES[0]).err().expect("a port that is down");
    assert_eq!(closed.errno, Errno::ENETDOWN, "{closed}");
    let listed = devices().expect("the devices");
    let down = listed.iter().find(|device| device.name == nodes[0].device.name()).expect("it is listed");
    assert!(!down.ports[0].is_active() && down.note.is_some(), "{down:?}");
    link(&["up"]);
    for node in &nodes {
        assert_eq!(change(node), DeviceChange::PortUp);
    }
    drop((nodes, _listeners));
    pair(&host);
}
