//! Listeners, and the opening of connections.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use lnet_api::Errno;

use super::end::{End, Phase};
use super::state::{Event, Packet, SYN_RETRY_NS, State};

/// The duration of an attempt to connect without an answer: Linux's six repetitions.
const CONNECT_MAX_NS: u64 = 127_000_000_000;

/// The duration of a handshake without the initiator's last segment: Linux's five repetitions.
const HALF_OPEN_NS: u64 = 63_000_000_000;

/// The time after which a missing host on an existing network is reported.
const NO_NEIGHBOUR_NS: u64 = 3_000_000_000;

/// A listening socket.
pub(super) struct Listening {
    pub(super) host: usize,
    pub(super) address: SocketAddr,
    pub(super) backlog: usize,
    /// Ends whose handshake has begun, and ends that wait to be accepted.
    pub(super) half_open: BTreeSet<u64>,
    pub(super) waiting: VecDeque<u64>,
}

impl State {
    /// Starts a connection attempt of an end.
    pub(super) fn connect(&mut self, end: u64) {
        let Some(End { host, local, remote, .. }) = self.own.ends.get(&end) else { return };
        let (host, from, to) = (*host, *local, *remote);
        self.seen.connects += 1;
        self.log(|_| format!("network: {from} connects to {to} (end {end})"));
        let Some(there) = self.host_of(to.ip()) else {
            let at_ns = self.now_ns + NO_NEIGHBOUR_NS;
            let event = Event::Packet {
                hosts: (host, host),
                from: 0,
                to: end,
                packet: Packet::Reset(Errno::EHOSTUNREACH),
            };
            return self.schedule(at_ns, event);
        };
        self.launch((host, there), end, 0, Packet::Syn { from, to, retry_ns: SYN_RETRY_NS });
    }

    /// Handles a first segment that found no host: it is repeated, unless that takes too long.
    pub(super) fn syn_lost(&mut self, hosts: (usize, usize), active: u64, packet: Packet) {
        let Packet::Syn { from, to, retry_ns } = packet else { return };
        if !self.own.ends.contains_key(&active) {
            return;
        }
        self.seen.syns_lost += 1;
        let at_ns = self.now_ns + retry_ns;
        let packet = match retry_ns * 2 > CONNECT_MAX_NS {
            true => Packet::Reset(Errno::ETIMEDOUT),
            false => Packet::Syn { from, to, retry_ns: retry_ns * 2 },
        };
        let event = match packet {
            Packet::Reset(_) => Event::Packet { hosts: (hosts.0, hosts.0), from: 0, to: active, packet },
            packet => Event::Packet { hosts, from: active, to: 0, packet },
        };
        self.schedule(at_ns, event);
    }

    pub(super) fn syn(
        &mut self,
        hosts: (usize, usize),
        active: u64,
        (from, to): (SocketAddr, SocketAddr),
        retry_ns: u64,
    ) {
        // The end was closed while the segment was in flight.
        if !self.own.ends.get(&active).is_some_and(|end| end.phase == Phase::Connecting) {
            return;
        }
        let found = self.own.listeners.iter().find(|(_, listening)| listening.address == to);
        let Some((&listener, listening)) = found else {
            self.seen.refused += 1;
            return self.launch((hosts.1, hosts.0), 0, active, Packet::Reset(Errno::ECONNREFUSED));
        };
        if listening.half_open.len() + listening.waiting.len() > listening.backlog {
            self.seen.backlog_full += 1;
            return self.syn_lost(hosts, active, Packet::Syn { from, to, retry_ns });
        }
        let passive = self.id();
        let mut end = End::new(hosts.1, to, from, &self.behaviour);
        end.phase = Phase::Open;
        end.peer = Some(active);
        end.window = self.behaviour.receive_buffer;
        self.own.ends.insert(passive, end);
        if let Some(listening) = self.own.listeners.get_mut(&listener) {
            listening.half_open.insert(passive);
        }
        if let Some(end) = self.own.ends.get_mut(&active) {
            end.peer = Some(passive);
        }
        // The third segment finds the listener by the passive end.
        self.own.tap.opened(active, passive, (from, to), hosts);
        self.own.ends.get_mut(&passive).into_iter().for_each(|end| end.listener = Some(listener));
        self.launch((hosts.1, hosts.0), passive, active, Packet::SynAck { passive });
        self.schedule(self.now_ns + HALF_OPEN_NS, Event::HalfOpen { end: passive });
    }

    /// Ends a handshake whose third segment has not come in time.
    pub(super) fn give_up_half_open(&mut self, passive: u64) {
        let listener = self.own.ends.get(&passive).and_then(|end| end.listener);
        let listening = listener.and_then(|listener| self.own.listeners.get_mut(&listener));
        if listening.is_some_and(|listening| listening.half_open.remove(&passive)) {
            self.kill_end(passive, false);
        }
    }

    pub(super) fn syn_ack(&mut self, hosts: (usize, usize), active: u64, passive: u64) {
        let back = (hosts.1, hosts.0);
        let Some(end) = self.own.ends.get_mut(&active).filter(|end| end.phase == Phase::Connecting) else {
            return self.launch(back, 0, passive, Packet::Reset(Errno::ECONNRESET));
        };
        end.phase = Phase::Open;
        end.window = self.behaviour.receive_buffer;
        let listener = self.own.ends.get(&passive).and_then(|end| end.listener);
        if let Some(listener) = listener {
            self.launch(back, active, passive, Packet::Established { listener });
        }
        self.start_probes(active);
        self.notify(active);
    }

    pub(super) fn established(&mut self, passive: u64, listener: u64) {
        let Some(listening) = self.own.listeners.get_mut(&listener) else {
            // If the listener was closed, the connecting end gets a reset.
            return self.kill_end(passive, true);
        };
        if listening.half_open.remove(&passive) {
            listening.waiting.push_back(passive);
            self.seen.queued_to_accept += 1;
            self.start_probes(passive);
            self.notify(listener);
        }
    }

    /// Closes a listener: connections that wait are reset.
    pub(super) fn close_listener(&mut self, listener: u64) {
        let Some(listening) = self.own.listeners.remove(&listener) else { return };
        self.hosts[listening.host].own.descriptors -= 1;
        for end in listening.waiting {
            self.kill_end(end, true);
        }
        self.forget_watch(listener);
    }
}
