use super::*;
use crate::interfaces::tests::interface;

/// Returns a host with every kind of interface.
fn host() -> Vec<HostInterface> {
    vec![
        interface("lo", true, &["127.0.0.1", "::1"]),
        interface("six0", true, &["fe80::6", "2001:db8::6"]),
        interface("down0", false, &["10.9.0.1"]),
        interface("bare0", true, &[]),
        interface("link0", true, &["fe80::7"]),
        interface("eth0", true, &["fe80::8", "2001:db8::8", "10.0.0.1", "10.0.0.2"]),
        interface("eth1", true, &["10.1.0.1"]),
    ]
}

fn on(interfaces: &[HostInterface]) -> HostInterfaces {
    HostInterfaces { interfaces: interfaces.to_vec(), devices: Vec::new() }
}

fn nids(net: &str, host: &[HostInterface]) -> Result<Vec<String>, NodeError> {
    let (net, host): (NetSpec, _) = (net.parse().unwrap(), on(host));
    take(&net, &host).into_iter().map(|taken| Ok(Nid::new_ip(net.net, taken?.address).to_string())).collect()
}

/// Returns `interface address: reason` for each line.
fn explained(net: &str, host: &[HostInterface]) -> Vec<String> {
    let line = |choice: Choice| {
        let name = choice.interface.map_or("-".to_string(), |interface| interface.name);
        let address = choice.address.map_or("-".to_string(), |address| address.to_string());
        format!("{name} {address}: {}{}", if choice.nid.is_some() { "taken, " } else { "" }, choice.reason)
    };
    explain_on(&net.parse().unwrap(), &on(host)).into_iter().map(line).collect()
}

/// lnet-semantics 24: the first usable interface; IPv4 before IPv6, on one interface and among
/// several.
#[test]
fn a_network_without_interfaces_takes_the_first_usable_one() {
    let mut host = host();
    assert_eq!(nids("tcp1", &host).unwrap(), ["10.0.0.1@tcp1"]);
    host.truncate(5);
    assert_eq!(nids("tcp", &host).unwrap(), ["2001:db8::6@tcp"]);
    host.remove(1);
    assert!(matches!(nids("tcp", &host), Err(NodeError::NoNetwork)));
}

#[test]
fn interfaces_and_addresses_are_taken_by_name() {
    let host = host();
    for (net, expected) in [
        ("tcp(eth1,eth0)", &["10.1.0.1@tcp", "10.0.0.1@tcp"][..]),
        ("tcp(10.0.0.2)", &["10.0.0.2@tcp"]),
        ("tcp(six0)", &["2001:db8::6@tcp"]),
        ("tcp2(2001:DB8:0::8)", &["2001:db8::8@tcp2"]),
        ("tcp(::1,lo,127.8.9.10)", &["::1@tcp", "127.0.0.1@tcp", "127.8.9.10@tcp"]),
    ] {
        assert_eq!(nids(net, &host).unwrap(), expected, "{net}");
    }
}

#[test]
fn what_a_network_cannot_have_is_refused_by_name() {
    let host = host();
    for (net, reason) in [
        ("tcp(no-such0)", "'no-such0': not there; there are: lo, six0, eth0, eth1"),
        ("tcp(10.0.0.3)", "'10.0.0.3': no interface of this host has the address"),
        ("tcp(::ffff:10.0.0.1)", "no interface of this host has the address"),
        ("tcp(down0)", "'down0': down0 is down"),
        ("tcp(10.9.0.1)", "'10.9.0.1': down0 is down"),
        ("tcp(bare0)", "'bare0': without an IPv4 address"),
        ("tcp(link0)", "'link0': without an IPv4 address"),
        ("tcp(fe80::8)", "'fe80::8': a link-local address"),
    ] {
        let error = nids(net, &host).unwrap_err();
        assert!(error.to_string().contains(reason), "{net}: {error}");
        assert_eq!(error.errno(), lnet_api::Errno::ENODEV);
        let last = explained(net, &host).pop().unwrap();
        assert_eq!(last, format!("- -: {error}"));
    }
}

#[test]
fn every_address_of_the_host_is_explained() {
    let expected = [
        "lo 127.0.0.1: loopback is taken by name only",
        "lo ::1: loopback is taken by name only",
        "six0 fe80::6: a link-local address means nothing beyond one link",
        "six0 2001:db8::6: eth0 comes first; name this one to use it",
        "down0 10.9.0.1: down",
        "bare0 -: no IPv4 or IPv6 address",
        "link0 fe80::7: a link-local address means nothing beyond one link",
        "eth0 fe80::8: a link-local address means nothing beyond one link",
        "eth0 2001:db8::8: the interface gives 10.0.0.1; this one can be named itself",
        "eth0 10.0.0.1: taken, the first interface that can be used",
        "eth0 10.0.0.2: the interface gives 10.0.0.1; this one can be named itself",
        "eth1 10.1.0.1: eth0 comes first; name this one to use it",
    ];
    assert_eq!(explained("tcp", &host()), expected);
}

#[test]
fn what_is_named_is_explained() {
    let expected = [
        "lo 127.0.0.1: not named",
        "lo ::1: not named",
        "lo 127.0.0.9: taken, the address is named",
        "eth0 fe80::8: a link-local address means nothing beyond one link",
        "eth0 2001:db8::8: the interface gives 10.0.0.1; this one can be named itself",
        "eth0 10.0.0.1: taken, the interface is named",
        "eth0 10.0.0.1: named twice",
        "eth0 10.0.0.2: taken, the address is named",
        "eth1 10.1.0.1: not named",
    ];
    let host: Vec<_> = host()
        .into_iter()
        .filter(|interface| interface.loopback || interface.name.starts_with("eth"))
        .collect();
    assert_eq!(explained("tcp(127.0.0.9,eth0,10.0.0.1,10.0.0.2)", &host), expected);
}

/// The host's own interfaces: each of its addresses has a line, and the NIDs are those of a node.
#[test]
fn this_host_is_explained_as_it_is() {
    let host = HostInterface::all().unwrap();
    let net: NetSpec = "tcp(lo)".parse().unwrap();
    let choices = explain(&net).unwrap();
    for interface in &host {
        let lines = choices.iter().filter(|choice| choice.interface.as_ref() == Some(interface)).count();
        assert_eq!(lines, interface.addresses.len().max(1), "{}", interface.name);
    }
    let taken: Vec<_> = choices.iter().filter_map(|choice| choice.nid).collect();
    assert_eq!(taken, crate::NodeConfig::new().net("tcp(lo)").unwrap().nids().unwrap());
}
