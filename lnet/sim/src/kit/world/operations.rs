//! The operations of programs, and their results.

use std::collections::BTreeMap;

use lnet_api::{Errno, Event, EventKind, MdHandle, MeHandle};
use lnet_nid::Nid;
use lnet_region::IoVec;

use crate::kit::NodeSeen;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Put { ack: bool },
    Get,
}

/// The initiator or target of an operation: a node in a particular incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Party {
    pub(super) node: usize,
    pub(super) life: u64,
}

/// An operation, from its start to the end on both sides.
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) from: Party,
    pub(super) to: Party,
    /// The source and target NIDs.
    pub(super) nids: (Nid, Nid),
    pub(super) begun_ns: u64,
    /// The length of the payload, whose bytes are the pattern of the operation's number.
    pub(super) size: usize,
    /// Memory at the initiator and at the target.
    pub(super) memory: [IoVec; 2],
    /// The MD bound by the initiator, and the entry posted by the target.
    pub(super) md: Option<MdHandle>,
    pub(super) me: Option<MeHandle>,
    pub(super) sent: Option<Result<(), Errno>>,
    pub(super) answered: Option<Result<(), Errno>>,
    /// The number of successful events at the target.
    pub(super) delivered: u32,
    /// The number of failure events at the target.
    pub(super) failed: u32,
    /// True if the message was held when its buffer was posted.
    pub(super) met: bool,
    /// True if the initiator has unlinked the operation's MD.
    pub(super) unlinked: bool,
    /// True if the operation's last event has been delivered, or its node is dead.
    pub(super) ended: bool,
}

impl Operation {
    /// Returns whether the operation has ended with success.
    pub(super) fn succeeded(&self) -> bool {
        let answer = match self.kind {
            Kind::Put { ack: false } => self.sent,
            Kind::Put { ack: true } | Kind::Get => self.answered,
        };
        self.ended && !self.unlinked && answer == Some(Ok(()))
    }
}

/// All operations of a world.
#[derive(Default)]
pub(super) struct OperationTable {
    pub(super) operations: BTreeMap<u64, Operation>,
    pub(super) last: u64,
    pub(super) seen: NodeSeen,
    pub(super) transaction_timeout_ns: u64,
    /// True if a message that could not be sent is never delivered; messages that the sender gave
    /// up are excepted.
    pub(super) unsent_is_lost: bool,
    /// True if payloads are expected to have a wrong pattern.
    pub(super) wrong_pattern: bool,
}

/// Returns the bytes of an operation; the pattern reveals shifted and exchanged bytes.
pub(super) fn pattern(number: u64, size: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..size as u64)
        .map(|at| (seed >> (at % 7 * 8)).wrapping_add(at.wrapping_mul(31)).wrapping_add(at >> 8) as u8)
        .collect()
}

impl OperationTable {
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn begin(&mut self, number: u64, operation: Operation) {
        self.seen.operations += 1;
        self.operations.insert(number, operation);
    }

    /// Checks an event of a node in a particular incarnation.
    pub(super) fn event(
        &mut self,
        party: Party,
        event: &Event,
        now_ns: u64,
        errnos: &[Errno],
    ) -> Result<(), String> {
        let (number, target) = (event.user_ptr >> 1, event.user_ptr & 1 == 1);
        let wrong_pattern = self.wrong_pattern;
        let Some(operation) = self.operations.get_mut(&number) else {
            return Err(format!("an event of operation {number}, which is over: {event:?}"));
        };
        let expected = if target { operation.to } else { operation.from };
        if expected != party {
            return Err(format!("an event of operation {number} in another life: {event:?}"));
        }
        if let Err(errno) = event.status
            && !errnos.contains(&errno)
        {
            return Err(format!("operation {number} fails with {errno}: {event:?}"));
        }
        if target {
            return self.at_target(number, event, now_ns);
        }
        if operation.ended {
            return Err(format!("an event of operation {number} after its last one: {event:?}"));
        }
        let answer = matches!(event.kind, EventKind::Ack | EventKind::Reply);
        match (operation.kind, event.kind) {
            (_, EventKind::Send) if operation.sent.is_none() => operation.sent = Some(event.status),
            (Kind::Put { ack: true }, EventKind::Ack) | (Kind::Get, EventKind::Reply)
                if operation.answered.is_none() =>
            {
                operation.answered = Some(event.status);
            }
            (_, EventKind::Unlink) if operation.unlinked => {}
            _ => return Err(format!("operation {number} ({:?}) has this event: {event:?}", operation.kind)),
        }
        if answer && event.status.is_ok() {
            if event.mlength as usize != operation.size {
                return Err(format!(
                    "operation {number} moved {} of {} bytes",
                    event.mlength, operation.size
                ));
            }
            let reply = event.kind == EventKind::Reply;
            if reply {
                check_payload(number, operation, 0, wrong_pattern)?;
                self.seen.delivered += 1;
            } else if operation.delivered == 0 {
                return Err(format!("operation {number} is acknowledged and was never delivered"));
            }
        }
        if event.unlinked {
            operation.ended = true;
            let outcome = match (operation.succeeded(), operation.unlinked) {
                (true, _) => &mut self.seen.succeeded,
                (_, true) => &mut self.seen.unlinked,
                _ => &mut self.seen.failed,
            };
            *outcome += 1;
        }
        Ok(())
    }

    fn at_target(&mut self, number: u64, event: &Event, now_ns: u64) -> Result<(), String> {
        let wrong_pattern = self.wrong_pattern;
        let Some(operation) = self.operations.get_mut(&number) else { return Ok(()) };
        match (operation.kind, event.kind) {
            (Kind::Put { .. }, EventKind::Put) | (Kind::Get, EventKind::Get) => {}
            (_, EventKind::Unlink) => return Ok(()),
            _ => return Err(format!("the target of operation {number} has this event: {event:?}")),
        }
        if event.status.is_err() {
            operation.failed += 1;
            return Ok(());
        }
        // The SEND of an operation that was unlinked, or has taken too long, has an error, whatever
        // the result at the target. An engine measures time from the last call of `advance`.
        let patience_ns = self.transaction_timeout_ns.saturating_sub(lnet::ADVANCE_INTERVAL_NS);
        let given_up = operation.unlinked || operation.begun_ns + patience_ns <= now_ns;
        if let Some(Err(errno)) = operation.sent
            && self.unsent_is_lost
            && !given_up
        {
            return Err(format!(
                "operation {number} could not be sent ({errno}), and is delivered nevertheless"
            ));
        }
        operation.delivered += 1;
        if operation.delivered > 1 {
            return Err(format!("operation {number} is delivered {} times", operation.delivered));
        }
        if event.mlength as usize != operation.size {
            return Err(format!(
                "operation {number} delivered {} of {} bytes",
                event.mlength, operation.size
            ));
        }
        if let Kind::Put { .. } = operation.kind {
            check_payload(number, operation, 1, wrong_pattern)?;
            self.seen.delivered += 1;
        }
        Ok(())
    }

    /// Iterates over the operations that have not ended.
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.operations.iter().filter(|(_, operation)| !operation.ended).map(|(number, it)| (*number, it))
    }
}

/// Checks that the memory of one side contains the expected bytes.
fn check_payload(number: u64, operation: &Operation, side: usize, wrong: bool) -> Result<(), String> {
    let memory = &operation.memory[side];
    let lease = memory.read(0..operation.size);
    let bytes = lease.map_err(|error| format!("operation {number} is over, its memory in use: {error}"))?;
    let expected = pattern(number + u64::from(wrong), operation.size);
    match bytes.to_vec().iter().zip(&expected).position(|(is, expected)| is != expected) {
        None => Ok(()),
        Some(at) => Err(format!(
            "operation {number}: byte {at} of {} is not what was sent from {} to {}",
            operation.size, operation.nids.0, operation.nids.1
        )),
    }
}
