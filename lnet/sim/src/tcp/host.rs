use std::net::{IpAddr, SocketAddr};

use lnet_api::Errno;
use lnet_nid::Nid;
use lnet_proto::sock::{PRIVILEGED_PORT_MAX, PRIVILEGED_PORT_MIN};
use lnet_socklnd::sys::{Connecting, Listener, Options, Poller, TcpStack};
use lnet_socklnd::{ConnStep, SockError};

use super::end::{End, Times};
use super::listening::Listening;
use super::poller::{SimPoller, Watching};
use super::sockets::{SimListener, SimStream};
use super::state::{State, TcpWire};
use crate::kit::{EPHEMERAL_MIN, HostHandle};

pub(super) const NS_PER_S: u64 = 1_000_000_000;

/// The system layer for TCP that one start of one host of a [`TcpNet`](super::TcpNet) offers to a
/// [`SockLnd`](lnet_socklnd::SockLnd).
pub type SimHost = HostHandle<TcpWire>;

/// The claim of a host on a NID.
struct Claimed {
    host: SimHost,
    nid: Nid,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let mut state = self.host.lock();
        if self.host.is_alive(&state) {
            state.hosts[self.host.host].own.claims.remove(&self.nid);
        }
    }
}

impl SimHost {
    /// Takes one of the host's descriptors.
    ///
    /// # Errors
    /// `EMFILE` if none is left.
    fn descriptor(&self, state: &mut State) -> Result<(), Errno> {
        let host = &mut state.hosts[self.host].own;
        if host.descriptors >= host.descriptors_max {
            state.seen.exhausted += 1;
            return Err(Errno::EMFILE);
        }
        host.descriptors += 1;
        Ok(())
    }

    /// Returns a free source port for a new connection, and true if the port is privileged.
    fn port(&self, state: &mut State, from: IpAddr, to: SocketAddr) -> Option<(u16, bool)> {
        let now_ns = state.now_ns;
        let taken = |state: &State, port| {
            let pair = (SocketAddr::new(from, port), to);
            state.own.resting.get(&pair).is_some_and(|until_ns| now_ns < *until_ns)
                || state.own.ends.values().any(|end| (end.local, end.remote) == pair)
        };
        if state.hosts[self.host].privileged {
            let ports = (PRIVILEGED_PORT_MIN..=PRIVILEGED_PORT_MAX).rev();
            let usable = usize::from(state.behaviour.privileged_ports);
            if let Some(port) = ports.take(usable).find(|port| !taken(state, *port)) {
                return Some((port, true));
            }
            state.seen.ports_exhausted += 1;
        }
        for _ in EPHEMERAL_MIN..u16::MAX {
            let port = state.hosts[self.host].next_port();
            if !taken(state, port) {
                return Some((port, false));
            }
        }
        None
    }
}

impl TcpStack for SimHost {
    fn claim(&self, nid: Nid) -> Result<Box<dyn Send + Sync>, SockError> {
        let mut state = self.lock();
        if !self.is_alive(&state) || !state.hosts[self.host].own.claims.insert(nid) {
            return Err(SockError::NidTaken { nid, holder: "another node of this host".to_string() });
        }
        drop(state);
        Ok(Box::new(Claimed { host: self.clone(), nid }))
    }

    fn listen(&self, address: SocketAddr, backlog: u16, _: &Options) -> Result<Box<dyn Listener>, SockError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let refused = |errno| SockError::System { what: format!("listen on {address}"), errno };
        if !self.is_alive(state) {
            return Err(refused(Errno::EBADF));
        }
        let host = &state.hosts[self.host];
        if !host.addresses.contains(&address.ip()) {
            return Err(SockError::NoSuchAddress { address });
        }
        if address.port() <= PRIVILEGED_PORT_MAX && !host.privileged {
            return Err(SockError::PortPrivileged { address });
        }
        if state.own.listeners.values().any(|listening| listening.address == address) {
            return Err(SockError::PortTaken { address });
        }
        self.descriptor(state).map_err(refused)?;
        let id = state.id();
        let listening = Listening {
            host: self.host,
            address,
            backlog: usize::from(backlog),
            half_open: Default::default(),
            waiting: Default::default(),
        };
        state.own.listeners.insert(id, listening);
        drop(guard);
        Ok(Box::new(SimListener { host: self.clone(), id, address }))
    }

    fn connect(
        &self,
        from: IpAddr,
        to: SocketAddr,
        options: &Options,
    ) -> Result<Connecting, (ConnStep, Errno)> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !self.is_alive(state) || !state.hosts[self.host].addresses.contains(&from) {
            return Err((ConnStep::Bind, Errno::EADDRNOTAVAIL));
        }
        self.descriptor(state).map_err(|errno| (ConnStep::Bind, errno))?;
        let Some((port, privileged)) = self.port(state, from, to) else {
            state.hosts[self.host].own.descriptors -= 1;
            return Err((ConnStep::Connect, Errno::EADDRNOTAVAIL));
        };
        let id = state.id();
        let mut end = End::new(self.host, SocketAddr::new(from, port), to, &state.behaviour);
        end.held = true;
        end.times = times(options);
        state.own.ends.insert(id, end);
        state.own.tap.connecting(id, (from, to.ip()), state.now_ns);
        state.connect(id);
        drop(guard);
        Ok(Connecting { stream: Box::new(SimStream { host: self.clone(), id }), privileged })
    }

    fn poller(&self, _: u32) -> Result<Box<dyn Poller>, Errno> {
        let mut state = self.lock();
        let id = state.id();
        state.own.pollers.insert(id, Watching::default());
        drop(state);
        self.pollers.lock().push(id);
        Ok(Box::new(SimPoller { host: self.clone(), id }))
    }

    fn incarnation(&self) -> u64 {
        self.next_incarnation()
    }

    fn descriptors_max(&self) -> usize {
        // The permanent limit: `limit_descriptors` sets a temporary one, on which a program cannot
        // rely.
        65_536
    }
}

/// Returns the time options.
pub(super) fn times(options: &Options) -> Times {
    Times {
        user_timeout_ns: u64::from(options.timeout_s) * NS_PER_S,
        idle_ns: u64::from(options.keepalive_idle_s) * NS_PER_S,
        interval_ns: u64::from(options.keepalive_intvl_s.max(1)) * NS_PER_S,
        probes: options.keepalive_count.max(1),
    }
}
