//! The clients of a helper: parsed and shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::tables::{numbers, printable};
use crate::units::{counted, grouped, in_bytes, plural};

/// The member `helper` of the status of an `nlxd`.
#[derive(Debug, Deserialize)]
pub(super) struct Helper {
    socket: String,
    clients: u64,
    list: Vec<Client>,
    left_out: u64,
    /// Absent in helpers of earlier versions.
    #[serde(default)]
    users: Vec<User>,
    #[serde(default)]
    users_left_out: u64,
    leftovers: Leftovers,
    totals: Totals,
    door: ParsedAdmission,
}

#[derive(Debug, Deserialize)]
struct Client {
    pid: i32,
    uid: u32,
    name: String,
    tm_count: u64,
    tms: Vec<Tm>,
    buffers: u64,
    bytes: u64,
    operations: u64,
    totals: Totals,
}

#[derive(Debug, Deserialize)]
struct User {
    uid: u32,
    /// By the names of resources.
    held: BTreeMap<String, u64>,
    refused: u64,
}

#[derive(Debug, Deserialize)]
struct Tm {
    address: String,
    operations: u64,
}

#[derive(Debug, Deserialize)]
struct Leftovers {
    tms: u64,
    eqs: u64,
    arenas: u64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Totals {
    clients: u64,
    operations: u64,
    events: u64,
    refused_by_policy: u64,
    refused_by_quota: u64,
}

#[derive(Debug, Deserialize)]
struct ParsedAdmission {
    refused_users: u64,
    refused_clients: u64,
    without_descriptors: u64,
    cut_off: u64,
    throttled: u64,
}

impl fmt::Display for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { clients, operations, events, .. } = self.totals;
        let socket = printable(&self.socket);
        writeln!(
            f,
            "helper       {socket}: {}, {} since the start, {}, {}",
            counted(self.clients, "client"),
            grouped(clients),
            counted(operations, "operation"),
            counted(events, "event"),
        )?;
        if !self.list.is_empty() {
            writeln!(f, "{}", self.table())?;
        }
        if self.left_out > 0 {
            writeln!(f, "and {} more {}", grouped(self.left_out), plural(self.left_out, "client"))?;
        }
        if !self.users.is_empty() {
            writeln!(f, "{}", self.users_table())?;
        }
        if self.users_left_out > 0 {
            let left_out = self.users_left_out;
            writeln!(f, "and {} more {}", grouped(left_out), plural(left_out, "user"))?;
        }
        let Leftovers { tms, eqs, arenas, bytes } = self.leftovers;
        if [tms, eqs, arenas, bytes].iter().any(|count| *count > 0) {
            writeln!(
                f,
                "left over    {}, {}, {} of {}",
                counted(tms, "transfer machine"),
                counted(eqs, "event queue"),
                counted(arenas, "arena"),
                in_bytes(bytes),
            )?;
        }
        let noticed = self.noticed();
        if !noticed.is_empty() {
            writeln!(f, "refused      {}", noticed.join(", "))?;
        }
        Ok(())
    }
}

impl Helper {
    fn table(&self) -> comfy_table::Table {
        let header = [
            "client",
            "pid",
            "uid",
            "buffers",
            "memory",
            "in flight",
            "operations",
            "events",
            "transfer machines",
        ];
        let mut table = numbers(header, 1);
        for client in &self.list {
            let Client { pid, uid, name, tm_count, tms, buffers, bytes, operations, totals } = client;
            let name = if name.is_empty() { "–".to_string() } else { printable(name) };
            let shown =
                tms.iter().map(|tm| format!("{} ({})", printable(&tm.address), grouped(tm.operations)));
            let mut shown: Vec<String> = shown.collect();
            let more = tm_count.saturating_sub(shown.len() as u64);
            if more > 0 {
                shown.push(format!("and {} more", grouped(more)));
            }
            table.add_row([
                name,
                pid.to_string(),
                uid.to_string(),
                grouped(*buffers),
                in_bytes(*bytes),
                grouped(*operations),
                grouped(totals.operations),
                grouped(totals.events),
                shown.join("\n"),
            ]);
        }
        table
    }

    /// Returns a table of the resources of each user.
    fn users_table(&self) -> comfy_table::Table {
        const COUNTS: [(&str, &str); 6] = [
            ("clients", "clients"),
            ("machines", "machines"),
            ("buffers", "buffers"),
            ("operations", "operations"),
            ("mappings", "mappings"),
            ("descriptors", "descriptors"),
        ];
        const BYTES: [(&str, &str); 3] =
            [("arenas", "arena_bytes"), ("queues", "queue_bytes"), ("bookkeeping", "heap_bytes")];
        let titles = COUNTS.iter().chain(&BYTES).map(|(title, _)| *title);
        let header: Vec<&str> = ["user"].into_iter().chain(titles).chain(["refused"]).collect();
        let mut table = numbers(header, 0);
        for User { uid, held, refused } in &self.users {
            let of = |resource: &str| held.get(resource).copied().unwrap_or(0);
            let counts = COUNTS.iter().map(|(_, resource)| grouped(of(resource)));
            let bytes = BYTES.iter().map(|(_, resource)| in_bytes(of(resource)));
            let row = [uid.to_string()].into_iter().chain(counts).chain(bytes);
            table.add_row(row.chain([grouped(*refused)]));
        }
        table
    }

    /// Returns the refusals, and the clients that were cut off.
    fn noticed(&self) -> Vec<String> {
        let ParsedAdmission { refused_users, refused_clients, without_descriptors, cut_off, throttled } =
            self.door;
        let counts = [
            ("by policy", self.totals.refused_by_policy),
            ("by quota", self.totals.refused_by_quota),
            ("users not admitted", refused_users),
            ("clients too many", refused_clients),
            ("times without descriptors", without_descriptors),
            ("clients cut off", cut_off),
            ("times too many requests", throttled),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.map(|(words, count)| format!("{words}: {}", grouped(count))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_shown_with_what_their_clients_hold() {
        let none = serde_json::json!({
            "clients": 0, "violations": 0, "requests": 0, "submissions": 0, "operations": 0, "events": 0,
            "refused_by_policy": 0, "refused_by_quota": 0, "refused": 0,
        });
        let mut helper = serde_json::json!({
            "socket": "/run/nlx/nlxd.sock", "clients": 0, "list": [], "left_out": 0,
            "users": [
                { "uid": 0, "held": {}, "refused": 0 },
                { "uid": 1000, "held": { "clients": 2, "machines": 12, "arena_bytes": 1_500_000 }, "refused": 7 },
            ],
            "users_left_out": 3,
            "leftovers": { "tms": 0, "eqs": 0, "arenas": 0, "bytes": 0 },
            "totals": none,
            "door": {
                "refused_users": 0, "refused_clients": 0, "without_descriptors": 0, "cut_off": 0, "throttled": 0,
            },
        });
        let shown = serde_json::from_value::<Helper>(helper.clone()).unwrap().to_string();
        let row = shown.lines().find(|line| line.contains("1000")).unwrap();
        for cell in ["2", "12", "1.5 MB", "7"] {
            assert!(row.split_whitespace().collect::<Vec<_>>().join(" ").contains(cell), "{row}");
        }
        assert!(shown.contains("and 3 more users"), "{shown}");
        // A helper of an earlier version has no users.
        helper.as_object_mut().unwrap().retain(|name, _| !name.starts_with("users"));
        let shown = serde_json::from_value::<Helper>(helper).unwrap().to_string();
        assert!(!shown.contains("refused"), "{shown}");
    }
}
