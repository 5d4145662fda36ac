//! A simulated network of hosts: time, events, hosts and the paths between them. A [`Wire`] adds
//! the traffic on it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::queue::EventQueue;
use crate::{Counts, Rng, Step};

/// Virtual time at the start; not 0, so that nothing depends on a clock that starts there.
const BEGINNING_NS: u64 = 1_000_000_000;

/// Wall-clock time of the virtual clock's zero: nanoseconds since 1970.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// The first port given to a connection without a requested port: Linux's default.
pub(crate) const EPHEMERAL_MIN: u16 = 32_768;

/// The traffic of a simulated network, and its endpoints.
pub trait Wire: Default + Sized {
    /// An event of the traffic.
    type Event;
    /// The state of a host on this kind of network.
    type OfHost;
    /// The behaviour of the network.
    type Behaviour;
    /// The counts of events.
    type Seen: Counts + Copy + fmt::Debug + PartialEq + Send;

    /// Makes the state of a new host.
    fn of_host(state: &mut State<Self>) -> Self::OfHost;

    /// Returns the ranges of a path's latency, drawn once, and of the addition for each packet.
    fn delays_ns(behaviour: &Self::Behaviour) -> [(u64, u64); 2];

    /// Runs an event.
    fn happen(state: &mut State<Self>, event: Self::Event);

    /// Ends these connections of a host, which are all that it has, and its other endpoints. If
    /// `tell` is true the peers are notified, as by the system when a program dies.
    fn stop(state: &mut State<Self>, host: usize, ends: Vec<u64>, tell: bool);

    /// Called when a host is up again.
    fn started(_: &mut State<Self>, _host: usize) {}

    /// Called when a direction works again, after an outage that began at `since_ns`.
    fn healed(_: &mut State<Self>, _hosts: (usize, usize), _since_ns: u64) {}

    /// Breaks the connection of an end, which is notified.
    fn reset(state: &mut State<Self>, end: u64);

    /// Iterates over the ends of all connections, with the host of each and the address of the
    /// other.
    fn ends(&self) -> impl Iterator<Item = (u64, usize, IpAddr)>;

    /// Ends spontaneous faults.
    fn end_faults(state: &mut State<Self>);

    /// Returns whether a thread that sleeps on this poller or channel would be woken.
    fn is_ready(&self, poller: u64) -> bool;

    /// Returns the first violation of the rules, if there is one.
    fn wrong(&self) -> Option<String>;

    /// Returns the counts of events so far.
    fn seen(state: &State<Self>) -> Self::Seen {
        state.seen
    }
}

enum Event<E> {
    OnWire(E),
    /// The end of an outage, by its number.
    Heal {
        hosts: (usize, usize),
        cut: u64,
    },
    Timer(u64),
}

/// A machine with addresses.
pub(crate) struct Host<H> {
    pub(crate) addresses: Vec<IpAddr>,
    /// True if the host may use ports below 1024.
    pub(crate) privileged: bool,
    pub(crate) up: bool,
    /// The number of the host's starts: endpoints of an earlier start are dead.
    pub(crate) life: u64,
    /// The last incarnation given to an NI of the host.
    incarnation: u64,
    next_port: u16,
    pub(crate) own: H,
}

impl<H> Host<H> {
    /// Returns the next port for a connection without a requested port.
    pub(crate) fn next_port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(EPHEMERAL_MIN).max(EPHEMERAL_MIN);
        self.next_port
    }
}

/// One direction between two hosts.
#[derive(Default)]
pub(crate) struct Direction {
    pub(crate) latency_ns: u64,
    /// The number and the start time of the current outage.
    pub(crate) cut: Option<(u64, u64)>,
}

/// The state of the network.
pub struct State<W: Wire> {
    pub(crate) now_ns: u64,
    pub(crate) rng: Rng,
    pub(crate) behaviour: W::Behaviour,
    queue: EventQueue<Event<W::Event>>,
    next_id: u64,
    pub(crate) hosts: Vec<Host<W::OfHost>>,
    directions: BTreeMap<(usize, usize), Direction>,
    pub(crate) seen: W::Seen,
    /// The log since it was last taken; `None` while logging is off.
    log: Option<Vec<String>>,
    pub(crate) own: W,
}

impl<W: Wire> State<W> {
    /// Returns a number that is unique in the network.
    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn log(&mut self, line: impl FnOnce(&State<W>) -> String) {
        if self.log.is_some() {
            let line = stamped(self.now_ns, &line(self));
            self.log.iter_mut().for_each(|log| log.push(line.clone()));
        }
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: W::Event) {
        self.queue.schedule(at_ns, Event::OnWire(event));
    }

    /// Removes all events for which the predicate holds, and returns them in order.
    pub(crate) fn take_events(&mut self, mut is_such: impl FnMut(&W::Event) -> bool) -> Vec<W::Event> {
        let taken = self.queue.take(|event| matches!(event, Event::OnWire(event) if is_such(event)));
        let on_wire = |event| match event {
            Event::OnWire(event) => Some(event),
            Event::Heal { .. } | Event::Timer(_) => None,
        };
        taken.into_iter().filter_map(on_wire).collect()
    }

    pub(crate) fn host_of(&self, ip: IpAddr) -> Option<usize> {
        self.hosts.iter().position(|host| host.addresses.contains(&ip))
    }

    pub(crate) fn direction(&mut self, hosts: (usize, usize)) -> &mut Direction {
        let [latency_ns, _] = W::delays_ns(&self.behaviour);
        let rng = &mut self.rng;
        self.directions
            .entry(hosts)
            .or_insert_with(|| Direction { latency_ns: rng.between(latency_ns), cut: None })
    }

    /// Returns the current delay of a packet.
    pub(crate) fn delay_ns(&mut self, hosts: (usize, usize)) -> u64 {
        let [_, jitter_ns] = W::delays_ns(&self.behaviour);
        self.direction(hosts).latency_ns + self.rng.between(jitter_ns)
    }

    fn cut(&mut self, hosts: (usize, usize), until_ns: Option<u64>) {
        let cut = self.id();
        let now_ns = self.now_ns;
        self.direction(hosts).cut.get_or_insert((cut, now_ns)).0 = cut;
        self.log(|_| format!("network: nothing gets from host {} to host {}", hosts.0, hosts.1));
        if let Some(until_ns) = until_ns {
            self.queue.schedule(until_ns, Event::Heal { hosts, cut });
        }
    }

    /// Ends an outage, if it is still the current one.
    fn heal(&mut self, hosts: (usize, usize), cut: Option<u64>) {
        let direction = self.direction(hosts);
        let present = direction.cut.take_if(|(number, _)| cut.is_none_or(|cut| cut == *number));
        let Some((_, since_ns)) = present else { return };
        self.log(|_| format!("network: host {} reaches host {} again", hosts.0, hosts.1));
        W::healed(self, hosts, since_ns);
    }

    fn stop(&mut self, host: usize, tell: bool) {
        self.log(|_| format!("network: host {host} stops"));
        let ends: Vec<u64> = self.own.ends().filter(|(_, at, _)| *at == host).map(|(id, ..)| id).collect();
        W::stop(self, host, ends, tell);
        let host = &mut self.hosts[host];
        host.up = false;
        host.life += 1;
    }
}

/// Returns a line of a log or a trace, with its time in seconds.
pub(crate) fn stamped(now_ns: u64, line: &str) -> String {
    format!("{:>18.9} {line}", now_ns as f64 / 1e9)
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread is executing code of the simulated network, whose allocations do not
/// count as the driver's.
#[must_use]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// The state of the network, locked.
pub(crate) struct Locked<'a, W: Wire>(MutexGuard<'a, State<W>>);

impl<W: Wire> Drop for Locked<'_, W> {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl<W: Wire> Deref for Locked<'_, W> {
    type Target = State<W>;
    fn deref(&self) -> &State<W> {
        &self.0
    }
}

impl<W: Wire> DerefMut for Locked<'_, W> {
    fn deref_mut(&mut self) -> &mut State<W> {
        &mut self.0
    }
}

/// A network in virtual time. All its events are in one queue, and follow from a seed and from the
/// calls made to it. Clones share the network.
pub struct Net<W: Wire>(Arc<Mutex<State<W>>>);

impl<W: Wire> Clone for Net<W> {
    fn clone(&self) -> Net<W> {
        Net(self.0.clone())
    }
}

impl<W: Wire> Net<W> {
    /// Makes a network without hosts.
    #[must_use]
    pub fn new(seed: u64, behaviour: W::Behaviour) -> Net<W> {
        Net(Arc::new(Mutex::new(State {
            now_ns: BEGINNING_NS,
            rng: Rng::new(seed),
            behaviour,
            queue: EventQueue::new(),
            next_id: 1,
            hosts: Vec::new(),
            directions: BTreeMap::new(),
            seen: W::Seen::default(),
            log: None,
            own: W::default(),
        })))
    }

    pub(crate) fn lock(&self) -> Locked<'_, W> {
        let guard = self.0.lock();
        INSIDE.set(true);
        Locked(guard)
    }

    /// Adds a host that is up, and returns its number. A host that is not `privileged` cannot use
    /// ports below 1024.
    pub fn add_host<A: Into<IpAddr>>(&self, addresses: Vec<A>, privileged: bool) -> usize {
        let mut state = self.lock();
        let own = W::of_host(&mut state);
        let addresses = addresses.into_iter().map(A::into).collect();
        state.hosts.push(Host {
            addresses,
            privileged,
            up: true,
            life: 0,
            incarnation: 0,
            next_port: 0,
            own,
        });
        state.hosts.len() - 1
    }

    /// Returns the system layer of the current start of a host, for an LND.
    #[must_use]
    pub fn host(&self, host: usize) -> HostHandle<W> {
        let life = self.lock().hosts[host].life;
        HostHandle { net: self.clone(), host, life, pollers: Arc::default() }
    }

    /// Returns the time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.lock().now_ns
    }

    /// Returns the time of the next event.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.lock().queue.next_ns()
    }

    /// Runs the next event, at its time; `None` if there is none.
    pub fn step(&self) -> Option<Step> {
        let mut state = self.lock();
        let (at_ns, event) = state.queue.pop()?;
        state.now_ns = state.now_ns.max(at_ns);
        match event {
            Event::OnWire(event) => W::happen(&mut state, event),
            Event::Heal { hosts, cut } => state.heal(hosts, Some(cut)),
            Event::Timer(number) => return Some(Step::Timer(number)),
        }
        Some(Step::Network)
    }

    /// Makes [`Net::step`] return this number after a delay of the virtual time.
    pub fn after(&self, delay_ns: u64, number: u64) {
        self.at(self.now_ns() + delay_ns, number);
    }

    /// Makes [`Net::step`] return this number at a point of virtual time.
    pub fn at(&self, at_ns: u64, number: u64) {
        let mut state = self.lock();
        let at_ns = at_ns.max(state.now_ns);
        state.queue.schedule(at_ns, Event::Timer(number));
    }

    /// Cuts the direction from one host to another, for a duration or until [`Net::heal`].
    pub fn cut(&self, from: usize, to: usize, duration_ns: Option<u64>) {
        let mut state = self.lock();
        let until_ns = duration_ns.map(|duration_ns| state.now_ns + duration_ns);
        state.cut((from, to), until_ns);
    }

    /// Ends the outage of a direction.
    pub fn heal(&self, from: usize, to: usize) {
        self.lock().heal((from, to), None);
    }

    /// Breaks all connections between two hosts, as a firewall does that has lost its state.
    pub fn reset(&self, a: usize, b: usize) {
        let mut state = self.lock();
        let between = |(_, here, there): &(u64, usize, IpAddr)| {
            let there = state.host_of(*there);
            (*here, there) == (a, Some(b)) || (*here, there) == (b, Some(a))
        };
        let ends: Vec<u64> = state.own.ends().filter(between).map(|(id, ..)| id).collect();
        ends.into_iter().for_each(|id| W::reset(&mut state, id));
    }

    /// Lets a host lose power: all that it had is gone, and no peer is notified.
    pub fn crash(&self, host: usize) {
        self.lock().stop(host, false);
    }

    /// Kills the program on a host; the system ends its connections.
    pub fn kill(&self, host: usize) {
        let mut state = self.lock();
        state.stop(host, true);
        state.hosts[host].up = true;
    }

    /// Starts a host again.
    pub fn start(&self, host: usize) {
        let mut state = self.lock();
        state.hosts[host].up = true;
        W::started(&mut state, host);
    }

    /// Ends spontaneous faults and all outages.
    pub fn end_faults(&self) {
        let mut state = self.lock();
        W::end_faults(&mut state);
        let directions: Vec<(usize, usize)> = state.directions.keys().copied().collect();
        directions.into_iter().for_each(|hosts| state.heal(hosts, None));
    }

    /// Returns the counts of events so far.
    #[must_use]
    pub fn seen(&self) -> W::Seen {
        W::seen(&self.lock())
    }

    /// Returns the first violation of the rules, on the wire or by a driver.
    #[must_use]
    pub fn wrong(&self) -> Option<String> {
        self.lock().own.wrong()
    }

    /// Turns logging on.
    pub(crate) fn keep_log(&self) {
        self.lock().log = Some(Vec::new());
    }

    /// Returns the lines logged since the last call.
    pub(crate) fn take_log(&self) -> Vec<String> {
        self.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// The system layer that one start of one host of a [`Net`] offers to an LND.
///
/// The handle is valid for one start of the host: after [`Net::crash`] everything made from it is
/// dead, and the next start needs another handle.
pub struct HostHandle<W: Wire> {
    pub(crate) net: Net<W>,
    pub(crate) host: usize,
    life: u64,
    /// The pollers or channels made from the handle, in order.
    pub(crate) pollers: Arc<Mutex<Vec<u64>>>,
}

impl<W: Wire> Clone for HostHandle<W> {
    fn clone(&self) -> HostHandle<W> {
        HostHandle { net: self.net.clone(), host: self.host, life: self.life, pollers: self.pollers.clone() }
    }
}

impl<W: Wire> HostHandle<W> {
    pub(crate) fn lock(&self) -> Locked<'_, W> {
        self.net.lock()
    }

    pub(crate) fn is_alive(&self, state: &State<W>) -> bool {
        state.hosts[self.host].life == self.life && state.hosts[self.host].up
    }

    /// Returns whether a thread that sleeps on the `number`th poller or channel would be woken.
    #[must_use]
    pub fn is_ready(&self, number: usize) -> bool {
        let poller = self.pollers.lock().get(number).copied();
        poller.is_some_and(|poller| self.lock().own.is_ready(poller))
    }

    /// Returns the number of pollers, or channels, that were made.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.pollers.lock().len()
    }

    /// Returns the incarnation of an NI that starts now.
    pub(crate) fn next_incarnation(&self) -> u64 {
        let mut state = self.lock();
        let now_ns = EPOCH_NS + state.now_ns;
        let last = &mut state.hosts[self.host].incarnation;
        // The incarnation is greater than the last one in any case: virtual time does not advance
        // while nothing happens, and an NI may start twice at one time.
        *last = now_ns.max(*last + 1);
        *last
    }
}
