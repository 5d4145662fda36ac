//! Counters and histograms of a service in each partition.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::PoolCounters;

/// Longest duration that a histogram resolves: an hour, in nanoseconds. A longer one counts as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The counters of one partition of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServiceCounters {
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that wait for a worker, are handled, move bulk or are being answered.
    pub active: u64,
    /// Largest number of such requests at a time.
    pub active_max: u64,
    /// Replies that have left.
    pub replies: u64,
    /// Requests that ended without a reply, because their handler dropped them.
    pub dropped: u64,
    /// Replies that could not be sent.
    pub failed: u64,
    /// Bulk operations that have ended well.
    pub bulk: u64,
    /// Bytes that they moved.
    pub bulk_bytes: u64,
    /// Bulk operations that failed.
    pub bulk_failed: u64,
    /// Requests that arrived in a buffer of this partition because their own had none.
    pub crossed: u64,
    /// Request buffers that exist now.
    pub buffers: u64,
    /// Requests for which the posted ones have room.
    pub room: u64,
    /// Buffers that were added under load.
    pub grown: u64,
    /// Buffers that were freed again.
    pub shrunk: u64,
    /// Buffers that could not be posted.
    pub not_posted: u64,
}

/// Percentiles of a duration in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Percentiles {
    /// The number of values.
    pub count: u64,
    /// Half of the values are at most this.
    pub p50_ns: u64,
    /// 90 % of the values are at most this.
    pub p90_ns: u64,
    /// 99 % of the values are at most this.
    pub p99_ns: u64,
    /// 99.9 % of the values are at most this.
    pub p999_ns: u64,
    /// The largest value.
    pub max_ns: u64,
}

impl Percentiles {
    /// Returns the percentiles of durations in nanoseconds.
    #[must_use]
    pub fn of(durations: &Histogram<u64>) -> Percentiles {
        let at = |quantile| durations.value_at_quantile(quantile);
        Percentiles {
            count: durations.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: durations.max(),
        }
    }
}

/// What is counted and measured of a service, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatistics {
    /// The name that the program chose, for its status.
    pub name: &'static str,
    /// One entry for each partition of the pool.
    pub partitions: Vec<PartitionStatistics>,
}

/// What is counted and measured in one partition of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionStatistics {
    /// The CPU partition of the host.
    pub cpt: usize,
    /// The partition's worker threads and their queue. Services of one pool share them.
    pub pool: PoolCounters,
    /// The requests of the service.
    pub counters: ServiceCounters,
    /// Time from arrival to the handler.
    pub waits: Percentiles,
    /// Time from arrival to the end of the reply.
    pub service_times: Percentiles,
}

/// A histogram of durations, with a relative error of at most 1 %.
pub(crate) struct Durations(Mutex<Histogram<u64>>);

impl Durations {
    pub(crate) fn new() -> Durations {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 2);
        Durations(Mutex::new(histogram.unwrap_or_else(|_| unreachable!("the bounds are constants"))))
    }

    pub(crate) fn record(&self, duration_ns: u64) {
        self.0.lock().saturating_record(duration_ns.max(1));
    }

    pub(crate) fn add_to(&self, sum: &mut Histogram<u64>) {
        // Both have the same bounds.
        let _ = sum.add(&*self.0.lock());
    }
}

/// Returns the percentiles of several histograms together.
pub(crate) fn percentiles<'a>(all: impl Iterator<Item = &'a Durations>) -> Percentiles {
    let Durations(sum) = Durations::new();
    let mut sum = sum.into_inner();
    all.for_each(|durations| durations.add_to(&mut sum));
    Percentiles::of(&sum)
}

/// The counters that change with every request, without a lock.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) requests: AtomicU64,
    pub(crate) active_max: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) bulk: AtomicU64,
    pub(crate) bulk_bytes: AtomicU64,
    pub(crate) bulk_failed: AtomicU64,
    pub(crate) crossed: AtomicU64,
    pub(crate) grown: AtomicU64,
    pub(crate) shrunk: AtomicU64,
    pub(crate) not_posted: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn began(&self) {
        add(&self.requests, 1);
        let active = self.active();
        if active > self.active_max.load(Ordering::Relaxed) {
            self.active_max.fetch_max(active, Ordering::Relaxed);
        }
    }

    /// Returns the number of requests that have not ended.
    fn active(&self) -> u64 {
        let ended =
            [&self.replies, &self.dropped, &self.failed].map(|counter| counter.load(Ordering::Relaxed));
        self.requests.load(Ordering::Relaxed).saturating_sub(ended.iter().sum())
    }

    pub(crate) fn read(&self, buffers: u64, room: u64) -> ServiceCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServiceCounters {
            requests: read(&self.requests),
            active: self.active(),
            active_max: read(&self.active_max),
            replies: read(&self.replies),
            dropped: read(&self.dropped),
            failed: read(&self.failed),
            bulk: read(&self.bulk),
            bulk_bytes: read(&self.bulk_bytes),
            bulk_failed: read(&self.bulk_failed),
            crossed: read(&self.crossed),
            buffers,
            room,
            grown: read(&self.grown),
            shrunk: read(&self.shrunk),
            not_posted: read(&self.not_posted),
        }
    }
}
