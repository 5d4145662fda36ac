//! The services of a program in its node's status: the member `services`.

use nlx_service::{PartitionStatistics, Percentiles, ServiceStatistics};
use serde_json::{Value, json};

/// Number of partitions of a service that are listed; the others are counted. With two services they
/// take less than 64 KiB.
const PARTITIONS: usize = 32;

/// Returns the services as JSON.
pub(crate) fn to_json(services: &[ServiceStatistics]) -> Value {
    services.iter().map(service).collect()
}

fn service(service: &ServiceStatistics) -> Value {
    let partitions = &service.partitions;
    json!({
        "name": service.name,
        "partitions": partitions.iter().take(PARTITIONS).map(partition).collect::<Vec<_>>(),
        "partitions_left_out": partitions.len().saturating_sub(PARTITIONS),
    })
}

fn partition(partition: &PartitionStatistics) -> Value {
    let PartitionStatistics { cpt, pool, counters, waits, service_times } = partition;
    json!({
        "cpt": cpt,
        // Of the pool, which several services may share.
        "threads": {
            "now": pool.threads, "handling": pool.handling, "grown": pool.grown, "shrunk": pool.shrunk,
            "not_started": pool.not_started, "panics": pool.panics,
        },
        "queue": {
            "waiting": pool.waiting, "waiting_max": pool.waiting_max, "items": pool.items,
            "crossed": pool.crossed,
        },
        "requests": {
            "arrived": counters.requests, "active": counters.active, "active_max": counters.active_max,
            "replied": counters.replies, "dropped": counters.dropped, "failed": counters.failed,
            "crossed": counters.crossed,
        },
        "bulk": { "done": counters.bulk, "bytes": counters.bulk_bytes, "failed": counters.bulk_failed },
        "buffers": {
            "now": counters.buffers, "room": counters.room, "grown": counters.grown,
            "shrunk": counters.shrunk, "not_posted": counters.not_posted,
        },
        "waits": percentiles(waits),
        "service_times": percentiles(service_times),
    })
}

fn percentiles(times: &Percentiles) -> Value {
    let us = |ns: u64| ns as f64 / 1e3;
    json!({
        "count": times.count, "p50_us": us(times.p50_ns), "p90_us": us(times.p90_ns), "p99_us": us(times.p99_ns),
        "p999_us": us(times.p999_ns), "max_us": us(times.max_ns),
    })
}
