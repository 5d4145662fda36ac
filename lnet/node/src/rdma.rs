//! This host's RDMA devices, as the system's files tell of them: whoever looks needs neither libraries nor privileges.

mod report;
mod sysfs;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

pub use report::{MEMLOCK_SUGGESTED_BYTES, RdmaPortReport, RdmaProblem, RdmaReport};

/// What a program without the feature `verbs` says when a network over RDMA is asked for; `None` for one that has it.
pub(crate) const BUILT_WITHOUT: Option<&str> =
    if cfg!(feature = "verbs") { None } else { Some(WITHOUT_VERBS) };

pub(crate) const WITHOUT_VERBS: &str = "this program is built without RDMA; build it with the feature 'verbs' of the crates nlx and lnet-node \
                             ('cargo install --path cli' has it)";

/// What a host without any device can do about it.
const NO_DEVICE: &str = "this host has no RDMA device; without such hardware, soft RoCE makes one of an Ethernet \
                                    interface: 'rdma link add rxe0 type rxe netdev eth0'";

/// Why no network over RDMA can be had where no device is known, and what to do about it.
pub(crate) fn no_device(built_without: Option<&'static str>) -> &'static str {
    built_without.unwrap_or(NO_DEVICE)
}

/// The most devices, ports of one, and GIDs of one port that are looked at: more than any host has.
pub(crate) const DEVICES_MAX: usize = 256;
pub(crate) const PORTS_MAX: usize = 32;
pub(crate) const GIDS_MAX: usize = 1024;

/// An RDMA device of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Its name, for instance `mlx5_0`.
    pub name: String,
    /// Its ports, from 1.
    pub ports: Vec<RdmaPort>,
    /// The NUMA node that it is attached to; `None` if the system does not know, or there is but one.
    pub numa_node: Option<u32>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaPort {
    /// Its number, from 1.
    pub number: u8,
    /// Its state as the system has it: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// What its cables carry.
    pub link: LinkLayer,
    /// Its speed as the system has it: `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The network interfaces whose addresses are this port's, in the system's order.
    pub netdevs: Vec<String>,
    /// Its addresses.
    pub gids: Vec<Gid>,
}

/// What the cables of a port carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand: IP addresses come from IPoIB.
    InfiniBand,
    /// Ethernet: RoCE, hard or soft, or iWARP.
    Ethernet,
    /// Something else.
    Other,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the port's table.
    pub index: u32,
    /// The address; an IPv4 address stands there as `::ffff:10.0.0.1`.
    pub gid: Ipv6Addr,
    /// How packets with it look: `RoCE v2`, `IB/RoCE v1`; empty if the system does not tell.
    pub kind: String,
    /// The network interface that it comes from.
    pub netdev: Option<String>,
}

impl RdmaDevice {
    /// All devices of this host, by name; none if RDMA is no part of the system.
    #[must_use]
    pub fn all() -> Vec<RdmaDevice> {
        sysfs::devices(Path::new("/sys/class"))
    }

    /// A port as `rdma link` writes it: `mlx5_0/1`.
    #[must_use]
    pub fn port_name(&self, port: &RdmaPort) -> String {
        format!("{}/{}", self.name, port.number)
    }
}

impl RdmaPort {
    /// Whether it can be used at this moment.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The GID that connections from this address take, the newer form of RoCE before the older.
    #[must_use]
    pub fn gid_of(&self, address: Ipv4Addr) -> Option<&Gid> {
        let ours = || self.gids.iter().filter(|gid| gid.ipv4() == Some(address));
        ours().find(|gid| gid.is_routable()).or_else(|| ours().next())
    }
}

impl Gid {
    /// The IPv4 address that it stands for.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped()
    }

    /// Whether packets with it are UDP, which routers and most switches' settings know (RoCE v2).
    #[must_use]
    pub fn is_routable(&self) -> bool {
        self.kind == "RoCE v2"
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::Other => "other",
        })
    }
}

/// The port that an interface belongs to.
pub(crate) fn port_of<'a>(devices: &'a [RdmaDevice], netdev: &str) -> Option<(&'a RdmaDevice, &'a RdmaPort)> {
    let mut all = ports(devices).filter(|(_, port)| port.netdevs.iter().any(|name| name == netdev));
    let first = all.next()?;
    // Two devices on one interface, as hard and soft RoCE: the one that works.
    Some(if first.1.is_active() { first } else { all.find(|(_, port)| port.is_active()).unwrap_or(first) })
}

/// The ports that a word names: `mlx5_0`, `mlx5_0/1`, `mlx5_0:1`.
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

/// The IPv4 address among them that an interface gives to a network: its first.
pub(crate) fn first_ipv4(addresses: &[IpAddr]) -> Option<Ipv4Addr> {
    addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}
