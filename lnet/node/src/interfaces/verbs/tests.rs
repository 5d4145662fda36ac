use std::net::Ipv6Addr;

use lnet_nid::Nid;

use super::*;
use crate::PortGid;
use crate::interfaces::choice::{explain_on, take};
use crate::interfaces::tests::interface;

fn device(name: &str, ports: &[(PortLinkLayer, &str, &[&str])]) -> RdmaDevice {
    let port = |(at, (link, state, netdevs)): (usize, &(PortLinkLayer, &str, &[&str]))| RdmaPort {
        number: at as u8 + 1,
        state: state.to_string(),
        link: *link,
        rate: "100 Gb/sec (4X EDR)".to_string(),
        netdevs: netdevs.iter().map(ToString::to_string).collect(),
        gids: vec![PortGid {
            index: 0,
            gid: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
            kind: String::new(),
            netdev: None,
        }],
    };
    RdmaDevice {
        name: name.to_string(),
        ports: ports.iter().enumerate().map(port).collect(),
        numa_node: None,
    }
}

/// Returns a host with every kind of device, and every fault.
fn host() -> HostInterfaces {
    const IB: PortLinkLayer = PortLinkLayer::InfiniBand;
    const ETHERNET: PortLinkLayer = PortLinkLayer::Ethernet;
    HostInterfaces {
        interfaces: vec![
            interface("lo", true, &["127.0.0.1"]),
            interface("eth0", true, &["10.0.0.1"]),
            interface("ib0", true, &["fe80::1", "10.1.0.1", "10.1.0.2"]),
            interface("ib1", true, &["10.2.0.1"]),
            interface("ib2", true, &["fd00::1"]),
            interface("eth5", true, &["10.5.0.1"]),
            interface("eth5.7", true, &["10.7.0.1"]),
            interface("eth6", false, &["10.6.0.1"]),
        ],
        devices: vec![
            device("bare0", &[(IB, "ACTIVE", &[]), (IB, "INIT", &[])]),
            device("mlx5_0", &[(IB, "ACTIVE", &["ib2"]), (IB, "ACTIVE", &["ib0"]), (IB, "DOWN", &["ib1"])]),
            device("rxe0", &[(ETHERNET, "ACTIVE", &["eth5", "eth5.7"])]),
            device("rxe1", &[(ETHERNET, "ACTIVE", &["eth6"])]),
            device("rxe2", &[(ETHERNET, "DOWN", &["gone0"])]),
        ],
    }
}

fn nids(net: &str, host: &HostInterfaces) -> Result<Vec<String>, NodeError> {
    let net: NetSpec = net.parse().unwrap();
    take(&net, host).into_iter().map(|taken| Ok(Nid::new_ip(net.net(), taken?.address).to_string())).collect()
}

/// The networks of lnet-semantics 24, in the design's notation.
// Covers: S-4, S-315
#[test]
fn a_network_names_interface_address_or_device() {
    let host = host();
    for (net, expected) in [
        ("o2ib0:0(ib0)", &["10.1.0.1@o2ib"][..]),
        ("o2ib1(10.1.0.2)[1]", &["10.1.0.2@o2ib1"]),
        ("o2ib(mlx5_0)", &["10.1.0.1@o2ib"]),
        ("o2ib(mlx5_0/2,rxe0)", &["10.1.0.1@o2ib", "10.5.0.1@o2ib"]),
        ("o2ib(rxe0:1,eth5.7)", &["10.5.0.1@o2ib", "10.7.0.1@o2ib"]),
        // Without a name, the first usable port.
        ("o2ib7", &["10.1.0.1@o2ib7"]),
    ] {
        assert_eq!(nids(net, &host).unwrap(), expected, "{net}");
    }
}

#[test]
fn what_is_missing_is_reported_with_advice() {
    let host = host();
    for (net, words) in [
        ("o2ib(ib9)", &["'ib9'", "not there", "mlx5_0/2 (ib0)", "rxe0/1 (eth5, eth5.7)"][..]),
        ("o2ib(mlx5_0/9)", &["'mlx5_0/9'", "not there"]),
        ("o2ib(10.9.0.1)", &["'10.9.0.1'", "no interface of this host has the address"]),
        ("o2ib(fd00::1)", &["'fd00::1'", "IPv4"]),
        ("o2ib(eth0)", &["'eth0'", "no RDMA device lies on eth0", "rxe0/1"]),
        ("o2ib(10.0.0.1)", &["no RDMA device lies on eth0"]),
        ("o2ib(lo)", &["no RDMA device lies on lo"]),
        ("o2ib(ib1)", &["'ib1'", "mlx5_0/3 is DOWN", "cable"]),
        ("o2ib(mlx5_0/3)", &["mlx5_0/3 is DOWN"]),
        ("o2ib(bare0/2)", &["bare0/2 is INIT", "subnet manager"]),
        ("o2ib(bare0/1)", &["no network interface belongs to the port bare0/1", "ib_ipoib"]),
        ("o2ib(ib2)", &["ib2 has no IPv4 address", "ip address add"]),
        ("o2ib(mlx5_0/1)", &["ib2 has no IPv4 address"]),
        ("o2ib(eth6)", &["eth6 is down", "ip link set eth6 up"]),
        ("o2ib(rxe1)", &["eth6 is down"]),
        ("o2ib(rxe2)", &["rxe2/1 is DOWN", "ip link set gone0 up"]),
    ] {
        let error = nids(net, &host).unwrap_err();
        assert_eq!(error.errno(), Errno::ENODEV, "{net}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{net}: {text}");
    }
}

// A program built without RDMA reports that, and not the missing device.
#[cfg(feature = "verbs")]
#[test]
fn a_host_without_devices_says_so_and_how_to_get_one() {
    let host = HostInterfaces { devices: Vec::new(), ..host() };
    for net in ["o2ib", "o2ib(ib0)", "o2ib(10.0.0.1)", "o2ib(mlx5_0)"] {
        let error = nids(net, &host).unwrap_err();
        assert_eq!(error.errno(), Errno::ENODEV);
        assert!(error.to_string().contains("no RDMA device") && error.to_string().contains("rxe"), "{error}");
    }
    let faulty = HostInterfaces {
        devices: vec![device("rxe1", &[(PortLinkLayer::Ethernet, "ACTIVE", &["eth6"])])],
        ..self::host()
    };
    let error = nids("o2ib", &faulty).unwrap_err();
    assert!(error.to_string().contains("'o2ib': no RDMA device has an active port"), "{error}");
}

/// The NID of a configuration file must be an address of the interface next to it.
#[test]
fn a_nid_beside_an_interface_is_one_of_its_addresses() {
    let host = host();
    let with = |name: &str, nid: &str| {
        let mut net: NetSpec = format!("o2ib({name})").parse().unwrap();
        net.interfaces[0].address = Some(nid.parse().unwrap());
        take(&net, &host).remove(0).map(|taken| taken.address.to_string())
    };
    assert_eq!(with("ib0", "10.1.0.2").unwrap(), "10.1.0.2");
    assert_eq!(with("mlx5_0", "10.1.0.2").unwrap(), "10.1.0.2");
    for name in ["ib0", "mlx5_0"] {
        assert!(
            with(name, "10.5.0.1").unwrap_err().to_string().contains("does not have the address 10.5.0.1")
        );
    }
    assert!(with("ib2", "fd00::1").unwrap_err().to_string().contains("IPv4"));
}

/// Returns `interface port address: reason` for each line.
fn explained(net: &str) -> Vec<String> {
    let line = |choice: Choice| {
        let name = choice.interface.map_or("-".to_string(), |interface| interface.name);
        let address = choice.address.map_or("-".to_string(), |address| address.to_string());
        let taken = if choice.nid.is_some() { "taken, " } else { "" };
        format!("{name} {} {address}: {taken}{}", choice.port.unwrap_or("-".into()), choice.reason)
    };
    explain_on(&net.parse().unwrap(), &host()).into_iter().map(line).collect()
}

#[test]
fn each_address_and_each_port_is_explained() {
    let lines = explained("o2ib");
    for line in [
        "lo - 127.0.0.1: no RDMA device lies on it",
        "eth0 - 10.0.0.1: no RDMA device lies on it",
        "ib0 mlx5_0/2 fe80::1: NIDs of o2ib networks are IPv4 addresses",
        "ib0 mlx5_0/2 10.1.0.1: taken, the first interface that can be used",
        "ib0 mlx5_0/2 10.1.0.2: the interface gives 10.1.0.1; this one can be named itself",
        "eth5 rxe0/1 10.5.0.1: ib0 comes first; name this one to use it",
        "eth6 rxe1/1 10.6.0.1: down",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("- bare0/1 -: no network interface")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("ib1 mlx5_0/3 10.2.0.1: the port mlx5_0/3 is DOWN")));
    assert!(
        explained("o2ib(rxe0)")
            .contains(&"eth5 rxe0/1 10.5.0.1: taken, the RDMA device is named".to_string())
    );
    let refused = explained("o2ib(eth0)").pop().unwrap();
    assert!(refused.starts_with("- - -: interface 'eth0': no RDMA device lies on eth0"), "{refused}");
}

/// Of two devices of different kinds on one interface, the active one is used.
#[test]
fn of_two_devices_on_one_interface_the_active_one_counts() {
    let mut host = host();
    host.devices.insert(0, device("old0", &[(PortLinkLayer::Ethernet, "DOWN", &["eth5"])]));
    assert_eq!(nids("o2ib(eth5)", &host).unwrap(), ["10.5.0.1@o2ib"]);
}
