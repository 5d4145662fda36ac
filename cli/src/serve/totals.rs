//! The totals that a node prints when it ends.

use std::fmt;
use std::time::Duration;

use lnet_node::{ByKind, Counters, NiStatistics, Node, O2ibCounters, SockCounters};
use serde_json::{Map, Value, json};

use super::driver::{self, NamedCount};
use crate::tables::numbers;
use crate::units::plural;

/// The totals of a node, from start to end.
pub(super) struct Totals {
    time: Duration,
    counters: Counters,
    nis: Vec<NiStatistics>,
    tcp: SockCounters,
    verbs: Option<O2ibCounters>,
}

impl Totals {
    pub(super) fn of(node: &Node, time: Duration) -> Totals {
        Totals {
            time,
            counters: node.counters(),
            nis: node.ni_statistics(),
            tcp: node.tcp().counters(),
            verbs: driver::verbs_of(node),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let Counters { recv_count, recv_length, send_count, send_length, .. } = self.counters;
        let Counters { drop_count, drop_length, errors, .. } = self.counters;
        let nis = self.nis.iter().map(|ni| {
            json!({
                "nid": ni.nid.to_string(),
                "sent": kinds(&ni.traffic.sent),
                "received": kinds(&ni.traffic.received),
                "dropped": kinds(&ni.traffic.dropped),
            })
        });
        let counts = |counts: &[NamedCount]| -> Map<String, Value> {
            counts.iter().map(|(_, name, count)| (name.to_string(), (*count).into())).collect()
        };
        let driver = counts(&driver::counts(&self.tcp));
        let verbs = self.verbs.as_ref().map(|verbs| counts(&driver::verbs_counts(verbs)));
        json!({ "stopped": {
            "o2ib": verbs,
            "seconds": self.time.as_secs_f64(),
            "received": { "messages": recv_count, "bytes": recv_length },
            "sent": { "messages": send_count, "bytes": send_length },
            "dropped": { "messages": drop_count, "bytes": drop_length },
            "errors": errors,
            "nis": nis.collect::<Vec<_>>(),
            "tcp": driver,
        }})
    }
}

fn kinds(kinds: &ByKind) -> Value {
    json!({ "put": kinds.put, "get": kinds.get, "reply": kinds.reply, "ack": kinds.ack })
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { recv_count, recv_length, send_count, send_length, .. } = self.counters;
        let Counters { drop_count, errors, .. } = self.counters;
        writeln!(
            f,
            "stopped after {:.1} s: {recv_count} {} received ({recv_length} {}), {send_count} sent \
             ({send_length} {}), {drop_count} dropped, {errors} {}",
            self.time.as_secs_f64(),
            plural(recv_count, "message"),
            plural(recv_length, "byte"),
            plural(send_length, "byte"),
            plural(errors, "error"),
        )?;
        let mut nis = numbers(["NI", "", "PUT", "GET", "REPLY", "ACK"], 2);
        for ni in &self.nis {
            let traffic = &ni.traffic;
            let rows = [("sent", traffic.sent), ("received", traffic.received), ("dropped", traffic.dropped)];
            for (at, (label, ByKind { put, get, reply, ack })) in rows.into_iter().enumerate() {
                let name = if at == 0 { ni.nid.to_string() } else { String::new() };
                let counts = [put, get, reply, ack].map(|count| count.to_string());
                nis.add_row([name, label.to_string()].into_iter().chain(counts));
            }
        }
        writeln!(f, "{nis}")?;
        let mut driver = numbers(["TCP", "count"], 1);
        for (label, _, count) in driver::counts(&self.tcp) {
            driver.add_row([label.to_string(), count.to_string()]);
        }
        write!(f, "{driver}")?;
        let Some(verbs) = &self.verbs else { return Ok(()) };
        let mut driver = numbers(["RDMA", "count"], 1);
        for (label, _, count) in driver::verbs_counts(verbs) {
            driver.add_row([label.to_string(), count.to_string()]);
        }
        write!(f, "\n{driver}")
    }
}
