//! This host's RDMA devices, read from the system's files, without libraries or privileges.

mod report;
mod sysfs;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

pub use report::{MEMLOCK_SUGGESTED_BYTES, RdmaPortReport, RdmaProblem, RdmaReport};

/// The error text of a program without the feature `verbs` for a network over RDMA; `None` if it
/// has the feature.
pub(crate) const BUILT_WITHOUT: Option<&str> =
    if cfg!(feature = "verbs") { None } else { Some(WITHOUT_VERBS) };

pub(crate) const WITHOUT_VERBS: &str = "this program is built without RDMA; build it with the feature 'verbs' of the crates nlx and lnet-node \
                             ('cargo install --path cli' has it)";

/// Advice for a host without a device.
const NO_DEVICE: &str = "this host has no RDMA device; without such hardware, soft RoCE makes one of an Ethernet \
                                    interface: 'rdma link add rxe0 type rxe netdev eth0'";

/// Returns the reason why no network over RDMA is possible without a known device, with advice.
pub(crate) fn no_device(built_without: Option<&'static str>) -> &'static str {
    built_without.unwrap_or(NO_DEVICE)
}

/// Limits on the number of devices, of ports per device, and of GIDs per port that are read: more
/// than any host has.
pub(crate) const DEVICES_MAX: usize = 256;
pub(crate) const PORTS_MAX: usize = 32;
pub(crate) const GIDS_MAX: usize = 1024;

/// An RDMA device of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    /// The device's name, for instance `mlx5_0`.
    pub name: String,
    /// The device's ports, from 1.
    pub ports: Vec<RdmaPort>,
    /// The NUMA node of the device; `None` if the system does not report it, or has only one.
    pub numa_node: Option<u32>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaPort {
    /// The port's number, from 1.
    pub number: u8,
    /// The port's state in the system's words: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// The network that the port is on: InfiniBand or Ethernet.
    pub link: PortLinkLayer,
    /// The port's speed in the system's words: `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The network interfaces with this port's addresses, in the system's order.
    pub netdevs: Vec<String>,
    /// The port's GIDs.
    pub gids: Vec<PortGid>,
}

/// The kind of network to which a port is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortLinkLayer {
    /// InfiniBand: IP addresses come from IPoIB.
    InfiniBand,
    /// Ethernet: RoCE, hard or soft, or iWARP.
    Ethernet,
    /// Any other link layer.
    Other,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortGid {
    /// The GID's index in the port's table.
    pub index: u32,
    /// The GID; an IPv4 address has the form `::ffff:10.0.0.1`.
    pub gid: Ipv6Addr,
    /// The packet format: `RoCE v2`, `IB/RoCE v1`; empty if the system does not report it.
    pub kind: String,
    /// The network interface of the address.
    pub netdev: Option<String>,
}

impl RdmaDevice {
    /// Returns all devices of this host, by name; none if the system has no RDMA.
    #[must_use]
    pub fn all() -> Vec<RdmaDevice> {
        sysfs::devices(Path::new("/sys/class"))
    }

    /// Returns the name of a port in the form of `rdma link`: `mlx5_0/1`.
    #[must_use]
    pub fn port_name(&self, port: &RdmaPort) -> String {
        format!("{}/{}", self.name, port.number)
    }
}

impl RdmaPort {
    /// Returns whether the port is active, so that it can be used at this moment.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Returns the GID used by connections from this address, RoCE v2 before v1.
    #[must_use]
    pub fn gid_of(&self, address: Ipv4Addr) -> Option<&PortGid> {
        let ours = || self.gids.iter().filter(|gid| gid.ipv4() == Some(address));
        ours().find(|gid| gid.is_routable()).or_else(|| ours().next())
    }
}

impl PortGid {
    /// Returns the IPv4 address of the GID, if it has one.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped()
    }

    /// Returns whether packets with this GID are UDP, which routers and most switches handle (RoCE
    /// v2).
    #[must_use]
    pub fn is_routable(&self) -> bool {
        self.kind == "RoCE v2"
    }
}

impl fmt::Display for PortLinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortLinkLayer::InfiniBand => "InfiniBand",
            PortLinkLayer::Ethernet => "Ethernet",
            PortLinkLayer::Other => "other",
        })
    }
}

/// Returns the port of an interface.
pub(crate) fn port_of<'a>(devices: &'a [RdmaDevice], netdev: &str) -> Option<(&'a RdmaDevice, &'a RdmaPort)> {
    let mut all = ports(devices).filter(|(_, port)| port.netdevs.iter().any(|name| name == netdev));
    let first = all.next()?;
    // If two devices have one interface, for example hard and soft RoCE, the active one is used.
    Some(if first.1.is_active() { first } else { all.find(|(_, port)| port.is_active()).unwrap_or(first) })
}

/// Returns the ports that a word names: `mlx5_0`, `mlx5_0/1`, `mlx5_0:1`.
pub(crate) fn ports_named<'a>(devices: &'a [RdmaDevice], word: &str) -> Vec<(&'a RdmaDevice, &'a RdmaPort)> {
    let (name, number) = match word.split_once(['/', ':']) {
        Some((name, number)) => (name, Some(number)),
        None => (word, None),
    };
    let named = ports(devices).filter(|(device, _)| device.name == name);
    named.filter(|(_, port)| number.is_none_or(|number| number == port.number.to_string())).collect()
}

pub(crate) fn ports(devices: &[RdmaDevice]) -> impl Iterator<Item = (&RdmaDevice, &RdmaPort)> {
    devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
}

/// Returns the address of an interface for a network: its first IPv4 address.
pub(crate) fn first_ipv4(addresses: &[IpAddr]) -> Option<Ipv4Addr> {
    addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}
