//! The domain: this side's state, and the helper's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lnet_region::{ForkGuard, IoVec, Region, RegionError};
use nix::time::{ClockId, clock_gettime};
use nlx_core::{
    BufferHandle, Core, CoreError, CoreTm, Errno, Limits, Nid, StartAddress, TmOptions, usable_portal,
};
use nlx_driver_proto::{Entry, Reply, Request, Segment};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::HelperOptions;
use crate::arenas::Arenas;
use crate::buffers::{BufferTable, FreeSlots, place_of, too_many};
use crate::link::HelperLink;
use crate::machine::UcoreTm;
use crate::refused::refused;
use crate::watch;

/// The Core interface of a node whose network a helper process holds: a domain.
///
/// The connection is lost when the helper ends, does not answer in time, or breaks the protocol.
/// Then every wait ends, every operation in flight ends with an event of ENOTCONN, and calls return
/// [`CoreError::Disconnected`]. The program can open a new domain; with
/// [`HelperOptions::reconnect`] this one reconnects, and keeps its memory and buffers. The new
/// helper cannot access that memory: its contents are copied for each operation, as with
/// [`Core::register_copying`]. Transfer machines stay ended, and have to be started again.
///
/// A domain belongs to the process that opened it: in a forked child every call is refused, and
/// dropping it does nothing. (As with any socket, the child holds the connection open until it ends
/// or executes another program.)
pub struct Ucore {
    pub(crate) domain: Arc<DomainState>,
}

/// The state that the transfer machines share.
pub(crate) struct DomainState {
    pub(crate) options: HelperOptions,
    pub(crate) fork_guard: ForkGuard,
    pub(crate) buffers: BufferTable,
    link: RwLock<Arc<HelperLink>>,
    /// Taken before any other lock.
    registry: Mutex<Registry>,
    /// The NIDs of the last reply.
    nids: Mutex<Vec<Nid>>,
    /// Number of transfer machines ever started; each gets a different number.
    machines: AtomicU64,
    pub(crate) closing: Arc<ClosedFlag>,
}

/// The state that registering and allocating change.
struct Registry {
    arenas: Arenas,
    free_slots: FreeSlots,
}

/// The flag that the domain is closed. Setting it notifies a thread that waits to reconnect.
#[derive(Default)]
pub(crate) struct ClosedFlag {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Ucore {
    /// Opens a domain of the helper.
    ///
    /// # Errors
    /// Errors of the system for the socket (ENOENT and ECONNREFUSED if no helper listens there,
    /// EACCES without permission; MT-11), refusals of the helper, EPROTO if the other side is no
    /// helper, ETIMEDOUT if it does not answer.
    pub fn connect(options: &HelperOptions) -> Result<Arc<Ucore>, CoreError> {
        let link = Arc::new(HelperLink::connect(options)?);
        let registry = Registry {
            arenas: Arenas::new(options.pages, options.arena_bytes),
            free_slots: FreeSlots::default(),
        };
        let domain = Arc::new(DomainState {
            options: options.clone(),
            fork_guard: ForkGuard::here(),
            buffers: BufferTable::new(),
            link: RwLock::new(link.clone()),
            registry: Mutex::new(registry),
            nids: Mutex::default(),
            machines: AtomicU64::new(0),
            closing: Arc::default(),
        });
        domain.fetch_nids()?;
        watch::start(&domain, link)?;
        point!(Attached);
        Ok(Arc::new(Ucore { domain }))
    }

    /// Returns the helper's number of this client, under which its operator sees it.
    #[must_use]
    pub fn client(&self) -> u64 {
        self.domain.link().welcome.client
    }

    /// Returns whether the connection to the helper is up, as far as this side knows.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.domain.link().has_ended()
    }
}

impl DomainState {
    /// Returns the link to the current helper.
    pub(crate) fn link(&self) -> Arc<HelperLink> {
        self.link.read().clone()
    }

    /// Refuses a call in a forked child.
    pub(crate) fn check_here(&self) -> Result<(), CoreError> {
        if self.fork_guard.in_owner_process() {
            Ok(())
        } else {
            Err(RegionError::Forked { process: self.fork_guard.process() }.into())
        }
    }

    /// Returns a number for a transfer machine.
    pub(crate) fn next_machine(&self) -> u64 {
        self.machines.fetch_add(1, Ordering::Relaxed)
    }

    fn fetch_nids(&self) -> Result<(), CoreError> {
        match self.link().request(&Request::Nids)? {
            (Reply::Nids(nids), _) => {
                *self.nids.lock() = nids;
                Ok(())
            }
            (Reply::Refused(refusal), _) => Err(refused("ask for the node's NIDs", &refusal)),
            (reply, _) => {
                Err(self.link().violated(format!("unexpected reply to a request for NIDs: {reply:?}")))
            }
        }
    }

    /// Connects to a new helper, and registers the existing buffers. It cannot access the memory of
    /// the old helper's arenas, so each buffer gets a shadow. It may have less room than the old
    /// one, or accept other buffers: the buffers that it refuses are offered again when they are
    /// used.
    pub(crate) fn connect_again(&self) -> Result<Arc<HelperLink>, CoreError> {
        let link = Arc::new(HelperLink::connect(&self.options)?);
        let mut registry = self.registry.lock();
        let Registry { arenas, .. } = &mut *registry;
        arenas.retire();
        let (mut refused, mut no_room) = (0, usize::MAX);
        for (handle, memory) in self.buffers.registered() {
            // If one buffer found no room, longer ones find none.
            let shadow = (memory.len() < no_room).then(|| register_shadow(&link, arenas, handle, &memory));
            // The helper is gone again: the next attempt starts from the beginning.
            link.check()?;
            if let Some(Err(error)) = &shadow {
                tracing::debug!(buffer = handle.0, %error, "the new helper refuses a buffer");
                no_room = if error.errno() == Errno::ENOMEM { memory.len() } else { no_room };
            }
            let shadow = shadow.and_then(Result::ok);
            refused += u32::from(shadow.is_none());
            self.buffers.set_shadow(handle, shadow);
        }
        if refused > 0 {
            let path = self.options.path();
            tracing::warn!(path = %path.display(), refused, "the new helper refuses some buffers: each is registered again when it is used");
        }
        // Drops arenas with shadows from a helper that was lost during the reconnection.
        arenas.tidy_former();
        link.wake_helper();
        point!(BuffersKnownAgain);
        *self.link.write() = link.clone();
        point!(ConnectedAgain);
        Ok(link)
    }

    /// Registers a buffer with the helper again, after the helper has refused it once.
    #[cold]
    pub(crate) fn make_known(&self, handle: BufferHandle) -> Result<(), CoreError> {
        let mut registry = self.registry.lock();
        let link = self.link();
        link.check()?;
        let memory = self.buffers.slot(handle)?.lock().buffer(handle)?.unknown().cloned();
        if let Some(memory) = memory {
            let shadow = register_shadow(&link, &mut registry.arenas, handle, &memory)?;
            self.buffers.set_shadow(handle, Some(shadow));
        }
        Ok(())
    }

    /// Registers memory, directly or behind a shadow.
    fn register(&self, memory: &IoVec, copying: bool) -> Result<BufferHandle, CoreError> {
        self.check_here()?;
        let mut registry = self.registry.lock();
        let Registry { arenas, free_slots } = &mut *registry;
        let link = self.link();
        link.check()?;
        let limits = link.welcome.limits;
        limits.check(memory)?;
        let (segments, shadow) = match arenas.segments(memory) {
            Some(segments) => (Some(segments), None),
            // Memory that earlier helpers made is the program's own memory now.
            None if copying || arenas.is_former(memory) => {
                let shadow = IoVec::whole(arenas.allocate(&link, memory.len())?);
                (arenas.segments(&shadow), Some(shadow))
            }
            None => (None, None),
        };
        let segments = segments.ok_or(CoreError::Foreign { bytes: memory.len() })?;
        let handle = self.buffers.enter(free_slots, memory, shadow, limits.buffers_max)?;
        point!(BufferEntered);
        let registered = register(&link, handle, segments).inspect(|()| link.wake_helper());
        let undone = registered.is_err().then(|| self.buffers.leave(free_slots, handle));
        // Undoing the registration drops memory, so the lock is released first.
        drop(registry);
        drop(undone);
        registered.map(|()| handle)
    }

    fn deregister(&self, handle: BufferHandle) -> Result<(), CoreError> {
        self.check_here()?;
        let mut registry = self.registry.lock();
        let Registry { arenas, free_slots } = &mut *registry;
        let buffer = self.buffers.leave(free_slots, handle)?;
        point!(BufferForgotten);
        let is_known = buffer.unknown().is_none();
        drop(buffer);
        point!(BufferDropped);
        let link = self.link();
        // A helper that is gone has no record of the buffer.
        if is_known && link.push(&Entry::Deregister { buffer: handle }).is_ok() {
            link.wake_helper();
            arenas.tidy(&link);
        }
        Ok(())
    }
}

/// Registers a buffer of an earlier helper with a new one. Returns the shadow.
fn register_shadow(
    link: &HelperLink,
    arenas: &mut Arenas,
    handle: BufferHandle,
    memory: &IoVec,
) -> Result<IoVec, CoreError> {
    let limits = link.welcome.limits;
    limits.check(memory)?;
    if place_of(handle) as usize >= limits.buffers_max {
        return Err(too_many(limits.buffers_max));
    }
    let shadow = IoVec::whole(arenas.allocate(link, memory.len())?);
    let segments = arenas.segments(&shadow).ok_or(CoreError::Foreign { bytes: memory.len() })?;
    // Not through the ring: the result matters.
    register_by_request(link, handle, segments)?;
    Ok(shadow)
}

/// Registers a buffer with the helper.
fn register(link: &HelperLink, handle: BufferHandle, segments: Vec<Segment>) -> Result<(), CoreError> {
    if let [segment] = segments[..] {
        return link.push(&Entry::Register { buffer: handle, segment });
    }
    register_by_request(link, handle, segments)
}

/// Registers a buffer by a request, and waits for the reply.
fn register_by_request(
    link: &HelperLink,
    handle: BufferHandle,
    segments: Vec<Segment>,
) -> Result<(), CoreError> {
    match link.request(&Request::Register { buffer: handle.0, segments })? {
        (Reply::Refused(refusal), _) => Err(refused("register a buffer", &refusal)),
        _ => Ok(()),
    }
}

impl Core for Ucore {
    fn limits(&self) -> Limits {
        self.domain.link().welcome.limits
    }

    fn nids(&self) -> Vec<Nid> {
        if self.domain.fork_guard.in_owner_process()
            && let Err(error) = self.domain.fetch_nids()
        {
            tracing::debug!(%error, "cannot fetch the node's NIDs; the last known ones are returned");
        }
        self.domain.nids.lock().clone()
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn allocate(&self, bytes: usize) -> Result<Region, CoreError> {
        self.domain.check_here()?;
        let mut registry = self.domain.registry.lock();
        let link = self.domain.link();
        registry.arenas.allocate(&link, bytes)
    }

    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.domain.register(memory, false)
    }

    fn register_copying(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        self.domain.register(memory, true)
    }

    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError> {
        self.domain.deregister(buffer)
    }

    fn tm_start(&self, address: &StartAddress, options: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        self.domain.check_here()?;
        usable_portal(address.portal)?;
        Ok(Box::new(UcoreTm::start(self.domain.clone(), address, options)?))
    }
}

/// Returns the clock of all deadlines: the host's monotonic one, which steps of the wall clock do
/// not affect (U5).
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

impl ClosedFlag {
    fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `pause`; returns true if the domain has been closed.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, pause);
        }
        *closed
    }
}

impl Drop for DomainState {
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            self.closing.close();
            point!(Closing);
            self.link().finish();
        } else {
            // In a forked child the connection belongs to the parent.
            std::mem::forget(self.link.get_mut().clone());
        }
    }
}

impl std::fmt::Debug for Ucore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ucore").field("link", &self.domain.link()).finish_non_exhaustive()
    }
}
