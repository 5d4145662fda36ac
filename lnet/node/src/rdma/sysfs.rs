//! The files that tell of RDMA devices, in the folder `/sys/class`.

use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use super::{DEVICES_MAX, GIDS_MAX, Gid, LinkLayer, PORTS_MAX, RdmaDevice, RdmaPort};

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
        "InfiniBand" => LinkLayer::InfiniBand,
        "Ethernet" => LinkLayer::Ethernet,
        _ => LinkLayer::Other,
    };
    let gids = gids(folder);
    let mut ours: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !name.is_empty() && !ours.iter().any(|other| other == name) {
            ours.push(name.to_string());
        }
    };
    if link != LinkLayer::InfiniBand {
        gids.iter().filter_map(|gid| gid.netdev.as_deref()).for_each(&mut add);
        // What the device was made of, if it was made of one.
        add(parent);
    }
    netdevs.of_port(device, number).for_each(&mut add);
    for bond in netdevs.bonds_of(&ours) {
        ours.push(bond);
    }
    RdmaPort {
        number,
        // `4: ACTIVE`
        state: state.split_once(": ").map_or(state.as_str(), |(_, state)| state).to_string(),
        link,
        rate: text(&folder.join("rate")),
        netdevs: ours,
        gids,
    }
}

/// The table's places that are taken.
fn gids(port: &Path) -> Vec<Gid> {
    let mut places: Vec<u32> =
        names(&port.join("gids")).iter().filter_map(|place| place.parse().ok()).collect();
    places.sort_unstable();
    let gid = |index: u32| {
        let gid: Ipv6Addr = text(&port.join(format!("gids/{index}"))).parse().ok()?;
        // Most places are free, and to ask more of them takes the system longer than to show them.
        if gid.is_unspecified() {
            return None;
        }
        let of = |what: &str| text(&port.join(format!("gid_attrs/{what}/{index}")));
        let netdev = Some(of("ndevs")).filter(|name| !name.is_empty());
        Some(Gid { index, gid, kind: of("types"), netdev })
    };
    places.into_iter().take(GIDS_MAX).filter_map(gid).collect()
}

/// The network interfaces that say which port they are of.
struct Netdevs(Vec<Netdev>);

struct Netdev {
    name: String,
    /// The devices of the hardware that it is on, and the port of them.
    devices: Vec<String>,
    port: u8,
    /// The interface that it was made of: for instance the one without a partition key.
    parent: String,
    /// Those that it bonds.
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

    /// Bonds of any of these interfaces, which are none of them: their addresses are those of the port that is in use.
    fn bonds_of(&self, ours: &[String]) -> Vec<String> {
        let bonds = self.0.iter().filter(|netdev| netdev.slaves.iter().any(|slave| ours.contains(slave)));
        bonds.map(|bond| &bond.name).filter(|name| !ours.contains(name)).cloned().collect()
    }
}

/// What stands in a folder, by name; nothing in one that is not there.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).take(GIDS_MAX).collect();
    names.sort();
    names
}

/// The words of a file; none of one that is not there, or that the system does not fill, as it does with places of a table
/// that are free.
fn text(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
