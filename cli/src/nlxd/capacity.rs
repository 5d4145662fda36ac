//! The capacity of all clients together: shares of the resources that the host grants to this
//! process.
//!
//! The limits are read once, when the node runs and before the first client connects.

use std::fs;
use std::path::{Path, PathBuf};

use lnet_node::EngineLimits;
use nix::sys::resource::{Resource as Limit, getrlimit};
use nlx_helper::accounts::{AccountsConfig, Resource, UNBOUNDED};

/// Mappings that are reserved for the process itself, in addition to a part of all: the
/// allocator's, threads' stacks, libraries, mappings of devices, and pages that replace holes which
/// clients have punched.
const MAPPINGS_KEPT: u64 = 4096;
const MAPPINGS_KEPT_PART: u64 = 8;

/// Largest number of descriptors in replies that clients have not read: beyond some 2,000 in flight
/// the kernel makes every sender wait for its garbage collection. The rest of the limit of open
/// files is a reserve for the porter's channels.
const UNREAD_MAX: u64 = 1024;

/// Divisor of the limit of descriptors: clients may use half of them. The other half is for the
/// connections of the network.
const DESCRIPTORS_PART: u64 = 2;

/// Descriptors that are reserved for the process itself: for refusing clients with a reason (64),
/// the status (32), logs and files that are read. If the limit is low, an eighth of it.
const DESCRIPTORS_KEPT: u64 = 128;
const DESCRIPTORS_KEPT_PART: u64 = 8;

/// The part of the memory for the heap of clients' objects; the network's peers and connections
/// need another.
const HEAP_PART: u64 = 8;

/// The part of the memory for rings and event queues, which is allocated on use.
const QUEUES_PART: u64 = 4;

/// The part of the memory for arenas, which is allocated when they are touched.
const ARENAS_PART: u64 = 2;

/// The part of LNet's tables that is reserved for the node's own entries: pings, probes, and each
/// partition's reserve.
const ENGINE_KEPT_PART: u64 = 16;

/// The limits of this process. [`UNBOUNDED`] where a limit is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostLimits {
    /// Mappings that this process may have (`vm.max_map_count`), and has.
    pub(super) mappings: u64,
    pub(super) mappings_used: u64,
    /// Descriptors that it may have (RLIMIT_NOFILE).
    pub(super) descriptors: u64,
    /// Bytes of memory that are free for it: the least of the system's available memory
    /// (`MemAvailable`), the remainder of its control groups and their parents (`memory.max`,
    /// `memory.high`), and the remainder of RLIMIT_AS.
    pub(super) memory: u64,
}

impl HostLimits {
    /// Reads the limits of this process.
    pub(super) fn read() -> HostLimits {
        let rlimit = |limit| getrlimit(limit).map_or(UNBOUNDED, |(soft, _)| soft.min(UNBOUNDED));
        let used = virtual_bytes().unwrap_or(0);
        let address_space = rlimit(Limit::RLIMIT_AS).saturating_sub(used);
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let in_groups = group_folders(&groups).iter().filter_map(|folder| left_in_group(folder)).min();
        let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
        let memory = [Some(address_space), in_groups, available].into_iter().flatten().min();
        HostLimits {
            mappings: number(Path::new("/proc/sys/vm/max_map_count")).unwrap_or(UNBOUNDED),
            mappings_used: fs::read_to_string("/proc/self/maps")
                .map_or(0, |text| text.lines().count() as u64),
            descriptors: rlimit(Limit::RLIMIT_NOFILE),
            memory: memory.unwrap_or(UNBOUNDED),
        }
    }

    /// Returns the limits without memory that another part of the process may take.
    pub(super) fn without_memory(self, bytes: u64) -> HostLimits {
        HostLimits { memory: part(self.memory, |memory| memory.saturating_sub(bytes)), ..self }
    }

    /// Adds capacities for resources that `accounts` does not set.
    pub(super) fn fill(&self, mut accounts: AccountsConfig) -> AccountsConfig {
        let engine = EngineLimits::default();
        let kept = |count: usize| count as u64 - count as u64 / ENGINE_KEPT_PART;
        let mappings_kept = self.mappings_used + MAPPINGS_KEPT + self.mappings / MAPPINGS_KEPT_PART;
        let descriptors_kept = DESCRIPTORS_KEPT.min(self.descriptors / DESCRIPTORS_KEPT_PART);
        let descriptors = self.descriptors / DESCRIPTORS_PART - descriptors_kept;
        for (resource, capacity) in [
            // One partition must hold all of them: match bits that a client chooses decide the
            // partition.
            (Resource::Operations, kept(engine.match_entries.min(engine.descriptors))),
            (Resource::Machines, kept(engine.event_queues)),
            (Resource::Mappings, part(self.mappings, |mappings| mappings.saturating_sub(mappings_kept))),
            (Resource::Descriptors, part(self.descriptors, |_| descriptors)),
            (Resource::HeapBytes, part(self.memory, |memory| memory / HEAP_PART)),
            (Resource::QueueBytes, part(self.memory, |memory| memory / QUEUES_PART)),
            (Resource::ArenaBytes, part(self.memory, |memory| memory / ARENAS_PART)),
            (
                Resource::UnreadReplies,
                part(self.descriptors, |descriptors| (descriptors / DESCRIPTORS_PART).min(UNREAD_MAX)),
            ),
        ] {
            if accounts.capacity.of(resource) == UNBOUNDED {
                accounts = accounts.with_capacity(resource, capacity);
            }
        }
        accounts
    }
}

/// Returns a part of a limit; [`UNBOUNDED`] of an unbounded one. At least 1, so that root can work
/// in any case.
fn part(all: u64, of: impl FnOnce(u64) -> u64) -> u64 {
    if all >= UNBOUNDED { UNBOUNDED } else { of(all).max(1) }
}

/// Returns the number in a file; `None` for `max`, or without the file.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn virtual_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&status, "VmSize:")
}

fn available(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, "MemAvailable:")
}

/// Returns the bytes in the line `KEY: N kB`.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the folders of the process's memory control groups, of version 2 and 1, with those of
/// their parents. `/proc/PID/cgroup` has `0::/PATH`, and `NUMBER:memory:/PATH` if the controller is
/// of version 1. In a container the path may be the host's and not exist: then the root of the
/// mounted tree is used.
fn group_folders(text: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            _ if controllers.split(',').any(|name| name == "memory") => &["/sys/fs/cgroup/memory"],
            _ => continue,
        };
        for root in roots {
            let own = Path::new(root).join(path.trim_start_matches('/'));
            folders
                .extend(own.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_path_buf));
        }
    }
    folders
}

/// Returns the bytes that a control group may still allocate: the least of its limits less its use.
/// `None` without a limit.
fn left_in_group(folder: &Path) -> Option<u64> {
    let file = |name| number(&folder.join(name));
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    // Version 1 represents "no limit" by a number near the highest.
    let limit = limits.into_iter().filter_map(file).filter(|limit| *limit < UNBOUNDED).min()?;
    let used = file("memory.current").or_else(|| file("memory.usage_in_bytes")).unwrap_or(0);
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HostLimits =
        HostLimits { mappings: 65_530, mappings_used: 300, descriptors: 1024, memory: 8 << 30 };

    #[test]
    fn clients_get_what_the_process_and_the_network_do_not_need() {
        let AccountsConfig { capacity, root_reserve, .. } = LIMITS.fill(AccountsConfig::default());
        let of = |resource| (capacity.of(resource), root_reserve.of(resource));
        let mappings = 65_530 - 300 - 4096 - 65_530 / 8;
        assert_eq!(of(Resource::Mappings), (mappings, mappings / 8));
        assert_eq!(of(Resource::Descriptors), (1024 / 2 - 128, 48));
        assert_eq!(
            [Resource::HeapBytes, Resource::QueueBytes, Resource::ArenaBytes].map(of),
            [(1 << 30, 1 << 27), (2 << 30, 1 << 28), (4 << 30, 1 << 29),]
        );
        let less = LIMITS.without_memory(4 << 30).fill(AccountsConfig::default()).capacity;
        assert_eq!(less.of(Resource::ArenaBytes), 2 << 30);
        assert_eq!(of(Resource::Machines), (65_536 - 4_096, 7_680));
        assert_eq!(of(Resource::Buffers), (UNBOUNDED, 0));
    }

    #[test]
    fn what_the_configuration_says_stays_and_nothing_is_a_part_of_no_bound() {
        let accounts = AccountsConfig::default().with_capacity(Resource::Mappings, 7);
        let unknown = HostLimits { memory: UNBOUNDED, descriptors: 1, ..LIMITS }.without_memory(1 << 30);
        let capacity = unknown.fill(accounts).capacity;
        assert_eq!(capacity.of(Resource::Mappings), 7);
        assert_eq!(capacity.of(Resource::HeapBytes), UNBOUNDED);
        assert_eq!(capacity.of(Resource::Descriptors), 1, "root can work");
    }

    #[test]
    fn limits_are_read_as_the_system_writes_them() {
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        let text = "12:cpu,cpuacct:/x\n4:memory:/a/b\n0::/c\n";
        let folders = group_folders(text);
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/c",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified/c",
            "/sys/fs/cgroup/unified",
        ];
        assert_eq!(folders, expected.map(PathBuf::from));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(left_in_group(folder.path()), None);
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        assert_eq!(left_in_group(folder.path()), None);
        write("memory.high", "1000\n");
        write("memory.current", "300\n");
        assert_eq!(left_in_group(folder.path()), Some(700));
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("memory.max", "200\n");
        assert_eq!(left_in_group(folder.path()), Some(0));
        let now = HostLimits::read();
        assert!(now.mappings_used > 0 && now.descriptors > 2 && now.memory > 0, "{now:?}");
    }
}
