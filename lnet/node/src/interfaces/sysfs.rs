//! Properties of an interface that only the system's files have.

use std::fs;
use std::path::{Path, PathBuf};

/// The system's folder of interfaces.
const INTERFACES: &str = "/sys/class/net";

/// The maximum depth of stacked interfaces: more than any host has, and a bound if the links form a
/// circle.
const STACKED_MAX: usize = 8;

/// Returns the speed of an interface in Mbit/s. The file cannot be read while the interface is
/// down, and has -1 if there is no speed.
pub(super) fn speed_mbps(name: &str) -> Option<u32> {
    number(&fs::read_to_string(Path::new(INTERFACES).join(device(name)).join("speed")).ok()?)
}

/// Returns the network device that carries an interface: the card below a VLAN, the first one of a
/// bond, otherwise the interface itself.
pub(super) fn carrier(name: &str) -> String {
    carrier_in(Path::new(INTERFACES), name)
}

fn carrier_in(interfaces: &Path, name: &str) -> String {
    let mut name = device(name).to_string();
    for _ in 0..STACKED_MAX {
        match lower(&interfaces.join(&name)) {
            Some(lower) => name = lower,
            None => break,
        }
    }
    name
}

/// Returns the interface below this one, the first if there are several; `None` for one with its
/// own device.
fn lower(folder: &Path) -> Option<String> {
    if folder.join("device").exists() {
        return None;
    }
    let entries = fs::read_dir(folder).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("lower_").map(str::to_string)).min()
}

/// Returns the NUMA node of the device that carries an interface. The file has -1 on machines with
/// one node.
pub(super) fn numa_node(name: &str) -> Option<u32> {
    let folder: PathBuf = Path::new(INTERFACES).join(carrier(name));
    number(&fs::read_to_string(folder.join("device/numa_node")).ok()?)
}

/// Returns the device of an interface: an alias (`eth0:1`) is another address of the device before
/// the colon.
pub(super) fn device(name: &str) -> &str {
    name.split_once(':').map_or(name, |(device, _)| device)
}

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_no_number() {
        assert_eq!(number("25000\n"), Some(25_000));
        for unknown in ["-1\n", "", "unknown"] {
            assert_eq!(number(unknown), None);
        }
    }

    /// A VLAN, a bond and an alias have their card as carrier.
    // Covers: S-312
    #[test]
    fn an_interface_is_carried_by_its_card() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| fs::create_dir_all(root.path().join(path)).unwrap();
        let of_cards =
            ["eth0/device", "eth1/device", "eth0.5/lower_eth0", "bond0/lower_eth1", "bond0/lower_eth0"];
        let of_none = ["bond0.7/lower_bond0", "dummy0", "a/lower_b", "b/lower_a"];
        of_cards.into_iter().chain(of_none).for_each(put);
        let carrier = |name: &str| carrier_in(root.path(), name);
        for name in ["eth0", "eth0:1", "eth0.5", "eth0.5:2", "bond0", "bond0.7"] {
            assert_eq!(carrier(name), "eth0", "{name}");
        }
        assert_eq!(["eth1", "dummy0", "absent"].map(carrier), ["eth1", "dummy0", "absent"]);
        assert!(["a", "b"].contains(&carrier("a").as_str()), "a circle ends");
    }
}
