//! The test node's part of `nlx status`: the members `lst` and `services` of the node's status.

use std::sync::Arc;

use lnet_node::Node;
use nlx_lst::net::TestNode;
use nlx_lst::node::{BatchReport, Count, Counters, NodeReport, SessionReport};
use serde_json::{Value, json};

use crate::services;

/// Number of batches of a session that are listed; the others are counted.
const BATCHES: usize = 32;

/// Adds a test node to the status of its LNet node, for as long as it runs.
pub(super) fn add(node: &Node, test: &Arc<TestNode>) {
    let (of_node, of_services) = (Arc::downgrade(test), Arc::downgrade(test));
    node.add_status("lst", move || of_node.upgrade().map_or(Value::Null, |test| report(&test)).to_string());
    let of_services = move || of_services.upgrade().map(|test| services::to_json(&test.services()));
    node.add_status("services", move || of_services().unwrap_or_else(|| json!([])).to_string());
}

fn report(test: &TestNode) -> Value {
    let NodeReport { session, zombies, memory_used, memory_max } = test.report();
    json!({
        "consoles": test.consoles().map_or("*".to_string(), ToString::to_string),
        "session": session.as_ref().map(session_json),
        "zombie_sessions": zombies,
        "memory_bytes": memory_used,
        "memory_max_bytes": memory_max,
        "counters": counters(test.counters()),
    })
}

fn session_json(session: &SessionReport) -> Value {
    let SessionReport { view, age_ns, expires_in_ns, batches } = session;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let is_running = batches.iter().any(|batch| batch.running_units > 0);
    json!({
        "name": view.name.to_string(),
        "state": if is_running { "running" } else { "idle" },
        "console": view.sid.nid().map(|nid| nid.to_string()),
        "stamp": view.sid.stamp,
        "features": view.features.0,
        "age_s": seconds(*age_ns),
        "expires_in_s": expires_in_ns.map(seconds),
        "batches": batches.iter().take(BATCHES).map(batch).collect::<Vec<_>>(),
        "batches_left_out": batches.len().saturating_sub(BATCHES),
    })
}

fn batch(batch: &BatchReport) -> Value {
    let BatchReport { id, servers, clients, running_clients, running_units, errors } = batch;
    json!({
        "id": id, "servers": servers, "clients": clients, "running_clients": running_clients,
        "running_units": running_units, "errors": errors,
    })
}

/// Returns the counters of a test node.
pub(super) fn counters(counters: &Counters) -> Value {
    let total = |count| counters.total(count);
    json!({
        "rpcs_sent": total(Count::Sent),
        "rpcs_received": total(Count::Received),
        "rpcs_dropped": total(Count::Dropped),
        "rpcs_expired": total(Count::Expired),
        "bulk_bytes_got": total(Count::BulkGot),
        "bulk_bytes_put": total(Count::BulkPut),
        "refused_consoles": total(Count::Strangers),
        "refused_fatal_to_kernels": fatal(counters),
        "refused_brw": total(Count::FatalRequest),
        "refused_lengths": total(Count::FatalLength),
        "refused_offsets": total(Count::FatalOffset),
        "refused_byte_orders": total(Count::FatalOrder),
    })
}

/// Returns the number of requests refused that would stop a kernel node.
pub(super) fn fatal(counters: &Counters) -> u64 {
    Count::FATAL.into_iter().map(|count| counters.total(count)).sum()
}
