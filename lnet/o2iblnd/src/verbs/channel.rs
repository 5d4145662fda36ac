//! The event channel of one shard: an epoll set over the connection manager's events, a completion
//! channel per device, the devices' own events, and a waker.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use lnet_api::Errno;
use lnet_region::ForkGuard;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx_ibverbs_sys as ffi;
use nlx_sync::Bell;
use parking_lot::Mutex;

use super::cm::{CmChannel, CmId};
use super::completions::CompletionChannel;
use super::context::DeviceContext;
use super::endpoint::HostEndpoint;
use super::failed;
use super::host::HostShared;
use super::queues::flush;
use super::request::{HostListener, HostRequest, cannot_listen};
use crate::fabric::{
    Channel, ChannelToken, CmEvent, ConnRequest, Device, DeviceChange, DialOptions, Endpoint, FabricError,
    Listener,
};

/// Keys of the epoll set: the waker's and the connection manager's, then two for each device.
/// Sources with an odd key rarely have events.
const WAKER: u64 = 0;
const MANAGER: u64 = 1;
const FIRST_DEVICE: u64 = 2;

/// The maximum number of ready sources of one poll: more than a shard has; the next poll finds the
/// others.
const SOURCES: usize = 16;

/// A spinning thread makes a system call only once in this number of calls, because it costs more
/// than polling a completion queue. While completion events arrive, the other sources are polled in
/// the same proportion.
const ASK_EVERY: u32 = 8;

pub(super) struct HostChannel {
    host: Arc<HostShared>,
    hub: Arc<EventHub>,
}

/// The part of the channel that endpoints and devices share.
pub(super) struct EventHub {
    epoll: Epoll,
    waker: Bell,
    pub(super) manager: Arc<CmChannel>,
    /// The identifiers whose events are delivered, by address. Events of other identifiers are
    /// ignored: the shard has dropped the identifier, or has not adopted the request.
    pub(super) ids: Mutex<HashMap<usize, IdState>>,
    /// The devices that this channel uses. The list only grows, so that indices in it are keys.
    served: Mutex<Vec<Served>>,
    events: Mutex<VecDeque<CmEvent>>,
    /// True if the next call makes a system call: the driver is about to sleep, or the last poll
    /// has found an event of a rare source.
    asks_next: AtomicBool,
    /// Number of calls without a system call since the last one with it, and of polls.
    skipped: AtomicU32,
    polls: AtomicU32,
    /// The interrupt for the device's completions: counts up, modulo the number of the device's
    /// interrupts.
    vector: u32,
    fork_guard: ForkGuard,
}

/// The data of an identifier, which the handling of its events needs.
pub(super) struct IdState {
    pub(super) token: ChannelToken,
    /// Time limit for resolving the route, in milliseconds, if that is the next step.
    pub(super) resolve_ms: Option<u32>,
    /// Set once this side has established the connection.
    pub(super) established: bool,
    /// The queue pair of the connection, while there is one.
    pub(super) queue_pair: Option<QueuePair>,
}

/// A queue pair that an endpoint owns. The endpoint removes the pair from [`EventHub::ids`] before
/// it destroys it.
pub(super) struct QueuePair(pub(super) NonNull<ffi::ibv_qp>);

// SAFETY: libibverbs may be called by any thread.
unsafe impl Send for QueuePair {}

struct Served {
    context: Arc<DeviceContext>,
    completions: Arc<CompletionChannel>,
}

impl HostChannel {
    pub(super) fn new(host: Arc<HostShared>, vector: u32) -> Result<HostChannel, Errno> {
        let hub = EventHub {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            waker: Bell::new()?,
            manager: Arc::new(CmChannel::new()?),
            ids: Mutex::default(),
            served: Mutex::default(),
            events: Mutex::default(),
            asks_next: AtomicBool::new(true),
            skipped: AtomicU32::new(0),
            polls: AtomicU32::new(0),
            vector,
            fork_guard: ForkGuard::here(),
        };
        hub.watch(hub.waker.as_fd(), WAKER)?;
        hub.watch(hub.manager.fd(), MANAGER)?;
        Ok(HostChannel { host, hub: Arc::new(hub) })
    }

    /// Returns an identifier that is bound to an address of the device.
    fn bound(
        &self,
        device: &Arc<dyn Device>,
        at: SocketAddrV4,
        prepare: impl FnOnce(&CmId) -> Result<(), Errno>,
    ) -> Result<(CmId, Arc<DeviceContext>), Errno> {
        self.hub.check_origin()?;
        let id = CmId::new(Some(self.hub.manager.clone()))?;
        prepare(&id)?;
        id.bind(at)?;
        let context = self.host.context_of(&id).ok_or(Errno::ENODEV)?;
        if context.device(id.port()).name() != device.name() {
            return Err(Errno::ENODEV);
        }
        Ok((id, context))
    }

    fn endpoint(
        &self,
        token: ChannelToken,
        id: CmId,
        context: Arc<DeviceContext>,
    ) -> Result<HostEndpoint, Errno> {
        let completions = self.hub.serve(&context)?;
        let device: Arc<dyn Device> = context.device(id.port());
        let vector = self.hub.vector % context.vectors();
        let id = WatchedId::new(&self.hub, token, id);
        Ok(HostEndpoint::new(token, id, context, device, completions, vector))
    }
}

impl Channel for HostChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.hub.epoll.0.as_fd()
    }

    fn ring(&self) {
        self.hub.ring();
    }

    fn next(&self) -> Option<CmEvent> {
        self.hub.check_origin().ok()?;
        let event = self.hub.events.lock().pop_front();
        if event.is_some() || !self.hub.asks_system() {
            return event;
        }
        self.hub.poll_sources();
        self.hub.events.lock().pop_front()
    }

    fn rest(&self) {
        self.hub.asks_next.store(true, Relaxed);
    }

    fn listen(
        &self,
        token: ChannelToken,
        device: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError> {
        let listen = || {
            let (id, context) = self.bound(device, at, |_| Ok(()))?;
            self.hub.serve(&context)?;
            let id = WatchedId::new(&self.hub, token, id);
            id.listen(backlog)?;
            Ok(Box::new(HostListener { _id: id, _context: context }) as Box<dyn Listener>)
        };
        listen().map_err(|errno| cannot_listen(at, device.name(), errno))
    }

    fn dial(
        &self,
        token: ChannelToken,
        device: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        let dial = || {
            let (id, context) = self.bound(device, from, |id| {
                id.set(ffi::RDMA_OPTION_ID_REUSEADDR, 1i32)?;
                options.tos.map_or(Ok(()), |tos| id.set(ffi::RDMA_OPTION_ID_TOS, tos))
            })?;
            let endpoint = self.endpoint(token, id, context)?;
            endpoint.resolve(to, options.resolve_ms)?;
            Ok(Box::new(endpoint) as Box<dyn Endpoint>)
        };
        dial().map_err(|errno| failed(errno, format!("connecting from {from} ({}) to {to}", device.name())))
    }

    fn adopt(
        &self,
        token: ChannelToken,
        request: Box<dyn ConnRequest>,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        let source = request.source();
        let adopt = || {
            self.hub.check_origin()?;
            let request: Box<dyn std::any::Any> = request;
            let request = request.downcast::<HostRequest>().map_err(|_| Errno::EINVAL)?;
            let mut id = request.into_id();
            if !id.is_on(&self.hub.manager) {
                id.migrate(&self.hub.manager)?;
            }
            let context = self.host.context_of(&id).ok_or(Errno::ENODEV)?;
            Ok(Box::new(self.endpoint(token, id, context)?) as Box<dyn Endpoint>)
        };
        adopt().map_err(|errno| failed(errno, format!("adopting the request to connect of {source}")))
    }
}

impl EventHub {
    /// Queues an event for the shard, from any thread.
    pub(super) fn queue_event(&self, cm_event: CmEvent) {
        self.events.lock().push_back(cm_event);
    }

    pub(super) fn queue_device_event(&self, name: Arc<str>, change: DeviceChange) {
        self.queue_event(CmEvent::Device { name, change });
        self.ring();
    }

    /// Ends the connections whose queue pairs `is_it` selects: the device has stopped these after
    /// an error.
    pub(super) fn end_broken(&self, is_it: impl Fn(NonNull<ffi::ibv_qp>) -> bool) {
        // While this is locked, queue pairs in it are not destroyed.
        let known = self.ids.lock();
        let pairs = known.values().filter_map(|known| Some((known.token, known.queue_pair.as_ref()?.0)));
        for (token, pair) in pairs.filter(|(_, pair)| is_it(*pair)) {
            // SAFETY: the queue pair is in the table, which is locked.
            let flushed = unsafe { flush(pair) };
            // Logged at debug level, as a peer that sends wrong keys can cause this with each
            // connection. The end of the connection is logged with its peer.
            tracing::debug!(?token, ?flushed, "a device has given up the queues of a connection");
            self.queue_event(CmEvent::Disconnected(token));
            self.ring();
        }
    }

    fn ring(&self) {
        if self.fork_guard.in_owner_process() {
            // Ringing an eventfd cannot fail.
            let _ = self.waker.ring();
        }
    }

    fn check_origin(&self) -> Result<(), Errno> {
        if self.fork_guard.in_owner_process() { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn watch(&self, fd: BorrowedFd<'_>, key: u64) -> Result<(), Errno> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, key))
    }

    /// Decides whether this call makes a system call. Events that are not read stay queued, and the
    /// descriptor stays readable.
    fn asks_system(&self) -> bool {
        let skipped = self.skipped.fetch_add(1, Relaxed) + 1;
        let asks_system = self.asks_next.swap(false, Relaxed) || skipped >= ASK_EVERY;
        if asks_system {
            self.skipped.store(0, Relaxed);
        }
        asks_system
    }

    /// Reads the events of each ready source.
    fn poll_sources(&self) {
        let polls = self.polls.fetch_add(1, Relaxed);
        if !polls.is_multiple_of(ASK_EVERY) && self.read_armed() {
            return;
        }
        let mut found = [EpollEvent::empty(); SOURCES];
        let count = self.epoll.wait(&mut found, EpollTimeout::ZERO).unwrap_or(0);
        for event in &found[..count] {
            match event.data() {
                WAKER => drop(self.waker.silence()),
                MANAGER => self.read_manager(),
                of_device => self.read_device(of_device - FIRST_DEVICE, broken(event)),
            }
        }
        let is_rare = |event: &EpollEvent| !event.data().is_multiple_of(2);
        if count == SOURCES || found[..count].iter().any(is_rare) {
            self.asks_next.store(true, Relaxed);
        }
    }

    /// Reads completion events, for which most wake-ups are, if only one device has armed queues.
    /// Returns whether there were any.
    fn read_armed(&self) -> bool {
        let served = self.served.lock();
        let mut armed = served.iter().filter(|served| served.completions.is_armed());
        let (Some(only), None) = (armed.next(), armed.next()) else { return false };
        let completions = only.completions.clone();
        drop(served);
        self.read_completions(&completions)
    }

    /// Reads the completion events of a device; returns whether there were any.
    fn read_completions(&self, completions: &CompletionChannel) -> bool {
        let mut token = completions.next();
        let any = token.is_some();
        while let Some(known) = token {
            self.queue_event(CmEvent::Ready(known));
            token = if completions.is_armed() { completions.next() } else { None };
        }
        any
    }

    /// Adds the device's completions and events to the channel.
    fn serve(self: &Arc<EventHub>, context: &Arc<DeviceContext>) -> Result<Arc<CompletionChannel>, Errno> {
        let mut served = self.served.lock();
        if let Some(known) = served.iter().find(|served| Arc::ptr_eq(&served.context, context)) {
            return Ok(known.completions.clone());
        }
        let completions = Arc::new(CompletionChannel::new(context)?);
        let key = FIRST_DEVICE + 2 * served.len() as u64;
        self.watch(completions.fd(), key)?;
        self.watch(context.fd(), key + 1)?;
        context.add_hub(self);
        served.push(Served { context: context.clone(), completions: completions.clone() });
        Ok(completions)
    }

    /// Reads the events of a device's source. A broken source without events stays readable for
    /// good: its device is gone.
    fn read_device(&self, key: u64, broken: bool) {
        let served = self.served.lock();
        let Some(of) = usize::try_from(key / 2).ok().and_then(|index| served.get(index)) else { return };
        let (context, completions) = (of.context.clone(), of.completions.clone());
        drop(served);
        let of_queues = key.is_multiple_of(2);
        let any = if of_queues { self.read_completions(&completions) } else { context.read_events() };
        if broken && !any {
            // The call can only fail for a descriptor that is not watched.
            let _ = self.epoll.delete(if of_queues { completions.fd() } else { context.fd() });
            context.remove();
        }
    }

    /// Returns the device object for the context in an event.
    pub(super) fn context_of(&self, verbs: *mut ffi::ibv_context) -> Option<Arc<DeviceContext>> {
        let served = self.served.lock();
        served.iter().find(|served| served.context.verbs() == verbs).map(|served| served.context.clone())
    }
}

fn broken(event: &EpollEvent) -> bool {
    event.events().intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP)
}

/// An identifier whose events are delivered under a token until this is dropped.
pub(super) struct WatchedId {
    id: CmId,
    hub: Arc<EventHub>,
}

impl WatchedId {
    fn new(hub: &Arc<EventHub>, token: ChannelToken, id: CmId) -> WatchedId {
        hub.ids
            .lock()
            .insert(id.key(), IdState { token, resolve_ms: None, established: false, queue_pair: None });
        WatchedId { id, hub: hub.clone() }
    }

    /// Changes the identifier's data.
    pub(super) fn update(&self, change: impl FnOnce(&mut IdState)) {
        if let Some(known) = self.hub.ids.lock().get_mut(&self.id.key()) {
            change(known);
        }
    }
}

impl std::ops::Deref for WatchedId {
    type Target = CmId;

    fn deref(&self) -> &CmId {
        &self.id
    }
}

impl Drop for WatchedId {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may hold the lock, which then stays locked.
        if self.id.fork_guard().in_owner_process() {
            self.hub.ids.lock().remove(&self.id.key());
        }
    }
}
