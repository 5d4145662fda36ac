//! The RDMA devices of this host.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use lnet_api::{Errno, next_incarnation};
use lnet_region::ForkGuard;
use nlx_ibverbs_sys as ffi;
use parking_lot::Mutex;

use super::channel::HostChannel;
use super::cm::CmId;
use super::context::DeviceContext;
use super::failed;
use crate::fabric::{Channel, Device, Fabric, FabricError};

/// The RDMA devices of this host, accessed through libibverbs and librdmacm.
///
/// ```no_run
/// use lnet_o2iblnd::fabric::{Device, Fabric};
/// use lnet_o2iblnd::verbs::HostFabric;
///
/// // SAFETY: nothing is registered, and nothing posted.
/// let host = unsafe { HostFabric::new() };
/// let device = host.open("10.77.0.1".parse().expect("an address"))?;
/// println!("{}: {:?}", device.name(), device.limits());
/// # Ok::<(), lnet_o2iblnd::fabric::FabricError>(())
/// ```
pub struct HostFabric(Arc<HostShared>);

/// The data that a host and its channels share.
#[derive(Default)]
pub(super) struct HostShared {
    /// The open devices, each with one entry.
    contexts: Mutex<Vec<Arc<DeviceContext>>>,
    channels: AtomicU32,
}

impl HostFabric {
    /// Creates a host. Neither opens devices nor loads the libraries.
    ///
    /// # Safety
    /// The caller keeps the [rules of memory](crate::fabric#memory): devices write to the addresses
    /// in work requests.
    #[must_use]
    pub unsafe fn new() -> HostFabric {
        HostFabric(Arc::default())
    }

    /// Creates the host of an LND. No other code uses it, so the LND alone can keep the rules of
    /// memory.
    pub(crate) fn of_lnd() -> HostFabric {
        // SAFETY: the LND keeps each registration with its region, or drops it first; the memory of
        // its work requests is in its own buffers, or in a lease that stays with the operation
        // until the work request has completed or its queues are gone.
        unsafe { HostFabric::new() }
    }
}

impl Fabric for HostFabric {
    fn incarnation(&self) -> u64 {
        next_incarnation()
    }

    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError> {
        loaded()?;
        let anchor = bound(address)?;
        let port = anchor.port();
        let context = self.0.context_for(anchor).map_err(|errno| explain(address, errno))?;
        let device = context.device(port);
        match context.is_up(port) {
            Ok(true) => Ok(device),
            Ok(false) => {
                let what = format!("the port of {} with the address {address} is down", device.name());
                Err(failed(Errno::ENETDOWN, format!("{what}: is the link up (`rdma link`)?")))
            }
            Err(errno) => Err(explain(address, errno)),
        }
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, FabricError> {
        loaded()?;
        let vector = self.0.channels.fetch_add(1, Relaxed);
        match HostChannel::new(self.0.clone(), vector) {
            Ok(channel) => Ok(Arc::new(channel)),
            Err(errno) => Err(without_manager(errno)),
        }
    }
}

impl HostShared {
    /// Returns the open device to which an identifier is bound.
    pub(super) fn context_of(&self, id: &CmId) -> Option<Arc<DeviceContext>> {
        let contexts = self.contexts.lock();
        contexts.iter().find(|context| context.verbs() == id.verbs()).cloned()
    }

    /// Returns the device to which an identifier is bound, opened if necessary.
    fn context_for(&self, anchor: CmId) -> Result<Arc<DeviceContext>, Errno> {
        let mut contexts = self.contexts.lock();
        // A device that returns after its removal gets a new context.
        contexts.retain(|context| !context.is_removed());
        if let Some(known) = contexts.iter().find(|context| context.verbs() == anchor.verbs()) {
            return Ok(known.clone());
        }
        let opened = Arc::new(DeviceContext::new(anchor)?);
        contexts.push(opened.clone());
        Ok(opened)
    }
}

/// Checks that the libraries can be loaded, and that no parent process has used them: a forked
/// child would use the parent's devices.
pub(super) fn loaded() -> Result<(), FabricError> {
    static FIRST: OnceLock<ForkGuard> = OnceLock::new();
    ffi::load().map_err(|why| failed(Errno::ENOSYS, why))?;
    let first = FIRST.get_or_init(ForkGuard::here);
    if first.in_owner_process() {
        return Ok(());
    }
    let parent = first.process();
    Err(failed(
        Errno::EPERM,
        format!("process {parent}, which uses RDMA, has forked this one: it cannot use RDMA itself"),
    ))
}

/// Returns an identifier that is bound to the address, and so to its device.
fn bound(address: Ipv4Addr) -> Result<CmId, FabricError> {
    let id = CmId::new(None).map_err(without_manager)?;
    id.bind(SocketAddrV4::new(address, 0)).map_err(|errno| explain(address, errno))?;
    if id.verbs().is_null() { Err(explain(address, Errno::ENODEV)) } else { Ok(id) }
}

/// Returns the error of a librdmacm call, with the remedy if the kernel's module or the device is
/// missing.
fn without_manager(errno: Errno) -> FabricError {
    let what = match errno {
        Errno::ENODEV | Errno::ENOENT => {
            "this host has no RDMA device, or the kernel's connection manager for user space is not loaded \
             (see `rdma link`; `modprobe rdma_ucm`)"
        }
        Errno::EACCES | Errno::EPERM => "/dev/infiniband/rdma_cm may not be opened by this user",
        _ => "the RDMA connection manager",
    };
    failed(errno, what)
}

fn explain(address: Ipv4Addr, errno: Errno) -> FabricError {
    let what = match errno {
        Errno::ENODEV => format!("no RDMA device has the address {address}: see `rdma link`, `ip address`"),
        Errno::EADDRNOTAVAIL => {
            return failed(Errno::ENODEV, format!("this host has no address {address}: see `ip address`"));
        }
        _ => format!("opening the RDMA device with the address {address}"),
    };
    failed(errno, what)
}
