//! Everything a simulated RDMA network is made of, and its one queue of what is to come.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::Ipv4Addr;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{DeviceChange, PrivateData, Rejected};
use parking_lot::{Mutex, MutexGuard};

use super::asking::{Asking, Listening};
use super::channel::{Heard, Hearing};
use super::device::SimDevice;
use super::end::End;
use super::habits::{IbDevice, IbHabits};
use super::memory::Registered;
use super::seen::IbSeen;
use crate::Rng;

/// Virtual time begins here, so that a clock that starts at 0 is not needed by chance.
const BEGINNING_NS: u64 = 1_000_000_000;

/// Something that happens.
#[derive(Debug)]
pub(super) enum Event {
    /// The way to a peer has been looked for.
    Resolve { end: u64 },
    /// A request to connect arrives.
    Ask { end: u64 },
    /// The answer to it arrives.
    Answer { end: u64, answer: Answer },
    /// The active side has established the connection, and the passive one hears of it.
    Establish { end: u64 },
    /// Nobody has answered.
    GiveUp { end: u64 },
    /// The next work request arrives.
    Pump { end: u64 },
    /// A work request ends.
    Complete { end: u64, sequence: u64, status: Status },
    /// A channel tells of completions.
    Interrupt { end: u64 },
    /// A connection has ended at the other side.
    HangUp { end: u64 },
    /// Whoever runs the network asked for it.
    Timer(u64),
}

pub(super) type Status = Result<(), lnet_o2iblnd::fabric::WorkError>;

/// What becomes of a request to connect.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Accepted { passive: u64, private_data: PrivateData },
    Rejected(Rejected),
}

struct Scheduled {
    key: Reverse<(u64, u64)>,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.key == other.key
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// A machine with one device of one port.
pub(super) struct Host {
    pub(super) addresses: Vec<Ipv4Addr>,
    pub(super) limits: IbDevice,
    /// It may use ports below 1024.
    pub(super) privileged: bool,
    pub(super) up: bool,
    /// Counts its starts: what came from an earlier one is dead.
    pub(super) life: u64,
    /// The last one given to an NI.
    pub(super) incarnation: u64,
    /// The device, if it is plugged in; changes each time that it is.
    pub(super) device: Option<u64>,
    pub(super) opened: Option<Weak<SimDevice>>,
    pub(super) port_up: bool,
    pub(super) next_port: u16,
}

/// Between two hosts, in one direction.
#[derive(Default)]
pub(super) struct Way {
    pub(super) latency_ns: u64,
    pub(super) cut: bool,
}

/// The whole network.
pub(super) struct State {
    pub(super) now_ns: u64,
    pub(super) rng: Rng,
    pub(super) habits: IbHabits,
    queue: BinaryHeap<Scheduled>,
    sequence: u64,
    next_id: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) ways: BTreeMap<(usize, usize), Way>,
    pub(super) ends: BTreeMap<u64, End>,
    pub(super) listeners: BTreeMap<u64, Listening>,
    pub(super) requests: BTreeMap<u64, Asking>,
    pub(super) channels: BTreeMap<u64, Hearing>,
    pub(super) memory: BTreeMap<u32, Registered>,
    pub(super) seen: IbSeen,
    /// What no driver may do.
    pub(super) wrong: Option<String>,
    /// What happened since it was last asked for; `None`: nobody wants to know.
    pub(super) log: Option<Vec<String>>,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside the simulated network at this moment: what is allocated there is not the driver's.
#[must_use]
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// The network, locked.
pub(super) struct Locked<'a>(MutexGuard<'a, State>);

/// The network as all that is of it shares it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(super) fn new(state: State) -> Shared {
        Shared(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let guard = self.0.lock();
        INSIDE.set(true);
        Locked(guard)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl State {
    pub(super) fn new(seed: u64, habits: IbHabits) -> State {
        State {
            now_ns: BEGINNING_NS,
            rng: Rng::new(seed),
            habits,
            queue: BinaryHeap::new(),
            sequence: 0,
            next_id: 1,
            hosts: Vec::new(),
            ways: BTreeMap::new(),
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
            requests: BTreeMap::new(),
            channels: BTreeMap::new(),
            memory: BTreeMap::new(),
            seen: IbSeen::default(),
            wrong: None,
            log: None,
        }
    }

    /// A number that nothing else has.
    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn log(&mut self, line: impl FnOnce(&State) -> String) {
        if self.log.is_some() {
            let line = format!("{:>14} {}", self.now_ns, line(self));
            self.log.iter_mut().for_each(|log| log.push(line.clone()));
        }
    }

    /// A driver has done what it must not.
    pub(super) fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }

    pub(super) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Scheduled { key: Reverse((at_ns, self.sequence)), event });
    }

    /// When the next thing happens.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.queue.peek().map(|next| next.key.0.0)
    }

    /// The next thing that happens; time goes on to it.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let next = self.queue.pop()?;
        self.now_ns = self.now_ns.max(next.key.0.0);
        Some(next.event)
    }

    pub(super) fn host_of(&self, ip: Ipv4Addr) -> Option<usize> {
        self.hosts.iter().position(|host| host.addresses.contains(&ip))
    }

    pub(super) fn way(&mut self, hosts: (usize, usize)) -> &mut Way {
        let latency = self.habits.latency_ns;
        let rng = &mut self.rng;
        self.ways.entry(hosts).or_insert_with(|| Way { latency_ns: rng.between(latency), cut: false })
    }

    /// Whether what one host sends reaches the other at this moment.
    pub(super) fn reaches(&mut self, hosts: (usize, usize)) -> bool {
        let works = |host: &Host| host.up && host.port_up && host.device.is_some();
        works(&self.hosts[hosts.0]) && works(&self.hosts[hosts.1]) && !self.way(hosts).cut
    }

    /// How long something takes at this moment.
    pub(super) fn delay_ns(&mut self, hosts: (usize, usize)) -> u64 {
        let latency_ns = self.way(hosts).latency_ns;
        latency_ns + self.rng.between(self.habits.jitter_ns)
    }

    /// A message of the connection manager leaves.
    pub(super) fn launch(&mut self, hosts: (usize, usize), event: Event) {
        let at_ns = self.now_ns + self.delay_ns(hosts);
        self.schedule(at_ns, event);
    }

    /// A channel hears of something.
    pub(super) fn tell(&mut self, channel: u64, heard: Heard) {
        if let Some(hearing) = self.channels.get_mut(&channel) {
            hearing.hear(heard);
        }
    }

    /// All channels of a host hear of a change of its device.
    pub(super) fn tell_all(&mut self, host: usize, change: DeviceChange) {
        for hearing in self.channels.values_mut().filter(|hearing| hearing.host == host) {
            hearing.hear(Heard::Device(change));
        }
    }

    /// Makes an event happen.
    pub(super) fn happen(&mut self, event: Event) -> Option<u64> {
        match event {
            Event::Resolve { end } => self.resolve(end),
            Event::Ask { end } => self.ask(end),
            Event::Answer { end, answer } => self.answer(end, answer),
            Event::Establish { end } => self.established(end),
            Event::GiveUp { end } => self.fail(end, Errno::ETIMEDOUT),
            Event::Pump { end } => self.pump(end),
            Event::Complete { end, sequence, status } => self.complete(end, sequence, status),
            Event::Interrupt { end } => self.interrupt(end),
            Event::HangUp { end } => self.hang_up(end),
            Event::Timer(number) => return Some(number),
        }
        None
    }
}

/// Things in an order.
pub(super) type Queue<T> = VecDeque<T>;
