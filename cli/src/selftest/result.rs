//! The results of a self-test as plain data: the test fills them in, the reports render them.
//!
//! [`Outcome`] is the whole result, [`Phase`] that of one phase of all clients together; [`Live`]
//! is the current state for a progress bar. The test calls `report::text(&Outcome)`,
//! `report::json(&Outcome)` or `html::page(&Outcome, &Machine)` at the end. Times are durations or
//! nanoseconds, sizes are bytes. No number here is rounded or rendered.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

/// Returns a saturating sum: nodes may report any numbers.
pub(super) fn total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// The settings, with which a run can be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The kind of process that ran the network: `in-process` or `helper`.
    pub mode: &'static str,
    /// `lo` or `tcp`.
    pub net: &'static str,
    /// Bytes of one bulk transfer.
    pub size: u64,
    /// Operations in flight of each client in the bulk phases.
    pub concurrency: u32,
    pub clients: u32,
    /// Duration of each phase.
    pub duration: Duration,
    /// Seed of the patterns, the order of the mixed load, and the faults.
    pub seed: u64,
    /// The rules by which messages are dropped and delayed, as given.
    pub faults: Option<String>,
}

/// The result of one self-test.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub settings: Settings,
    pub started: SystemTime,
    /// Addresses of the clients' transfer machines.
    pub clients: Vec<String>,
    /// Addresses of the servers' transfer machines.
    pub servers: Vec<String>,
    /// The phases in the order in which they ran. A run that was ended early has fewer, and the
    /// last may be short.
    pub phases: Vec<Phase>,
    /// The bytes that the servers verified, and the errors that they counted.
    pub served: Served,
    /// The rules of all nodes, with their counters; empty without faults.
    pub rules: Vec<RuleCount>,
    pub ending: Ending,
}

/// The end of a self-test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All phases ran to their end.
    Complete,
    /// A signal ended it; the results so far are valid.
    Interrupted,
    /// The test could not continue, for this reason.
    Failed(String),
}

/// The results of one phase, all clients together.
#[derive(Debug, Clone)]
pub(crate) struct Phase {
    /// In snake case: `ping_pong`, `message_rate`, `bulk_read`, `bulk_write`, `mixed`.
    pub name: &'static str,
    /// Bytes of one operation's payload; of a mixed load, of its bulk transfers.
    pub size: u64,
    /// Operations in flight of each client.
    pub in_flight: u32,
    pub clients: u32,
    /// From the first operation's start to the last one's end.
    pub elapsed: Duration,
    /// Operations that ended with correct results.
    pub operations: u64,
    /// Payload of these operations in bytes.
    pub bytes: u64,
    /// Nanoseconds from an operation's start to its end, of the correct ones.
    pub latencies_ns: Histogram<u64>,
    /// Taken about ten times a second, in order.
    pub samples: Vec<Sample>,
    /// Operations or events that were wrong, missing or unexpected; injected losses are not
    /// counted.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Operations of which a rule dropped a message: they ended by their timeout.
    pub lost: u64,
    /// Messages that the rules of all nodes dropped during the phase; each of them loses one
    /// operation.
    pub dropped: u64,
    /// Messages that the rules of all nodes delayed during the phase.
    pub delayed: u64,
    /// Bytes that the clients compared with their expected values.
    pub verified_bytes: u64,
}

/// The progress of a phase at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Time since the phase began.
    pub at: Duration,
    /// Operations until then.
    pub operations: u64,
    /// Bytes of payload until then.
    pub bytes: u64,
}

/// The results of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Served {
    pub verified_bytes: u64,
    pub errors: u64,
}

/// The counters of a rule on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleCount {
    /// The NID of the node.
    pub node: String,
    /// The rule's text.
    pub rule: String,
    /// Messages that it applies to.
    pub matched: u64,
    pub dropped: u64,
    pub delayed: u64,
}

/// The current state of the running phase, for a progress bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Live {
    pub elapsed: Duration,
    pub operations: u64,
    pub bytes: u64,
    pub verified_bytes: u64,
    pub errors: u64,
    pub lost: u64,
}

impl Outcome {
    /// Returns the number of errors of clients and servers.
    pub(crate) fn errors(&self) -> u64 {
        total(self.phases.iter().map(|phase| phase.errors).chain([self.served.errors]))
    }

    /// Returns the number of operations lost because rules dropped their messages.
    pub(crate) fn lost(&self) -> u64 {
        total(self.phases.iter().map(|phase| phase.lost))
    }

    /// Returns the number of bytes that the clients compared.
    pub(crate) fn verified_bytes(&self) -> u64 {
        total(self.phases.iter().map(|phase| phase.verified_bytes))
    }

    /// Returns whether all phases ran, and nothing was wrong or missing beyond the messages that
    /// rules dropped.
    pub(crate) fn passed(&self) -> bool {
        self.ending == Ending::Complete
            && self.errors() == 0
            && self.phases.iter().all(|phase| phase.operations > 0 && phase.lost == phase.dropped)
    }
}
