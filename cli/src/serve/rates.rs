//! The counters of a node between two status lines, as rates.

use std::fmt;
use std::time::Instant;

use lnet_node::{ConnStats, Counters, Node, O2ibCounters, SockCounters};
use serde_json::{Map, Value, json};

use super::driver::{self, NamedCount};
use crate::units::plural;

/// Counts of trouble: each appears in the lines of intervals in which it grew.
const TROUBLE: [&str; 8] = [
    "connect_failures",
    "refusals",
    "no_room",
    "handshake_timeouts",
    "protocol_errors",
    "short_replies",
    "timeouts",
    "peers_lost",
];

/// The counts at the start of an interval.
pub(super) struct IntervalStart {
    begun: Instant,
    counters: Counters,
    tcp: SockCounters,
    verbs: Option<O2ibCounters>,
}

impl IntervalStart {
    pub(super) fn since(node: &Node) -> IntervalStart {
        let (tcp, verbs) = (node.tcp().counters(), driver::verbs_of(node));
        IntervalStart { begun: Instant::now(), counters: node.counters(), tcp, verbs }
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the statistics of the interval that ends now, and the start of the next one.
    pub(super) fn until(&self, node: &Node) -> (Line, IntervalStart) {
        let next = IntervalStart::since(node);
        let seconds = next.begun.duration_since(self.begun).as_secs_f64();
        let (old, new) = (self.counters, next.counters);
        let line = Line {
            seconds,
            received: Flow::of(seconds, new.recv_count - old.recv_count, new.recv_length - old.recv_length),
            sent: Flow::of(seconds, new.send_count - old.send_count, new.send_length - old.send_length),
            conn_stats: conn_stats(node),
            dropped: new.drop_count - old.drop_count,
            errors: new.errors - old.errors,
            waiting: waiting(node),
            driver: growth(&driver::counts(&self.tcp), &driver::counts(&next.tcp)),
            verbs: next.verbs.as_ref().map(|now| {
                let before = self.verbs.unwrap_or_default();
                growth(&driver::verbs_counts(&before), &driver::verbs_counts(now))
            }),
        };
        (line, next)
    }
}

/// Returns the number of messages that wait for `credits` of their NI.
fn waiting(node: &Node) -> u64 {
    node.ni_statistics().iter().map(|ni| ni.available_tx_credits.min(0).unsigned_abs()).sum()
}

/// Returns the growth of each count of the driver.
fn growth(old: &[NamedCount], new: &[NamedCount]) -> Vec<NamedCount> {
    let both = old.iter().zip(new);
    both.map(|((.., old), (words, name, new))| (*words, *name, new - old)).collect()
}

/// Returns the numbers of peers and of connections of all networks.
fn conn_stats(node: &Node) -> (usize, usize) {
    let ConnStats { peers, connections, .. } = node.tcp().conn_stats();
    let verbs = node.o2ib().map(|lnd| lnd.conn_stats()).unwrap_or_default();
    (peers + verbs.peers, connections + verbs.connections)
}

/// A rate per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Flow {
    messages: f64,
    bytes: f64,
}

impl Flow {
    fn of(seconds: f64, messages: u64, bytes: u64) -> Flow {
        // An interval of no length has no rate.
        let per = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Flow { messages: per(messages), bytes: per(bytes) }
    }

    fn to_json(self) -> Value {
        json!({ "messages_per_s": self.messages, "bytes_per_s": self.bytes })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} msg/s {:.3} MB/s", self.messages, self.bytes / 1e6)
    }
}

/// The statistics of an interval.
#[derive(Debug, Clone)]
pub(super) struct Line {
    seconds: f64,
    received: Flow,
    sent: Flow,
    /// Number of peers, and of connections to them.
    conn_stats: (usize, usize),
    dropped: u64,
    errors: u64,
    /// Messages that wait for a credit of their NI, at the end of the interval.
    waiting: u64,
    driver: Vec<NamedCount>,
    /// Counts of the RDMA driver; `None` without networks over RDMA.
    verbs: Option<Vec<NamedCount>>,
}

impl Line {
    pub(super) fn to_json(&self) -> Value {
        let counts = |counts: &Vec<NamedCount>| -> Map<String, Value> {
            counts.iter().map(|(_, name, count)| (name.to_string(), (*count).into())).collect()
        };
        json!({ "stats": {
            "seconds": self.seconds,
            "received": self.received.to_json(),
            "sent": self.sent.to_json(),
            "peers": self.conn_stats.0,
            "connections": self.conn_stats.1,
            "dropped": self.dropped,
            "errors": self.errors,
            "waiting_for_ni_credits": self.waiting,
            "tcp": counts(&self.driver),
            "o2ib": self.verbs.as_ref().map(counts),
        }})
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peers, connections) = self.conn_stats;
        write!(f, "in {} | out {} | ", self.received, self.sent)?;
        write!(f, "{peers} {}, ", plural(peers as u64, "peer"))?;
        write!(f, "{connections} {} | ", plural(connections as u64, "connection"))?;
        write!(f, "{} dropped, {} {}", self.dropped, self.errors, plural(self.errors, "error"))?;
        if self.waiting > 0 {
            let verb = if self.waiting == 1 { "waits" } else { "wait" };
            write!(f, ", {} {verb} for credits", self.waiting)?;
        }
        for (words, name, count) in self.driver.iter().chain(self.verbs.iter().flatten()) {
            if *count > 0 && TROUBLE.contains(name) {
                write!(f, ", {words}: {count}")?;
            }
        }
        write!(f, " in {:.1} s", self.seconds)
    }
}
