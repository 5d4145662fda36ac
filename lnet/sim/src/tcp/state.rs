//! The state that only a simulated TCP network has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use lnet_api::Errno;
use lnet_nid::Nid;

use super::behaviour::TcpBehaviour;
use super::end::End;
use super::listening::Listening;
use super::poller::Watching;
use super::seen::TcpSeen;
use super::tap::Tap;
use crate::kit::{self, Wire};

/// The first retransmission interval of a connection attempt; it doubles.
pub(super) const SYN_RETRY_NS: u64 = 1_000_000_000;

/// Segments retransmitted after an outage arrive within this time, or the length of the outage if
/// that was shorter.
const RETRANSMIT_MAX_NS: u64 = 20_000_000_000;

/// A packet between the two ends of a connection.
#[derive(Debug, Clone)]
pub enum Packet {
    /// The first segment of the three-way handshake.
    Syn {
        from: SocketAddr,
        to: SocketAddr,
        retry_ns: u64,
    },
    /// The second segment; `passive` is the new end.
    SynAck {
        passive: u64,
    },
    /// The third segment: the connection goes into the listener's queue.
    Established {
        listener: u64,
    },
    Data(Vec<u8>),
    /// Acknowledges this number of bytes.
    Ack(usize),
    /// Announces room for this number of further bytes.
    Window(usize),
    Fin,
    Reset(Errno),
}

impl Packet {
    /// Returns whether the packet arrives after all that the same end has sent before.
    /// Acknowledgements and window updates add up in any order.
    fn keeps_order(&self) -> bool {
        matches!(self, Packet::Data(_) | Packet::Fin | Packet::Reset(_) | Packet::Established { .. })
    }
}

/// A future event.
pub enum Event {
    /// A packet arrives.
    Packet { hosts: (usize, usize), from: u64, to: u64, packet: Packet },
    /// Checks whether bytes have been acknowledged since the timer was started.
    UserTimeout { end: u64, acked: u64 },
    /// Ends a handshake that its initiator has not completed.
    HalfOpen { end: u64 },
    /// A keepalive probe of TCP.
    Probe { end: u64, failed: u32 },
}

/// The state of a host on a TCP network.
pub struct Sockets {
    pub(super) claims: BTreeSet<Nid>,
    /// The number of open descriptors, and its limit.
    pub(super) descriptors: usize,
    pub(super) descriptors_max: usize,
}

/// Connections, listeners and pollers.
#[derive(Default)]
pub struct TcpWire {
    pub(super) ends: BTreeMap<u64, End>,
    /// The address pairs that are blocked after a connection, with the time at which each is free
    /// again.
    pub(super) resting: BTreeMap<(SocketAddr, SocketAddr), u64>,
    pub(super) listeners: BTreeMap<u64, Listening>,
    pub(super) pollers: BTreeMap<u64, Watching>,
    /// Packets that were to arrive during an outage and will be retransmitted, by direction.
    held: BTreeMap<(usize, usize), Vec<Event>>,
    pub(super) tap: Tap,
}

pub(super) type State = kit::State<TcpWire>;

impl Wire for TcpWire {
    type Event = Event;
    type OfHost = Sockets;
    type Behaviour = TcpBehaviour;
    type Seen = TcpSeen;

    fn of_host(_: &mut State) -> Sockets {
        Sockets { claims: BTreeSet::new(), descriptors: 0, descriptors_max: usize::MAX }
    }

    fn delays_ns(behaviour: &TcpBehaviour) -> [(u64, u64); 2] {
        [behaviour.latency_ns, behaviour.jitter_ns]
    }

    fn happen(state: &mut State, event: Event) {
        match event {
            Event::Packet { hosts, from, to, packet } => state.arrive(hosts, from, to, packet),
            Event::UserTimeout { end, acked } => state.user_timeout(end, acked),
            Event::HalfOpen { end } => state.give_up_half_open(end),
            Event::Probe { end, failed } => state.probe(end, failed),
        }
    }

    fn stop(state: &mut State, host: usize, ends: Vec<u64>, tell: bool) {
        for id in ends {
            match tell {
                true => state.close(id),
                false => state.kill_end(id, false),
            }
        }
        let listeners = state.own.listeners.iter().filter(|(_, it)| it.host == host).map(|(id, _)| *id);
        let listeners: Vec<u64> = listeners.collect();
        listeners.into_iter().for_each(|id| state.close_listener(id));
        let host = &mut state.hosts[host];
        host.addresses.iter().for_each(|ip| state.own.tap.forget(*ip));
        host.own.claims.clear();
        host.own.descriptors = 0;
    }

    fn started(state: &mut State, host: usize) {
        state.retransmit_to(host);
    }

    /// Retransmits the packets that were held back: each connection's at a separate time, in order,
    /// and before packets sent since that are still in flight.
    fn healed(state: &mut State, hosts: (usize, usize), since_ns: u64) {
        let now_ns = state.now_ns;
        let held = state.own.held.remove(&hosts).unwrap_or_default();
        let longest_ns = (now_ns - since_ns).min(RETRANSMIT_MAX_NS);
        let mut delays = BTreeMap::new();
        let sender = |event: &Event| match event {
            Event::Packet { from, .. } => Some(*from),
            _ => None,
        };
        let senders: BTreeSet<u64> = held.iter().filter_map(sender).collect();
        let behind = state.take_events(|event| match event {
            Event::Packet { hosts: way, from, packet, .. } => {
                *way == hosts && senders.contains(from) && packet.keeps_order()
            }
            _ => false,
        });
        for event in held.into_iter().chain(behind) {
            let Some(from) = sender(&event) else { continue };
            let rng = &mut state.rng;
            let delay_ns = *delays.entry(from).or_insert_with(|| rng.between((0, longest_ns)));
            let at_ns = now_ns + delay_ns + state.direction(hosts).latency_ns;
            if let Some(end) = state.own.ends.get_mut(&from) {
                end.last_arrival_ns = end.last_arrival_ns.max(at_ns);
            }
            state.schedule(at_ns, event);
        }
    }

    fn reset(state: &mut State, end: u64) {
        state.seen.resets += 1;
        state.reset(end, Errno::ECONNRESET);
    }

    fn ends(&self) -> impl Iterator<Item = (u64, usize, IpAddr)> {
        self.ends.iter().map(|(id, end)| (*id, end.host, end.remote.ip()))
    }

    fn end_faults(state: &mut State) {
        state.behaviour = state.behaviour.without_faults();
        state.hosts.iter_mut().for_each(|host| host.own.descriptors_max = usize::MAX);
    }

    fn is_ready(&self, poller: u64) -> bool {
        let Some(watching) = self.pollers.get(&poller) else { return false };
        watching.has_reports(|id| self.readiness(id).is_some_and(|state| state[0] || state[1]))
    }

    fn wrong(&self) -> Option<String> {
        self.tap.wrong.first().cloned()
    }

    fn seen(state: &State) -> TcpSeen {
        let tap = &state.own.tap;
        TcpSeen { handshakes: tap.handshakes, refusals: tap.refusals, races: tap.races, ..state.seen }
    }
}

impl State {
    /// Sends a packet, to arrive after all that the same end has sent before.
    pub(super) fn launch(&mut self, hosts: (usize, usize), from: u64, to: u64, packet: Packet) {
        let mut at_ns = self.now_ns + self.delay_ns(hosts);
        if packet.keeps_order()
            && let Some(end) = self.own.ends.get_mut(&from)
        {
            at_ns = at_ns.max(end.last_arrival_ns);
            end.last_arrival_ns = at_ns;
        }
        self.schedule(at_ns, Event::Packet { hosts, from, to, packet });
    }

    fn arrive(&mut self, hosts: (usize, usize), from: u64, to: u64, packet: Packet) {
        if self.direction(hosts).cut.is_some() {
            match packet {
                // TCP repeats the first segment at its own intervals, whenever the outage ends.
                Packet::Syn { .. } => self.syn_lost(hosts, from, packet),
                packet => {
                    let held = Event::Packet { hosts, from, to, packet };
                    self.own.held.entry(hosts).or_default().push(held);
                }
            }
            return;
        }
        if !self.hosts[hosts.1].up {
            // The packet is lost: its sender retransmits it, or gives up.
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
