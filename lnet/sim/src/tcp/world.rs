//! The parts specific to worlds of TCP nodes: their trouble, and the checks of the wire.

use std::collections::BTreeMap;
use std::net::IpAddr;

use lnet_region::Part;
use lnet_socklnd::SockConfig;
use lnet_socklnd::sys::{Options, Stream, TcpStack};

use super::scenario::{Tcp, TcpMutant};
use super::tap::{BULK_IN, BULK_OUT, CONTROL, HeldConn};
use crate::kit::World;
use crate::kit::world::{LOOK, Later};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The address of misbehaving peers.
pub(super) const MISBEHAVING: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 200));

/// The number of attempts that the other side may refuse (lnet-wire 24), plus one.
const REFUSALS: u32 = 4;

/// A time in which TCP's keepalive surely finds a dead peer: it needs 30 s, and five probes 5 s
/// apart.
const SILENCE_NS: u64 = 100 * S;

/// The number of checks, one second apart; at one of them at least no keepalive is in flight.
const KEEPALIVES: u32 = 5;

/// Options that leave every setting of a socket to the system.
pub const PLAIN_OPTIONS: Options = Options {
    nagle: false,
    tx_buffer_size: 0,
    rx_buffer_size: 0,
    keepalive_idle_s: 0,
    keepalive_count: 0,
    keepalive_intvl_s: 0,
    timeout_s: 0,
    congestion_control: None,
    tos: None,
};

/// A connection of a peer that misbehaves.
pub(super) struct MisbehavingConn {
    _stream: Box<dyn Stream>,
    pub(super) until_ns: u64,
}

/// The additional state of a world of TCP nodes.
pub struct TcpWorldData {
    pub(super) host: usize,
    pub(super) misbehaving: Vec<MisbehavingConn>,
}

impl World<Tcp> {
    /// Limits a node's descriptors for a while: it can open two more at most.
    pub(super) fn squeeze(&mut self, node: usize) -> Result<(), String> {
        let host = self.nodes[node].host;
        let spare = self.rng.below(3) as usize;
        let most = self.net.descriptors(host) + spare;
        let duration_ns = self.rng.pick(&[50 * MS, 1_000 * MS, 40_000 * MS]);
        self.trace(|| format!("node {node} has {spare} descriptors left for {duration_ns} ns"));
        self.net.limit_descriptors(host, most);
        self.plan_later(duration_ns, Later::EndTrouble(node));
        Ok(())
    }

    /// Opens a connection of a misbehaving peer, which sends nothing or garbage.
    pub(super) fn visit(&mut self, node: usize) -> Result<(), String> {
        let config: &SockConfig = &self.scenario.transport.config;
        let Some(to) = self.nodes[node].nids[0].ip().filter(|ip| ip.is_ipv4()) else { return Ok(()) };
        let to = std::net::SocketAddr::new(to, config.accept_port);
        let from = MISBEHAVING;
        self.trace(|| format!("a misbehaving peer connects to node {node}"));
        // A misbehaving peer need not back off.
        self.net.forget(from);
        let Ok(connecting) = self.net.host(self.own.host).connect(from, to, &PLAIN_OPTIONS) else {
            return Ok(());
        };
        self.seen.network.misbehaving += 1;
        let until_ns = self.net.now_ns() + self.rng.pick(&[1_000 * MS, 20_000 * MS]);
        self.net.at(until_ns, LOOK);
        // The connection must be established before anything can be sent.
        self.run_until(self.net.now_ns() + 200 * MS)?;
        let garbage: Vec<u8> = (0..self.rng.below(100)).map(|_| self.rng.next_u64() as u8).collect();
        let request = [0x00, 0x71, 0xce, 0xac, 1, 0, 0, 0];
        let bytes = if self.rng.chance(5_000) { &request[..] } else { &garbage };
        let _ = connecting.stream.send(&[Part::new(bytes)]);
        self.own.misbehaving.push(MisbehavingConn { _stream: connecting.stream, until_ns });
        Ok(())
    }

    /// Checks that no node has more connections to a peer than it may, and that all are of one
    /// incarnation.
    ///
    /// One connection more is allowed at the node with the lower NID. Where both nodes open a
    /// connection of one type, this node may accept the peer's connection before its own attempt is
    /// answered. If its own is accepted too, it keeps both, because a peer that loses one
    /// connection drops all. One of the two may be dead at the peer, if an outage delays the news
    /// of its end.
    pub(super) fn check_bounds(&self, node: usize) -> Result<(), String> {
        let most = usize::from(self.nodes[node].most_per_peer);
        let mutant = self.scenario.transport.mutant == Some(TcpMutant::FewerConnections);
        let most = if mutant { most - 1 } else { most };
        let held = self.net.held(self.nodes[node].host);
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        let mut lives: BTreeMap<_, HeldConn> = BTreeMap::new();
        for one in held {
            let peer = (one.pair, one.port);
            let count = counts.entry((peer, one.conn_type)).or_default();
            *count += 1;
            let crossed = usize::from(one.pair.0 < one.pair.1);
            let bound = crossed + if one.conn_type == CONTROL { 1 } else { most };
            if *count > bound {
                return Err(format!(
                    "node {node} has {count} connections of type {} from {} to {}, but {bound} at the most",
                    one.conn_type, one.pair.0, one.pair.1
                ));
            }
            if self.scenario.transport.mutant == Some(TcpMutant::OneIncarnation) && self.nodes[node].life > 0
            {
                return Err(format!("node {node} has another incarnation: {:?}", one.lives));
            }
            let first = *lives.entry(peer).or_insert(one);
            if first.lives != one.lives {
                return Err(format!(
                    "node {node} has connections from {} to {} in two lives: {:?} and {:?}",
                    one.pair.0, one.pair.1, first.lives, one.lives
                ));
            }
        }
        Ok(())
    }

    /// Compares the counters of an ended incarnation with the bytes on the wire in it. The sent
    /// traffic is known exactly. Received bytes may have been discarded with their connection, but
    /// not if the node has lost no peer and no NI and was not `killed`.
    pub(super) fn check_counters(&mut self, node: usize, killed: bool) -> Result<(), String> {
        let wire = self.net.take_traffic(self.nodes[node].host);
        let counters = self.nodes[node].lnd.counters();
        let (tx, rx) = (counters.tx, counters.rx);
        let whole = !killed && !self.nodes[node].interrupted && rx.peers_lost == 0;
        let payload = rx.bytes_copied + rx.bytes_direct + rx.bytes_discarded;
        let turned_away = rx.refusals + rx.handshake_timeouts;
        // The program counts no attempt that is still in progress when its NI ends.
        let engine = self.nodes[node].engine.counters();
        let taken_or_dropped = engine.recv_count + engine.drop_count;
        let settled = !killed && !self.nodes[node].interrupted;
        let table = [
            ("tx.bytes", tx.bytes, wire.sent.bytes, true),
            ("tx.messages", tx.messages, wire.sent.messages, true),
            // The program counts these messages when it makes them; their connection may break
            // before they leave.
            ("NOOPs on the wire", wire.sent.noops, tx.zc_acks + tx.keepalives, whole),
            ("rx.accepts", rx.accepts, wire.welcomes, true),
            ("rx.messages", rx.messages, wire.received.begun, whole),
            // The length of the delay does not matter: no message is delayed at the end.
            ("messages received or dropped", taken_or_dropped, rx.messages, whole),
            ("messages that ended", rx.messages, taken_or_dropped + engine.errors, false),
            ("rx.noops", rx.noops, wire.received.noops, whole),
            ("rx.bytes_...", payload, wire.received.payload, whole),
            ("rx.connects", rx.connects, wire.welcomed, whole),
            ("all who were accepted or turned away", rx.accepts + turned_away, wire.taken, settled),
            ("NONEs on the wire", wire.refusals, rx.refusals, false),
        ];
        for (what, counted, seen, exact) in table {
            if counted > seen || (exact && counted != seen) {
                let bound = if exact { "" } else { " at the most" };
                return Err(format!("node {node}: {what} is {counted}, but is to be{bound} {seen}"));
            }
        }
        Ok(())
    }

    /// Checks that both sides have the same connections of the same incarnations.
    pub(super) fn both_sides_agree(&mut self) -> Result<(), String> {
        // This is enough for the last attempts, which may have been refused and wait, and for
        // finding that old connections are dead.
        self.run_until(self.net.now_ns() + SILENCE_NS)?;
        // A node that is just opening a connection may be refused some times before the attempt
        // ends.
        for _ in 0..REFUSALS {
            if self.compare_sides().is_ok() {
                break;
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        self.compare_sides()?;
        // At any one moment a keepalive may be in flight.
        for _ in 0..KEEPALIVES {
            if self.net.on_their_way().is_none() {
                return Ok(());
            }
            self.run_until(self.net.now_ns() + S)?;
        }
        match self.net.on_their_way() {
            None => Ok(()),
            Some((from, to, bytes)) => Err(format!("{bytes} bytes from {from} to {to} are never received")),
        }
    }

    fn compare_sides(&self) -> Result<(), String> {
        let mut sides: BTreeMap<_, Vec<(u16, i32, u64, u64)>> = BTreeMap::new();
        for node in &self.nodes {
            for HeldConn { pair, port, conn_type, lives } in self.net.held(node.host) {
                sides.entry(pair).or_default().push((port, conn_type, lives.0, lives.1));
            }
        }
        for (pair, own) in &sides {
            let theirs = sides.get(&(pair.1, pair.0)).cloned().unwrap_or_default();
            let mut own: Vec<_> = own.iter().map(|(_, conn_type, a, b)| (*conn_type, *a, *b)).collect();
            let mut theirs: Vec<_> =
                theirs.iter().map(|(_, conn_type, a, b)| (inverse(*conn_type), *b, *a)).collect();
            own.sort_unstable();
            theirs.sort_unstable();
            if own != theirs {
                return Err(format!(
                    "{} and {} do not agree about their connections: {own:?} and {theirs:?}",
                    pair.0, pair.1
                ));
            }
            let count = |wanted| own.iter().filter(|(conn_type, ..)| *conn_type == wanted).count();
            let (control, bulk_in, bulk_out) = (count(CONTROL), count(BULK_IN), count(BULK_OUT));
            let alone = sides[pair].iter().any(|(port, ..)| *port != 0)
                || sides.get(&(pair.1, pair.0)).is_some_and(|side| side.iter().any(|(port, ..)| *port != 0));
            if control != 1 || (!alone && (bulk_in == 0 || bulk_out == 0)) {
                return Err(format!(
                    "{} and {} have no whole set of connections: {control} CONTROL, {bulk_in} BULK_IN, {bulk_out} \
                     BULK_OUT",
                    pair.0, pair.1
                ));
            }
        }
        Ok(())
    }
}

fn inverse(conn_type: i32) -> i32 {
    match conn_type {
        BULK_IN => BULK_OUT,
        BULK_OUT => BULK_IN,
        other => other,
    }
}
