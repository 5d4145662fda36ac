//! Output of a node's status for people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use comfy_table::Table;

use super::node::{
    Amount, Connections, Counters, Credits, LastDrop, Memory, Ni, NodeStatus, PeerTcp, Peers, Traffic,
};
use super::services;
use crate::tables::{numbers, printable};
use crate::units::{counted, grouped, in_bytes, in_words, plural};

/// Returns a table with a line for each node.
pub(super) fn overview(nodes: impl Iterator<Item = NodeStatus>) -> String {
    let header =
        ["pid", "program", "NIDs", "up", "sent", "received", "dropped", "errors", "peers", "connections"];
    let mut table = numbers(header, 4);
    for node in nodes {
        let Counters { sent, received, dropped, errors, .. } = &node.counters;
        let nids = if node.nids.is_empty() { vec!["0@lo".into()] } else { node.nids.clone() };
        table.add_row([
            node.pid.to_string(),
            printable(&node.program),
            printable(&nids.join(", ")),
            uptime(node.uptime_s),
            grouped(sent.messages),
            grouped(received.messages),
            grouped(dropped.messages),
            grouped(*errors),
            grouped(node.peers.known),
            grouped(node.connections.all),
        ]);
    }
    format!("{table}\n'nlx status PID' shows all of one, 'nlx status --all' all of each")
}

/// Formats the whole status.
impl fmt::Display for NodeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitions = plural(self.partitions as u64, "CPU partition");
        writeln!(
            f,
            "{}, process {}: up {}, nlx {}, {} {partitions}, port {}, accept {}",
            printable(&self.program),
            self.pid,
            uptime(self.uptime_s),
            printable(&self.nlx),
            self.partitions,
            self.accept_port,
            printable(&self.accept),
        )?;
        writeln!(f, "{}", messages(&self.counters))?;
        writeln!(f, "{}", self.nis())?;
        if !self.peers.list.is_empty() {
            writeln!(f, "{}", peers(&self.peers))?;
        }
        if self.peers.left_out > 0 {
            let left_out = self.peers.left_out;
            writeln!(f, "and {} more {}", grouped(left_out), plural(left_out, "peer"))?;
        }
        if !self.last_drops.is_empty() {
            writeln!(f, "{}", last_drops(&self.last_drops))?;
        }
        for rails in self.rails() {
            writeln!(f, "rails        {rails}")?;
        }
        let Counters { in_flight, in_flight_max, responses_awaited, .. } = &self.counters;
        let (now, awaited) = (counted(*in_flight, "message"), counted(*responses_awaited, "answer"));
        writeln!(f, "in flight    {now}, {} at the most; {awaited} awaited", grouped(*in_flight_max))?;
        writeln!(f, "{}", connections(&self.connections))?;
        if let Some(o2ib) = &self.o2ib {
            writeln!(f, "{}", over_rdma(o2ib))?;
        }
        if let Some(helper) = &self.helper {
            write!(f, "{helper}")?;
        }
        if !self.services.is_empty() {
            writeln!(f, "{}", services::table(&self.services))?;
        }
        if let Some(lst) = &self.lst {
            write!(f, "{lst}")?;
        }
        let trouble = self.trouble();
        if !trouble.is_empty() {
            writeln!(f, "noticed      {}", trouble.join(", "))?;
        }
        write!(f, "memory       {}", memory(&self.memory))
    }
}

impl NodeStatus {
    fn nis(&self) -> Table {
        let header = ["NI", "state", "credits", "free", "lowest", "waiting", "sent", "received", "dropped"];
        let mut table = numbers(header, 2);
        for ni in &self.nis {
            let state = if ni.up { "up" } else { "down" };
            let (credits, traffic) = (in_columns(&ni.credits), counts(&ni.traffic));
            let row = [printable(&ni.nid), state.into()].into_iter().chain(credits).chain(traffic);
            table.add_row(row);
        }
        table
    }

    /// Returns a line for each network with several NIs: messages are not distributed over them.
    fn rails(&self) -> impl Iterator<Item = String> {
        let mut nets: BTreeMap<&str, Vec<&Ni>> = BTreeMap::new();
        for ni in self.nis.iter().filter(|ni| ni.nid != "0@lo") {
            let net = ni.nid.split_once('@').map_or("", |(_, net)| net);
            nets.entry(net).or_default().push(ni);
        }
        nets.into_iter().filter(|(_, nis)| nis.len() > 1).map(|(net, nis)| {
            let (net, nis) = (printable(net), nis.len());
            format!("{net} has {nis} NIs; messages to a peer use the NI of the first message to or from it")
        })
    }

    /// Returns the errors and timeouts that occurred, with their counts.
    fn trouble(&self) -> Vec<String> {
        let Counters { errors, response_timeouts, .. } = self.counters;
        let counts = [("messages that failed", errors), ("answers that did not come", response_timeouts)];
        let of_tcp = [
            ("attempts to connect that failed", "connect_failures"),
            ("connections refused", "refusals"),
            ("of these for lack of descriptors", "no_room"),
            ("handshakes not finished in time", "handshake_timeouts"),
            ("protocol errors", "protocol_errors"),
            ("timeouts", "timeouts"),
            ("peers whose connections ended", "peers_lost"),
            ("messages dropped that waited for a buffer", "held_dropped"),
            ("messages lost that waited for a buffer", "held_lost"),
        ];
        let of_tcp = of_tcp.into_iter().map(|(words, name)| (words, self.tcp.get(name)));
        let of_tcp = of_tcp.filter_map(|(words, count)| Some((words, count?.as_u64()?)));
        let of_verbs = [
            ("attempts to connect over RDMA that failed", "connect_failures"),
            ("connections over RDMA refused", "refusals"),
            ("of these for lack of resources", "no_room"),
            ("protocol errors over RDMA", "protocol_errors"),
            ("wrong checksums", "checksum_errors"),
            ("replies to GETs over RDMA refused as too short", "short_replies"),
            ("timeouts over RDMA", "timeouts"),
            ("peers over RDMA that went away", "peers_lost"),
            ("messages over RDMA dropped that waited for a buffer", "held_dropped"),
            ("messages over RDMA lost that waited for a buffer", "held_lost"),
            ("waits for a bounce buffer", "bounces_awaited"),
        ];
        let of_verbs = of_verbs
            .into_iter()
            .filter_map(|(words, name)| Some((words, self.o2ib.as_ref()?.get(name)?.as_u64()?)));
        let all = counts.into_iter().chain(of_tcp).chain(of_verbs).filter(|(_, count)| *count > 0);
        all.map(|(words, count)| format!("{words}: {}", grouped(count))).collect()
    }
}

fn messages(counters: &Counters) -> Table {
    let mut table = numbers(["", "messages", "bytes"], 1);
    let rows = [("sent", &counters.sent), ("received", &counters.received), ("dropped", &counters.dropped)];
    for (label, Amount { messages, bytes }) in rows {
        table.add_row([label.to_string(), grouped(*messages), in_bytes(*bytes)]);
    }
    table
}

fn peers(peers: &Peers) -> Table {
    let header = [
        "peer", "credits", "free", "lowest", "waiting", "queued", "unacked", "resent", "sent", "received",
        "dropped",
    ];
    let mut table = numbers(header, 1);
    for peer in &peers.list {
        let PeerTcp { retransmissions, unacked_bytes } = peer.tcp;
        let of_tcp = [in_bytes(peer.queued_bytes), in_bytes(unacked_bytes), grouped(retransmissions)];
        let row = [printable(&peer.nid)].into_iter().chain(in_columns(&peer.credits)).chain(of_tcp);
        table.add_row(row.chain(counts(&peer.traffic)));
    }
    if peers.known > 1 {
        let waiting = grouped(peers.waiting);
        let known = format!("{} in all", grouped(peers.known));
        table.add_row([known, String::new(), String::new(), String::new(), waiting]);
    }
    table
}

/// Returns the table of drops, the newest first.
fn last_drops(drops: &[LastDrop]) -> Table {
    let header =
        ["last drops", "from", "to", "reason", "portal", "match bits", "bytes", "times", "last seen"];
    let mut table = numbers(header, 4);
    for drop in drops {
        let absent = || "–".to_string();
        table.add_row([
            printable(&drop.kind),
            printable(&drop.source),
            printable(&drop.target),
            printable(&drop.reason),
            drop.portal.map_or_else(absent, |portal| portal.to_string()),
            drop.match_bits.as_deref().map_or_else(absent, printable),
            grouped(drop.length.into()),
            grouped(drop.count),
            format!("{} ago", uptime(drop.age_s)),
        ]);
    }
    table
}

fn in_columns(credits: &Credits) -> [String; 4] {
    let Credits { credits, credits_available, credits_lowest, waiting } = credits;
    if *credits == 0 {
        // The loopback needs no credits.
        return std::array::from_fn(|_| "–".to_string());
    }
    [
        credits.to_string(),
        credits_available.max(&0).to_string(),
        credits_lowest.to_string(),
        grouped(*waiting),
    ]
}

fn counts(traffic: &Traffic) -> [String; 3] {
    [&traffic.sent, &traffic.received, &traffic.dropped].map(|kinds| grouped(kinds.sum()))
}

fn connections(connections: &Connections) -> String {
    let Connections { peers, all, any, control, bulk_in, bulk_out } = connections;
    let types = [("CONTROL", control), ("BULK_IN", bulk_in), ("BULK_OUT", bulk_out), ("untyped", any)];
    let types: Vec<String> = types
        .into_iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
    let peers = counted(*peers, "peer");
    format!("connections  {all} to {peers}{types}")
}

/// Formats the connections over RDMA, and the paths of bulk data over them.
fn over_rdma(o2ib: &serde_json::Map<String, serde_json::Value>) -> String {
    let count = |name: &str| o2ib.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let sum = |names: [&str; 2]| names.into_iter().map(count).fold(0, u64::saturating_add);
    let (all, peers) = (count("connections"), count("peers"));
    format!(
        "over RDMA    {} to {}, port {}; bulk: {} written, {} received; {} copied, {} through bounce buffers",
        counted(all, "connection"),
        counted(peers, "peer"),
        count("service"),
        in_bytes(count("bytes_written")),
        in_bytes(count("bytes_received_by_write")),
        in_bytes(sum(["bytes_copied_sent", "bytes_copied_received"])),
        in_bytes(sum(["bytes_bounced_sent", "bytes_bounced_received"])),
    )
}

fn memory(memory: &Memory) -> String {
    let Memory { resident_bytes, resident_max_bytes, locked_bytes, pinned_bytes } = memory;
    let bytes_text = |bytes: &Option<u64>| bytes.map_or_else(|| "unknown".to_string(), in_bytes);
    let (now, most) = (bytes_text(resident_bytes), bytes_text(resident_max_bytes));
    let (locked, pinned) = (bytes_text(locked_bytes), bytes_text(pinned_bytes));
    format!(
        "{now} resident, {most} at the most, {locked} locked, {pinned} pinned for devices; of the whole process"
    )
}

/// Formats a time; a node may report any number.
pub(super) fn uptime(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "?".to_string(), in_words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_times_are_not_reported() {
        assert_eq!(["-1.0", "1e300", "7.25"].map(|text| uptime(text.parse().unwrap())), ["?", "?", "7.2 s"]);
    }
}
