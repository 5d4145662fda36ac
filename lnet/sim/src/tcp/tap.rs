//! An observer of the simulated wire.
//!
//! The observer decodes the handshakes (lnet-wire 20 to 24) from the bytes that the nodes send,
//! without code of the LND, and so finds the connections that each host should have. It checks that
//! a node that failed to connect waits for its back-off, and counts handshakes, refusals, races and
//! each program's traffic.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::traffic::{Meter, Traffic, word};

/// The maximum length of a request and a hello in bytes.
const GREETING_MAX: usize = 256;

const NONE: i32 = -1;
pub(super) const CONTROL: i32 = 1;
pub(super) const BULK_IN: i32 = 2;
pub(super) const BULK_OUT: i32 = 3;

const CONNREQ_MAGIC: u32 = 0xacce_7100;

/// The highest port that needs privileges.
const PRIVILEGED_MAX: u16 = 1023;

/// The fields of a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hello {
    version: u32,
    conn_type: i32,
    incarnation: u64,
    length: usize,
}

/// One side of a connection.
#[derive(Debug, Default)]
struct Side {
    end: u64,
    host: usize,
    address: Option<SocketAddr>,
    /// The first bytes that this side has sent, which contain its hello.
    head: Vec<u8>,
    sent: u64,
    received: u64,
    closed: bool,
    /// The traffic after the handshake, sent and received.
    out: Meter,
    into: Meter,
}

/// A connection: the side that opened it, and the other side.
#[derive(Debug, Default)]
struct Wire {
    sides: [Side; 2],
    hello: Option<Hello>,
    reply: Option<Hello>,
    /// The number of bytes that the opening side has sent up to the end of its hello.
    greeting: usize,
    settled: bool,
}

/// A connection in the view of one of its two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldConn {
    /// This side's and the peer's address.
    pub(super) pair: (IpAddr, IpAddr),
    /// The port by which the peer is identified; 0 if that port is privileged.
    pub(super) port: u16,
    /// The connection's type in the view of this side.
    pub(super) conn_type: i32,
    /// This side's and the peer's incarnation.
    pub(super) lives: (u64, u64),
}

/// The results of attempts to connect from one address to another.
#[derive(Debug, Default)]
struct Attempts {
    failures: u32,
    not_before_ns: Option<u64>,
    /// The time at which a socket without an answer was closed. A socket that begins to connect at
    /// exactly this time continues the same attempt.
    unanswered_ns: Option<u64>,
}

#[derive(Default)]
pub(super) struct Tap {
    /// The connections, by the end that opened them.
    wires: BTreeMap<u64, Wire>,
    /// The active end of each passive end.
    passive: BTreeMap<u64, u64>,
    attempts: BTreeMap<(IpAddr, IpAddr), Attempts>,
    /// The first and the longest back-off. While unset, no back-off is checked.
    pub(super) backoff_ns: Option<(u64, u64)>,
    pub(super) handshakes: u64,
    pub(super) refusals: u64,
    pub(super) races: u64,
    /// The traffic of each host in its current incarnation.
    traffic: BTreeMap<usize, Traffic>,
    /// Violations of the rules.
    pub(super) wrong: Vec<String>,
}

impl Tap {
    pub(super) fn connecting(&mut self, end: u64, pair: (IpAddr, IpAddr), now_ns: u64) {
        let back = (pair.1, pair.0);
        let attempts = self.attempts.entry(pair).or_default();
        if attempts.unanswered_ns.take() == Some(now_ns) {
            attempts.not_before_ns = None;
            attempts.failures = attempts.failures.saturating_sub(1);
        }
        if let Some(not_before_ns) = attempts.not_before_ns.take()
            && now_ns < not_before_ns
        {
            let early_ns = not_before_ns - now_ns;
            let failures = attempts.failures;
            self.wrong.push(format!(
                "{} connects to {} after {failures} failures, {early_ns} ns before its back-off ends",
                pair.0, pair.1
            ));
        }
        let under_way =
            |wire: &Wire| wire.pair() == Some(back) && wire.reply.is_none() && !wire.sides[0].closed;
        self.races += u64::from(self.wires.values().any(under_way));
        let mut wire = Wire::default();
        wire.sides[0].end = end;
        wire.sides[0].address = Some(SocketAddr::new(pair.0, 0));
        wire.sides[1].address = Some(SocketAddr::new(pair.1, 0));
        self.wires.insert(end, wire);
    }

    pub(super) fn opened(
        &mut self,
        active: u64,
        passive: u64,
        (from, to): (SocketAddr, SocketAddr),
        hosts: (usize, usize),
    ) {
        let Some(wire) = self.wires.get_mut(&active) else { return };
        (wire.sides[0].host, wire.sides[0].address) = (hosts.0, Some(from));
        let (end, host, address) = (passive, hosts.1, Some(to));
        wire.sides[1] = Side { end, host, address, ..Side::default() };
        self.passive.insert(passive, active);
    }

    pub(super) fn sent(&mut self, end: u64, bytes: &[u8]) {
        let Some((_, wire, place)) = wire_of(&mut self.wires, &self.passive, end) else { return };
        let side = &mut wire.sides[place];
        let before = side.sent;
        side.sent += bytes.len() as u64;
        let room = GREETING_MAX - side.head.len().min(GREETING_MAX);
        side.head.extend(&bytes[..bytes.len().min(room)]);
        if place == 0 && wire.hello.is_none() {
            if let Some(skip) = request_length(&wire.sides[0].head) {
                wire.hello = wire.sides[0].head.get(skip..).and_then(parse);
                wire.greeting = skip + wire.hello.map_or(0, |hello| hello.length);
            }
        } else if place == 1 && wire.reply.is_none() {
            wire.reply = parse(&wire.sides[1].head);
            let refused = wire.reply.map(|reply| reply.conn_type == NONE);
            self.refusals += u64::from(refused == Some(true));
            let traffic = self.traffic.entry(wire.sides[1].host).or_default();
            traffic.refusals += u64::from(refused == Some(true));
            traffic.welcomes += u64::from(refused == Some(false));
        }
        if let Some((version, skip)) = wire.behind(place, before, bytes.len()) {
            let side = &mut wire.sides[place];
            let traffic = self.traffic.entry(side.host).or_default();
            side.out.feed(version, &bytes[skip..], &mut traffic.sent);
        }
    }

    pub(super) fn received(&mut self, end: u64, bytes: &[u8]) {
        let Some((_, wire, place)) = wire_of(&mut self.wires, &self.passive, end) else { return };
        let before = wire.sides[place].received;
        wire.sides[place].received += bytes.len() as u64;
        if let Some((version, skip)) = wire.behind(1 - place, before, bytes.len()) {
            let side = &mut wire.sides[place];
            let traffic = self.traffic.entry(side.host).or_default();
            side.into.feed(version, &bytes[skip..], &mut traffic.received);
        }
        let host = wire.sides[place].host;
        let Some(pair) = wire.pair() else { return };
        let answered = place == 0 && !wire.settled && wire.is_known(0);
        let refused = place == 0 && !wire.settled && wire.reply.is_some_and(|reply| reply.conn_type == NONE);
        wire.settled |= answered || refused;
        if answered {
            self.handshakes += 1;
            self.traffic.entry(host).or_default().welcomed += 1;
            self.attempts.remove(&pair);
            // When a node loses its connections to a peer, it may also forget its failures to
            // connect.
            if let Some(other) = self.attempts.get_mut(&(pair.1, pair.0)) {
                other.failures = other.failures.min(1);
            }
        } else if refused && let Some(attempts) = self.attempts.get_mut(&pair) {
            attempts.not_before_ns = None;
        }
    }

    /// Counts a connection that a program has taken from its listener's queue.
    pub(super) fn taken(&mut self, host: usize) {
        self.traffic.entry(host).or_default().taken += 1;
    }

    /// Returns and resets the traffic of a host's program.
    pub(super) fn take_traffic(&mut self, host: usize) -> Traffic {
        self.traffic.remove(&host).unwrap_or_default()
    }

    /// Records that a program has closed an end without an answer.
    pub(super) fn unanswered(&mut self, end: u64, pair: (IpAddr, IpAddr), now_ns: u64) {
        self.closed(end, now_ns);
        self.attempts.entry(pair).or_default().unanswered_ns = Some(now_ns);
    }

    /// Records that a program has ended one side.
    pub(super) fn closed(&mut self, end: u64, now_ns: u64) {
        let backoff_ns = self.backoff_ns;
        let Some((active, wire, place)) = wire_of(&mut self.wires, &self.passive, end) else { return };
        if std::mem::replace(&mut wire.sides[place].closed, true) {
            return;
        }
        let (pair, settled) = (wire.pair(), wire.settled);
        let over = wire.sides.iter().all(|side| side.closed || side.end == 0);
        let passive = wire.sides[1].end;
        if let (Some(pair), Some((first_ns, most_ns)), true) = (pair, backoff_ns, place == 0 && !settled) {
            let attempts = self.attempts.entry(pair).or_default();
            let doubled_ns = first_ns.saturating_mul(1 << attempts.failures.min(20));
            attempts.not_before_ns = Some(now_ns + doubled_ns.min(most_ns));
            attempts.failures += 1;
        }
        if over {
            self.wires.remove(&active);
            self.passive.remove(&passive);
        }
    }

    /// Removes the state of attempts from an address.
    pub(super) fn forget(&mut self, ip: IpAddr) {
        self.attempts.retain(|pair, _| pair.0 != ip);
    }

    /// Returns the connections of a host, sorted.
    pub(super) fn held(&self, host: usize) -> Vec<HeldConn> {
        let mut held: Vec<HeldConn> = self
            .wires
            .values()
            .flat_map(|wire| (0..2).filter_map(|place| wire.held(place)))
            .filter(|(at, _)| *at == host)
            .map(|(_, held)| held)
            .collect();
        held.sort();
        held
    }

    /// Returns the addresses of an open connection with bytes that were sent and not received, in
    /// the direction of these bytes, and their number.
    pub(super) fn on_their_way(&self) -> Option<(IpAddr, IpAddr, u64)> {
        self.wires.values().filter(|wire| wire.sides.iter().all(|side| !side.closed)).find_map(|wire| {
            let (from, to) = wire.pair()?;
            let missing =
                |place: usize| wire.sides[place].sent.saturating_sub(wire.sides[1 - place].received);
            match (missing(0), missing(1)) {
                (0, 0) => None,
                (0, back) => Some((to, from, back)),
                (there, _) => Some((from, to, there)),
            }
        })
    }
}

impl Wire {
    fn pair(&self) -> Option<(IpAddr, IpAddr)> {
        Some((self.sides[0].address?.ip(), self.sides[1].address?.ip()))
    }

    /// Returns whether a side considers the connection established: the answering side once it has
    /// answered, the other once it has received the answer.
    fn is_known(&self, place: usize) -> bool {
        let Some(reply) = self.reply.filter(|reply| reply.conn_type != NONE) else { return false };
        !self.sides[place].closed && (place == 1 || self.sides[0].received >= reply.length as u64)
    }

    /// Returns the version of an accepted connection, and the number of handshake bytes among
    /// `count` bytes that this side has sent after `before` others.
    fn behind(&self, place: usize, before: u64, count: usize) -> Option<(u32, usize)> {
        let reply = self.reply.filter(|reply| reply.conn_type != NONE)?;
        let greeting = if place == 0 { self.greeting } else { reply.length };
        Some((reply.version, greeting.saturating_sub(before as usize).min(count)))
    }

    fn held(&self, place: usize) -> Option<(usize, HeldConn)> {
        let (hello, reply) = (self.hello?, self.reply?);
        if !self.is_known(place) {
            return None;
        }
        let [own, other] = [&self.sides[place], &self.sides[1 - place]];
        let peer = other.address?;
        let port = if place == 1 && peer.port() > PRIVILEGED_MAX { peer.port() } else { 0 };
        let said = [&hello, &reply];
        let (own_hello, other_hello) = (said[place], said[1 - place]);
        let held = HeldConn {
            pair: (own.address?.ip(), peer.ip()),
            port,
            conn_type: own_hello.conn_type,
            lives: (own_hello.incarnation, other_hello.incarnation),
        };
        Some((own.host, held))
    }
}

/// Returns the connection of an end, and the index of this end's side.
fn wire_of<'a>(
    wires: &'a mut BTreeMap<u64, Wire>,
    passive: &BTreeMap<u64, u64>,
    end: u64,
) -> Option<(u64, &'a mut Wire, usize)> {
    let (active, side) = passive.get(&end).map_or((end, 0), |active| (*active, 1));
    wires.get_mut(&active).map(|wire| (active, wire, side))
}

/// Returns the length of an acceptor request, behind which the hello begins.
fn request_length(bytes: &[u8]) -> Option<usize> {
    (word(bytes, 0)? == CONNREQ_MAGIC).then_some(())?;
    Some(if word(bytes, 4)? == 1 { 16 } else { 28 })
}

fn parse(bytes: &[u8]) -> Option<Hello> {
    let version = word(bytes, 4)?;
    let (incarnation, conn_type, mut length) = if version == 4 { (56, 72, 80) } else { (32, 48, 56) };
    if version != 4 {
        length += 4 * word(bytes, 52)? as usize;
    }
    let incarnation = u64::from(word(bytes, incarnation + 4)?) << 32 | u64::from(word(bytes, incarnation)?);
    let conn_type = word(bytes, conn_type)?.cast_signed();
    (bytes.len() >= length).then_some(Hello { version, conn_type, incarnation, length })
}
