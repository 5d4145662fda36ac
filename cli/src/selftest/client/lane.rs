//! The state of one operation in flight, and its buffers.

use std::time::Duration;

use nlx::{Buffer, Domain};

use super::super::protocol::{Kind, Stamp};
use crate::failure::Failure;

/// An operation in flight, with its buffers while no transfer uses them.
pub(super) struct Lane {
    pub(super) request: Option<Buffer>,
    /// Buffer of the bulk to the server.
    pub(super) source: Option<Buffer>,
    /// Buffer of the bulk from the server.
    pub(super) sink: Option<Buffer>,
    /// Index of the server that handles the operation.
    pub(super) server: usize,
    pub(super) kind: Kind,
    pub(super) length: usize,
    /// Stamp of the current try.
    pub(super) stamp: Stamp,
    /// Begin of the operation, that is of its first try, since the epoch.
    pub(super) began: Duration,
    pub(super) tries: u32,
    /// Number of parts that have not ended yet; 0 when nothing is in flight.
    pub(super) parts: u32,
    /// Set while the server's answer is one of them.
    pub(super) awaits_answer: bool,
    pub(super) outcome: Outcome,
}

/// State of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Right,
    /// A part ended by its timeout.
    Lost,
    Wrong,
}

impl Lane {
    pub(super) fn new(domain: &Domain, lane: usize, message_bytes: usize) -> Result<Lane, Failure> {
        let mut request = domain.allocate(message_bytes)?;
        request.set_tag(lane as u64);
        Ok(Lane {
            request: Some(request),
            source: None,
            sink: None,
            server: 0,
            kind: Kind::Echo,
            length: 0,
            stamp: Stamp { sequence: 0, time: Duration::ZERO },
            began: Duration::ZERO,
            tries: 0,
            parts: 0,
            awaits_answer: false,
            outcome: Outcome::Right,
        })
    }
}
