//! The RDMA devices of the virtual machine in which some tests run (the guest).

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use lnet_o2iblnd::Fabric;
use parking_lot::{Mutex, MutexGuard};

use super::RealTime;
use super::real_time::HUNG_MS;

/// Held by the one test that uses the guest's devices: it listens at the service's port.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The devices of the guest, at its two addresses.
pub struct Place {
    _alone: MutexGuard<'static, ()>,
    addresses: Vec<Ipv4Addr>,
    pub(super) time: RealTime,
    /// The devices' resources at the start.
    resources: String,
    /// The kernel's complaints at the start.
    complaints: Vec<String>,
}

/// This host's devices.
#[cfg(feature = "verbs")]
#[allow(unsafe_code, reason = "devices write to the addresses in work requests")]
pub(super) fn fabric() -> Arc<dyn Fabric> {
    // SAFETY: LNDs use it; the raw peers of tests keep their buffers until their connections have
    // ended.
    Arc::new(unsafe { lnet_o2iblnd::verbs::HostFabric::new() })
}

#[cfg(not(feature = "verbs"))]
pub(super) fn fabric() -> Arc<dyn Fabric> {
    panic!("in the guest, the feature `verbs` is wanted")
}

/// Lists the devices' queues, registrations and other resources.
fn resources() -> String {
    let shown = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    assert!(shown.status.success());
    String::from_utf8(shown.stdout).unwrap()
}

/// Returns the records in the kernel's log about identifiers of the connection manager whose
/// destruction blocked for ten seconds or more. Only root may read the log.
fn complaints() -> Vec<String> {
    let log = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut log) = log else {
        assert!(!nix::unistd::geteuid().is_root(), "root cannot read the kernel's log");
        return Vec::new();
    };
    let mut complaints = Vec::new();
    // Each read returns one record; this is the kernel's maximum.
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(length) => {
                let record = String::from_utf8_lossy(&record[..length]);
                if record.contains("cm_destroy_id_wait_timeout") {
                    complaints.push(record.trim().to_owned());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return complaints,
            // Records were overwritten: the next read returns the oldest remaining one.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => panic!("the kernel's log: {error}"),
        }
    }
}

/// Returns the words of an environment variable that the guest sets.
pub fn told(name: &str) -> Vec<String> {
    let words = std::env::var(name).unwrap_or_else(|_| panic!("the guest does not set {name}"));
    words.split_whitespace().map(str::to_owned).collect()
}

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

impl Place {
    /// Returns the devices of the guest, `None` outside of it.
    pub fn of_guest() -> Option<Place> {
        std::env::var_os("NLX_GUEST")?;
        let addresses: Vec<Ipv4Addr> =
            told("NLX_GUEST_ADDRESSES").iter().map(|word| word.parse().unwrap()).collect();
        let _alone = ONE_AT_A_TIME.lock();
        // The libraries open each device once, and keep it.
        addresses.iter().for_each(|address| drop(fabric().open(*address).unwrap()));
        let (resources, complaints) = (resources(), complaints());
        Some(Place { _alone, addresses, time: RealTime::new(), resources, complaints })
    }

    /// Returns the address with this number, from 1; an address beyond the guest's is added to it.
    pub fn address(&self, number: usize) -> Ipv4Addr {
        if let Some(address) = self.addresses.get(number - 1) {
            return *address;
        }
        let netdevs = told("NLX_GUEST_NETDEVS");
        let address = Ipv4Addr::new(10, 77, 0, number as u8);
        let word = format!("{address}/24");
        ip(&["address", "replace", &word, "dev", &netdevs[0]]);
        // The device has it a moment later.
        let begin = Instant::now();
        while let Err(error) = fabric().open(address) {
            assert!(begin.elapsed().as_millis() < HUNG_MS.into(), "{error}");
            std::thread::yield_now();
        }
        address
    }

    /// Sets the port of the switch (tests/guest/network) of an address down or up. The switch then
    /// forgets what it has learned of the address.
    pub fn set_link(&self, number: usize, up: bool) {
        let netdevs = told("NLX_GUEST_NETDEVS");
        assert_eq!(netdevs.len(), 2, "the guest wants --net veth");
        let (port, target) = (format!("port{}", number - 1), self.address(number).to_string());
        ip(&["-n", "switch", "link", "set", &port, if up { "up" } else { "down" }]);
        if up {
            let file = format!("/sys/class/net/{}/address", netdevs[number - 1]);
            let mac = std::fs::read_to_string(file).unwrap();
            ip(&["-n", "switch", "route", "replace", &target, "dev", &port]);
            ip(&["-n", "switch", "neigh", "replace", &target, "lladdr", mac.trim(), "dev", &port]);
        }
    }

    /// Checks that the devices' resources are released, and that no destruction blocked its thread.
    pub fn check_resources(&self) {
        let new = complaints().into_iter().find(|complaint| !self.complaints.contains(complaint));
        assert_eq!(new, None, "destroying an identifier has blocked its thread");
        let begin = Instant::now();
        // The kernel releases what was destroyed a little later.
        while resources() != self.resources {
            assert!(begin.elapsed().as_millis() < HUNG_MS.into(), "{} was {}", resources(), self.resources);
            std::thread::yield_now();
        }
    }
}
