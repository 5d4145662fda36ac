//! The NUMA placement of this process's memory, from `/proc/self/numa_maps`.

use std::collections::BTreeMap;
use std::fs;

/// An anonymous mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The kernel's name of its policy: `default`, `prefer:1`, `interleave:0-1`.
    pub policy: String,
    /// Pages by NUMA node.
    pub pages: BTreeMap<usize, usize>,
}

/// Returns the mappings of this process that have pages.
///
/// # Panics
/// Without `/proc`, or on a kernel without NUMA.
#[must_use]
pub fn mappings() -> Vec<Mapping> {
    fs::read_to_string("/proc/self/numa_maps").unwrap().lines().filter_map(mapping).collect()
}

/// Returns this process's mappings of memory that processes share and whose name begins with
/// `name`, if they have pages.
///
/// # Panics
/// As [`mappings`].
#[must_use]
pub fn shared_mappings(name: &str) -> Vec<Mapping> {
    let file = format!(" file=/memfd:{name}");
    let text = fs::read_to_string("/proc/self/numa_maps").unwrap();
    let read = |line: &str| line.contains(&file).then(|| pages_in(line)).flatten();
    text.lines().filter_map(read).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    if line.contains(" file=") { None } else { pages_in(line) }
}

fn pages_in(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let policy = words.next()?.to_string();
    let node = |word: &str| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    };
    let pages: BTreeMap<usize, usize> = words.filter_map(node).collect();
    (!pages.is_empty()).then_some(Mapping { policy, pages })
}

/// Returns the number of this process's pages on each of the first two nodes.
#[must_use]
pub fn pages() -> [usize; 2] {
    let all = mappings();
    [0, 1].map(|node| all.iter().filter_map(|mapping| mapping.pages.get(&node)).sum())
}

/// Returns the number of pages that `work` added on each node.
pub fn pages_of<T>(work: impl FnOnce() -> T) -> ([usize; 2], T) {
    let before = pages();
    let made = work();
    let after = pages();
    ([0, 1].map(|node| after[node].saturating_sub(before[node])), made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let heap = "55e0 default heap anon=7 dirty=7 active=0 N0=4 N1=3 kernelpagesize_kB=4";
        let expected = Mapping { policy: "default".into(), pages: BTreeMap::from([(0, 4), (1, 3)]) };
        assert_eq!(mapping(heap), Some(expected));
        let placed = mapping("7f10 prefer:1 anon=1 dirty=1 N1=1 kernelpagesize_kB=4").unwrap();
        assert_eq!((placed.policy.as_str(), placed.pages.get(&1)), ("prefer:1", Some(&1)));
        assert_eq!(mapping("7f20 default file=/usr/lib/libc.so mapped=1 N0=1 kernelpagesize_kB=4"), None);
        assert_eq!(mapping("7f30 default"), None);
    }
}
