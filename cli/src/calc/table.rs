//! The result as tables for people.

use comfy_table::Table;

use super::result::{Calculation, ConnLoad};
use crate::tables::numbers;
use crate::units::{counted, grouped, in_bytes};

pub(super) fn text(all: &Calculation) -> String {
    let mut parts = vec![sides(all).to_string()];
    parts.push(agreement(all));
    parts.extend(
        [0, 1]
            .into_iter()
            .filter(|opener| differs(all, *opener))
            .filter_map(|opener| Some(connections(all, opener)?.to_string())),
    );
    parts.push(nis(all).to_string());
    if !all.warnings.is_empty() {
        parts.push(
            all.warnings.iter().map(|warning| format!("warning: {warning}")).collect::<Vec<_>>().join("\n"),
        );
    }
    parts.join("\n")
}

/// Returns whether the table of this direction differs from that of the other.
fn differs(all: &Calculation, opener: usize) -> bool {
    let of = |opener| {
        [0, 1].map(|side| all.load(side, opener).map(|load: ConnLoad| (load.made, load.connections)))
    };
    opener == 0 || of(0) != of(1)
}

fn named(all: &Calculation, side: usize) -> String {
    let node = &all.nodes[side];
    format!("{} ({})", node.peer.name, node.adjusted.release)
}

/// Returns the effective tunables; an adjusted one shows both values.
fn sides(all: &Calculation) -> Table {
    let mut table = numbers(["tunable", &named(all, 0), &named(all, 1)], 1);
    let mut row = |name: &str, value: &dyn Fn(usize) -> u32| {
        let cell = |side: usize| {
            let changes = &all.nodes[side].adjusted.changes;
            let first = changes.iter().find(|change| change.tunable == name && !change.rule.fills_in());
            first.map_or_else(
                || value(side).to_string(),
                |change| format!("{} → {}", change.from, value(side)),
            )
        };
        table.add_row([name.to_string(), cell(0), cell(1)]);
    };
    let of = |side: usize| &all.nodes[side].adjusted;
    row("peer_credits", &|side| of(side).peer_credits.into());
    row("peer_credits_hiw", &|side| of(side).high_water.into());
    row("credits", &|side| of(side).credits);
    row("concurrent_sends", &|side| of(side).concurrent_sends.into());
    row("conns_per_peer", &|side| of(side).conns_per_peer);
    row("max fragments", &|side| of(side).fragments.into());
    table.add_row(["registration".to_string(), all.nodes[0].registration(), all.nodes[1].registration()]);
    table
}

/// Returns what the sides agree on, with a line for each direction.
fn agreement(all: &Calculation) -> String {
    let line = |opener: usize| {
        let name = all.nodes[opener].peer.name;
        let tries = all.directions[opener].tries.len();
        match &all.directions[opener].outcome {
            Ok(agreed) => {
                let barred = all.barred(opener).next().is_some();
                let connects = if barred { "cannot connect, see below; if it could" } else { "connects" };
                format!(
                    "{name} {connects}: depth {}, {}, at try {tries}",
                    agreed.depth,
                    counted(agreed.fragments, "fragment")
                )
            }
            Err(error) => format!("{name} connects: no connection: {error}"),
        }
    };
    format!("{}\n{}", line(0), line(1))
}

fn connections(all: &Calculation, opener: usize) -> Option<Table> {
    let loads = [all.load(0, opener)?, all.load(1, opener)?];
    let title = if differs(all, 1) {
        format!("opened by {}", all.nodes[opener].peer.name)
    } else {
        "per connection".into()
    };
    let mut table = numbers([&title, &named(all, 0), &named(all, 1)], 1);
    let mut row = |name: &str, value: &dyn Fn(&ConnLoad) -> String| {
        table.add_row([name.to_string(), value(&loads[0]), value(&loads[1])]);
    };
    row("send work requests", &|load| grouped(load.made.sends.into()));
    row("receive work requests", &|load| grouped(load.made.receives.into()));
    row("completion queue entries", &|load| match (load.made.completions_least, load.made.completions) {
        (least, most) if least < most => format!("{} or {}", grouped(least.into()), grouped(most.into())),
        (_, most) => grouped(most.into()),
    });
    row("pieces per send", &|load| load.made.pieces.to_string());
    row("receive buffers", &|load| in_bytes(load.made.receive_bytes));
    row("transmit buffers", &|load| bytes_or_none(load.made.transmit_bytes));
    row("queues, at least", &|load| in_bytes(load.made.queue_bytes_least()));
    row("bookkeeping, about", &|load| load.made.bookkeeping_bytes.map_or("-".into(), in_bytes));
    row("credits returned from", &|load| load.made.high_water.to_string());
    let (connections, peers) = (loads[0].connections, u64::from(all.peers));
    row(&format!("connections per peer: {}; sends", connections / peers), &|load| {
        grouped(connections / peers * u64::from(load.made.sends))
    });
    row("memory beside queues", &|load| in_bytes(connections / peers * load.made.bytes()));
    row(&format!("peers: {peers}; sends"), &|load| grouped(load.times(load.made.sends.into())));
    row("completion queue entries", &|load| grouped(load.times(load.made.completions.into())));
    row("memory beside queues", &|load| in_bytes(load.times(load.made.bytes())));
    row("queues, at least", &|load| in_bytes(load.times(load.made.queue_bytes_least())));
    let memory = [0, 1].map(|side| all.memory(side, opener).map(in_bytes).unwrap_or_default());
    table.add_row(["with transmit descriptors".to_string(), memory[0].clone(), memory[1].clone()]);
    Some(table)
}

fn nis(all: &Calculation) -> Table {
    let mut table = numbers(["per NI", &named(all, 0), &named(all, 1)], 1);
    let pools = [0, 1].map(|side| &all.nodes[side].pools);
    let mut row = |name: &str, value: &dyn Fn(usize) -> String| {
        table.add_row([name.to_string(), value(0), value(1)]);
    };
    row("CPTs", &|side| pools[side].partitions.to_string());
    row("credits, all CPTs", &|side| grouped(pools[side].all_credits()));
    row("transmit descriptors", &|side| count_or_none(pools[side].all_transmits()));
    row("each", &|side| bytes_or_none(pools[side].transmit.total()));
    row("together", &|side| bytes_or_none(pools[side].transmit_bytes()));
    row("registrations", &|side| count_or_none(pools[side].all_registrations()));
    if pools.iter().any(|pools| pools.flush_trigger.is_some()) {
        row("flushed from, each CPT", &|side| {
            pools[side].flush_trigger.map_or("-".into(), |from| grouped(from.into()))
        });
    }
    row("bounce buffers, at most", &|side| bytes_or_none(pools[side].bounce_bytes()));
    row(&format!("work requests to send {}", counted(all.buffer.fragments, "fragment")), &|side| match all
        .transfer(side)
    {
        Some(Ok(made)) => made.work_requests.to_string(),
        Some(Err(error)) => format!("{:?}", error.errno()),
        None => "-".into(),
    });
    table
}

/// Formats bytes; `-` if there are none.
fn bytes_or_none(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { in_bytes(bytes) }
}

fn count_or_none(count: u64) -> String {
    if count == 0 { "-".into() } else { grouped(count) }
}
