use std::net::Ipv4Addr;

use lnet_o2iblnd::fabric::DeviceChange;

use super::habits::IbHabits;
use super::host::SimFabric;
use super::seen::IbSeen;
use super::state::{Event, Host, Shared, State};
use crate::Step;

/// An RDMA network in virtual time: hosts with one device each, listeners, connections, registered memory. All that happens on
/// it stands in one queue, and follows from a seed and from the calls made to it.
#[derive(Clone)]
pub struct IbNet {
    state: Shared,
}

impl IbNet {
    /// A network without hosts.
    #[must_use]
    pub fn new(seed: u64, habits: IbHabits) -> IbNet {
        IbNet { state: Shared::new(State::new(seed, habits)) }
    }

    /// Adds a host that is up, and gives its number. A host that is not `privileged` cannot use ports below 1024.
    pub fn add_host(&self, addresses: Vec<Ipv4Addr>, privileged: bool) -> usize {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let limits = state.rng.pick(&state.habits.devices);
        let device = Some(state.id());
        state.hosts.push(Host {
            addresses,
            limits,
            privileged,
            up: true,
            life: 0,
            incarnation: 0,
            device,
            opened: None,
            port_up: true,
            next_port: 0,
        });
        state.hosts.len() - 1
    }

    /// What the present life of a host offers to an LND.
    #[must_use]
    pub fn host(&self, host: usize) -> SimFabric {
        SimFabric::new(self.state.clone(), host)
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
        Some(state.happen(event).map_or(Step::Network, Step::Timer))
    }

    /// [`IbNet::step`] will give this number then.
    pub fn at(&self, at_ns: u64, number: u64) {
        let mut state = self.state.lock();
        let at_ns = at_ns.max(state.now_ns);
        state.schedule(at_ns, Event::Timer(number));
    }

    /// [`IbNet::step`] will give this number after so long.
    pub fn after(&self, delay_ns: u64, number: u64) {
        let at_ns = self.now_ns() + delay_ns;
        self.at(at_ns, number);
    }

    /// Nothing gets from one host to another until [`IbNet::heal`].
    pub fn cut(&self, from: usize, to: usize) {
        let mut state = self.state.lock();
        state.seen.cuts += 1;
        state.log(|_| format!("network: nothing gets from host {from} to host {to}"));
        state.way((from, to)).cut = true;
    }

    /// One host reaches another again.
    pub fn heal(&self, from: usize, to: usize) {
        self.state.lock().way((from, to)).cut = false;
    }

    /// The port of a host's device goes down, or up; its programs hear of it.
    pub fn set_port(&self, host: usize, up: bool) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.hosts[host].port_up, up) == up {
            return;
        }
        state.log(|_| format!("network: the port of host {host} is {}", if up { "up" } else { "down" }));
        state.seen.ports_down += u64::from(!up);
        state.tell_all(host, if up { DeviceChange::PortUp } else { DeviceChange::PortDown });
    }

    /// The device of a host is taken away: its queues and registrations are gone.
    pub fn unplug(&self, host: usize) {
        let mut state = self.state.lock();
        let Some(device) = state.hosts[host].device.take() else { return };
        state.seen.devices_removed += 1;
        state.log(|_| format!("network: the device of host {host} is gone"));
        let ends: Vec<u64> =
            state.ends.iter().filter(|(_, end)| end.device == device).map(|(id, _)| *id).collect();
        ends.into_iter().for_each(|id| state.lose(id));
        state.tell_all(host, DeviceChange::Removed);
    }

    /// A host has a device again: another one.
    pub fn plug(&self, host: usize) {
        let mut state = self.state.lock();
        let device = state.id();
        state.hosts[host].device.get_or_insert(device);
    }

    /// A host loses power: all it had is gone, and nobody is told.
    pub fn crash(&self, host: usize) {
        self.state.lock().stop(host, false);
    }

    /// The program on a host dies, and the system ends its connections.
    pub fn kill(&self, host: usize) {
        let mut state = self.state.lock();
        state.stop(host, true);
        state.hosts[host].up = true;
    }

    /// A host comes back, in another life.
    pub fn start(&self, host: usize) {
        self.state.lock().hosts[host].up = true;
    }

    /// From now on nothing goes wrong by itself, and everything that was cut is healed.
    pub fn calm(&self) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.habits = state.habits.calmed();
        state.ways.values_mut().for_each(|way| way.cut = false);
    }

    /// What has happened so far.
    #[must_use]
    pub fn seen(&self) -> IbSeen {
        self.state.lock().seen
    }

    /// What a driver has done that it must not: an overflow of a queue, memory that is not registered.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        self.state.lock().wrong.clone()
    }

    /// How many registrations there are.
    #[must_use]
    pub fn registrations(&self) -> usize {
        self.state.lock().memory.len()
    }

    /// How many ends of connections there are on a host, in whatever state.
    #[must_use]
    pub fn ends(&self, host: usize) -> usize {
        self.state.lock().ends.values().filter(|end| end.host == host).count()
    }

    /// From now on what happens is logged.
    pub fn keep_log(&self) {
        self.state.lock().log = Some(Vec::new());
    }

    /// What has been logged since this was last asked for.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        self.state.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl State {
    /// All that a host has goes, and with it its life.
    fn stop(&mut self, host: usize, tell: bool) {
        self.seen.crashes += 1;
        self.log(|_| format!("network: host {host} stops"));
        let ends: Vec<u64> =
            self.ends.iter().filter(|(_, end)| end.host == host).map(|(id, _)| *id).collect();
        for id in ends {
            if tell {
                self.disconnect(id);
            }
            self.remove(id);
        }
        self.listeners.retain(|_, listening| listening.host != host);
        self.requests.retain(|_, asking| asking.host != host);
        self.channels.retain(|_, hearing| hearing.host != host);
        let old = self.hosts[host].device;
        self.memory.retain(|_, registered| Some(registered.device) != old);
        let device = self.id();
        let host = &mut self.hosts[host];
        host.up = false;
        host.life += 1;
        host.device = Some(device);
        host.opened = None;
        host.port_up = true;
    }
}
