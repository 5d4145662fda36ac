//! A network's choice among the host's addresses, with the reasons.

use std::fmt;
use std::net::IpAddr;

use lnet_nid::{NetType, Nid};

use super::{HostInterface, HostInterfaces, is_link_local, verbs};
use crate::cpts::CptSet;
use crate::networks::NetInterface;
use crate::rdma::port_of;
use crate::{NetSpec, NodeError};

/// A network's decision on one address of this host; see [`explain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The interface; `None` if the network names one that does not exist.
    pub interface: Option<HostInterface>,
    /// For an `o2ib` network: the port of the interface's RDMA device, in the form of `rdma link`
    /// (`mlx5_0/1`).
    pub port: Option<String>,
    /// The address; `None` for an interface without one, or one that does not exist.
    pub address: Option<IpAddr>,
    /// The network's NID with this address; `None` if the network does not use it.
    pub nid: Option<Nid>,
    /// The CPU partitions of the NID's peers; empty means all.
    pub cpts: Vec<usize>,
    /// The reason for the decision. It prints as a phrase: `the first interface that can be used`.
    pub reason: ChoiceReason,
}

/// The reason why a network uses an address, or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceReason {
    /// Used: the network names no interface, and this is the first usable one.
    First,
    /// Used: the network names the interface.
    Named,
    /// Used: the network names the address.
    NamedByAddress,
    /// Used: the network names the RDMA device.
    NamedByDevice,
    /// Not used: the network already has the interface, by another of its names.
    Duplicate,
    /// Not used: the network names other interfaces.
    NotNamed,
    /// Not used: the interface is not up.
    Down,
    /// Not used: a network that names no interface skips loopback.
    Loopback,
    /// Not used: the interface has no address.
    NoAddress,
    /// Not used: the address is link-local.
    LinkLocal,
    /// Not used: the interface has another address for the network.
    OtherAddress(
        /// The address that the network uses.
        IpAddr,
    ),
    /// Not used: the network names no interface, and another one comes first.
    Later {
        /// The interface that comes first.
        first: String,
    },
    /// Not used: the interface has no RDMA device.
    NoRdma,
    /// Not used: NIDs of `o2ib` networks are IPv4 addresses.
    NotIpv4,
    /// Not used: the port of the RDMA device is unusable.
    PortDown(
        /// The reason why the port is unusable, with advice.
        String,
    ),
    /// The network cannot start: it names an unusable interface or address.
    Refused(
        /// The error that [`crate::Node::start`] returns.
        NodeError,
    ),
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceReason::First => write!(f, "the first interface that can be used"),
            ChoiceReason::Named => write!(f, "the interface is named"),
            ChoiceReason::NamedByAddress => write!(f, "the address is named"),
            ChoiceReason::NamedByDevice => write!(f, "the RDMA device is named"),
            ChoiceReason::Duplicate => write!(f, "named twice"),
            ChoiceReason::NotNamed => write!(f, "not named"),
            ChoiceReason::Down => write!(f, "down"),
            ChoiceReason::Loopback => write!(f, "loopback is taken by name only"),
            ChoiceReason::NoAddress => write!(f, "no IPv4 or IPv6 address"),
            ChoiceReason::LinkLocal => write!(f, "a link-local address means nothing beyond one link"),
            ChoiceReason::OtherAddress(given) => {
                write!(f, "the interface gives {given}; this one can be named itself")
            }
            ChoiceReason::Later { first } => write!(f, "{first} comes first; name this one to use it"),
            ChoiceReason::NoRdma => write!(f, "no RDMA device lies on it"),
            ChoiceReason::NotIpv4 => write!(f, "NIDs of o2ib networks are IPv4 addresses"),
            ChoiceReason::PortDown(reason) => f.write_str(reason),
            ChoiceReason::Refused(error) => write!(f, "{error}"),
        }
    }
}

/// Returns a network's decision on every address of this host, in the system's order, followed by
/// unusable names. [`crate::Node::start`] uses the same code.
///
/// ```
/// use lnet_node::{ChoiceReason, explain};
///
/// for choice in explain(&"tcp(lo)".parse()?)? {
///     let name = choice.interface.as_ref().map_or("-", |interface| &interface.name);
///     println!("{name} {:?}: {}", choice.address, choice.reason);
///     if let Some(nid) = choice.nid {
///         assert_eq!((nid.to_string().as_str(), &choice.reason), ("127.0.0.1@tcp", &ChoiceReason::Named));
///     }
/// }
/// # Ok::<(), lnet_node::NodeError>(())
/// ```
///
/// # Errors
/// [`NodeError::System`] if the interfaces cannot be listed.
pub fn explain(net: &NetSpec) -> Result<Vec<Choice>, NodeError> {
    Ok(explain_on(net, &HostInterfaces::of(std::slice::from_ref(net))?))
}

/// An address that a network uses.
#[derive(Debug)]
pub(crate) struct ChosenAddress<'a> {
    /// The network interface that has it.
    pub(crate) interface: &'a HostInterface,
    pub(crate) address: IpAddr,
    pub(crate) cpts: &'a CptSet,
    pub(super) reason: ChoiceReason,
}

impl ChosenAddress<'_> {
    pub(super) fn is_by_name_of(&self, interface: &HostInterface) -> bool {
        std::ptr::eq(self.interface, interface) && self.reason == ChoiceReason::Named
    }
}

/// Returns the addresses that a network uses on a host, or errors: one result for each interface
/// that it names, or one in all if it names none.
pub(crate) fn take<'a>(
    net: &'a NetSpec,
    host: &'a HostInterfaces,
) -> Vec<Result<ChosenAddress<'a>, NodeError>> {
    let verbs = net.net.net_type() == NetType::O2IB;
    if net.interfaces.is_empty() {
        return vec![if verbs { verbs::first(net, host) } else { first(&host.interfaces, &net.cpts) }];
    }
    let find = |named: &'a NetInterface| match verbs {
        true => verbs::find(named, net.cpts_of(named), host),
        false => find(named, net.cpts_of(named), &host.interfaces),
    };
    net.interfaces.iter().map(find).collect()
}

/// Returns the first usable interface. One with only IPv6 never precedes one with IPv4: a host that
/// gets IPv6 keeps its NID.
fn first<'a>(host: &'a [HostInterface], cpts: &'a CptSet) -> Result<ChosenAddress<'a>, NodeError> {
    let usable = || {
        let interfaces = host.iter().filter(|interface| interface.up && !interface.loopback);
        interfaces.filter_map(|interface| Some((interface, interface.address()?)))
    };
    let found = usable().find(|(_, address)| address.is_ipv4()).or_else(|| usable().next());
    let (interface, address) = found.ok_or(NodeError::NoNetwork)?;
    Ok(ChosenAddress { interface, address, cpts, reason: ChoiceReason::First })
}

fn find<'a>(
    named: &NetInterface,
    cpts: &'a CptSet,
    host: &'a [HostInterface],
) -> Result<ChosenAddress<'a>, NodeError> {
    let refuse = |reason: String| NodeError::Interface { name: named.name.clone(), reason };
    let (interface, address, reason) = match named.name.parse() {
        Ok(address) if is_link_local(address) => {
            return Err(refuse("a link-local address means nothing beyond one link".to_string()));
        }
        Ok(address) => {
            let interface = host.iter().find(|interface| interface.has(address));
            let none = || refuse("no interface of this host has the address".to_string());
            (interface.ok_or_else(none)?, address, ChoiceReason::NamedByAddress)
        }
        Err(_) => {
            let interface = host.iter().find(|interface| interface.name == named.name);
            let interface =
                interface.ok_or_else(|| refuse(format!("not there; there are: {}", names(host))))?;
            let none =
                || refuse("without an IPv4 address, and without an IPv6 address beyond link-local".into());
            let address = match named.address {
                Some(wanted) if interface.has(wanted) => wanted,
                Some(wanted) => {
                    return Err(refuse(format!("it does not have the address {wanted} of the NID")));
                }
                None => interface.address().ok_or_else(none)?,
            };
            (interface, address, ChoiceReason::Named)
        }
    };
    if !interface.up {
        return Err(refuse(format!("{} is down: `ip link set {} up`", interface.name, interface.name)));
    }
    Ok(ChosenAddress { interface, address, cpts, reason })
}

impl HostInterface {
    /// Returns whether the interface has the address. All of 127.0.0.0/8 is the host's, though
    /// loopback lists one address of it.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let by_loopback = self.loopback && address.is_ipv4() && address.is_loopback();
        by_loopback || self.addresses.contains(&address)
    }
}

/// Returns the interfaces that a network could name.
fn names(host: &[HostInterface]) -> String {
    let usable = host.iter().filter(|interface| interface.up && interface.address().is_some());
    usable.map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ")
}

pub(super) fn explain_on(net: &NetSpec, host: &HostInterfaces) -> Vec<Choice> {
    let verbs = net.net.net_type() == NetType::O2IB;
    let outcomes = take(net, host);
    let taken: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    let mut choices = Vec::new();
    for interface in &host.interfaces {
        let port = port_of(&host.devices, interface.device()).filter(|_| verbs);
        let by = || taken.iter().filter(|taken| std::ptr::eq(taken.interface, interface));
        let mut addresses = interface.addresses.clone();
        // These are addresses in 127.0.0.0/8 that the system does not list.
        addresses
            .extend(by().map(|taken| taken.address).filter(|address| !interface.addresses.contains(address)));
        let mut add = |address: Option<IpAddr>, taken: Option<&ChosenAddress<'_>>, reason| {
            let nid = address.and_then(|address| taken.map(|_| Nid::new_ip(net.net, address)));
            let cpts = taken.map(|taken| taken.cpts.iter().collect()).unwrap_or_default();
            let port = port.map(|(device, port)| device.port_name(port));
            choices.push(Choice { interface: Some(interface.clone()), port, address, nid, cpts, reason });
        };
        if addresses.is_empty() {
            add(None, None, if interface.up { ChoiceReason::NoAddress } else { ChoiceReason::Down });
        }
        for address in addresses {
            let mut matching = by().filter(|taken| taken.address == address);
            match matching.next() {
                Some(taken) => add(Some(address), Some(taken), taken.reason.clone()),
                None if verbs => {
                    add(Some(address), None, verbs::why_not_used(host, interface, address, net, &taken));
                }
                None => add(Some(address), None, why_not_used(interface, address, net, &taken)),
            }
            matching.for_each(|_| add(Some(address), None, ChoiceReason::Duplicate));
        }
    }
    if verbs {
        choices.extend(verbs::ports_without_interface(host));
    }
    let refused = outcomes.into_iter().filter_map(Result::err);
    choices.extend(refused.map(|error| Choice {
        interface: None,
        port: None,
        address: None,
        nid: None,
        cpts: Vec::new(),
        reason: ChoiceReason::Refused(error),
    }));
    choices
}

/// Returns the reason why a network does not use an address.
fn why_not_used(
    interface: &HostInterface,
    address: IpAddr,
    net: &NetSpec,
    taken: &[&ChosenAddress<'_>],
) -> ChoiceReason {
    let chosen = net.interfaces.is_empty();
    match interface.address() {
        _ if !interface.up => ChoiceReason::Down,
        _ if chosen && interface.loopback => ChoiceReason::Loopback,
        _ if is_link_local(address) => ChoiceReason::LinkLocal,
        Some(given) if chosen && given != address => ChoiceReason::OtherAddress(given),
        Some(given) if taken.iter().any(|taken| taken.is_by_name_of(interface)) => {
            ChoiceReason::OtherAddress(given)
        }
        _ if !chosen => ChoiceReason::NotNamed,
        _ => taken.first().map_or(ChoiceReason::NoAddress, |taken| ChoiceReason::Later {
            first: taken.interface.name.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
