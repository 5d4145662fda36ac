//! An open device: its protection domain, its ports, and its asynchronous events.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_api::Errno;
use lnet_region::ForkGuard;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nlx_ibverbs_sys as ffi;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::channel::EventHub;
use super::check;
use super::cm::CmId;
use super::device::HostDevice;
use crate::fabric::{DeviceChange, DeviceLimits, Piece};
use crate::sizes::PIECES_MAX;

/// The vendor ids of devices in software: soft-RoCE has this one. The ids of hardware vendors are
/// three bytes that the IEEE has assigned.
const PROGRAMS: [u32; 1] = [0xff_ffff];

pub(super) struct DeviceContext {
    verbs: NonNull<ffi::ibv_context>,
    domain: ProtectionDomain,
    name: String,
    ports: u8,
    limits: DeviceLimits,
    program: bool,
    /// The registered memory, by local key; inline sends are checked against it.
    pub(super) registered: RegistrationTable,
    /// The ports that are in use, with their device objects.
    devices: Mutex<Vec<(u8, Weak<HostDevice>)>>,
    /// The channels that receive the device's events.
    hubs: Mutex<Vec<Weak<EventHub>>>,
    removed: AtomicBool,
    /// Keeps the device open: librdmacm closes it when no identifier is bound to it. Dropped last.
    _anchor: CmId,
}

// SAFETY: libibverbs may be called by any thread, and the context is valid while its anchor is.
unsafe impl Send for DeviceContext {}
// SAFETY: as above.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    /// Opens the device to which the identifier `anchor` is bound.
    pub(super) fn new(anchor: CmId) -> Result<DeviceContext, Errno> {
        let verbs = NonNull::new(anchor.verbs()).ok_or(Errno::ENODEV)?;
        // SAFETY: a bound identifier's context is valid while the identifier is, and nothing
        // changes these fields.
        let (device, async_fd) =
            unsafe { (verbs.as_ref().device, BorrowedFd::borrow_raw(verbs.as_ref().async_fd)) };
        fcntl(async_fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // SAFETY: the device is valid while its context is; its name is a string that ends with a
        // zero.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) }.to_string_lossy().into_owned();
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: the context is valid, and there is room for the attributes.
        check(unsafe { ffi::ibv_query_device(verbs.as_ptr(), &mut attributes) })?;
        let domain = ProtectionDomain::new(verbs)?;
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let limits = DeviceLimits {
            queue_entries: count(attributes.max_qp_wr),
            completions: count(attributes.max_cqe),
            pieces: count(attributes.max_sge).min(PIECES_MAX),
            transfer_bytes: port_attributes(verbs, anchor.port())?.max_msg_sz,
            memory_bytes: attributes.max_mr_size,
        };
        Ok(DeviceContext {
            verbs,
            domain,
            name,
            ports: attributes.phys_port_cnt,
            limits,
            program: PROGRAMS.contains(&attributes.vendor_id),
            registered: RegistrationTable::default(),
            devices: Mutex::default(),
            hubs: Mutex::default(),
            removed: AtomicBool::new(false),
            _anchor: anchor,
        })
    }

    /// Returns the device object of a port; the same one while it is in use.
    pub(super) fn device(self: &Arc<DeviceContext>, port: u8) -> Arc<HostDevice> {
        let mut devices = self.devices.lock();
        devices.retain(|(_, device)| device.strong_count() > 0);
        if let Some(known) =
            devices.iter().find(|(of, _)| *of == port).and_then(|(_, device)| device.upgrade())
        {
            return known;
        }
        let device = Arc::new(HostDevice::new(self.clone(), port, self.name_of(port)));
        devices.push((port, Arc::downgrade(&device)));
        device
    }

    /// Returns the name that the tool `rdma` shows: `mlx5_0`, and `mlx4_0/2` for a device with
    /// several ports.
    fn name_of(&self, port: u8) -> Arc<str> {
        if self.ports <= 1 { self.name.as_str().into() } else { format!("{}/{port}", self.name).into() }
    }

    pub(super) fn verbs(&self) -> *mut ffi::ibv_context {
        self.verbs.as_ptr()
    }

    pub(super) fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    pub(super) fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    pub(super) fn is_program(&self) -> bool {
        self.program
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Returns the number of completion interrupts, at least 1.
    pub(super) fn vectors(&self) -> u32 {
        // SAFETY: the context is valid, and nothing changes the field.
        u32::try_from(unsafe { self.verbs.as_ref().num_comp_vectors }).unwrap_or(1).max(1)
    }

    /// Returns whether the port is up, so that messages pass.
    pub(super) fn is_up(&self, port: u8) -> Result<bool, Errno> {
        Ok(port_attributes(self.verbs, port)?.state == ffi::ibv_port_state::IBV_PORT_ACTIVE)
    }

    /// Returns a descriptor that is readable when [`DeviceContext::read_events`] has an event.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context has it open while it is valid.
        unsafe { BorrowedFd::borrow_raw(self.verbs.as_ref().async_fd) }
    }

    /// Adds a channel that receives the device's events until it is dropped.
    pub(super) fn add_hub(&self, hub: &Arc<EventHub>) {
        self.hubs.lock().push(Arc::downgrade(hub));
    }

    /// Reads the device's events, and passes them on to the channels concerned. Returns whether
    /// there were any.
    pub(super) fn read_events(&self) -> bool {
        let mut any = false;
        let mut event = ffi::ibv_async_event::default();
        // SAFETY: the context is valid, and there is room for an event. The descriptor does not
        // block.
        while unsafe { ffi::ibv_get_async_event(self.verbs.as_ptr(), &mut event) } == 0 {
            // SAFETY: an event of the library's, whose kind determines the valid member of the
            // union.
            unsafe { self.pass_on(&event) };
            // SAFETY: it is acknowledged once, and not used any more.
            unsafe { ffi::ibv_ack_async_event(&mut event) };
            any = true;
        }
        any
    }

    /// # Safety
    /// The event comes from the library, and is not acknowledged yet.
    unsafe fn pass_on(&self, event: &ffi::ibv_async_event) {
        match event.event_type {
            ffi::IBV_EVENT_PORT_ACTIVE | ffi::IBV_EVENT_PORT_ERR => {
                let up = event.event_type == ffi::IBV_EVENT_PORT_ACTIVE;
                // SAFETY: such an event has the port.
                let port = u8::try_from(unsafe { event.element.port_num }).unwrap_or(0);
                self.report_change(port, if up { DeviceChange::PortUp } else { DeviceChange::PortDown });
            }
            ffi::IBV_EVENT_DEVICE_FATAL => self.remove(),
            ffi::IBV_EVENT_COMM_EST => {
                // A message came before the connection was reported as established: the connection
                // manager must be notified.
                // SAFETY: such an event has the queue pair, which is not destroyed before the event
                // is acknowledged; its context is the identifier it was made for, which outlives
                // it.
                let result = unsafe {
                    let id = (*event.element.qp).qp_context.cast::<ffi::rdma_cm_id>();
                    check(ffi::rdma_notify(id, ffi::IBV_EVENT_COMM_EST))
                };
                tracing::debug!(
                    device = self.name,
                    ?result,
                    "a message came before its connection was established"
                );
            }
            ffi::IBV_EVENT_QP_FATAL | ffi::IBV_EVENT_QP_REQ_ERR | ffi::IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: such an event has the queue pair.
                let pair = unsafe { event.element.qp };
                self.for_each_hub(|hub| hub.end_broken(|known| known.as_ptr() == pair));
            }
            ffi::IBV_EVENT_CQ_ERR => {
                // SAFETY: such an event has the completion queue.
                let queue = unsafe { event.element.cq };
                // SAFETY: a queue pair in the table is valid, and keeps its queue.
                self.for_each_hub(|hub| hub.end_broken(|known| unsafe { known.as_ref().send_cq } == queue));
            }
            other => tracing::debug!(device = self.name, event = other, "an event of the device is ignored"),
        }
    }

    /// Reports once, to all channels, that the device is gone or unusable.
    pub(super) fn remove(&self) {
        if !self.removed.swap(true, Relaxed) {
            (1..=self.ports).for_each(|port| self.report_change(port, DeviceChange::Removed));
        }
    }

    fn report_change(&self, port: u8, change: DeviceChange) {
        let name = self.name_of(port);
        self.for_each_hub(|hub| hub.queue_device_event(name.clone(), change));
    }

    fn for_each_hub(&self, each: impl Fn(&EventHub)) {
        self.hubs.lock().retain(|hub| {
            let hub = hub.upgrade();
            hub.inspect(|hub| each(hub)).is_some()
        });
    }
}

pub(super) fn port_attributes(
    verbs: NonNull<ffi::ibv_context>,
    port: u8,
) -> Result<ffi::ibv_port_attr, Errno> {
    let mut attributes = ffi::ibv_port_attr::default();
    // SAFETY: the context is valid. The function fills in a structure that is the beginning of this
    // one.
    check(unsafe { ffi::ibv_query_port(verbs.as_ptr(), port, (&raw mut attributes).cast()) })?;
    Ok(attributes)
}

/// Table of the memory registered with a device, by local key: the address of the first byte, and
/// the length.
#[derive(Default)]
pub(super) struct RegistrationTable(RwLock<HashMap<u32, (u64, usize), RandomState>>);

/// A read lock on the registrations: none ends while this lives.
pub(super) type RegistrationGuard<'a> = RwLockReadGuard<'a, HashMap<u32, (u64, usize), RandomState>>;

impl RegistrationTable {
    pub(super) fn insert(&self, key: u32, start: u64, bytes: usize) {
        self.0.write().insert(key, (start, bytes));
    }

    /// Removes a registration, before the device's registration ends and the memory is freed.
    pub(super) fn remove(&self, key: u32) {
        self.0.write().remove(&key);
    }

    pub(super) fn hold(&self) -> RegistrationGuard<'_> {
        self.0.read()
    }
}

/// Returns whether a piece lies within the memory of its key.
pub(super) fn holds(registered: &RegistrationGuard<'_>, piece: &Piece) -> bool {
    registered.get(&piece.key).is_some_and(|(start, bytes)| {
        let behind = piece.address.checked_sub(*start).and_then(|from| from.checked_add(piece.length.into()));
        behind.is_some_and(|end| end <= *bytes as u64)
    })
}

/// A protection domain: its queue pairs can use the memory registered in it.
pub(super) struct ProtectionDomain {
    raw: NonNull<ffi::ibv_pd>,
    fork_guard: ForkGuard,
}

impl ProtectionDomain {
    fn new(verbs: NonNull<ffi::ibv_context>) -> Result<ProtectionDomain, Errno> {
        // SAFETY: the context is valid, and outlives the domain, which is a field before what keeps
        // it.
        let raw = unsafe { ffi::ibv_alloc_pd(verbs.as_ptr()) };
        Ok(ProtectionDomain {
            raw: NonNull::new(raw).ok_or_else(Errno::last)?,
            fork_guard: ForkGuard::here(),
        })
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_pd {
        self.raw.as_ptr()
    }

    pub(super) fn fork_guard(&self) -> &ForkGuard {
        &self.fork_guard
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            // SAFETY: it is freed once. All objects made in it have kept the context, so none is
            // left.
            unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_within_what_their_key_is_for() {
        let all = RegistrationTable::default();
        all.insert(7, 4096, 100);
        let holds = |key, address, length| holds(&all.hold(), &Piece { address, length, key });
        assert!(holds(7, 4096, 100) && holds(7, 4196, 0) && holds(7, 4195, 1));
        assert!(!holds(7, 4095, 1) && !holds(7, 4096, 101) && !holds(7, u64::MAX, u32::MAX));
        assert!(!holds(8, 4096, 1));
        all.remove(7);
        assert!(!self::holds(&all.hold(), &Piece { address: 4096, length: 1, key: 7 }));
    }
}
