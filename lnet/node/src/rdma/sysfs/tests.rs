use std::net::Ipv4Addr;

use super::*;

/// Returns a folder with these files.
fn class(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    folder
}

const SOFT: &[(&str, &str)] = &[
    ("net/eth0/dev_port", "0"),
    ("net/lo/dev_port", "0"),
    ("infiniband/rxe0/parent", "eth0"),
    ("infiniband/rxe0/ports/1/state", "4: ACTIVE"),
    ("infiniband/rxe0/ports/1/link_layer", "Ethernet"),
    ("infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)"),
    ("infiniband/rxe0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456"),
    ("infiniband/rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a4d:0001"),
    ("infiniband/rxe0/ports/1/gids/10", "0000:0000:0000:0000:0000:ffff:0a4d:0001"),
    ("infiniband/rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
    ("infiniband/rxe0/ports/1/gid_attrs/types/0", "RoCE v2"),
    ("infiniband/rxe0/ports/1/gid_attrs/types/1", "IB/RoCE v1"),
    ("infiniband/rxe0/ports/1/gid_attrs/types/10", "RoCE v2"),
    ("infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth0"),
    ("infiniband/rxe0/ports/1/gid_attrs/ndevs/1", "eth0.7"),
    ("infiniband/rxe0/ports/1/gid_attrs/ndevs/10", "eth0.7"),
];

#[test]
fn a_soft_device_has_the_addresses_of_its_interfaces() {
    let folder = class(SOFT);
    let all = devices(folder.path());
    assert_eq!((all.len(), all[0].name.as_str(), all[0].ports.len()), (1, "rxe0", 1));
    let port = &all[0].ports[0];
    assert!(port.is_active() && port.link == PortLinkLayer::Ethernet);
    assert_eq!(port.netdevs, ["eth0", "eth0.7"]);
    assert_eq!(port.gids.iter().map(|gid| gid.index).collect::<Vec<_>>(), [0, 1, 10], "in their order");
    // If an address has two GIDs, the newer form is used.
    let gid = port.gid_of(Ipv4Addr::new(10, 77, 0, 1)).unwrap();
    assert!(gid.index == 10 && gid.is_routable());
    assert_eq!(port.gid_of(Ipv4Addr::new(10, 77, 0, 2)), None);
    assert_eq!(all[0].port_name(port), "rxe0/1");
}

#[test]
fn infiniband_has_the_interfaces_that_lie_on_its_hardware() {
    let folder = class(&[
        ("infiniband/mlx5_0/device/numa_node", "1"),
        ("infiniband/mlx5_0/ports/1/state", "1: DOWN"),
        ("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand"),
        ("infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:00a1:b2c3"),
        ("infiniband/mlx5_0/ports/2/state", "4: ACTIVE"),
        ("infiniband/mlx5_0/ports/2/link_layer", "InfiniBand"),
        ("net/ib0/dev_port", "0"),
        ("net/ib0/device/infiniband/mlx5_0/node_guid", "0"),
        ("net/ib1/dev_port", "1"),
        ("net/ib1/device/infiniband/mlx5_0/node_guid", "0"),
        ("net/ib1.8001/parent", "ib1"),
        ("net/eth0/dev_port", "0"),
    ]);
    let all = devices(folder.path());
    assert_eq!(all[0].numa_node, Some(1));
    let ports = &all[0].ports;
    assert_eq!((ports[0].state.as_str(), ports[0].is_active()), ("DOWN", false));
    assert_eq!(
        (&ports[0].netdevs[..], &ports[1].netdevs[..]),
        (&["ib0".to_string()][..], &["ib1".to_string(), "ib1.8001".to_string()][..])
    );
}

/// A bond of IPoIB has the address, but no files of the hardware; a bond of RoCE may already be
/// among the GIDs.
#[test]
fn a_bond_lies_on_the_ports_of_its_interfaces() {
    let folder = class(&[
        ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand"),
        ("infiniband/mlx5_1/ports/1/state", "1: DOWN"),
        ("infiniband/mlx5_1/ports/1/link_layer", "InfiniBand"),
        ("infiniband/rxe0/parent", "eth0"),
        ("infiniband/rxe0/ports/1/link_layer", "Ethernet"),
        ("infiniband/rxe0/ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a4d:0001"),
        ("infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "bond1"),
        ("net/ib0/dev_port", "0"),
        ("net/ib0/device/infiniband/mlx5_0/node_guid", "0"),
        ("net/ib1/dev_port", "0"),
        ("net/ib1/device/infiniband/mlx5_1/node_guid", "0"),
        ("net/bond0/bonding/slaves", "ib0 ib1"),
        ("net/bond1/bonding/slaves", "eth0 eth1"),
        ("net/bond2/bonding/slaves", ""),
    ]);
    let all = devices(folder.path());
    let netdevs = |device: usize| all[device].ports[0].netdevs.join(" ");
    assert_eq!(
        (netdevs(0), netdevs(1), netdevs(2)),
        ("ib0 bond0".into(), "ib1 bond0".into(), "bond1 eth0".into())
    );
    // Of the two ports, the active one is used.
    let (device, port) = crate::rdma::port_of(&all, "bond0").unwrap();
    assert_eq!((device.name.as_str(), port.is_active()), ("mlx5_0", true));
}

#[test]
fn a_host_without_rdma_has_no_devices_and_odd_files_do_no_harm() {
    assert_eq!(devices(Path::new("/no/such/folder")), []);
    let folder = class(&[
        ("infiniband/odd0/ports/1/gids/0", "no gid"),
        ("infiniband/odd0/ports/1/gids/none", "fe80::1"),
        ("infiniband/odd0/ports/many/state", "4: ACTIVE"),
        ("infiniband/odd1/node_type", "1: CA"),
    ]);
    let all = devices(folder.path());
    assert_eq!((all[0].ports.len(), all[1].ports.len()), (1, 0));
    let port = &all[0].ports[0];
    assert!(port.gids.is_empty() && port.state.is_empty() && port.link == PortLinkLayer::Other);
}
