//! What the system tells of an interface in its files alone.

use std::fs;
use std::path::PathBuf;

/// Mbit/s. The file cannot be read while the interface is down, and says -1 where there is no such thing as a speed.
pub(super) fn speed_mbps(name: &str) -> Option<u32> {
    number(&fs::read_to_string(folder(name).join("speed")).ok()?)
}

/// The file says -1 on machines of one node.
pub(super) fn numa_node(name: &str) -> Option<u32> {
    number(&fs::read_to_string(folder(name).join("device/numa_node")).ok()?)
}

/// An alias (`eth0:1`) is another address of the interface before the colon.
fn folder(name: &str) -> PathBuf {
    let device = name.split_once(':').map_or(name, |(device, _)| device);
    PathBuf::from("/sys/class/net").join(device)
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

    #[test]
    fn an_alias_has_the_files_of_its_interface() {
        assert_eq!(folder("eth0:1"), folder("eth0"));
    }
}
