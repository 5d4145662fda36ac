//! An `o2ib` network's choice among the host's addresses: IPv4 addresses of interfaces with an RDMA
//! device.

use std::net::{IpAddr, Ipv4Addr};

use lnet_api::Errno;

use super::choice::{Choice, ChoiceReason, ChosenAddress};
use super::{HostInterface, HostInterfaces};
use crate::cpts::CptSet;
use crate::networks::NetInterface;
use crate::rdma::{BUILT_WITHOUT, RdmaDevice, RdmaPort, first_ipv4, no_device, port_of, ports, ports_named};
use crate::{NetSpec, NodeError, PortLinkLayer};

/// Returns the first usable address: IPv4, an active port, an interface that is up.
pub(super) fn first<'a>(net: &'a NetSpec, host: &'a HostInterfaces) -> Result<ChosenAddress<'a>, NodeError> {
    let refuse = |reason: &str| NodeError::Rdma {
        net: net.to_string(),
        reason: reason.to_string(),
        errno: Errno::ENODEV,
    };
    if host.devices.is_empty() {
        return Err(refuse(no_device(BUILT_WITHOUT)));
    }
    let found = ports(&host.devices).find_map(|(_, port)| usable(host, port));
    let (interface, address) = found.ok_or_else(|| {
        refuse("no RDMA device has an active port whose interface is up and has an IPv4 address")
    })?;
    Ok(ChosenAddress { interface, address: address.into(), cpts: &net.cpts, reason: ChoiceReason::First })
}

/// Returns the address of an interface that is named by its own name, by its address, or by the
/// RDMA device or port.
pub(super) fn find<'a>(
    named: &NetInterface,
    cpts: &'a CptSet,
    host: &'a HostInterfaces,
) -> Result<ChosenAddress<'a>, NodeError> {
    let refuse = |reason: String| NodeError::Interface { name: named.name.clone(), reason };
    if host.devices.is_empty() {
        return Err(refuse(no_device(BUILT_WITHOUT).to_string()));
    }
    let (interface, address, reason) = match named.name.parse() {
        Ok(IpAddr::V6(_)) => return Err(refuse("the NIDs of o2ib networks are IPv4 addresses".to_string())),
        Ok(address) => {
            let interface = host.interfaces.iter().find(|interface| interface.has(address));
            let none = || refuse("no interface of this host has the address".to_string());
            (interface.ok_or_else(none)?, address, ChoiceReason::NamedByAddress)
        }
        Err(_) => match host.interfaces.iter().find(|interface| interface.name == named.name) {
            Some(interface) => {
                (interface, address_of(interface, named).map_err(refuse)?, ChoiceReason::Named)
            }
            None => {
                let (interface, address) = by_device(named, host).map_err(refuse)?;
                (interface, address, ChoiceReason::NamedByDevice)
            }
        },
    };
    let port = port_of(&host.devices, interface.device());
    let none = || refuse(format!("no RDMA device lies on {}; {}", interface.name, port_list(host)));
    let (device, port) = port.ok_or_else(none)?;
    if !interface.up {
        return Err(refuse(format!("{} is down: 'ip link set {} up'", interface.name, interface.name)));
    }
    if !port.is_active() {
        return Err(refuse(not_active(device, port)));
    }
    Ok(ChosenAddress { interface, address, cpts, reason })
}

fn address_of(interface: &HostInterface, named: &NetInterface) -> Result<IpAddr, String> {
    match named.address {
        Some(wanted) if interface.has(wanted) && wanted.is_ipv4() => Ok(wanted),
        Some(wanted) if wanted.is_ipv6() => Err("the NIDs of o2ib networks are IPv4 addresses".to_string()),
        Some(wanted) => Err(format!("it does not have the address {wanted} of the NID")),
        None => first_ipv4(&interface.addresses).map(IpAddr::V4).ok_or_else(|| without_ipv4(&interface.name)),
    }
}

/// Returns the usable interface of an RDMA device.
fn by_device<'a>(
    named: &NetInterface,
    host: &'a HostInterfaces,
) -> Result<(&'a HostInterface, IpAddr), String> {
    let ports = ports_named(&host.devices, &named.name);
    if ports.is_empty() {
        return Err(format!("not there; {}", port_list(host)));
    }
    if let Some(wanted) = named.address {
        let interfaces = ports.iter().flat_map(|(_, port)| host.of_port(port));
        let interface = interfaces.into_iter().find(|interface| interface.has(wanted));
        return interface
            .map(|interface| (interface, wanted))
            .ok_or_else(|| format!("it does not have the address {wanted} of the NID"));
    }
    let found = ports.iter().find_map(|(_, port)| usable(host, port));
    found.map(|(interface, address)| (interface, address.into())).ok_or_else(|| {
        let missing = ports.iter().map(|(device, port)| missing(host, device, port));
        missing.collect::<Vec<_>>().join("; ")
    })
}

/// Returns the interface with which a port can serve a network, and the interface's address.
pub(crate) fn usable<'a>(host: &'a HostInterfaces, port: &RdmaPort) -> Option<(&'a HostInterface, Ipv4Addr)> {
    let mut interfaces = host.of_port(port).filter(|interface| port.is_active() && interface.up);
    interfaces.find_map(|interface| Some((interface, first_ipv4(&interface.addresses)?)))
}

/// Returns the reason why a port cannot serve a network, with advice.
pub(crate) fn missing(host: &HostInterfaces, device: &RdmaDevice, port: &RdmaPort) -> String {
    let mut interfaces = host.of_port(port);
    match interfaces.next() {
        _ if !port.is_active() => not_active(device, port),
        None => no_interface(device, port),
        Some(interface) if !interface.up => {
            format!("{} is down: 'ip link set {} up'", interface.name, interface.name)
        }
        Some(interface) => without_ipv4(&interface.name),
    }
}

fn not_active(device: &RdmaDevice, port: &RdmaPort) -> String {
    let name = device.port_name(port);
    let netdev = port.netdevs.first().map_or("IFACE", String::as_str);
    let state = if port.state.is_empty() { "of unknown state" } else { &port.state };
    match (port.link, port.state.as_str()) {
        (PortLinkLayer::InfiniBand, "INIT") => {
            format!(
                "the port {name} is {state}: no subnet manager has set it up; start 'opensm' on one host, or the switch's"
            )
        }
        (PortLinkLayer::InfiniBand, _) => {
            format!("the port {name} is {state}: is the cable in, and the switch on? 'rdma link' shows it")
        }
        _ => format!("the port {name} is {state}: 'ip link set {netdev} up', and is the cable in?"),
    }
}

fn no_interface(device: &RdmaDevice, port: &RdmaPort) -> String {
    let name = device.port_name(port);
    match port.link {
        PortLinkLayer::InfiniBand => {
            format!(
                "no network interface belongs to the port {name}: 'modprobe ib_ipoib', then give it an address"
            )
        }
        _ => format!("no network interface of this network namespace belongs to the port {name}"),
    }
}

fn without_ipv4(name: &str) -> String {
    format!(
        "{name} has no IPv4 address, and NIDs of o2ib networks are such: 'ip address add 10.0.0.1/24 dev {name}'"
    )
}

/// Returns the interfaces that an o2ib network could name.
fn port_list(host: &HostInterfaces) -> String {
    let all = ports(&host.devices).map(|(device, port)| {
        let netdevs = if port.netdevs.is_empty() { "no interface".into() } else { port.netdevs.join(", ") };
        format!("{} ({netdevs})", device.port_name(port))
    });
    format!("there are: {}", all.collect::<Vec<_>>().join(", "))
}

/// Returns the reason why a network does not use an address.
pub(super) fn why_not_used(
    host: &HostInterfaces,
    interface: &HostInterface,
    address: IpAddr,
    net: &NetSpec,
    taken: &[&ChosenAddress<'_>],
) -> ChoiceReason {
    let chosen = net.interfaces.is_empty();
    let given = first_ipv4(&interface.addresses).map(IpAddr::V4);
    match (port_of(&host.devices, interface.device()), given) {
        (None, _) => ChoiceReason::NoRdma,
        _ if address.is_ipv6() => ChoiceReason::NotIpv4,
        _ if !interface.up => ChoiceReason::Down,
        (Some((device, port)), _) if !port.is_active() => ChoiceReason::PortDown(not_active(device, port)),
        (_, Some(given)) if chosen && given != address => ChoiceReason::OtherAddress(given),
        (_, Some(given)) if taken.iter().any(|taken| taken.is_by_name_of(interface)) => {
            ChoiceReason::OtherAddress(given)
        }
        _ if !chosen => ChoiceReason::NotNamed,
        _ => taken.first().map_or(ChoiceReason::NoAddress, |taken| ChoiceReason::Later {
            first: taken.interface.name.clone(),
        }),
    }
}

/// Returns the choices for ports that have no interface of this host.
pub(super) fn ports_without_interface(host: &HostInterfaces) -> impl Iterator<Item = Choice> {
    let bare = ports(&host.devices).filter(|(_, port)| host.of_port(port).next().is_none());
    bare.map(|(device, port)| Choice {
        interface: None,
        port: Some(device.port_name(port)),
        address: None,
        nid: None,
        cpts: Vec::new(),
        reason: ChoiceReason::PortDown(missing(host, device, port)),
    })
}

#[cfg(test)]
mod tests;
