//! A report on this host's support for networks over RDMA: what exists, what is missing, and
//! advice.

use std::fmt;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use lnet_api::{Errno, LndError};
use lnet_nid::{Net, Nid};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{AccessFlags, Uid, access};

use super::{BUILT_WITHOUT, RdmaDevice, RdmaPort, no_device, ports};
use crate::interfaces::{HostInterfaces, verbs};
use crate::{NodeError, PortLinkLayer, o2ib};

/// A limit on locked memory below this causes a problem entry: bulk buffers of a few MiB and some
/// connections would reach it.
pub const MEMLOCK_SUGGESTED_BYTES: u64 = 64 << 20;

/// This host's support for networks of type `o2ib`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaReport {
    /// Every port of every device.
    pub ports: Vec<RdmaPortReport>,
    /// Existing and possible problems.
    pub problems: Vec<RdmaProblem>,
    /// Bytes that this process may lock, which includes registered memory; `None` without a limit.
    pub memlock_bytes: Option<u64>,
}

/// A port, with its use by a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaPortReport {
    /// The name of the port's device.
    pub device: String,
    /// The port, as the system reports it.
    pub port: RdmaPort,
    /// The port's network interfaces with their IPv4 addresses.
    pub interfaces: Vec<(String, Vec<Ipv4Addr>)>,
    /// The NID of a network that names the port; `None` if there can be no such network.
    pub nid: Option<Nid>,
    /// True if a network that names no interface uses the port.
    pub first: bool,
    /// The index, in the port's table, of the GID that connections from that NID use; `None` if
    /// unknown.
    pub gid: Option<u32>,
    /// The reason why the port can, or cannot, serve a network.
    pub why: String,
}

/// A problem of RDMA on this host, with advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaProblem {
    /// The object of the problem: a port, a file, a limit.
    pub about: String,
    /// The description of the problem, as a phrase.
    pub what: String,
    /// The advice for the administrator.
    pub advice: String,
    /// True if the problem prevents all networks over RDMA.
    pub fatal: bool,
}

impl fmt::Display for RdmaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.about, self.what, self.advice)
    }
}

impl RdmaReport {
    /// Examines this host, and the privileges of this process.
    ///
    /// ```
    /// let report = lnet_node::RdmaReport::of_host()?;
    /// for port in &report.ports {
    ///     println!("{}/{}: {:?}, {}", port.device, port.port.number, port.nid, port.why);
    /// }
    /// report.problems.iter().for_each(|problem| println!("{problem}"));
    /// assert!(report.ports.iter().any(|port| port.nid.is_some()) || !report.problems.is_empty());
    /// # Ok::<(), lnet_node::NodeError>(())
    /// ```
    ///
    /// # Errors
    /// [`NodeError::System`] if the interfaces cannot be listed.
    pub fn of_host() -> Result<RdmaReport, NodeError> {
        let host = HostInterfaces { interfaces: crate::HostInterface::all()?, devices: RdmaDevice::all() };
        Ok(report(&host, &SystemState::this(&host.devices)))
    }

    /// Returns whether a network over RDMA is possible.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.ports.iter().any(|port| port.nid.is_some()) && !self.problems.iter().any(|problem| problem.fatal)
    }
}

/// The state of the system that the report needs, apart from devices and interfaces.
#[derive(Debug, Clone)]
pub(super) struct SystemState {
    /// The error text of a program that is built without RDMA.
    pub(super) built_without: Option<&'static str>,
    /// The state of the driver and the libraries.
    pub(super) ready: Result<(), (String, Errno)>,
    /// The files that must be accessible, for one device or for all.
    pub(super) files: Vec<DeviceFile>,
    pub(super) memlock_bytes: Option<u64>,
    /// The devices as libibverbs lists them; `None` if it could not.
    pub(super) listed: Option<Vec<ListedDevice>>,
}

#[derive(Debug, Clone)]
pub(super) struct DeviceFile {
    pub(super) path: PathBuf,
    /// The kernel module that creates the file.
    pub(super) module: &'static str,
    pub(super) access: Result<(), Errno>,
}

/// A device as libibverbs lists it.
#[derive(Debug, Clone, Default)]
pub(super) struct ListedDevice {
    pub(super) device: String,
    /// The reason why the device's GIDs are not listed.
    pub(super) note: Option<String>,
    /// The device's GIDs.
    pub(super) gids: Vec<ListedGid>,
}

#[derive(Debug, Clone)]
pub(super) struct ListedGid {
    pub(super) port: u8,
    pub(super) index: u32,
    pub(super) usage: String,
    /// The address whose connections use the GID.
    pub(super) used_by: Option<Ipv4Addr>,
}

impl SystemState {
    fn this(devices: &[RdmaDevice]) -> SystemState {
        let check = |path: PathBuf, module| {
            let access = access(&path, AccessFlags::R_OK | AccessFlags::W_OK);
            DeviceFile { access, path, module }
        };
        let mut files = Vec::new();
        if !devices.is_empty() {
            files.push(check("/dev/infiniband/rdma_cm".into(), "rdma_ucm"));
            let verbs = |device: &RdmaDevice| check(verbs_file(&device.name), "ib_uverbs");
            files.extend(devices.iter().map(verbs));
        }
        let ready = o2ib::ready().map_err(|LndError { what, errno }| (what, errno));
        SystemState {
            built_without: BUILT_WITHOUT,
            ready,
            files,
            memlock_bytes: memlock_bytes(),
            listed: listed(),
        }
    }
}

/// Returns the file by which programs use a device.
fn verbs_file(device: &str) -> PathBuf {
    let class = Path::new("/sys/class/infiniband_verbs");
    let entries = fs::read_dir(class).into_iter().flatten().filter_map(Result::ok);
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let of = |name: &String| {
        fs::read_to_string(class.join(name).join("ibdev")).is_ok_and(|text| text.trim() == device)
    };
    let name = names.find(of).unwrap_or_else(|| "uverbs0".to_string());
    Path::new("/dev/infiniband").join(name)
}

/// Returns the bytes that this process may lock; `None` without a limit.
fn memlock_bytes() -> Option<u64> {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != RLIM_INFINITY && bits >> CAP_IPC_LOCK & 1 == 0).then_some(soft)
}

#[cfg(feature = "verbs")]
fn listed() -> Option<Vec<ListedDevice>> {
    use lnet_o2iblnd::verbs::{Listed, ListedPort, Usage, devices};
    let gids = |port: &ListedPort| {
        let first = port.addresses.first().map(|(_, address)| *address);
        let gid = |gid: &lnet_o2iblnd::verbs::Gid| ListedGid {
            port: port.number,
            index: gid.index,
            usage: gid.usage.to_string(),
            used_by: match gid.usage {
                Usage::Address(address) => Some(address),
                Usage::Port => first,
                _ => None,
            },
        };
        port.gids.iter().map(gid).collect::<Vec<_>>()
    };
    let seen = |Listed { name, ports, note, .. }: Listed| ListedDevice {
        device: name,
        note,
        gids: ports.iter().flat_map(gids).collect(),
    };
    Some(devices().ok()?.into_iter().map(seen).collect())
}

#[cfg(not(feature = "verbs"))]
fn listed() -> Option<Vec<ListedDevice>> {
    None
}

pub(super) fn report(host: &HostInterfaces, system: &SystemState) -> RdmaReport {
    let mut reports: Vec<RdmaPortReport> =
        ports(&host.devices).map(|(device, port)| of_port(host, device, port, system)).collect();
    if let Some(first) = reports.iter_mut().find(|port| port.nid.is_some()) {
        first.first = true;
    }
    let any = reports.iter().any(|port| port.nid.is_some());
    let mut problems = Vec::new();
    problems.extend(of_driver(host, system));
    problems.extend(system.files.iter().filter_map(of_file));
    problems.extend(of_listing(host, system));
    for (device, port) in ports(&host.devices) {
        problems.extend(of_link(host, device, port, !any));
    }
    problems.extend(of_memlock(host, system));
    RdmaReport { ports: reports, problems, memlock_bytes: system.memlock_bytes }
}

fn of_port(
    host: &HostInterfaces,
    device: &RdmaDevice,
    port: &RdmaPort,
    system: &SystemState,
) -> RdmaPortReport {
    let interfaces = host.of_port(port).map(|interface| {
        let ipv4 = interface.addresses.iter().filter_map(|address| match address {
            std::net::IpAddr::V4(address) => Some(*address),
            std::net::IpAddr::V6(_) => None,
        });
        (interface.name.clone(), ipv4.collect())
    });
    let usable = verbs::usable(host, port);
    let nid = usable.map(|(_, address)| Nid::new_v4(Net::O2IB, address));
    let (gid, why) = match usable {
        Some((interface, address)) => {
            let gid = gid_of(device, port, address, system);
            let gid_text = match &gid {
                Some((index, usage)) => format!("GID {index} ({usage})"),
                None => "no GID yet".to_string(),
            };
            (gid.map(|(index, _)| index), format!("by the address of {}: {gid_text}", interface.name))
        }
        None => (None, verbs::missing(host, device, port)),
    };
    RdmaPortReport {
        device: device.name.clone(),
        port: port.clone(),
        interfaces: interfaces.collect(),
        nid,
        first: false,
        gid,
        why,
    }
}

/// Returns the GID of connections from an address, and the reason: from libibverbs, otherwise from
/// the system's files.
fn gid_of(
    device: &RdmaDevice,
    port: &RdmaPort,
    address: Ipv4Addr,
    system: &SystemState,
) -> Option<(u32, String)> {
    let mut seen = system.listed.iter().flatten().filter(|seen| seen.device == device.name);
    let used = seen.find_map(|seen| {
        seen.gids.iter().find(|gid| gid.port == port.number && gid.used_by == Some(address))
    });
    if let Some(gid) = used {
        return Some((gid.index, gid.usage.clone()));
    }
    match port.link {
        PortLinkLayer::InfiniBand => {
            port.gids.first().map(|gid| (gid.index, "the first of the port".to_string()))
        }
        _ => port.gid_of(address).map(|gid| (gid.index, format!("{}, of the address {address}", gid.kind))),
    }
}

fn problem(about: impl Into<String>, what: impl Into<String>, advice: impl Into<String>) -> RdmaProblem {
    RdmaProblem { about: about.into(), what: what.into(), advice: advice.into(), fatal: true }
}

fn of_driver(host: &HostInterfaces, system: &SystemState) -> Vec<RdmaProblem> {
    let mut problems = Vec::new();
    let of = |about: &str, text: &str| {
        let (what, advice) = text.split_once("; ").unwrap_or((text, ""));
        problem(about, what, advice)
    };
    if let Some(text) = system.built_without {
        // Without RDMA in the program there are no other findings, nor would they help.
        return vec![of("driver", text)];
    }
    match &system.ready {
        // Without a device the library cannot start; a separate problem reports that below.
        Err((why, errno)) if !host.devices.is_empty() || *errno == Errno::ENOSYS => {
            let advice = match errno {
                Errno::ENOSYS => "without it no network over RDMA can be had",
                _ => "see what else is wrong",
            };
            problems.push(problem("driver", why, advice));
        }
        _ => {}
    }
    if host.devices.is_empty() {
        problems.push(of("devices", no_device(None)));
    }
    problems
}

fn of_file(file: &DeviceFile) -> Option<RdmaProblem> {
    let DeviceFile { path, module, access } = file;
    let path = path.display().to_string();
    Some(match access {
        Ok(()) => return None,
        Err(Errno::ENOENT) => problem(
            path,
            "is not there",
            format!("'modprobe {module}'; a container must be given it: --device=/dev/infiniband"),
        ),
        Err(errno) => problem(
            path,
            format!("may not be opened by user {}: {errno:?}", Uid::current()),
            "the package rdma-core has a rule for udev that gives it mode 0666, or 'chmod 666' it",
        ),
    })
}

/// Returns the problems with devices and GIDs that the library does not list.
fn of_listing(host: &HostInterfaces, system: &SystemState) -> Vec<RdmaProblem> {
    let Some(listed) = &system.listed else { return Vec::new() };
    let mut problems = Vec::new();
    for device in &host.devices {
        match listed.iter().find(|seen| seen.device == device.name) {
            None => problems.push(RdmaProblem {
                fatal: false,
                ..problem(
                    &device.name,
                    "the kernel has it, and libibverbs has no driver for it",
                    "Debian: apt install ibverbs-providers",
                )
            }),
            Some(ListedDevice { note: Some(note), .. }) if device.ports.iter().any(RdmaPort::is_active) => {
                problems.push(RdmaProblem {
                    fatal: false,
                    ..problem(&device.name, note, "see /dev/infiniband, and 'dmesg'")
                });
            }
            Some(_) => {}
        }
    }
    problems
}

/// Returns the problem of an unusable port, or a possible problem of a usable one.
fn of_link(host: &HostInterfaces, device: &RdmaDevice, port: &RdmaPort, fatal: bool) -> Option<RdmaProblem> {
    let name = device.port_name(port);
    let Some((_, address)) = verbs::usable(host, port) else {
        let missing = verbs::missing(host, device, port);
        let (what, advice) = missing.split_once(": ").unwrap_or((&missing, "see 'rdma link'"));
        return Some(RdmaProblem { fatal, ..problem(name, what, advice) });
    };
    if port.link == PortLinkLayer::InfiniBand {
        return None;
    }
    let note =
        |what: String, advice: &str| Some(RdmaProblem { fatal: false, ..problem(&name, what, advice) });
    match port.gid_of(address) {
        None => note(
            format!("it has no GID for {address}"),
            "a moment after an address is set it has; is the interface up, and no bridge's or bond's part?",
        ),
        Some(gid) if !gid.is_routable() && !gid.kind.is_empty() => note(
            format!("the address {address} has GIDs of {} only: other hosts may use RoCE v2", gid.kind),
            "all hosts of a network must use the same: 'cma_roce_mode' shows and sets it",
        ),
        Some(_) => None,
    }
}

fn of_memlock(host: &HostInterfaces, system: &SystemState) -> Option<RdmaProblem> {
    let bytes = system.memlock_bytes.filter(|bytes| *bytes < MEMLOCK_SUGGESTED_BYTES)?;
    (!host.devices.is_empty()).then(|| RdmaProblem {
        fatal: false,
        ..problem(
            "memlock",
            format!(
                "this process may lock {bytes} bytes, and all memory of RDMA is locked: buffers and queues"
            ),
            "'ulimit -l unlimited'; for users 'memlock unlimited' in /etc/security/limits.d, for services \
             LimitMEMLOCK=infinity, for containers --ulimit memlock=-1; or the capability CAP_IPC_LOCK",
        )
    })
}

#[cfg(test)]
mod tests;
