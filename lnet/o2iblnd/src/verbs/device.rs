//! One port of a device, and memory registered with it.

use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_region::{ForkGuard, Region};
use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit};
use nlx_ibverbs_sys as ffi;

use super::context::DeviceContext;
use super::{check, failed};
use crate::fabric::{Device, DeviceLimits, FabricError, RegisteredMemory};

pub(super) struct HostDevice {
    context: Arc<DeviceContext>,
    /// The port's number, from 1.
    port: u8,
    name: Arc<str>,
}

impl HostDevice {
    pub(super) fn new(context: Arc<DeviceContext>, port: u8, name: Arc<str>) -> HostDevice {
        HostDevice { context, port, name }
    }
}

impl Device for HostDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> &DeviceLimits {
        self.context.limits()
    }

    fn is_program(&self) -> bool {
        self.context.is_program()
    }

    fn is_up(&self) -> bool {
        !self.context.is_removed() && self.context.is_up(self.port).unwrap_or(false)
    }

    fn register(&self, region: &Region, remote: bool) -> Result<Arc<dyn RegisteredMemory>, FabricError> {
        let (address, bytes) = region.extent();
        let memory = Registered::new(&self.context, region.fork_guard(), address, bytes, remote);
        Ok(Arc::new(memory.map_err(|errno| refused(&self.name, bytes, errno))?))
    }
}

/// A memory region of the device.
struct Registered {
    raw: NonNull<ffi::ibv_mr>,
    keys: (u32, u32),
    fork_guard: ForkGuard,
    /// The context, kept so that the protection domain exists.
    context: Arc<DeviceContext>,
}

// SAFETY: libibverbs may be called by any thread.
unsafe impl Send for Registered {}
// SAFETY: a shared reference reads two numbers.
unsafe impl Sync for Registered {}

impl Registered {
    fn new(
        context: &Arc<DeviceContext>,
        of: &ForkGuard,
        address: u64,
        bytes: usize,
        remote: bool,
    ) -> Result<Registered, Errno> {
        if !of.in_owner_process() || !context.domain().fork_guard().in_owner_process() {
            return Err(Errno::EPERM);
        }
        let mut access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        if remote {
            access |= ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        }
        let start = with_exposed_provenance_mut(address as usize);
        // SAFETY: the domain is valid. The range is the whole memory of a region or of its arena,
        // which stays where it is, so the keys never give the device access to anything else. The
        // memory outlives the registration, as the trait demands: the registration is in the
        // region's or the arena's own slot, which is dropped before the memory. The system holds
        // the pages themselves until then, so that even memory that another process has truncated
        // stays the device's to write to.
        let raw = unsafe { ffi::ibv_reg_mr(context.domain().raw(), start, bytes, access.0 as i32) };
        let raw = NonNull::new(raw).ok_or_else(Errno::last)?;
        // SAFETY: the registration is valid, and these fields stay.
        let keys = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        context.registered.insert(keys.0, address, bytes);
        Ok(Registered { raw, keys, fork_guard: ForkGuard::here(), context: context.clone() })
    }
}

impl RegisteredMemory for Registered {
    fn local_key(&self) -> u32 {
        self.keys.0
    }

    fn remote_key(&self) -> u32 {
        self.keys.1
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            return;
        }
        self.context.registered.remove(self.keys.0);
        // SAFETY: it is ended once, and its domain is still there.
        if let Err(errno) = check(unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) }) {
            tracing::error!(%errno, "cannot deregister memory");
        }
    }
}

/// Returns the text that names the limit of locked memory and the way to raise it; `None` without a
/// limit.
pub(super) fn memlock() -> Option<String> {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(RLIM_INFINITY, |(soft, _)| soft);
    (limit != RLIM_INFINITY).then(|| {
        format!(
            "this process may lock {limit} bytes (RLIMIT_MEMLOCK); raise it with `ulimit -l unlimited`, LimitMEMLOCK=infinity in \
             its systemd unit, or memlock in /etc/security/limits.conf"
        )
    })
}

fn refused(device: &str, bytes: usize, errno: Errno) -> FabricError {
    let what = format!("registering {bytes} bytes with {device}");
    match errno {
        Errno::ENOMEM => {
            let why = memlock().unwrap_or_else(|| "the device or the system has no room for it".to_string());
            failed(errno, format!("{what}: {why}"))
        }
        Errno::EPERM => {
            failed(errno, format!("{what}: memory or device belongs to the process that forked this one"))
        }
        _ => failed(errno, what),
    }
}
