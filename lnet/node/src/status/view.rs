//! The content of a node's status.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lnet::{ByKind, Counters, NiStatistics, PeerStatistics, RecentDrop, Traffic};
use lnet_api::Drive;
use lnet_nid::Nid;
use lnet_o2iblnd::{ConnStats as O2ibCensus, O2ibCounters, O2ibLnd};
use lnet_socklnd::sys::TcpFacts;
use lnet_socklnd::{ConnInfo, ConnStats, Connections, SockCounters, SockLnd};
use parking_lot::RwLock;

use super::json::{JsonObject, quoted};
use super::{STATUS_PEERS, STATUS_VERSION};
use crate::drive::NodeDrive;
use crate::o2ib::Verbs;
use crate::{NodeConfig, Tunable};

/// Access to the parts of a node from which the status is made, for any thread.
#[derive(Clone)]
pub(crate) struct StatusView {
    drive: Arc<NodeDrive>,
    sock: Arc<SockLnd>,
    verbs: Arc<Verbs>,
    nids: Arc<RwLock<Vec<Nid>>>,
    partitions: usize,
    accept_port: u16,
    accept: String,
    begun: Instant,
    begun_at: SystemTime,
    /// Members of the status that the program around the node has added.
    added: Arc<RwLock<Vec<Added>>>,
}

/// A member of the object: its name, and the function that returns its value.
type Added = (&'static str, Box<dyn Fn() -> String + Send + Sync>);

impl StatusView {
    pub(crate) fn new(
        drive: Arc<NodeDrive>,
        (sock, verbs): (Arc<SockLnd>, Arc<Verbs>),
        nids: Arc<RwLock<Vec<Nid>>>,
        partitions: usize,
        config: &NodeConfig,
    ) -> StatusView {
        let policy = Tunable::find("lnet", "accept").map(|tunable| tunable.value(config));
        StatusView {
            drive,
            sock,
            verbs,
            nids,
            partitions,
            accept_port: config.tcp.accept_port,
            accept: policy.unwrap_or_default(),
            begun: Instant::now(),
            begun_at: SystemTime::now(),
            added: Arc::default(),
        }
    }

    pub(crate) fn add(&self, name: &'static str, content: Box<dyn Fn() -> String + Send + Sync>) {
        let mut added = self.added.write();
        added.retain(|(other, _)| *other != name);
        added.push((name, content));
    }

    /// Returns the traffic and credits of each NI, `0@lo` first.
    pub(crate) fn nis(&self) -> Vec<NiStatistics> {
        let nids = self.nids.read().clone();
        let all = std::iter::once(Nid::LOOPBACK).chain(nids);
        all.filter_map(|nid| self.drive.engine.ni_statistics(nid)).collect()
    }

    /// Returns the whole object. Takes the node's locks, each briefly.
    pub(crate) fn json(&self) -> String {
        let begun_at = self.begun_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let object = JsonObject::new()
            .value("version", STATUS_VERSION)
            .value("pid", std::process::id())
            .text("program", program())
            .text("nlx", env!("CARGO_PKG_VERSION"))
            .value("started_unix_s", begun_at)
            .value("uptime_s", format_args!("{:.3}", self.begun.elapsed().as_secs_f64()))
            .list("nids", self.nids.read().iter().map(|nid| quoted(&nid.to_string())))
            .value("accept_port", self.accept_port)
            .text("accept", &self.accept)
            .value("partitions", self.partitions)
            .value("spin_us", self.drive.spin().as_micros())
            .value("counters", counters(&self.drive.engine.counters()))
            .list("nis", self.nis().iter().map(ni))
            .value("peers", self.peers())
            .list("last_drops", self.drive.engine.recent_drops().iter().map(last_drop))
            .value("connections", connections(&self.sock.conn_stats()))
            .value("tcp", tcp(&self.sock.counters()))
            .value("memory", memory(&fs::read_to_string("/proc/self/status").unwrap_or_default()));
        let object = match self.verbs.get() {
            Some(lnd) => object.value("o2ib", o2ib(lnd)),
            None => object,
        };
        self.added.read().iter().fold(object, |object, (name, content)| object.value(name, content())).end()
    }
}

impl StatusView {
    fn peers(&self) -> String {
        let connections = |listed: &[PeerStatistics]| {
            let nids: HashSet<Nid> = listed.iter().map(|peer| peer.nid).collect();
            self.sock.connections(|nid| nids.contains(&nid))
        };
        peers(self.drive.engine.peer_statistics(), connections)
    }
}

/// Returns the file name of the program, from its first argument.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn counters(counters: &Counters) -> String {
    let amount = |messages, bytes| JsonObject::new().value("messages", messages).value("bytes", bytes).end();
    JsonObject::new()
        .value("sent", amount(counters.send_count, counters.send_length))
        .value("received", amount(counters.recv_count, counters.recv_length))
        .value("dropped", amount(counters.drop_count, counters.drop_length))
        .value("pushes_ignored", counters.pushes_ignored)
        .value("errors", counters.errors)
        .value("response_timeouts", counters.response_timeout_count)
        .value("in_flight", counters.msgs_alloc)
        .value("in_flight_max", counters.msgs_max)
        .value("responses_awaited", counters.rst_alloc)
        .end()
}

/// Returns the JSON of a dropped message. Match bits are text: programs that read JSON numbers as
/// doubles lose bits above 2^53.
fn last_drop(drop: &RecentDrop) -> String {
    let RecentDrop { kind, source, target, portal, match_bits, length, reason, count, age_ns } = drop;
    let match_bits = match_bits.map(|bits| quoted(&format!("{:#x}", bits.0)));
    JsonObject::new()
        .text("kind", kind)
        .text("source", source)
        .text("target", target)
        .maybe("portal", *portal)
        .maybe("match_bits", match_bits)
        .value("length", length)
        .text("reason", reason)
        .value("count", count)
        .value("age_s", format_args!("{:.3}", *age_ns as f64 / 1e9))
        .end()
}

fn ni(ni: &NiStatistics) -> String {
    let object = JsonObject::new().text("nid", ni.nid).value("up", ni.up);
    let object = credits(object, ni.credits, ni.available_tx_credits, ni.min_tx_credits);
    traffic(object.value("held_back", ni.held_back), &ni.traffic).end()
}

fn credits(object: JsonObject, all: i64, available: i64, lowest: i64) -> JsonObject {
    object
        .value("credits", all)
        .value("credits_available", available)
        .value("credits_lowest", lowest)
        .value("waiting", waiting(available))
}

/// Returns the number of messages that wait for a credit: LNet counts them as negative credits.
fn waiting(available: i64) -> u64 {
    available.min(0).unsigned_abs()
}

fn traffic(object: JsonObject, traffic: &Traffic) -> JsonObject {
    let kinds = |kinds: &ByKind| {
        let object = JsonObject::new().value("put", kinds.put).value("get", kinds.get);
        object.value("reply", kinds.reply).value("ack", kinds.ack).end()
    };
    let object = object.value("sent", kinds(&traffic.sent)).value("received", kinds(&traffic.received));
    object.value("dropped", kinds(&traffic.dropped))
}

/// Returns the JSON of the peers: those with the most waiting messages first, then the busiest.
fn peers(mut all: Vec<PeerStatistics>, connections: impl Fn(&[PeerStatistics]) -> Vec<ConnInfo>) -> String {
    let known = all.len();
    let waiting_all: u64 = all.iter().map(|peer| waiting(peer.available_tx_credits)).sum();
    all.sort_by_cached_key(|peer| {
        let Traffic { sent, received, .. } = peer.traffic;
        let order = (waiting(peer.available_tx_credits), sent.sum() + received.sum());
        (Reverse(order), peer.nid.to_string())
    });
    let listed = &all[..known.min(STATUS_PEERS)];
    let connections = connections(listed);
    let listed = listed.iter().map(|peer| {
        let object = JsonObject::new().text("nid", peer.nid);
        let object = credits(object, peer.max_ni_tx_credits, peer.available_tx_credits, peer.min_tx_credits);
        let object = traffic(object.value("queued_bytes", peer.tx_q_num_of_buf), &peer.traffic);
        object.value("tcp", tcp_of(connections.iter().filter(|conn| conn.nid == peer.nid))).end()
    });
    let object = JsonObject::new().value("known", known).value("waiting", waiting_all);
    object.list("list", listed).value("left_out", known.saturating_sub(STATUS_PEERS)).end()
}

/// Returns the JSON of a peer's TCP connections together: the smallest segment, the longest round
/// trip, and sums.
fn tcp_of<'a>(connections: impl Iterator<Item = &'a ConnInfo> + Clone) -> String {
    let facts = connections.map(|conn| conn.tcp);
    let sum = |of: fn(&TcpFacts) -> u64| facts.clone().map(|tcp| of(&tcp)).sum::<u64>();
    JsonObject::new()
        .value("connections", facts.clone().count())
        .maybe("mss", facts.clone().map(|tcp| tcp.mss).min())
        .maybe("rtt_us", facts.clone().map(|tcp| tcp.rtt_us).max())
        .value("retransmissions", sum(|tcp| tcp.retransmissions.into()))
        .value("unacked_bytes", sum(|tcp| tcp.unacked_bytes))
        .end()
}

fn connections(conn_stats: &ConnStats) -> String {
    let ConnStats { peers, connections, by_type } = conn_stats;
    let object = JsonObject::new().value("peers", peers).value("all", connections);
    let object = object.value("any", by_type.any).value("control", by_type.control);
    object.value("bulk_in", by_type.bulk_in).value("bulk_out", by_type.bulk_out).end()
}

fn tcp(counters: &SockCounters) -> String {
    let SockCounters { tx, rx } = counters;
    JsonObject::new()
        .value("accepts", rx.accepts)
        .value("connects", rx.connects)
        .value("connect_failures", rx.connect_failures)
        .value("refusals", rx.refusals)
        .value("no_room", rx.no_room)
        .value("handshake_timeouts", rx.handshake_timeouts)
        .value("protocol_errors", rx.protocol_errors)
        .value("timeouts", rx.timeouts)
        .value("held_in_memory", rx.held_in_memory)
        .value("held_dropped", rx.held_dropped)
        .value("held_lost", rx.held_lost)
        .value("closes", rx.closes)
        .value("peers_lost", rx.peers_lost)
        .value("keepalives", tx.keepalives)
        .value("answers_withheld", tx.answers_withheld)
        .value("zc_acks", tx.zc_acks)
        .value("wire_bytes_sent", tx.bytes)
        .value("send_calls", tx.calls)
        .value("receive_calls", rx.calls)
        .value("bytes_copied", rx.bytes_copied)
        .value("bytes_direct", rx.bytes_direct)
        .value("bytes_discarded", rx.bytes_discarded)
        .end()
}

/// Returns the JSON of the connections and counters of networks over RDMA.
fn o2ib(lnd: &O2ibLnd) -> String {
    let O2ibCensus { peers, connections, operations, waiting, receives, bounces, .. } = lnd.conn_stats();
    let O2ibCounters { tx, rx } = lnd.counters();
    JsonObject::new()
        .value("service", lnd.config().service)
        .value("peers", peers)
        .value("connections", connections)
        .value("operations", operations)
        .value("waiting", waiting)
        .value("receives", receives)
        .value("bounces", bounces)
        .value("accepts", rx.accepts)
        .value("connects", rx.connects)
        .value("connect_failures", rx.connect_failures)
        .value("refusals", rx.refusals)
        .value("no_room", rx.no_room)
        .value("protocol_errors", rx.protocol_errors)
        .value("checksum_errors", rx.checksum_errors)
        .value("short_replies", rx.short_replies)
        .value("timeouts", rx.timeouts)
        .value("held_in_memory", rx.held_in_memory)
        .value("held_dropped", rx.held_dropped)
        .value("held_lost", rx.held_lost)
        .value("closes", rx.closes)
        .value("peers_lost", rx.peers_lost)
        .value("noops", tx.noops)
        .value("sends", tx.sends)
        .value("writes", tx.writes)
        .value("bytes_written", tx.bytes_direct)
        .value("bytes_received_by_write", rx.bytes_direct)
        .value("bytes_copied_sent", tx.bytes_copied)
        .value("bytes_copied_received", rx.bytes_copied)
        .value("bytes_bounced_sent", tx.bytes_bounced)
        .value("bytes_bounced_received", rx.bytes_bounced)
        .value("bounces_awaited", tx.bounces_awaited)
        .value("discards", rx.discards)
        .end()
}

/// Returns the JSON of the process's memory use, from the text of the system's status file.
fn memory(status: &str) -> String {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib: u64 = line?.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    };
    let object = JsonObject::new().maybe("resident_bytes", bytes("VmRSS"));
    let object = object.maybe("resident_max_bytes", bytes("VmHWM")).maybe("locked_bytes", bytes("VmLck"));
    // Memory registered with devices counts separately from memory locked by `mlock`.
    object.maybe("pinned_bytes", bytes("VmPin")).end()
}

#[cfg(test)]
mod tests {
    use lnet::{DropReason, RECENT_DROPS};
    use lnet_nid::{MatchBits, Pid, ProcessId};
    use lnet_proto::MessageType;
    use lnet_proto::sock::ConnType;

    use super::*;

    fn peer(nid: &str, available_tx_credits: i64, put: u64) -> PeerStatistics {
        let mut traffic = Traffic::default();
        traffic.sent.put = put;
        PeerStatistics {
            nid: nid.parse().unwrap(),
            traffic,
            max_ni_tx_credits: i64::MAX,
            available_tx_credits,
            min_tx_credits: i64::MIN,
            tx_q_num_of_buf: u64::MAX,
        }
    }

    #[test]
    fn waiting_peers_are_listed_first_and_then_the_busiest() {
        let all = [
            ("10.0.0.1@tcp", 8, 1),
            ("10.0.0.2@tcp", 8, 9),
            ("10.0.0.3@tcp", -2, 0),
            ("10.0.0.4@tcp", -3, 0),
        ];
        let text = peers(all.map(|(nid, credits, put)| peer(nid, credits, put)).to_vec(), |_| Vec::new());
        let places = [4, 3, 2, 1].map(|last| text.find(&format!("10.0.0.{last}@tcp")).unwrap());
        assert!(places.is_sorted() && text.starts_with(r#"{"known":4,"waiting":5,"#), "{text}");
    }

    /// One write must be enough for any number of peers.
    #[test]
    fn the_longest_lists_fit_into_a_socket() {
        const SOCKET: usize = 64 << 10;
        let nid = |last: usize| format!("fd00:1111:2222:3333:4444:5555:6666:{last:x}@tcp65535");
        let all: Vec<_> = (0x1000..0x1000 + 1000).map(|last| peer(&nid(last), -1, u64::MAX / 2000)).collect();
        let tcp = TcpFacts {
            mss: u32::MAX,
            rtt_us: u32::MAX,
            unacked_bytes: u64::MAX / 2000,
            ..TcpFacts::default()
        };
        let text = peers(all, |listed| {
            let conn = |peer: &PeerStatistics| ConnInfo { nid: peer.nid, conn_type: ConnType::Control, tcp };
            listed.iter().map(conn).collect()
        });
        assert!(text.contains(&format!(r#""tcp":{{"connections":1,"mss":{},"#, u32::MAX)), "{text}");
        let longest: ProcessId = ProcessId::new(nid(0xffff).parse().unwrap(), Pid(u32::MAX));
        let drop = RecentDrop {
            kind: MessageType::Reply,
            source: longest,
            target: longest.nid,
            portal: Some(u32::MAX),
            match_bits: Some(MatchBits(u64::MAX)),
            length: u32::MAX,
            reason: DropReason::Busy,
            count: u64::MAX,
            age_ns: u64::MAX,
        };
        let drops = last_drop(&drop).len() * RECENT_DROPS;
        assert!(text.len() + drops < SOCKET, "{} and {drops} bytes", text.len());
        assert!(text.ends_with(&format!(r#""left_out":{}}}"#, 1000 - STATUS_PEERS)), "{text}");
    }

    #[test]
    fn memory_is_reported_in_bytes_or_as_unknown() {
        let status = "Name:\tx\nVmPin:\t     8 kB\nVmHWM:\t    20 kB\nVmRSS:\t    12 kB\n";
        let expected =
            r#"{"resident_bytes":12288,"resident_max_bytes":20480,"locked_bytes":null,"pinned_bytes":8192}"#;
        assert_eq!(memory(status), expected);
    }
}
