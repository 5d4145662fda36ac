//! Everything a simulated TCP network is made of, and its one queue of what is to come.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, SocketAddr};

use lnet_api::Errno;
use lnet_nid::Nid;

use super::end::End;
use super::habits::TcpHabits;
use super::listening::Listening;
use super::poller::Watching;
use super::seen::TcpSeen;
use super::tap::Tap;
use crate::Rng;

/// Virtual time begins here, so that a clock that starts at 0 is not needed by chance.
const BEGINNING_NS: u64 = 1_000_000_000;

/// How often a connection that is being opened says so again, at first; it doubles.
pub(super) const SYN_RETRY_NS: u64 = 1_000_000_000;

/// Segments sent again after an outage come within this time, or that of the outage, if it was shorter.
const RETRANSMIT_MAX_NS: u64 = 20_000_000_000;

/// What travels on a connection.
#[derive(Debug, Clone)]
pub(super) enum Packet {
    /// The three-way handshake's first segment.
    Syn {
        from: SocketAddr,
        to: SocketAddr,
        retry_ns: u64,
    },
    /// Its second; `passive` is the new end.
    SynAck {
        passive: u64,
    },
    /// Its third: the connection stands in the listener's queue.
    Established {
        listener: u64,
    },
    Data(Vec<u8>),
    /// So many bytes have arrived.
    Ack(usize),
    /// There is room for so many more.
    Window(usize),
    Fin,
    Reset(Errno),
}

impl Packet {
    /// Whether it arrives behind all that the same end has sent before. What says how much has come or may come adds up in
    /// any order.
    fn keeps_order(&self) -> bool {
        matches!(self, Packet::Data(_) | Packet::Fin | Packet::Reset(_) | Packet::Established { .. })
    }
}

/// Something that happens.
#[derive(Debug)]
pub(super) enum Event {
    /// A packet arrives.
    Packet { hosts: (usize, usize), from: u64, to: u64, packet: Packet },
    /// It is looked at whether bytes have been acknowledged since.
    UserTimeout { end: u64, acked: u64 },
    /// A handshake that its initiator has not ended is given up.
    HalfOpen { end: u64 },
    /// TCP's own keepalive.
    Probe { end: u64, failed: u32 },
    /// A direction between two hosts works again.
    Heal { hosts: (usize, usize), cut: u64 },
    /// Whoever runs the network asked for it.
    Timer(u64),
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

/// A machine with addresses.
pub(super) struct Host {
    pub(super) addresses: Vec<IpAddr>,
    /// It may use ports below 1024.
    pub(super) privileged: bool,
    pub(super) up: bool,
    /// Counts its starts: sockets of an earlier one are dead.
    pub(super) life: u64,
    pub(super) claims: BTreeSet<Nid>,
    /// The last one given to an NI.
    pub(super) incarnation: u64,
    /// Open descriptors, and the most there may be.
    pub(super) descriptors: usize,
    pub(super) descriptors_max: usize,
    /// The next port that is given to whoever asks for none.
    pub(super) next_port: u16,
}

/// Between two hosts, in one direction.
#[derive(Default)]
pub(super) struct Way {
    pub(super) latency_ns: u64,
    /// Numbers the present outage, if there is one, with its beginning.
    pub(super) cut: Option<(u64, u64)>,
    /// What was to arrive during the outage, to be sent again.
    pub(super) held: Vec<(u64, u64, Packet)>,
}

/// The whole network.
pub(super) struct State {
    pub(super) now_ns: u64,
    pub(super) rng: Rng,
    pub(super) habits: TcpHabits,
    queue: BinaryHeap<Scheduled>,
    sequence: u64,
    next_id: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) ways: BTreeMap<(usize, usize), Way>,
    pub(super) ends: BTreeMap<u64, End>,
    /// Address pairs that rest: until when.
    pub(super) resting: BTreeMap<(SocketAddr, SocketAddr), u64>,
    pub(super) listeners: BTreeMap<u64, Listening>,
    pub(super) pollers: BTreeMap<u64, Watching>,
    pub(super) tap: Tap,
    pub(super) seen: TcpSeen,
    /// What happened since it was last asked for; `None`: nobody wants to know.
    pub(super) log: Option<Vec<String>>,
}

impl State {
    pub(super) fn new(seed: u64, habits: TcpHabits) -> State {
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
            resting: BTreeMap::new(),
            listeners: BTreeMap::new(),
            pollers: BTreeMap::new(),
            tap: Tap::default(),
            seen: TcpSeen::default(),
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
            let line = line(self);
            self.log.iter_mut().for_each(|log| log.push(line.clone()));
        }
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

    pub(super) fn host_of(&self, ip: IpAddr) -> Option<usize> {
        self.hosts.iter().position(|host| host.addresses.contains(&ip))
    }

    pub(super) fn way(&mut self, hosts: (usize, usize)) -> &mut Way {
        let latency = self.habits.latency_ns;
        let rng = &mut self.rng;
        self.ways.entry(hosts).or_insert_with(|| Way {
            latency_ns: rng.between(latency),
            cut: None,
            held: Vec::new(),
        })
    }

    /// How long a packet takes at this moment.
    pub(super) fn delay_ns(&mut self, hosts: (usize, usize)) -> u64 {
        let latency_ns = self.way(hosts).latency_ns;
        latency_ns + self.rng.between(self.habits.jitter_ns)
    }

    /// Puts a packet on its way, behind all that the same end has sent before.
    pub(super) fn launch(&mut self, hosts: (usize, usize), from: u64, to: u64, packet: Packet) {
        let mut at_ns = self.now_ns + self.delay_ns(hosts);
        if packet.keeps_order()
            && let Some(end) = self.ends.get_mut(&from)
        {
            at_ns = at_ns.max(end.last_arrival_ns);
            end.last_arrival_ns = at_ns;
        }
        self.schedule(at_ns, Event::Packet { hosts, from, to, packet });
    }

    /// Nothing gets through in this direction until it is healed: at a certain time, or by whoever cut it.
    pub(super) fn cut(&mut self, hosts: (usize, usize), until_ns: Option<u64>) {
        let cut = self.id();
        let now_ns = self.now_ns;
        self.way(hosts).cut.get_or_insert((cut, now_ns)).0 = cut;
        self.log(|_| format!("network: nothing gets from host {} to host {}", hosts.0, hosts.1));
        if let Some(until_ns) = until_ns {
            self.schedule(until_ns, Event::Heal { hosts, cut });
        }
    }

    /// What was held back is sent again: each connection's at a time of its own, in order, and before what has been sent since
    /// and is still on its way.
    pub(super) fn heal(&mut self, hosts: (usize, usize), cut: Option<u64>) {
        let now_ns = self.now_ns;
        let way = self.way(hosts);
        let Some((number, since_ns)) = way.cut.filter(|(number, _)| cut.is_none_or(|cut| cut == *number))
        else {
            return;
        };
        let _ = number;
        way.cut = None;
        let held = std::mem::take(&mut way.held);
        self.log(|_| format!("network: host {} reaches host {} again", hosts.0, hosts.1));
        let longest_ns = (now_ns - since_ns).min(RETRANSMIT_MAX_NS);
        let mut delays = BTreeMap::new();
        let senders: BTreeSet<u64> = held.iter().map(|(from, ..)| *from).collect();
        let behind = self.take_out(hosts, &senders);
        for (from, to, packet) in held.into_iter().chain(behind) {
            let rng = &mut self.rng;
            let delay_ns = *delays.entry(from).or_insert_with(|| rng.between((0, longest_ns)));
            let at_ns = now_ns + delay_ns + self.way(hosts).latency_ns;
            let at_ns = self.ends.get_mut(&from).map_or(at_ns, |end| {
                end.last_arrival_ns = end.last_arrival_ns.max(at_ns);
                at_ns
            });
            self.schedule(at_ns, Event::Packet { hosts, from, to, packet });
        }
    }

    /// Takes out what these ends have on its way and must not arrive before what is sent again, in its order.
    fn take_out(&mut self, way: (usize, usize), senders: &BTreeSet<u64>) -> Vec<(u64, u64, Packet)> {
        let mut taken = Vec::new();
        // The latest is the first.
        for scheduled in std::mem::take(&mut self.queue).into_sorted_vec().into_iter().rev() {
            match scheduled.event {
                Event::Packet { hosts, from, to, packet }
                    if hosts == way && senders.contains(&from) && packet.keeps_order() =>
                {
                    taken.push((from, to, packet));
                }
                event => self.queue.push(Scheduled { key: scheduled.key, event }),
            }
        }
        taken
    }

    /// Makes an event happen.
    pub(super) fn happen(&mut self, event: Event) -> Option<u64> {
        match event {
            Event::Packet { hosts, from, to, packet } => self.arrive(hosts, from, to, packet),
            Event::UserTimeout { end, acked } => self.user_timeout(end, acked),
            Event::HalfOpen { end } => self.give_up_half_open(end),
            Event::Probe { end, failed } => self.probe(end, failed),
            Event::Heal { hosts, cut } => self.heal(hosts, Some(cut)),
            Event::Timer(number) => return Some(number),
        }
        None
    }

    fn arrive(&mut self, hosts: (usize, usize), from: u64, to: u64, packet: Packet) {
        let way = self.way(hosts);
        if way.cut.is_some() {
            match packet {
                // TCP repeats it at its own pace, which does not know when the outage ends.
                Packet::Syn { .. } => self.syn_lost(hosts, from, packet),
                packet => way.held.push((from, to, packet)),
            }
            return;
        }
        if !self.hosts[hosts.1].up {
            // Whoever sends will send again, or give up.
            if let Packet::Syn { .. } = packet {
                self.syn_lost(hosts, from, packet);
            }
            return;
        }
        match packet {
            Packet::Syn { from: address, to: wanted, retry_ns } => {
                self.syn(hosts, from, (address, wanted), retry_ns);
            }
            Packet::SynAck { passive } => self.syn_ack(hosts, to, passive),
            Packet::Established { listener } => self.established(to, listener),
            Packet::Data(bytes) => self.data(hosts, from, to, bytes),
            Packet::Ack(count) => self.acked(to, count),
            Packet::Window(count) => self.window(to, count),
            Packet::Fin => self.fin(hosts, from, to),
            Packet::Reset(errno) => self.reset(to, errno),
        }
    }
}
