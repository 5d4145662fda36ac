//! Reads RDMA devices from the system's files in `/sys/class`.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use super::{DEVICES_MAX, GIDS_MAX, PORTS_MAX, PortGid, PortLinkLayer, RdmaDevice, RdmaPort};

pub(super) fn devices(class: &Path) -> Vec<RdmaDevice> {
    let netdevs = Netdevs::of(class);
    let found = names(&class.join("infiniband")).into_iter().take(DEVICES_MAX);
    found.map(|name| device(&class.join("infiniband").join(&name), name, &netdevs)).collect()
}

fn device(folder: &Path, name: String, netdevs: &Netdevs) -> RdmaDevice {
    let mut numbers: Vec<u8> =
        names(&folder.join("ports")).iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    let parent = text(&folder.join("parent"));
    let port = |number| port(&folder.join(format!("ports/{number}")), number, &name, &parent, netdevs);
    let ports = numbers.into_iter().take(PORTS_MAX).map(port).collect();
    RdmaDevice { ports, numa_node: text(&folder.join("device/numa_node")).parse().ok(), name }
}

fn port(folder: &Path, number: u8, device: &str, parent: &str, netdevs: &Netdevs) -> RdmaPort {
    let state = text(&folder.join("state"));
    let link = match text(&folder.join("link_layer")).as_str() {
        "InfiniBand" => PortLinkLayer::InfiniBand,
        "Ethernet" => PortLinkLayer::Ethernet,
        _ => PortLinkLayer::Other,
    };
    let gids = gids(folder);
    let mut port_netdevs: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !name.is_empty() && !port_netdevs.iter().any(|other| other == name) {
            port_netdevs.push(name.to_string());
        }
    };
    if link != PortLinkLayer::InfiniBand {
        gids.iter().filter_map(|gid| gid.netdev.as_deref()).for_each(&mut add);
        // The interface from which the device was created, if any.
        add(parent);
    }
    netdevs.of_port(device, number).for_each(&mut add);
    for bond in netdevs.bonds_of(&port_netdevs) {
        port_netdevs.push(bond);
    }
    RdmaPort {
        number,
        // `4: ACTIVE`
        state: state.split_once(": ").map_or(state.as_str(), |(_, state)| state).to_string(),
        link,
        rate: text(&folder.join("rate")),
        netdevs: port_netdevs,
        gids,
    }
}

/// Returns the used entries of a port's GID table.
fn gids(port: &Path) -> Vec<PortGid> {
    let mut indices: Vec<u32> =
        names(&port.join("gids")).iter().filter_map(|index| index.parse().ok()).collect();
    indices.sort_unstable();
    let gid = |index: u32| {
        let gid: Ipv6Addr = text(&port.join(format!("gids/{index}"))).parse().ok()?;
        // Most entries are free, and reading more files of them takes the system longer than
        // listing them.
        if gid.is_unspecified() {
            return None;
        }
        let of = |what: &str| text(&port.join(format!("gid_attrs/{what}/{index}")));
        let netdev = Some(of("ndevs")).filter(|name| !name.is_empty());
        Some(PortGid { index, gid, kind: of("types"), netdev })
    };
    indices.into_iter().take(GIDS_MAX).filter_map(gid).collect()
}

/// The network interfaces, with their ports.
struct Netdevs(Vec<Netdev>);

struct Netdev {
    name: String,
    /// The RDMA devices of the interface's hardware, and the port of these devices that the
    /// interface uses.
    devices: Vec<String>,
    port: u8,
    /// The interface from which this one was created, for instance the one without a partition key.
    parent: String,
    /// The members, if the interface is a bond.
    slaves: Vec<String>,
}

impl Netdevs {
    fn of(class: &Path) -> Netdevs {
        let netdev = |name: String| {
            let folder: PathBuf = class.join("net").join(&name);
            let number = |file: &str| text(&folder.join(file)).parse::<u8>().ok();
            let devices = names(&folder.join("device/infiniband"));
            let port = number("dev_port").unwrap_or(0).saturating_add(1);
            let slaves = text(&folder.join("bonding/slaves"));
            let slaves = slaves.split_whitespace().map(str::to_string).collect();
            Netdev { devices, port, parent: text(&folder.join("parent")), slaves, name }
        };
        Netdevs(names(&class.join("net")).into_iter().map(netdev).collect())
    }

    fn of_port<'a>(&'a self, device: &'a str, port: u8) -> impl Iterator<Item = &'a str> {
        let is_of =
            move |netdev: &Netdev| netdev.port == port && netdev.devices.iter().any(|name| name == device);
        let own = move || self.0.iter().filter(move |netdev| is_of(netdev));
        let children = own().flat_map(move |parent| {
            self.0.iter().filter(|netdev| netdev.devices.is_empty() && netdev.parent == parent.name)
        });
        own().chain(children).map(|netdev| netdev.name.as_str())
    }

    /// Returns the bonds of any of these interfaces that are not listed among them: a bond's
    /// addresses belong to the active port.
    fn bonds_of(&self, ours: &[String]) -> Vec<String> {
        let bonds = self.0.iter().filter(|netdev| netdev.slaves.iter().any(|slave| ours.contains(slave)));
        bonds.map(|bond| &bond.name).filter(|name| !ours.contains(name)).cloned().collect()
    }
}

/// Returns the entries of a folder, by name; none if it does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).take(GIDS_MAX).collect();
    names.sort();
    names
}

/// Returns the trimmed text of a file; empty if it does not exist or cannot be read, such as the
/// file of a free table entry.
fn text(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
