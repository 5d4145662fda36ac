use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::habits::TcpHabits;
use super::host::SimHost;
use super::seen::TcpSeen;
use super::state::{Event, Host, State};
use super::tap::Held;
use super::traffic::Traffic;
use crate::Step;

/// A TCP network in virtual time: hosts, listeners, connections. All that happens on it stands in one queue, and follows
/// from a seed and from the calls made to it.
#[derive(Clone)]
pub struct TcpNet {
    state: Arc<Mutex<State>>,
}

impl TcpNet {
    /// A network without hosts.
    #[must_use]
    pub fn new(seed: u64, habits: TcpHabits) -> TcpNet {
        TcpNet { state: Arc::new(Mutex::new(State::new(seed, habits))) }
    }

    /// Adds a host that is up, and gives its number. A host that is not `privileged` cannot use ports below 1024.
    pub fn add_host(&self, addresses: Vec<IpAddr>, privileged: bool) -> usize {
        let mut state = self.state.lock();
        state.hosts.push(Host {
            addresses,
            privileged,
            up: true,
            life: 0,
            claims: Default::default(),
            incarnation: 0,
            descriptors: 0,
            descriptors_max: usize::MAX,
            next_port: 0,
        });
        state.hosts.len() - 1
    }

    /// What the present life of a host offers to an LND.
    #[must_use]
    pub fn host(&self, host: usize) -> SimHost {
        SimHost::new(self.state.clone(), host)
    }

    /// The time, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    /// When the next thing happens.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.state.lock().next_ns()
    }

    /// Makes the next thing happen, at its time; `None` if nothing is to come.
    pub fn step(&self) -> Option<Step> {
        let mut state = self.state.lock();
        let event = state.pop()?;
        let now_ns = state.now_ns;
        state.tap.time(now_ns);
        Some(state.happen(event).map_or(Step::Network, Step::Timer))
    }

    /// [`TcpNet::step`] will give this number after so long.
    pub fn after(&self, delay_ns: u64, number: u64) {
        let mut state = self.state.lock();
        let at_ns = state.now_ns + delay_ns;
        state.schedule(at_ns, Event::Timer(number));
    }

    /// [`TcpNet::step`] will give this number then.
    pub fn at(&self, at_ns: u64, number: u64) {
        let mut state = self.state.lock();
        let at_ns = at_ns.max(state.now_ns);
        state.schedule(at_ns, Event::Timer(number));
    }

    /// Nothing gets from one host to another, for so long or until [`TcpNet::heal`]. What is under way is held back and
    /// comes then, as TCP sends it again, unless it has given up.
    pub fn cut(&self, from: usize, to: usize, duration_ns: Option<u64>) {
        let mut state = self.state.lock();
        let until_ns = duration_ns.map(|duration_ns| state.now_ns + duration_ns);
        state.seen.cuts += 1;
        state.cut((from, to), until_ns);
    }

    /// One host reaches another again.
    pub fn heal(&self, from: usize, to: usize) {
        self.state.lock().heal((from, to), None);
    }

    /// A host loses power: all it had is gone, and nobody is told.
    pub fn crash(&self, host: usize) {
        self.state.lock().stop(host, false);
    }

    /// The program on a host dies, and the system closes its sockets.
    pub fn kill(&self, host: usize) {
        let mut state = self.state.lock();
        state.stop(host, true);
        state.hosts[host].up = true;
    }

    /// A host comes back, in another life.
    pub fn start(&self, host: usize) {
        let mut state = self.state.lock();
        state.hosts[host].up = true;
        state.retransmit_to(host);
    }

    /// How many descriptors a host's programs may have.
    pub fn limit_descriptors(&self, host: usize, most: usize) {
        self.state.lock().hosts[host].descriptors_max = most;
    }

    /// Open descriptors of a host.
    #[must_use]
    pub fn descriptors(&self, host: usize) -> usize {
        self.state.lock().hosts[host].descriptors
    }

    /// Breaks all connections between two hosts, as a firewall does that has forgotten them.
    pub fn reset(&self, a: usize, b: usize) {
        self.state.lock().reset_between(a, b);
    }

    /// From now on nothing goes wrong by itself, and everything that was cut is healed.
    pub fn calm(&self) {
        let mut state = self.state.lock();
        state.habits = state.habits.calmed();
        state.hosts.iter_mut().for_each(|host| host.descriptors_max = usize::MAX);
        let ways: Vec<(usize, usize)> = state.ways.keys().copied().collect();
        ways.into_iter().for_each(|hosts| state.heal(hosts, None));
    }

    /// What has happened so far.
    #[must_use]
    pub fn seen(&self) -> TcpSeen {
        let state = self.state.lock();
        let tap = &state.tap;
        TcpSeen { handshakes: tap.handshakes, refusals: tap.refusals, races: tap.races, ..state.seen }
    }

    pub(super) fn keep_log(&self) {
        self.state.lock().log = Some(Vec::new());
    }

    /// What has been logged since this was last asked for.
    pub(super) fn take_log(&self) -> Vec<String> {
        self.state.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was seen on the wire that must not be.
    pub(super) fn wrong(&self) -> Option<String> {
        self.state.lock().tap.wrong.first().cloned()
    }

    pub(super) fn expect_backoff(&self, backoff_ns: Option<(u64, u64)>) {
        self.state.lock().tap.backoff_ns = backoff_ns;
    }

    pub(super) fn forget(&self, ip: IpAddr) {
        self.state.lock().tap.forget(ip);
    }

    pub(super) fn held(&self, host: usize) -> Vec<Held> {
        self.state.lock().tap.held(host)
    }

    pub(super) fn take_traffic(&self, host: usize) -> Traffic {
        self.state.lock().tap.take_traffic(host)
    }

    pub(super) fn on_their_way(&self) -> Option<(IpAddr, IpAddr, u64)> {
        self.state.lock().tap.on_their_way()
    }
}

impl State {
    /// All sockets of a host go, and with them its life.
    fn stop(&mut self, host: usize, tell: bool) {
        self.log(|_| format!("network: host {host} stops"));
        let ends: Vec<u64> =
            self.ends.iter().filter(|(_, end)| end.host == host).map(|(id, _)| *id).collect();
        for id in ends {
            match tell {
                true => self.close(id),
                false => self.kill_end(id, false),
            }
        }
        let listeners: Vec<u64> = self
            .listeners
            .iter()
            .filter(|(_, listening)| listening.host == host)
            .map(|(id, _)| *id)
            .collect();
        for id in listeners {
            self.close_listener(id);
        }
        let addresses = self.hosts[host].addresses.clone();
        addresses.into_iter().for_each(|ip| self.tap.forget(ip));
        let host = &mut self.hosts[host];
        host.up = false;
        host.life += 1;
        host.claims.clear();
        host.descriptors = 0;
    }

    fn reset_between(&mut self, a: usize, b: usize) {
        let pairs = [(a, b), (b, a)];
        let ends: Vec<u64> = self
            .ends
            .iter()
            .filter(|(_, end)| {
                self.host_of(end.remote.ip()).is_some_and(|there| pairs.contains(&(end.host, there)))
            })
            .map(|(id, _)| *id)
            .collect();
        self.seen.resets += ends.len() as u64;
        for id in ends {
            self.reset(id, lnet_api::Errno::ECONNRESET);
        }
    }
}
