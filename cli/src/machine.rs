//! The machine on which a report was made, without which its numbers mean little.

use std::fs;

use serde::Serialize;

/// Properties of the machine; empty if the system does not provide them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    pub(crate) host: String,
    pub(crate) system: String,
    pub(crate) processor: String,
    /// Number of CPUs that this process may use.
    pub(crate) cpus: usize,
    pub(crate) memory_bytes: u64,
}

impl Machine {
    /// Returns the properties of this machine.
    pub(crate) fn this() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let kernel = [read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")].join(" ");
        Machine {
            host: read("/proc/sys/kernel/hostname"),
            system: format!("{}, {}", kernel.trim(), std::env::consts::ARCH),
            processor: processor(&read("/proc/cpuinfo")),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory(&read("/proc/meminfo")),
        }
    }
}

/// Returns the name of the first processor, without padding.
fn processor(cpuinfo: &str) -> String {
    let name =
        cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    name.map(|(_, name)| name.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

fn memory(meminfo: &str) -> u64 {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default().saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_what_the_system_tells() {
        assert_eq!(
            processor("processor\t: 0\nmodel name\t: Quick  CPU @ 2 GHz \nmodel name\t: other"),
            "Quick CPU @ 2 GHz"
        );
        assert_eq!(memory("MemTotal:       16 kB\nMemFree: 1 kB"), 16 << 10);
        assert_eq!((processor(""), memory("MemTotal: many")), (String::new(), 0));
        assert!(Machine::this().cpus > 0);
    }
}
