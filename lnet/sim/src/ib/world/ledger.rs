//! What operations there are, and what may become of them.

use std::collections::BTreeMap;

use lnet_api::{Errno, Event, EventKind, MdHandle, MeHandle};
use lnet_region::IoVec;

use crate::ib::IbSeen;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Put { ack: bool },
    Get,
}

/// A node in one of its lives.
pub(super) type Party = (usize, u64);

pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) from: Party,
    pub(super) to: Party,
    pub(super) begun_ns: u64,
    pub(super) size: usize,
    /// The initiator's and the target's.
    pub(super) memory: [IoVec; 2],
    pub(super) md: Option<MdHandle>,
    pub(super) me: Option<MeHandle>,
    sent: Option<Result<(), Errno>>,
    answered: Option<Result<(), Errno>>,
    delivered: u32,
    pub(super) late: bool,
    pub(super) unlinked: bool,
    pub(super) ended: bool,
}

impl Operation {
    pub(super) fn new(kind: Kind, from: Party, to: Party, size: usize, memory: [IoVec; 2]) -> Operation {
        Operation {
            kind,
            from,
            to,
            begun_ns: 0,
            size,
            memory,
            md: None,
            me: None,
            sent: None,
            answered: None,
            delivered: 0,
            late: false,
            unlinked: false,
            ended: false,
        }
    }

    pub(super) fn succeeded(&self) -> bool {
        let answer = match self.kind {
            Kind::Put { ack: false } => self.sent,
            _ => self.answered,
        };
        self.ended && !self.unlinked && answer == Some(Ok(()))
    }
}

/// How an operation may fail: its connection, its peer, its NI, its device or its time is gone; or there is no memory.
const ERRNOS: [Errno; 15] = [
    Errno::ECONNRESET,
    Errno::ECONNREFUSED,
    Errno::ENOTCONN,
    Errno::ETIMEDOUT,
    Errno::EHOSTUNREACH,
    Errno::ESHUTDOWN,
    Errno::ENETDOWN,
    Errno::ECANCELED,
    Errno::ENODATA,
    Errno::ENODEV,
    Errno::EIO,
    Errno::ENOBUFS,
    Errno::ENOMEM,
    Errno::ESTALE,
    Errno::EMSGSIZE,
];

/// All operations of a world.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) operations: BTreeMap<u64, Operation>,
    last: u64,
    pub(super) seen: IbSeen,
}

/// The bytes of an operation: a shift or a mix-up shows.
pub(super) fn pattern(number: u64, size: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..size as u64)
        .map(|at| (seed >> (at % 7 * 8)).wrapping_add(at.wrapping_mul(31)).wrapping_add(at >> 8) as u8)
        .collect()
}

impl Ledger {
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Operations that go on.
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, &Operation)> {
        self.operations.iter().filter(|(_, operation)| !operation.ended).map(|(number, it)| (*number, it))
    }

    /// An event of a node in one of its lives.
    pub(super) fn event(&mut self, party: Party, event: &Event) -> Result<(), String> {
        let (number, target) = (event.user_ptr >> 1, event.user_ptr & 1 == 1);
        let Some(operation) = self.operations.get_mut(&number) else {
            return Err(format!("an event of operation {number}, which is over: {event:?}"));
        };
        if party != if target { operation.to } else { operation.from } {
            return Err(format!("an event of operation {number} in another life: {event:?}"));
        }
        if let Err(errno) = event.status
            && !ERRNOS.contains(&errno)
        {
            return Err(format!("operation {number} fails with {errno}: {event:?}"));
        }
        if target { self.at_target(number, event) } else { self.at_initiator(number, event) }
    }

    fn at_initiator(&mut self, number: u64, event: &Event) -> Result<(), String> {
        let Some(operation) = self.operations.get_mut(&number) else { return Ok(()) };
        if operation.ended {
            return Err(format!("an event of operation {number} after its last one: {event:?}"));
        }
        match (operation.kind, event.kind) {
            (_, EventKind::Send) if operation.sent.is_none() => operation.sent = Some(event.status),
            (Kind::Put { ack: true }, EventKind::Ack) | (Kind::Get, EventKind::Reply)
                if operation.answered.is_none() =>
            {
                operation.answered = Some(event.status);
                if event.status.is_ok() {
                    check_answer(number, operation, event)?;
                    self.seen.delivered += u64::from(event.kind == EventKind::Reply);
                }
            }
            (_, EventKind::Unlink) if operation.unlinked => {}
            _ => return Err(format!("operation {number} ({:?}) has this event: {event:?}", operation.kind)),
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

    fn at_target(&mut self, number: u64, event: &Event) -> Result<(), String> {
        let Some(operation) = self.operations.get_mut(&number) else { return Ok(()) };
        match (operation.kind, event.kind) {
            (Kind::Put { .. }, EventKind::Put) | (Kind::Get, EventKind::Get) => {}
            (_, EventKind::Unlink) => return Ok(()),
            _ => return Err(format!("the target of operation {number} has this event: {event:?}")),
        }
        if event.status.is_err() {
            return Ok(());
        }
        operation.delivered += 1;
        if operation.delivered > 1 {
            return Err(format!("operation {number} is delivered {} times", operation.delivered));
        }
        if event.mlength as usize != operation.size {
            let size = operation.size;
            return Err(format!("operation {number} delivered {} of {size} bytes", event.mlength));
        }
        if let Kind::Put { .. } = operation.kind {
            check_payload(number, operation, 1)?;
            self.seen.delivered += 1;
            self.seen.held_and_met += u64::from(operation.late);
        }
        Ok(())
    }
}

fn check_answer(number: u64, operation: &Operation, event: &Event) -> Result<(), String> {
    if event.mlength as usize != operation.size {
        return Err(format!("operation {number} moved {} of {} bytes", event.mlength, operation.size));
    }
    match event.kind {
        EventKind::Reply => check_payload(number, operation, 0),
        _ if operation.delivered == 0 => {
            Err(format!("operation {number} is acknowledged and was never delivered"))
        }
        _ => Ok(()),
    }
}

/// Whether the memory of one side holds what was sent.
fn check_payload(number: u64, operation: &Operation, side: usize) -> Result<(), String> {
    let lease = operation.memory[side].read(0..operation.size);
    let bytes = lease.map_err(|error| format!("operation {number} is over, its memory in use: {error}"))?;
    let expected = pattern(number, operation.size);
    match bytes.to_vec().iter().zip(&expected).position(|(is, expected)| is != expected) {
        None => Ok(()),
        Some(at) => Err(format!("operation {number}: byte {at} of {} is not what was sent", operation.size)),
    }
}
