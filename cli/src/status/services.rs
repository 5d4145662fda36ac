//! The services of a node and its part in LNet's self-test: parsed and shown.

use std::fmt;

use serde::Deserialize;

use super::print::uptime;
use crate::tables::{numbers, printable};
use crate::units::{counted, grouped, in_bytes, in_time};

/// A service of the node's program.
#[derive(Debug, Deserialize)]
pub(super) struct Service {
    name: String,
    partitions: Vec<Partition>,
    partitions_left_out: u64,
}

#[derive(Debug, Deserialize)]
struct Partition {
    cpt: u64,
    threads: Threads,
    queue: Queue,
    requests: Requests,
    buffers: Buffers,
    waits: Times,
    service_times: Times,
}

#[derive(Debug, Deserialize)]
struct Threads {
    now: u64,
}

#[derive(Debug, Deserialize)]
struct Queue {
    waiting: u64,
    waiting_max: u64,
    crossed: u64,
}

#[derive(Debug, Deserialize)]
struct Requests {
    arrived: u64,
    active: u64,
    dropped: u64,
    failed: u64,
    crossed: u64,
}

#[derive(Debug, Deserialize)]
struct Buffers {
    grown: u64,
}

#[derive(Debug, Deserialize)]
struct Times {
    count: u64,
    p50_us: f64,
    p99_us: f64,
}

impl Times {
    fn in_columns(&self) -> [String; 2] {
        match self.count {
            0 => ["–", "–"].map(String::from),
            _ => [self.p50_us, self.p99_us].map(in_time),
        }
    }
}

/// Formats the services as a table, with a row for each partition.
pub(super) fn table(services: &[Service]) -> String {
    let header = [
        "service",
        "CPT",
        "threads",
        "requests",
        "active",
        "waiting",
        "most",
        "wait 50 %",
        "99 %",
        "served 50 %",
        "99 %",
        "dropped",
        "grown",
        "crossed",
    ];
    let mut table = numbers(header, 1);
    let mut left_out = 0;
    for service in services {
        for (index, partition) in service.partitions.iter().enumerate() {
            let Partition { cpt, threads, queue, requests, buffers, waits, service_times } = partition;
            let name = if index == 0 { printable(&service.name) } else { String::new() };
            let counts = [*cpt, threads.now, requests.arrived, requests.active];
            let waiting = [queue.waiting, queue.waiting_max];
            let times = [waits, service_times].into_iter().flat_map(Times::in_columns);
            let dropped = requests.dropped.saturating_add(requests.failed);
            let (grown, crossed) = (buffers.grown, requests.crossed.saturating_add(queue.crossed));
            let row = std::iter::once(name).chain(counts.into_iter().chain(waiting).map(grouped));
            table.add_row(row.chain(times).chain([dropped, grown, crossed].map(grouped)));
        }
        left_out = service.partitions_left_out.saturating_add(left_out);
    }
    match left_out {
        0 => table.to_string(),
        left_out => format!("{table}\nand {}", counted(left_out, "more partition")),
    }
}

/// The part of the node in LNet's self-test.
#[derive(Debug, Deserialize)]
pub(super) struct Lst {
    consoles: String,
    session: Option<Session>,
    zombie_sessions: u64,
    memory_bytes: u64,
    memory_max_bytes: u64,
    counters: Counters,
}

#[derive(Debug, Deserialize)]
struct Session {
    name: String,
    state: String,
    console: Option<String>,
    stamp: i64,
    age_s: f64,
    expires_in_s: Option<f64>,
    batches: Vec<Batch>,
    batches_left_out: u64,
}

#[derive(Debug, Deserialize)]
struct Batch {
    id: u64,
    servers: u64,
    clients: u64,
    running_units: u64,
    errors: u64,
}

#[derive(Debug, Deserialize)]
struct Counters {
    rpcs_sent: u64,
    rpcs_received: u64,
    rpcs_dropped: u64,
    rpcs_expired: u64,
    refused_consoles: u64,
    refused_brw: u64,
    refused_lengths: u64,
    refused_offsets: u64,
    refused_byte_orders: u64,
}

impl fmt::Display for Lst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consoles = match self.consoles.as_str() {
            "*" => "all consoles".to_string(),
            "" => "no console".to_string(),
            list => format!("consoles {}", printable(list)),
        };
        let (used, most) = (in_bytes(self.memory_bytes), in_bytes(self.memory_max_bytes));
        writeln!(f, "lst          test node for {consoles}; tests use {used} of {most}")?;
        match &self.session {
            Some(session) => write!(f, "{session}")?,
            None => writeln!(f, "session      none")?,
        }
        let Counters { rpcs_sent, rpcs_received, rpcs_dropped, rpcs_expired, .. } = self.counters;
        let [sent, received, dropped, expired] =
            [rpcs_sent, rpcs_received, rpcs_dropped, rpcs_expired].map(grouped);
        writeln!(f, "RPCs         {sent} sent, {received} received, {dropped} dropped, {expired} expired")?;
        let noticed = self.noticed();
        if noticed.is_empty() { Ok(()) } else { writeln!(f, "lst noticed  {}", noticed.join(", ")) }
    }
}

impl Lst {
    /// Returns what was refused, and sessions that do not go away.
    fn noticed(&self) -> Vec<String> {
        let counters = &self.counters;
        let counts = [
            ("requests of consoles that may not use it", counters.refused_consoles),
            ("brw requests that would stop a kernel node", counters.refused_brw),
            ("tests of such a length", counters.refused_lengths),
            ("tests of such an offset", counters.refused_offsets),
            ("tests of such a byte order", counters.refused_byte_orders),
            ("zombie sessions", self.zombie_sessions),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.map(|(words, count)| format!("{words}: {}", grouped(count))).collect()
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let console = self.console.as_deref().map_or_else(|| "a console without a NID".into(), printable);
        let expiry = self.expires_in_s.map_or_else(|| "never".to_string(), |s| format!("in {}", uptime(s)));
        let (name, state, stamp) = (printable(&self.name), printable(&self.state), self.stamp);
        let age = uptime(self.age_s);
        writeln!(
            f,
            "session      {name}, {state}, ID {stamp}@{console}, for {age}; expires {expiry} without a request"
        )?;
        for Batch { id, servers, clients, running_units, errors } in &self.batches {
            let state = match running_units {
                0 => "idle".to_string(),
                units => format!("running, {}", counted(*units, "unit")),
            };
            let (servers, clients) = (counted(*servers, "test server"), counted(*clients, "test client"));
            let errors = counted(*errors, "failed RPC");
            writeln!(f, "batch {id:<6} {state}; {servers}, {clients}, {errors}")?;
        }
        match self.batches_left_out {
            0 => Ok(()),
            left_out => writeln!(f, "and {} more batches", grouped(left_out)),
        }
    }
}
