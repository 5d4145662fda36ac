use std::any::Any;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Weak};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{Channel, Device, DeviceLimits, DialOptions, Fabric, FabricError, Request, Token};
use lnet_proto::ib::PRIVILEGED_PORT_MAX;
use nlx_sync::Bell;
use parking_lot::Mutex;

use super::asking::{Listening, SimRequest};
use super::channel::{Hearing, SimChannel};
use super::device::{NAME, SimDevice};
use super::end::End;
use super::state::{Event, Shared, State};

/// The first port given to whoever asks for none: Linux's default.
const EPHEMERAL_MIN: u16 = 32_768;

/// Virtual time began then, in nanoseconds since 1970.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

const NS_PER_MS: u64 = 1_000_000;

/// What one start of one host of an [`IbNet`](super::IbNet) offers to an [`O2ibLnd`](lnet_o2iblnd::O2ibLnd): its device.
///
/// It belongs to one life of the host: after [`IbNet::crash`](super::IbNet::crash), all that came from it is dead, and the next
/// life needs another one.
#[derive(Clone)]
pub struct SimFabric {
    pub(super) net: Shared,
    host: usize,
    life: u64,
    /// The channels made of it, in order.
    channels: Arc<Mutex<Vec<u64>>>,
}

impl SimFabric {
    pub(super) fn new(net: Shared, host: usize) -> SimFabric {
        let life = net.lock().hosts[host].life;
        SimFabric { net, host, life, channels: Arc::default() }
    }

    fn is_alive(&self, state: &State) -> bool {
        state.hosts[self.host].life == self.life && state.hosts[self.host].up
    }

    /// Whether whoever sleeps on the channel that was made as the `number`th would be woken.
    #[must_use]
    pub fn is_ready(&self, number: usize) -> bool {
        let channel = self.channels.lock().get(number).copied();
        let state = self.net.lock();
        let hearing = channel.and_then(|channel| state.channels.get(&channel));
        hearing.is_some_and(Hearing::is_ready)
    }

    /// How many channels were made.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.lock().len()
    }

    fn check_alive(&self, state: &State, what: &str) -> Result<(), FabricError> {
        if self.is_alive(state) { Ok(()) } else { Err(refused(what, Errno::EBADF)) }
    }

    /// Whether a port can be used at this address.
    fn check_port(&self, state: &State, at: SocketAddrV4, what: &str) -> Result<(), FabricError> {
        let host = &state.hosts[self.host];
        if !host.addresses.contains(at.ip()) {
            return Err(refused(what, Errno::EADDRNOTAVAIL));
        }
        if at.port() != 0 && at.port() <= PRIVILEGED_PORT_MAX && !host.privileged {
            return Err(refused(what, Errno::EACCES));
        }
        let taken = state.ends.values().any(|end| end.host == self.host && end.local == at)
            || state.listeners.values().any(|listening| listening.at == at);
        if taken { Err(refused(what, Errno::EADDRINUSE)) } else { Ok(()) }
    }

    pub(super) fn listen(
        &self,
        channel: u64,
        token: Token,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<u64, FabricError> {
        let mut state = self.net.lock();
        self.check_alive(&state, "listen")?;
        self.check_port(&state, at, "listen")?;
        let id = state.id();
        let listening = Listening { host: self.host, at, channel, token, backlog: backlog as usize };
        state.listeners.insert(id, listening);
        Ok(id)
    }

    pub(super) fn dial(
        &self,
        channel: u64,
        token: Token,
        (mut from, to): (SocketAddrV4, SocketAddrV4),
        options: &DialOptions,
    ) -> Result<u64, FabricError> {
        let mut guard = self.net.lock();
        let state = &mut *guard;
        self.check_alive(state, "dial")?;
        if from.port() == 0 {
            let next = &mut state.hosts[self.host].next_port;
            *next = next.checked_add(1).unwrap_or(EPHEMERAL_MIN).max(EPHEMERAL_MIN);
            from.set_port(*next);
        }
        self.check_port(state, from, "dial")?;
        let device = state.hosts[self.host].device.ok_or(refused("dial", Errno::ENODEV))?;
        let id = state.id();
        state.seen.connects += 1;
        state.ends.insert(id, End::new((self.host, device), channel, token, (from, to)));
        let patience_ns = u64::from(options.resolve_ms) * NS_PER_MS;
        let resolves = state.host_of(*to.ip()).is_some_and(|there| state.reaches((self.host, there)));
        match state.host_of(*to.ip()) {
            Some(there) if resolves => state.launch((self.host, there), Event::Resolve { end: id }),
            _ => {
                let at_ns = state.now_ns + patience_ns;
                state.schedule(at_ns, Event::GiveUp { end: id });
            }
        }
        Ok(id)
    }

    pub(super) fn adopt(
        &self,
        channel: u64,
        token: Token,
        request: &dyn Request,
    ) -> Result<(u64, Arc<dyn Device>), FabricError> {
        let request: &dyn Any = request;
        let id = request.downcast_ref::<SimRequest>().ok_or(refused("adopt", Errno::EINVAL))?.id();
        let mut guard = self.net.lock();
        let state = &mut *guard;
        self.check_alive(state, "adopt")?;
        let asking = state.requests.remove(&id).ok_or(refused("adopt", Errno::ECONNABORTED))?;
        let host = &state.hosts[self.host];
        let opened = host.opened.as_ref().and_then(Weak::upgrade);
        let (Some(number), Some(device)) = (host.device, opened) else {
            return Err(refused("adopt", Errno::ENODEV));
        };
        let id = state.id();
        let mut end = End::new((self.host, number), channel, token, (asking.target, asking.source));
        end.peer = Some(asking.end);
        state.ends.insert(id, end);
        Ok((id, device))
    }
}

impl Fabric for SimFabric {
    fn incarnation(&self) -> u64 {
        let mut state = self.net.lock();
        let now_ns = EPOCH_NS + state.now_ns;
        let last = &mut state.hosts[self.host].incarnation;
        // Virtual time stands still while nothing happens: an NI may begin twice at one moment.
        *last = now_ns.max(*last + 1);
        *last
    }

    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError> {
        let mut guard = self.net.lock();
        let state = &mut *guard;
        self.check_alive(state, "open")?;
        let host = &mut state.hosts[self.host];
        let Some(id) = host.device.filter(|_| host.addresses.contains(&address)) else {
            return Err(refused("open", Errno::ENODEV));
        };
        if !host.port_up {
            return Err(refused("open", Errno::ENETDOWN));
        }
        let open = host.opened.as_ref().and_then(Weak::upgrade).filter(|device| device.id == id);
        let device = open.unwrap_or_else(|| {
            let limits = host.limits;
            let limits = DeviceLimits {
                queue_entries: limits.queue_entries,
                completions: 4 * limits.queue_entries,
                pieces: limits.pieces,
                transfer_bytes: 1 << 30,
                memory_bytes: limits.memory_bytes,
            };
            Arc::new(SimDevice { net: self.net.clone(), id, limits })
        });
        host.opened = Some(Arc::downgrade(&device));
        Ok(device)
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, FabricError> {
        let bell = Arc::new(Bell::new().map_err(|errno| refused("channel", errno))?);
        let mut state = self.net.lock();
        self.check_alive(&state, "channel")?;
        let id = state.id();
        let (host, heard, bell_of) = (self.host, Default::default(), bell.clone());
        state.channels.insert(id, Hearing { host, heard, rung: false, bell: bell_of, watched: false });
        drop(state);
        self.channels.lock().push(id);
        Ok(Arc::new(SimChannel { fabric: self.clone(), id, bell }))
    }
}

fn refused(what: &str, errno: Errno) -> FabricError {
    FabricError { what: format!("{NAME}: {what}"), errno }
}
