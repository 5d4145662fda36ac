//! A device, opened: its protection domain, its ports, and what it tells of itself.

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

use super::channel::Ear;
use super::check;
use super::cm::CmId;
use super::device::HostDevice;
use crate::fabric::{DeviceChange, DeviceLimits, Piece};
use crate::sizes::PIECES_MAX;

/// What devices have as their maker that are programs: soft-RoCE says this. Makers of hardware have the three bytes of a number that
/// the IEEE has given them.
const PROGRAMS: [u32; 1] = [0xff_ffff];

pub(super) struct Context {
    verbs: NonNull<ffi::ibv_context>,
    domain: Domain,
    name: String,
    ports: u8,
    limits: DeviceLimits,
    program: bool,
    /// What is registered, by local key.
    pub(super) registered: Registrations,
    /// Of its ports, those that somebody has.
    devices: Mutex<Vec<(u8, Weak<HostDevice>)>>,
    /// Who is told what happens to it.
    ears: Mutex<Vec<Weak<Ear>>>,
    removed: AtomicBool,
    /// As long as an identifier is bound to it, librdmacm keeps the device open. The last to go.
    _anchor: CmId,
}

// SAFETY: libibverbs may be called by any thread, and the context lives as long as its anchor.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The device to which an identifier is bound.
    pub(super) fn new(anchor: CmId) -> Result<Context, Errno> {
        let verbs = NonNull::new(anchor.verbs()).ok_or(Errno::ENODEV)?;
        // SAFETY: a bound identifier's context is valid as long as the identifier is, and nothing changes these fields.
        let (device, async_fd) =
            unsafe { (verbs.as_ref().device, BorrowedFd::borrow_raw(verbs.as_ref().async_fd)) };
        fcntl(async_fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // SAFETY: the device is valid as long as its context; its name is a string that ends with a zero.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) }.to_string_lossy().into_owned();
        let mut attributes = ffi::ibv_device_attr::default();
        // SAFETY: the context is valid, and there is room for the attributes.
        check(unsafe { ffi::ibv_query_device(verbs.as_ptr(), &mut attributes) })?;
        let domain = Domain::new(verbs)?;
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let limits = DeviceLimits {
            queue_entries: count(attributes.max_qp_wr),
            completions: count(attributes.max_cqe),
            pieces: count(attributes.max_sge).min(PIECES_MAX),
            transfer_bytes: port_attributes(verbs, anchor.port())?.max_msg_sz,
            memory_bytes: attributes.max_mr_size,
        };
        Ok(Context {
            verbs,
            domain,
            name,
            ports: attributes.phys_port_cnt,
            limits,
            program: PROGRAMS.contains(&attributes.vendor_id),
            registered: Registrations::default(),
            devices: Mutex::default(),
            ears: Mutex::default(),
            removed: AtomicBool::new(false),
            _anchor: anchor,
        })
    }

    /// The device that its port is, always the same one as long as somebody has it.
    pub(super) fn device(self: &Arc<Context>, port: u8) -> Arc<HostDevice> {
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

    /// As the tool `rdma` has it: `mlx5_0`, and `mlx4_0/2` where there are several ports.
    fn name_of(&self, port: u8) -> Arc<str> {
        if self.ports <= 1 { self.name.as_str().into() } else { format!("{}/{port}", self.name).into() }
    }

    pub(super) fn verbs(&self) -> *mut ffi::ibv_context {
        self.verbs.as_ptr()
    }

    pub(super) fn domain(&self) -> &Domain {
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

    /// Interrupts of its completions, at least 1.
    pub(super) fn vectors(&self) -> u32 {
        // SAFETY: the context is valid, and nothing changes the field.
        u32::try_from(unsafe { self.verbs.as_ref().num_comp_vectors }).unwrap_or(1).max(1)
    }

    /// Whether messages pass the port.
    pub(super) fn is_up(&self, port: u8) -> Result<bool, Errno> {
        Ok(port_attributes(self.verbs, port)?.state == ffi::ibv_port_state::IBV_PORT_ACTIVE)
    }

    /// Readable when [`Context::hear`] has something to hear.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context has it open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.verbs.as_ref().async_fd) }
    }

    /// This one is told from now on, and until it is gone.
    pub(super) fn tell_to(&self, ear: &Arc<Ear>) {
        self.ears.lock().push(Arc::downgrade(ear));
    }

    /// Hears what the device has to tell of itself, and passes it on to all whom it concerns. Whether there was anything.
    pub(super) fn hear(&self) -> bool {
        let mut any = false;
        let mut event = ffi::ibv_async_event::default();
        // SAFETY: the context is valid, and there is room for an event. The descriptor does not block.
        while unsafe { ffi::ibv_get_async_event(self.verbs.as_ptr(), &mut event) } == 0 {
            // SAFETY: an event of the library's, whose kind tells which member of the union holds.
            unsafe { self.pass_on(&event) };
            // SAFETY: it is acknowledged once, and nobody looks at it any more.
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
                self.tell(port, if up { DeviceChange::PortUp } else { DeviceChange::PortDown });
            }
            ffi::IBV_EVENT_DEVICE_FATAL => self.remove(),
            ffi::IBV_EVENT_COMM_EST => {
                // A message came before the word that the connection stands: the connection manager must hear it from us.
                // SAFETY: such an event has the queue pair, which is not destroyed before the event is acknowledged; its
                // context is the identifier it was made for, which outlives it.
                let result = unsafe {
                    let id = (*event.element.qp).qp_context.cast::<ffi::rdma_cm_id>();
                    check(ffi::rdma_notify(id, ffi::IBV_EVENT_COMM_EST))
                };
                tracing::debug!(device = self.name, ?result, "a message came before its connection stood");
            }
            ffi::IBV_EVENT_QP_FATAL | ffi::IBV_EVENT_QP_REQ_ERR | ffi::IBV_EVENT_QP_ACCESS_ERR => {
                // SAFETY: such an event has the queue pair.
                let pair = unsafe { event.element.qp };
                self.tell_all(|ear| ear.tell_broken(|known| known.as_ptr() == pair));
            }
            ffi::IBV_EVENT_CQ_ERR => {
                // SAFETY: such an event has the completion queue.
                let queue = unsafe { event.element.cq };
                // SAFETY: a queue pair that is shown is valid, and keeps its queue.
                self.tell_all(|ear| ear.tell_broken(|known| unsafe { known.as_ref().send_cq } == queue));
            }
            other => tracing::debug!(device = self.name, event = other, "told by the device"),
        }
    }

    /// The device is gone, or as good as gone. All are told once.
    pub(super) fn remove(&self) {
        if !self.removed.swap(true, Relaxed) {
            (1..=self.ports).for_each(|port| self.tell(port, DeviceChange::Removed));
        }
    }

    fn tell(&self, port: u8, change: DeviceChange) {
        let name = self.name_of(port);
        self.tell_all(|ear| ear.tell_of_device(name.clone(), change));
    }

    fn tell_all(&self, tell: impl Fn(&Ear)) {
        self.ears.lock().retain(|ear| {
            let ear = ear.upgrade();
            ear.inspect(|ear| tell(ear)).is_some()
        });
    }
}

pub(super) fn port_attributes(
    verbs: NonNull<ffi::ibv_context>,
    port: u8,
) -> Result<ffi::ibv_port_attr, Errno> {
    let mut attributes = ffi::ibv_port_attr::default();
    // SAFETY: the context is valid. The function fills in a structure that is the beginning of this one.
    check(unsafe { ffi::ibv_query_port(verbs.as_ptr(), port, (&raw mut attributes).cast()) })?;
    Ok(attributes)
}

/// The memory that is registered with a device: the number of the first byte, and how many there are, by local key.
#[derive(Default)]
pub(super) struct Registrations(RwLock<HashMap<u32, (u64, usize), RandomState>>);

/// As long as this lives, what is registered stays registered.
pub(super) type Registered<'a> = RwLockReadGuard<'a, HashMap<u32, (u64, usize), RandomState>>;

impl Registrations {
    pub(super) fn insert(&self, key: u32, start: u64, bytes: usize) {
        self.0.write().insert(key, (start, bytes));
    }

    /// Before the device forgets it, and its memory goes.
    pub(super) fn remove(&self, key: u32) {
        self.0.write().remove(&key);
    }

    pub(super) fn hold(&self) -> Registered<'_> {
        self.0.read()
    }
}

/// Whether a piece lies within memory of its key.
pub(super) fn holds(registered: &Registered<'_>, piece: &Piece) -> bool {
    registered.get(&piece.key).is_some_and(|(start, bytes)| {
        let behind = piece.address.checked_sub(*start).and_then(|from| from.checked_add(piece.length.into()));
        behind.is_some_and(|end| end <= *bytes as u64)
    })
}

/// A protection domain: what is registered in it can be used by its queue pairs.
pub(super) struct Domain {
    raw: NonNull<ffi::ibv_pd>,
    fork_guard: ForkGuard,
}

impl Domain {
    fn new(verbs: NonNull<ffi::ibv_context>) -> Result<Domain, Errno> {
        // SAFETY: the context is valid, and outlives the domain, which is a field before what keeps it.
        let raw = unsafe { ffi::ibv_alloc_pd(verbs.as_ptr()) };
        Ok(Domain { raw: NonNull::new(raw).ok_or_else(Errno::last)?, fork_guard: ForkGuard::here() })
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_pd {
        self.raw.as_ptr()
    }

    pub(super) fn fork_guard(&self) -> &ForkGuard {
        &self.fork_guard
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            // SAFETY: it is freed once. All that was made in it has kept the context, so nothing is left.
            unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_within_what_their_key_is_for() {
        let all = Registrations::default();
        all.insert(7, 4096, 100);
        let holds = |key, address, length| holds(&all.hold(), &Piece { address, length, key });
        assert!(holds(7, 4096, 100) && holds(7, 4196, 0) && holds(7, 4195, 1));
        assert!(!holds(7, 4095, 1) && !holds(7, 4096, 101) && !holds(7, u64::MAX, u32::MAX));
        assert!(!holds(8, 4096, 1));
        all.remove(7);
        assert!(!self::holds(&all.hold(), &Piece { address: 4096, length: 1, key: 7 }));
    }
}
