//! The thread on which an event is delivered.

use lnet_api::{Event, EventKind};
use lnet_cpt::with_partition;
use lnet_nid::Nid;

/// The CPU partitions of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Partitions {
    /// No partitions: events are delivered on the thread that injects them.
    Unknown,
    /// This number of partitions; each event is delivered on a new thread in one of them.
    Threads(usize),
}

impl Partitions {
    /// Runs `work` on a thread of this peer's partition.
    pub(crate) fn run<R: Send>(self, peer: impl FnOnce() -> Nid, work: impl FnOnce() -> R + Send) -> R {
        let Partitions::Threads(partitions) = self else { return work() };
        let partition = peer().cpt_of(partitions);
        let ended = std::thread::scope(|scope| scope.spawn(|| with_partition(partition, work)).join());
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Returns the peer that sent or receives the message of an event.
pub(crate) fn peer_of(event: &Event) -> Nid {
    match event.kind {
        EventKind::Send => event.target.nid,
        _ => event.source.nid,
    }
}
