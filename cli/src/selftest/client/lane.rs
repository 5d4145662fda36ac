use std::time::Duration;

use nlx::{Buffer, Domain};

use super::super::protocol::Kind;
use super::super::stamp::Stamp;
use crate::failure::Failure;

/// Room for one operation in flight: what it is, and the buffers that nothing uses at the moment.
pub(super) struct Lane {
    pub(super) request: Option<Buffer>,
    /// Bulk to the server, and from it.
    pub(super) source: Option<Buffer>,
    pub(super) sink: Option<Buffer>,
    /// Whom it asks.
    pub(super) server: usize,
    pub(super) kind: Kind,
    pub(super) length: usize,
    /// Of the try that is in flight.
    pub(super) stamp: Stamp,
    /// When the operation began, its first try that is, since the epoch.
    pub(super) began: Duration,
    pub(super) tries: u32,
    /// Parts that have not ended yet; 0 when nothing is in flight.
    pub(super) parts: u32,
    /// One of them is the server's answer.
    pub(super) awaits_answer: bool,
    pub(super) outcome: Outcome,
}

/// How a try stands.
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
