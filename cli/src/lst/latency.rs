//! The round-trip times of the test clients in this process.

use std::fmt;
use std::sync::Arc;

use hdrhistogram::Histogram;
use nlx_lst::node::{Client, Results};
use nlx_service::Percentiles;
use serde_json::{Value, json};

use crate::svg::Latency;

/// The RPCs of a test client. It keeps the results when the session ends, and nothing else of it.
pub(super) struct ClientLatency {
    /// The console's number of the batch, and the number of the test in it.
    batch: u64,
    test: usize,
    results: Arc<Results>,
}

impl From<Client> for ClientLatency {
    fn from(Client { batch, test, instance }: Client) -> ClientLatency {
        ClientLatency { batch, test, results: instance.results() }
    }
}

impl ClientLatency {
    /// Returns the round-trip times of the RPCs that succeeded, in nanoseconds.
    pub(super) fn times_ns(&self) -> Histogram<u64> {
        self.results.latency()
    }

    pub(super) fn to_json(&self) -> Value {
        let Percentiles { count, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } =
            Percentiles::of(&self.times_ns());
        json!({
            "batch": self.batch, "test": self.test, "rpcs": count, "errors": self.results.errors(), "p50_ns": p50_ns,
            "p90_ns": p90_ns, "p99_ns": p99_ns, "p999_ns": p999_ns, "max_ns": max_ns,
        })
    }
}

impl fmt::Display for ClientLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (errors, times_ns) = (self.results.errors(), self.times_ns());
        let latency = Latency::from(&times_ns);
        write!(f, "this node's RPCs: {} done, {errors} failed; latency {}", times_ns.len(), latency.words())
    }
}
