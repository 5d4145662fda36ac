//! What a self-test found out, as plain data: the engine fills it in, the reports render it.
//!
//! [`Outcome`] is the whole of it, [`Phase`] one phase of all clients together; [`Live`] is what a progress bar is told while
//! a phase runs: the engine calls `report::text(&Outcome)`, `report::json(&Outcome)` or `html::write(&Outcome, &Path)` at
//! the end, and `Progress::new(name, duration, quiet)`, `update(&Live)` and `finish()` in each phase. Times are durations or nanoseconds, sizes bytes. Nothing here is a rounded or rendered number.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use super::stats::Statistics;

/// A sum of what nodes tell, who may say anything.
pub(super) fn total(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// What was asked for: a run can be repeated with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where the network ran: `in-process` or `helper`.
    pub mode: &'static str,
    /// `lo` or `tcp`.
    pub net: &'static str,
    /// Bytes of one bulk transfer.
    pub size: u64,
    /// Operations in flight of each client in the bulk phases.
    pub concurrency: u32,
    pub clients: u32,
    /// Of each phase.
    pub duration: Duration,
    /// Every pattern, the order of the mixed load, and the faults follow from it.
    pub seed: u64,
    /// The rules by which messages are dropped and delayed, as they were given.
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
    /// In the order in which they ran; a run that was ended early has fewer, and the last may be short.
    pub phases: Vec<Phase>,
    /// What the servers verified of what the clients sent, and what they found wrong.
    pub served: Served,
    /// The rules of all nodes, with what each did; empty without faults.
    pub rules: Vec<RuleCount>,
    pub ending: Ending,
}

/// How a self-test came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All phases ran to their end.
    Complete,
    /// A signal ended it; what there is so far is sound.
    Interrupted,
    /// It could not go on, and why.
    Failed(String),
}

/// One phase, all clients together.
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
    /// Operations that came to their end, and were right.
    pub operations: u64,
    /// Payload of these.
    pub bytes: u64,
    /// Nanoseconds again, exactly: least, greatest, mean, deviation.
    pub latency_ns: Statistics,
    /// Nanoseconds from an operation's start to its end, of those that were right.
    pub latencies_ns: Histogram<u64>,
    /// Taken about ten times a second, in order.
    pub samples: Vec<Sample>,
    /// Operations or events that were wrong, missing, or came unasked; none of them is a loss that was injected.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// Operations of which a message was dropped by a rule: they ended by their timeout.
    pub lost: u64,
    /// Messages that the rules of all nodes dropped meanwhile; each of them loses one operation.
    pub dropped: u64,
    /// Messages that the rules of all nodes delayed meanwhile.
    pub delayed: u64,
    /// Bytes that the clients compared with what they must be.
    pub verified_bytes: u64,
}

/// How far a phase had come at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Since the phase began.
    pub at: Duration,
    /// Operations until then.
    pub operations: u64,
    /// Bytes of payload until then.
    pub bytes: u64,
}

/// What the servers have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Served {
    pub verified_bytes: u64,
    pub errors: u64,
}

/// What a rule did on a node.
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

/// What a progress bar shows of the phase that runs.
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
    /// What was wrong anywhere.
    pub(crate) fn errors(&self) -> u64 {
        total(self.phases.iter().map(|phase| phase.errors).chain([self.served.errors]))
    }

    /// Operations lost because rules dropped their messages.
    pub(crate) fn lost(&self) -> u64 {
        total(self.phases.iter().map(|phase| phase.lost))
    }

    /// What the clients compared.
    pub(crate) fn verified_bytes(&self) -> u64 {
        total(self.phases.iter().map(|phase| phase.verified_bytes))
    }

    /// Whether everything ran, and nothing was wrong or missing beyond what the rules dropped.
    pub(crate) fn passed(&self) -> bool {
        self.ending == Ending::Complete
            && self.errors() == 0
            && self.phases.iter().all(|phase| phase.operations > 0 && phase.lost == phase.dropped)
    }
}
