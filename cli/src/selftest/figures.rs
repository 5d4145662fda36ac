//! The numbers of a phase as all reports show them: rates and percentiles.

use serde::Serialize;

use super::result::Phase;
use crate::svg::Latency;
use crate::units::per_second;

/// The numbers of a phase. Sizes in bytes, rates in operations and in millions of bytes of payload
/// per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures<'a> {
    pub(crate) phase: &'static str,
    pub(crate) size: u64,
    /// Operations in flight of each client.
    pub(crate) concurrency: u32,
    pub(crate) clients: u32,
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) operations_per_s: f64,
    pub(crate) mb_per_s: f64,
    #[serde(flatten)]
    pub(crate) latency: Latency,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<&'a str>,
    /// Operations that were lost because a rule dropped their message.
    pub(crate) losses: u64,
    /// Messages that rules dropped; each loses an operation.
    pub(crate) losses_injected: u64,
    /// Messages that rules delayed.
    pub(crate) delayed: u64,
    pub(crate) verified_bytes: u64,
}

impl<'a> From<&'a Phase> for Figures<'a> {
    fn from(phase: &'a Phase) -> Figures<'a> {
        Figures {
            phase: phase.name,
            size: phase.size,
            concurrency: phase.in_flight,
            clients: phase.clients,
            seconds: phase.elapsed.as_secs_f64(),
            operations: phase.operations,
            operations_per_s: per_second(phase.operations, phase.elapsed),
            mb_per_s: per_second(phase.bytes, phase.elapsed) / 1e6,
            latency: Latency::from(&phase.latencies_ns),
            errors: phase.errors,
            first_error: phase.first_error.as_deref(),
            losses: phase.lost,
            losses_injected: phase.dropped,
            delayed: phase.delayed,
            verified_bytes: phase.verified_bytes,
        }
    }
}

impl Figures<'_> {
    /// Returns the phase's name for people.
    pub(crate) fn name(&self) -> String {
        self.phase.replace('_', " ")
    }
}
