//! The RDMA devices of this host. Names, GUIDs and GIDs come from libibverbs, the state of ports
//! from sysfs.

use std::ffi::CString;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

use lnet_api::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_indextoname;
use nlx_ibverbs_sys as ffi;

use super::failed;
use super::gids::{Gid, GidKind, Usage, assign};
use super::host::loaded;
use super::listing::{DeviceEntry, DeviceList};
use crate::fabric::FabricError;

const SYSFS: &str = "/sys/class/infiniband";

/// The directory in which an administrator sets the version of RoCE for a port.
const CONFIGFS: &str = "/sys/kernel/config/rdma_cm";

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The device's name, such as `mlx5_0`.
    pub name: String,
    /// The device's globally unique identifier; `None` if it has none.
    pub guid: Option<u64>,
    /// The device's ports, in order.
    pub ports: Vec<ListedPort>,
    /// The reason why the GIDs are missing; `None` if they are there.
    pub note: Option<String>,
}

/// A port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPort {
    /// The port's number, from 1.
    pub number: u8,
    /// The port's state as the system reports it: `ACTIVE`, `DOWN`, and others.
    pub state: String,
    /// The network that the port is on: InfiniBand or Ethernet.
    pub link: LinkLayer,
    /// The port's network interfaces, and their addresses.
    pub addresses: Vec<(String, Ipv4Addr)>,
    /// The port's GIDs, in order.
    pub gids: Vec<Gid>,
}

impl ListedPort {
    /// Returns whether the port is active, so that messages pass.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Returns the GID that an NI with this address uses, if there is one.
    #[must_use]
    pub fn gid_for(&self, address: Ipv4Addr) -> Option<&Gid> {
        self.gids.iter().find(|gid| match gid.usage {
            Usage::Address(of) => of == address,
            Usage::Port => self.addresses.iter().any(|(_, of)| *of == address),
            _ => false,
        })
    }
}

/// The kind of network to which a port is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkLayer {
    /// An InfiniBand link.
    Infiniband,
    /// An Ethernet link, for RoCE.
    Ethernet,
    /// Any other link layer, by the system's name.
    Other(String),
}

/// Lists the RDMA devices of this host, with the properties that decide how an NI uses them.
///
/// # Errors
/// ENOSYS where the libraries are not installed, or the system's error. Without devices the list is
/// empty.
pub fn devices() -> Result<Vec<Listed>, FabricError> {
    loaded()?;
    let list = match DeviceList::new() {
        Ok(list) => list,
        // The kernel has no RDMA, so it has no devices either.
        Err(Errno::ENOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno, "listing the RDMA devices")),
    };
    Ok(list.iter().filter_map(|device| listed(&device)).collect())
}

fn listed(device: &DeviceEntry<'_>) -> Option<Listed> {
    let name = device.name()?;
    let mut ports = ports(&name);
    let mut note = None;
    // The GIDs of a port without a link are not valid.
    if ports.iter().any(ListedPort::is_active) {
        match device.gids(ports.iter().map(|port| port.number)) {
            Ok(table) => {
                let active = ports.iter_mut().filter(|port| port.is_active());
                active.for_each(|port| fill(&name, port, &table));
            }
            Err(errno) => note = Some(format!("it cannot be opened: {errno}")),
        }
    } else {
        note = Some("GIDs are shown when a port has a link".to_owned());
    }
    Some(Listed { name, guid: device.guid(), ports, note })
}

fn fill(device: &str, port: &mut ListedPort, table: &[ffi::ibv_gid_entry]) {
    let own = table.iter().filter(|entry| entry.port_num == u32::from(port.number));
    port.gids = own.map(gid).collect();
    assign(&mut port.gids, roce_mode(device, port.number));
    for gid in &port.gids {
        if let (Some(netdev), Some(address)) = (&gid.netdev, gid.address()) {
            let here = (netdev.clone(), address);
            if !port.addresses.contains(&here) {
                port.addresses.push(here);
            }
        }
    }
}

fn gid(entry: &ffi::ibv_gid_entry) -> Gid {
    // SAFETY: any 16 bytes are a GID.
    let bytes = unsafe { entry.gid.raw };
    let netdev = Some(entry.ndev_ifindex).filter(|index| *index != 0);
    Gid {
        index: entry.gid_index,
        gid: Ipv6Addr::from(bytes),
        kind: match entry.gid_type {
            ffi::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            ffi::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            _ => GidKind::Infiniband,
        },
        netdev: netdev.and_then(|index| if_indextoname(index).ok()).map(lossy),
        usage: Usage::Later,
    }
}

/// Returns the version of RoCE that the connection manager uses: v2 unless an administrator has set
/// it.
fn roce_mode(device: &str, port: u8) -> GidKind {
    match read(&format!("{CONFIGFS}/{device}/ports/{port}/default_roce_mode")).as_deref() {
        Some("IB/RoCE v1") => GidKind::RoceV1,
        _ => GidKind::RoceV2,
    }
}

fn ports(device: &str) -> Vec<ListedPort> {
    let mut numbers: Vec<u8> =
        names(&format!("{SYSFS}/{device}/ports")).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let port = |number| {
        let of = |file| read(&format!("{SYSFS}/{device}/ports/{number}/{file}")).unwrap_or_default();
        let link = match of("link_layer").as_str() {
            "InfiniBand" => LinkLayer::Infiniband,
            "Ethernet" => LinkLayer::Ethernet,
            other => LinkLayer::Other(other.to_owned()),
        };
        let state = of("state");
        // `4: ACTIVE`
        let state = state.split_once(": ").map_or(state.as_str(), |(_, word)| word).to_owned();
        let addresses = addresses_of(device, number);
        ListedPort { number, state, link, addresses, gids: Vec::new() }
    };
    numbers.into_iter().map(port).collect()
}

/// Returns the port's network interfaces with their addresses. Software devices have none.
fn addresses_of(device: &str, port: u8) -> Vec<(String, Ipv4Addr)> {
    let folder = format!("{SYSFS}/{device}/device/net");
    let of_port = |netdev: &String| {
        let place = read(&format!("{folder}/{netdev}/dev_port")).and_then(|place| place.parse::<u8>().ok());
        place.is_none_or(|place| place.checked_add(1) == Some(port))
    };
    let netdevs: Vec<String> = names(&folder).into_iter().filter(of_port).collect();
    let addresses = getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address?.as_sockaddr_in()?.ip();
        netdevs.contains(&interface.interface_name).then_some((interface.interface_name, address))
    });
    addresses.collect()
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn read(file: &str) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

fn lossy(name: CString) -> String {
    name.to_string_lossy().into_owned()
}
