use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Weak};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    Channel, ChannelToken, ConnRequest, Device, DeviceLimits, DialOptions, Fabric, FabricError,
};
use lnet_proto::ib::PRIVILEGED_PORT_MAX;
use nlx_sync::Bell;

use super::channel::{ChannelState, SimChannel};
use super::device::{NAME, SimDevice};
use super::end::End;
use super::requests::{Listening, SimRequest};
use super::state::{Event, IbWire, State};
use crate::kit::{Host, HostHandle};

const NS_PER_MS: u64 = 1_000_000;

/// The devices that one start of one host of an [`IbNet`](super::IbNet) offers to an
/// [`O2ibLnd`](lnet_o2iblnd::O2ibLnd).
pub type SimFabric = HostHandle<IbWire>;

impl SimFabric {
    fn check_alive(&self, state: &State, what: &str) -> Result<(), FabricError> {
        if self.is_alive(state) { Ok(()) } else { Err(refused(what, Errno::EBADF)) }
    }

    /// Checks that a port can be used at this address.
    fn check_port(&self, state: &State, at: SocketAddrV4, what: &str) -> Result<(), FabricError> {
        let host = &state.hosts[self.host];
        if !host.addresses.contains(&IpAddr::V4(*at.ip())) {
            return Err(refused(what, Errno::EADDRNOTAVAIL));
        }
        if at.port() != 0 && at.port() <= PRIVILEGED_PORT_MAX && !host.privileged {
            return Err(refused(what, Errno::EACCES));
        }
        let taken = state.own.ends.values().any(|end| end.host == self.host && end.local == at)
            || state.own.listeners.values().any(|listening| listening.at == at);
        if taken { Err(refused(what, Errno::EADDRINUSE)) } else { Ok(()) }
    }

    pub(super) fn listen(
        &self,
        channel: u64,
        token: ChannelToken,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<u64, FabricError> {
        let mut state = self.lock();
        self.check_alive(&state, "listen")?;
        self.check_port(&state, at, "listen")?;
        let id = state.id();
        let listening = Listening { host: self.host, at, channel, token, backlog: backlog as usize };
        state.own.listeners.insert(id, listening);
        Ok(id)
    }

    pub(super) fn dial(
        &self,
        channel: u64,
        token: ChannelToken,
        (mut from, to): (SocketAddrV4, SocketAddrV4),
        options: &DialOptions,
    ) -> Result<u64, FabricError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        self.check_alive(state, "dial")?;
        if from.port() == 0 {
            from.set_port(state.hosts[self.host].next_port());
        }
        self.check_port(state, from, "dial")?;
        let device = state.hosts[self.host].own.device.ok_or(refused("dial", Errno::ENODEV))?;
        let id = state.id();
        state.seen.connects += 1;
        state.own.ends.insert(id, End::new((self.host, device), channel, token, (from, to)));
        let patience_ns = u64::from(options.resolve_ms) * NS_PER_MS;
        let resolves =
            state.host_of(IpAddr::V4(*to.ip())).is_some_and(|there| state.reaches((self.host, there)));
        match state.host_of(IpAddr::V4(*to.ip())) {
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
        token: ChannelToken,
        request: &dyn ConnRequest,
    ) -> Result<(u64, Arc<dyn Device>), FabricError> {
        let request: &dyn Any = request;
        let id = request.downcast_ref::<SimRequest>().ok_or(refused("adopt", Errno::EINVAL))?.id();
        let mut guard = self.lock();
        let state = &mut *guard;
        self.check_alive(state, "adopt")?;
        let pending = state.own.requests.remove(&id).ok_or(refused("adopt", Errno::ECONNABORTED))?;
        let host = &state.hosts[self.host].own;
        let opened = host.opened.as_ref().and_then(Weak::upgrade);
        let (Some(number), Some(device)) = (host.device, opened) else {
            return Err(refused("adopt", Errno::ENODEV));
        };
        let id = state.id();
        let mut end = End::new((self.host, number), channel, token, (pending.target, pending.source));
        end.peer = Some(pending.end);
        state.own.ends.insert(id, end);
        Ok((id, device))
    }
}

impl Fabric for SimFabric {
    fn incarnation(&self) -> u64 {
        self.next_incarnation()
    }

    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        self.check_alive(state, "open")?;
        let Host { addresses, own: host, .. } = &mut state.hosts[self.host];
        let Some(id) = host.device.filter(|_| addresses.contains(&address.into())) else {
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
        let mut state = self.lock();
        self.check_alive(&state, "channel")?;
        let id = state.id();
        let (host, events, bell_of) = (self.host, Default::default(), bell.clone());
        state
            .own
            .channels
            .insert(id, ChannelState { host, events, rung: false, bell: bell_of, watched: false });
        drop(state);
        self.pollers.lock().push(id);
        Ok(Arc::new(SimChannel { fabric: self.clone(), id, bell }))
    }
}

fn refused(what: &str, errno: Errno) -> FabricError {
    FabricError { what: format!("{NAME}: {what}"), errno }
}
