use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_nid::Nid;
use lnet_proto::sock::{PRIVILEGED_PORT_MAX, PRIVILEGED_PORT_MIN};
use lnet_socklnd::sys::{Connecting, Listener, Net, Options, Poller};
use lnet_socklnd::{SockError, Step};
use parking_lot::{Mutex, MutexGuard};

use super::end::{End, Times};
use super::listening::Listening;
use super::poller::{SimPoller, Watching};
use super::sockets::{SimListener, SimStream};
use super::state::State;

/// The first port given to whoever asks for none: Linux's default.
const EPHEMERAL_MIN: u16 = 32_768;

/// Virtual time began then, in nanoseconds since 1970.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

const NS_PER_S: u64 = 1_000_000_000;

/// What one start of one host of a [`TcpNet`](super::TcpNet) offers to a [`SockLnd`](lnet_socklnd::SockLnd): its TCP.
///
/// It belongs to one life of the host: after [`TcpNet::crash`](super::TcpNet::crash), all that came from it is dead, and
/// the next life needs another one.
#[derive(Clone)]
pub struct SimHost {
    pub(super) net: Arc<Mutex<State>>,
    pub(super) host: usize,
    pub(super) life: u64,
    /// The pollers made of it, in order.
    pollers: Arc<Mutex<Vec<u64>>>,
}

/// A NID that a host has claimed.
struct Claimed {
    host: SimHost,
    nid: Nid,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let mut state = self.host.state();
        if self.host.is_alive(&state) {
            state.hosts[self.host.host].claims.remove(&self.nid);
        }
    }
}

impl SimHost {
    pub(super) fn new(net: Arc<Mutex<State>>, host: usize) -> SimHost {
        let life = net.lock().hosts[host].life;
        SimHost { net, host, life, pollers: Arc::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.net.lock()
    }

    pub(super) fn is_alive(&self, state: &State) -> bool {
        state.hosts[self.host].life == self.life && state.hosts[self.host].up
    }

    /// Whether whoever sleeps on the poller that was made as the `number`th would be woken.
    #[must_use]
    pub fn is_ready(&self, number: usize) -> bool {
        let poller = self.pollers.lock().get(number).copied();
        poller.is_some_and(|poller| self.state().is_ready(poller))
    }

    /// How many pollers were made.
    #[must_use]
    pub fn pollers(&self) -> usize {
        self.pollers.lock().len()
    }

    /// Takes a descriptor, if there is one.
    fn descriptor(&self, state: &mut State) -> Result<(), Errno> {
        let host = &mut state.hosts[self.host];
        if host.descriptors >= host.descriptors_max {
            state.seen.exhausted += 1;
            return Err(Errno::EMFILE);
        }
        host.descriptors += 1;
        Ok(())
    }

    /// The source port of a new connection, and whether it is privileged.
    fn port(&self, state: &mut State, from: IpAddr, to: SocketAddr) -> Option<(u16, bool)> {
        let now_ns = state.now_ns;
        let taken = |state: &State, port| {
            let pair = (SocketAddr::new(from, port), to);
            state.resting.get(&pair).is_some_and(|until_ns| now_ns < *until_ns)
                || state.ends.values().any(|end| (end.local, end.remote) == pair)
        };
        if state.hosts[self.host].privileged {
            let ports = (PRIVILEGED_PORT_MIN..=PRIVILEGED_PORT_MAX).rev();
            let usable = usize::from(state.habits.privileged_ports);
            if let Some(port) = ports.take(usable).find(|port| !taken(state, *port)) {
                return Some((port, true));
            }
            state.seen.ports_exhausted += 1;
        }
        for _ in EPHEMERAL_MIN..u16::MAX {
            let next = &mut state.hosts[self.host].next_port;
            *next = next.checked_add(1).unwrap_or(EPHEMERAL_MIN).max(EPHEMERAL_MIN);
            let port = *next;
            if !taken(state, port) {
                return Some((port, false));
            }
        }
        None
    }
}

impl Net for SimHost {
    fn claim(&self, nid: Nid) -> Result<Box<dyn Send + Sync>, SockError> {
        let mut state = self.state();
        if !self.is_alive(&state) || !state.hosts[self.host].claims.insert(nid) {
            return Err(SockError::NidTaken { nid, holder: "another node of this host".to_string() });
        }
        drop(state);
        Ok(Box::new(Claimed { host: self.clone(), nid }))
    }

    fn listen(&self, address: SocketAddr, backlog: u16, _: &Options) -> Result<Box<dyn Listener>, SockError> {
        let mut guard = self.state();
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
        if state.listeners.values().any(|listening| listening.address == address) {
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
        state.listeners.insert(id, listening);
        drop(guard);
        Ok(Box::new(SimListener { host: self.clone(), id, address }))
    }

    fn connect(&self, from: IpAddr, to: SocketAddr, options: &Options) -> Result<Connecting, (Step, Errno)> {
        let mut guard = self.state();
        let state = &mut *guard;
        if !self.is_alive(state) || !state.hosts[self.host].addresses.contains(&from) {
            return Err((Step::Bind, Errno::EADDRNOTAVAIL));
        }
        self.descriptor(state).map_err(|errno| (Step::Bind, errno))?;
        let Some((port, privileged)) = self.port(state, from, to) else {
            state.hosts[self.host].descriptors -= 1;
            return Err((Step::Connect, Errno::EADDRNOTAVAIL));
        };
        let id = state.id();
        let mut end = End::new(self.host, SocketAddr::new(from, port), to, &state.habits);
        end.held = true;
        end.times = times(options);
        state.ends.insert(id, end);
        state.tap.connecting(id, (from, to.ip()), state.now_ns);
        state.connect(id);
        drop(guard);
        Ok(Connecting { stream: Box::new(SimStream { host: self.clone(), id }), privileged })
    }

    fn poller(&self) -> Result<Box<dyn Poller>, Errno> {
        let mut state = self.state();
        let id = state.id();
        state.pollers.insert(id, Watching::default());
        drop(state);
        self.pollers.lock().push(id);
        Ok(Box::new(SimPoller { host: self.clone(), id }))
    }

    fn incarnation(&self) -> u64 {
        let mut state = self.state();
        let now_ns = EPOCH_NS + state.now_ns;
        let last = &mut state.hosts[self.host].incarnation;
        // Virtual time stands still while nothing happens: an NI may begin twice at one moment.
        *last = now_ns.max(*last + 1);
        *last
    }

    fn descriptors_max(&self) -> usize {
        // What is squeezed now and then is not what a program is promised.
        65_536
    }
}

/// What the options say about time.
pub(super) fn times(options: &Options) -> Times {
    Times {
        user_timeout_ns: u64::from(options.timeout_s) * NS_PER_S,
        idle_ns: u64::from(options.keepalive_idle_s) * NS_PER_S,
        interval_ns: u64::from(options.keepalive_intvl_s.max(1)) * NS_PER_S,
        probes: options.keepalive_count.max(1),
    }
}
