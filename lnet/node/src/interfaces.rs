//! The host's interfaces and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use lnet_nid::{NetType, Nid};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::{DEFAULT_ACCEPT_PORT, NetSpec, NodeError, RdmaDevice, RdmaPort};

mod choice;
mod plan;
mod sysfs;
pub(crate) mod verbs;

pub use choice::{Choice, ChoiceReason, explain};
use choice::{ChosenAddress, take};
pub(crate) use plan::{PlannedNi, plan};

/// The interfaces and RDMA devices of a host, for networks.
#[derive(Debug)]
pub(crate) struct HostInterfaces {
    pub(crate) interfaces: Vec<HostInterface>,
    pub(crate) devices: Vec<RdmaDevice>,
}

impl HostInterfaces {
    /// Reads those interfaces and devices of this host that these networks need.
    pub(crate) fn of(nets: &[NetSpec]) -> Result<HostInterfaces, NodeError> {
        let verbs = nets.iter().any(|net| net.net().net_type() == NetType::O2IB);
        let devices = if verbs { RdmaDevice::all() } else { Vec::new() };
        Ok(HostInterfaces { interfaces: HostInterface::all()?, devices })
    }

    /// Returns the interfaces of a port of an RDMA device, in the port's order.
    pub(crate) fn of_port<'a>(&'a self, port: &RdmaPort) -> impl Iterator<Item = &'a HostInterface> {
        let named = port.netdevs.clone().into_iter();
        named.flat_map(|name| self.interfaces.iter().filter(move |interface| interface.device() == name))
    }
}

/// A network interface of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInterface {
    /// The interface's name, for instance `eth0`.
    pub name: String,
    /// The interface's addresses, IPv4 and IPv6, in the system's order.
    pub addresses: Vec<IpAddr>,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the interface has a carrier: a cable with a link partner.
    pub running: bool,
    /// True for the loopback interface.
    pub loopback: bool,
    /// True for a point-to-point link, such as a tunnel.
    pub point_to_point: bool,
    /// The interface's speed in Mbit/s; `None` if the system does not report one.
    pub speed_mbps: Option<u32>,
    /// The NUMA node of the interface's device; `None` if the system does not report it, or has
    /// only one.
    pub numa_node: Option<u32>,
}

impl HostInterface {
    /// Returns all interfaces of this host, in the system's order, including those without
    /// addresses and those that are down.
    ///
    /// # Errors
    /// [`NodeError::System`] with the system's error.
    pub fn all() -> Result<Vec<HostInterface>, NodeError> {
        let list = getifaddrs()
            .map_err(|errno| NodeError::System { what: "list the interfaces".to_string(), errno })?;
        let mut all: Vec<HostInterface> = Vec::new();
        for entry in list {
            let address = entry.address.as_ref().and_then(ip_of);
            let known = all.iter().position(|known| known.name == entry.interface_name);
            let at = known.unwrap_or_else(|| {
                all.push(HostInterface::of(entry.interface_name, entry.flags));
                all.len() - 1
            });
            all[at].addresses.extend(address);
        }
        Ok(all)
    }

    fn of(name: String, flags: InterfaceFlags) -> HostInterface {
        HostInterface {
            addresses: Vec::new(),
            up: flags.contains(InterfaceFlags::IFF_UP),
            running: flags.contains(InterfaceFlags::IFF_RUNNING),
            loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
            point_to_point: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
            speed_mbps: sysfs::speed_mbps(&name),
            numa_node: sysfs::numa_node(&name),
            name,
        }
    }

    /// Returns the interface's address for a network: its first IPv4 address, otherwise its first
    /// IPv6 address that is not link-local.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        let usable = || self.addresses.iter().copied().filter(|address| !is_link_local(*address));
        usable().find(IpAddr::is_ipv4).or_else(|| usable().next())
    }

    /// Returns the name of the interface's device: an alias (`eth0:1`) is another address of the
    /// device before the colon.
    pub(crate) fn device(&self) -> &str {
        sysfs::device(&self.name)
    }

    /// Returns the network device that carries the interface: the card below a VLAN, the first one
    /// of a bond.
    pub(crate) fn carrier(&self) -> String {
        sysfs::carrier(&self.name)
    }

    /// Returns the number of connections of each bulk type to a peer when the tunable
    /// `conns_per_peer` is 0 (lnet-wire 23): ⌊log2 of the interface's Gbit/s⌋ / 2 + 1, and 1 if the
    /// speed is unknown.
    #[must_use]
    pub fn automatic_conns_per_peer(&self) -> u8 {
        let gigabits = self.speed_mbps.unwrap_or(0) / 1000;
        // The result is at most 12, as the speed has 32 bits.
        gigabits.checked_ilog2().map_or(1, |log2| (log2 / 2 + 1) as u8)
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// Returns whether an IPv6 address is valid on one link only. IPv4's 169.254.0.0/16 names hosts as
/// other addresses do.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Returns the address from which this host would send to a node, by its routing table.
pub fn source_towards(target: Nid) -> Option<IpAddr> {
    let to = target.ip().filter(|_| !target.is_loopback())?;
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a datagram socket sends nothing; it only queries the routing table.
    let socket = UdpSocket::bind(SocketAddr::from((any, 0))).ok()?;
    socket.connect(SocketAddr::from((to, DEFAULT_ACCEPT_PORT))).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an interface with a carrier.
    pub(crate) fn interface(name: &str, up: bool, addresses: &[&str]) -> HostInterface {
        HostInterface {
            name: name.to_string(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            up,
            running: true,
            loopback: name == "lo",
            point_to_point: false,
            speed_mbps: None,
            numa_node: None,
        }
    }

    #[test]
    fn loopback_is_among_the_interfaces() {
        let all = HostInterface::all().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(lo.loopback && lo.speed_mbps.is_none() && lo.numa_node.is_none());
        assert_eq!(lo.address(), Some(Ipv4Addr::LOCALHOST.into()));
        let mut names: Vec<&String> = all.iter().map(|interface| &interface.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len(), "each interface is listed once");
    }

    #[test]
    fn the_source_towards_loopback_is_loopback() {
        for target in ["127.0.0.2@tcp", "::1@tcp"] {
            assert!(source_towards(target.parse().unwrap()).unwrap().is_loopback(), "{target}");
        }
        assert_eq!(source_towards(Nid::LOOPBACK), None);
    }

    /// The examples of lnet-wire 23.
    #[test]
    fn faster_links_get_more_connections() {
        let mut interface = HostInterface::of("no-such-if0".to_string(), InterfaceFlags::empty());
        for (gigabits, expected) in [(1, 1), (10, 2), (25, 3), (100, 4), (400, 5)] {
            interface.speed_mbps = Some(gigabits * 1000);
            assert_eq!(interface.automatic_conns_per_peer(), expected, "{gigabits} Gbit/s");
        }
        for unknown in [None, Some(0), Some(100)] {
            interface.speed_mbps = unknown;
            assert_eq!(interface.automatic_conns_per_peer(), 1);
        }
        interface.speed_mbps = Some(u32::MAX);
        assert_eq!(interface.automatic_conns_per_peer(), 12);
    }
}
