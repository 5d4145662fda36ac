//! Which of the host's addresses a network takes, and why.

use std::fmt;
use std::net::IpAddr;

use lnet_nid::{NetType, Nid};

use super::{Host, Interface, is_link_local, verbs};
use crate::cpts::CptSet;
use crate::networks::NetInterface;
use crate::rdma::port_of;
use crate::{NetSpec, NodeError};

/// What a network makes of one address of this host; see [`explain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The interface; `None` if the network names one that is not there.
    pub interface: Option<Interface>,
    /// Of an `o2ib` network: the port of the RDMA device that lies on the interface, as `rdma link` writes it (`mlx5_0/1`).
    pub port: Option<String>,
    /// The address; `None` for an interface without any, or one that is not there.
    pub address: Option<IpAddr>,
    /// The NID that the network has by it; `None` if it was passed over.
    pub nid: Option<Nid>,
    /// The CPU partitions of the NID's peers; none means all.
    pub cpts: Vec<usize>,
    /// Why. It prints as half a sentence: `the first interface that can be used`.
    pub why: Why,
}

/// Why a network took an address, or passed it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Taken: the network names no interface, and this is the first that can be used.
    First,
    /// Taken: the network names the interface.
    Named,
    /// Taken: the network names the address.
    NamedByAddress,
    /// Taken: the network names the RDMA device.
    NamedByDevice,
    /// Passed over: the network has it already, by another of the names it gives.
    Duplicate,
    /// Passed over: the network names other interfaces.
    NotNamed,
    /// Passed over: the interface is not up.
    Down,
    /// Passed over: a network that names no interface does not take loopback.
    Loopback,
    /// Passed over: the interface has no address.
    NoAddress,
    /// Passed over: the address means something on one cable only.
    LinkLocal,
    /// Passed over: the interface gives this address.
    OtherAddress(
        /// The one it gives.
        IpAddr,
    ),
    /// Passed over: the network names no interface, and another comes first.
    Later {
        /// The interface that comes first.
        first: String,
    },
    /// Passed over: no RDMA device lies on the interface.
    NoRdma,
    /// Passed over: NIDs of `o2ib` networks are IPv4 addresses.
    NotIpv4,
    /// Passed over: the port of the RDMA device cannot be used; in words, with what to do.
    PortDown(
        /// What it lacks.
        String,
    ),
    /// The network cannot be started: it names an interface or address that it cannot have.
    Refused(
        /// What [`crate::Node::start`] says.
        NodeError,
    ),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::First => write!(f, "the first interface that can be used"),
            Why::Named => write!(f, "the interface is named"),
            Why::NamedByAddress => write!(f, "the address is named"),
            Why::NamedByDevice => write!(f, "the RDMA device is named"),
            Why::Duplicate => write!(f, "named twice"),
            Why::NotNamed => write!(f, "not named"),
            Why::Down => write!(f, "down"),
            Why::Loopback => write!(f, "loopback is taken by name only"),
            Why::NoAddress => write!(f, "no IPv4 or IPv6 address"),
            Why::LinkLocal => write!(f, "a link-local address means nothing beyond one link"),
            Why::OtherAddress(given) => {
                write!(f, "the interface gives {given}; this one can be named itself")
            }
            Why::Later { first } => write!(f, "{first} comes first; name this one to use it"),
            Why::NoRdma => write!(f, "no RDMA device lies on it"),
            Why::NotIpv4 => write!(f, "NIDs of o2ib networks are IPv4 addresses"),
            Why::PortDown(why) => f.write_str(why),
            Why::Refused(error) => write!(f, "{error}"),
        }
    }
}

/// What a network makes of every address of this host, in the system's order; then what it names and cannot have. Whatever
/// [`crate::Node::start`] does is decided by the same code.
///
/// ```
/// use lnet_node::{Why, explain};
///
/// for choice in explain(&"tcp(lo)".parse()?)? {
///     let name = choice.interface.as_ref().map_or("-", |interface| &interface.name);
///     println!("{name} {:?}: {}", choice.address, choice.why);
///     if let Some(nid) = choice.nid {
///         assert_eq!((nid.to_string().as_str(), &choice.why), ("127.0.0.1@tcp", &Why::Named));
///     }
/// }
/// # Ok::<(), lnet_node::NodeError>(())
/// ```
///
/// # Errors
/// [`NodeError::System`] if the interfaces cannot be listed.
pub fn explain(net: &NetSpec) -> Result<Vec<Choice>, NodeError> {
    Ok(explain_on(net, &Host::of(std::slice::from_ref(net))?))
}

/// An address that a network takes.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    /// The interface that it is an address of.
    pub(crate) interface: &'a Interface,
    pub(crate) address: IpAddr,
    pub(crate) cpts: &'a CptSet,
    pub(super) why: Why,
}

impl Taken<'_> {
    pub(super) fn is_by_name_of(&self, interface: &Interface) -> bool {
        std::ptr::eq(self.interface, interface) && self.why == Why::Named
    }
}

/// What a network takes of the interfaces of a host, or why it cannot: for each interface that it names, or for the one
/// that it leaves open.
pub(crate) fn take<'a>(net: &'a NetSpec, host: &'a Host) -> Vec<Result<Taken<'a>, NodeError>> {
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

/// The first interface that can be used. One that has IPv6 alone never comes before one that has IPv4: a host that gets
/// IPv6 keeps its NID.
fn first<'a>(host: &'a [Interface], cpts: &'a CptSet) -> Result<Taken<'a>, NodeError> {
    let usable = || {
        let interfaces = host.iter().filter(|interface| interface.up && !interface.loopback);
        interfaces.filter_map(|interface| Some((interface, interface.address()?)))
    };
    let found = usable().find(|(_, address)| address.is_ipv4()).or_else(|| usable().next());
    let (interface, address) = found.ok_or(NodeError::NoNetwork)?;
    Ok(Taken { interface, address, cpts, why: Why::First })
}

fn find<'a>(named: &NetInterface, cpts: &'a CptSet, host: &'a [Interface]) -> Result<Taken<'a>, NodeError> {
    let refuse = |reason: String| NodeError::Interface { name: named.name.clone(), reason };
    let (interface, address, why) = match named.name.parse() {
        Ok(address) if is_link_local(address) => {
            return Err(refuse("a link-local address means nothing beyond one link".to_string()));
        }
        Ok(address) => {
            let interface = host.iter().find(|interface| interface.has(address));
            let none = || refuse("no interface of this host has the address".to_string());
            (interface.ok_or_else(none)?, address, Why::NamedByAddress)
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
            (interface, address, Why::Named)
        }
    };
    if !interface.up {
        return Err(refuse(format!("{} is down: `ip link set {} up`", interface.name, interface.name)));
    }
    Ok(Taken { interface, address, cpts, why })
}

impl Interface {
    /// All of 127.0.0.0/8 is the host's, though loopback lists one address of it.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let by_loopback = self.loopback && address.is_ipv4() && address.is_loopback();
        by_loopback || self.addresses.contains(&address)
    }
}

/// The interfaces that a network could name.
fn names(host: &[Interface]) -> String {
    let usable = host.iter().filter(|interface| interface.up && interface.address().is_some());
    usable.map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ")
}

pub(super) fn explain_on(net: &NetSpec, host: &Host) -> Vec<Choice> {
    let verbs = net.net.net_type() == NetType::O2IB;
    let outcomes = take(net, host);
    let taken: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    let mut choices = Vec::new();
    for interface in &host.interfaces {
        let port = port_of(&host.devices, interface.device()).filter(|_| verbs);
        let by = || taken.iter().filter(|taken| std::ptr::eq(taken.interface, interface));
        let mut addresses = interface.addresses.clone();
        // Addresses of 127.0.0.0/8 that nobody lists.
        addresses
            .extend(by().map(|taken| taken.address).filter(|address| !interface.addresses.contains(address)));
        let mut add = |address: Option<IpAddr>, taken: Option<&Taken<'_>>, why| {
            let nid = address.and_then(|address| taken.map(|_| Nid::new_ip(net.net, address)));
            let cpts = taken.map(|taken| taken.cpts.iter().collect()).unwrap_or_default();
            let port = port.map(|(device, port)| device.port_name(port));
            choices.push(Choice { interface: Some(interface.clone()), port, address, nid, cpts, why });
        };
        if addresses.is_empty() {
            add(None, None, if interface.up { Why::NoAddress } else { Why::Down });
        }
        for address in addresses {
            let mut here = by().filter(|taken| taken.address == address);
            match here.next() {
                Some(taken) => add(Some(address), Some(taken), taken.why.clone()),
                None if verbs => {
                    add(Some(address), None, verbs::passed_over(host, interface, address, net, &taken));
                }
                None => add(Some(address), None, passed_over(interface, address, net, &taken)),
            }
            here.for_each(|_| add(Some(address), None, Why::Duplicate));
        }
    }
    if verbs {
        choices.extend(verbs::bare_ports(host));
    }
    let refused = outcomes.into_iter().filter_map(Result::err);
    choices.extend(refused.map(|error| Choice {
        interface: None,
        port: None,
        address: None,
        nid: None,
        cpts: Vec::new(),
        why: Why::Refused(error),
    }));
    choices
}

/// Why an address is none of those that are taken.
fn passed_over(interface: &Interface, address: IpAddr, net: &NetSpec, taken: &[&Taken<'_>]) -> Why {
    let chosen = net.interfaces.is_empty();
    match interface.address() {
        _ if !interface.up => Why::Down,
        _ if chosen && interface.loopback => Why::Loopback,
        _ if is_link_local(address) => Why::LinkLocal,
        Some(given) if chosen && given != address => Why::OtherAddress(given),
        Some(given) if taken.iter().any(|taken| taken.is_by_name_of(interface)) => Why::OtherAddress(given),
        _ if !chosen => Why::NotNamed,
        _ => taken.first().map_or(Why::NoAddress, |taken| Why::Later { first: taken.interface.name.clone() }),
    }
}

#[cfg(test)]
mod tests;
