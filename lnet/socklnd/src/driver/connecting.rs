//! A connection attempt of this side: its state, and its part of the handshake (lnet-wire 23).

use crate::sock::Peer;
use std::net::SocketAddr;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::sock::{ConnType, Connector};
use lnet_region::Part;

use crate::ConnStep;
use crate::attempts::{AttemptPermit, CROWDED_NS};
use crate::sys::Stream;
use lnet_lnd::ConnFailure;

/// The time for which a socket's first segments may go unanswered before a new socket replaces it.
/// TCP sends them at once and after 1 s, then at 3, 7, 15 and 31 s: after an outage, up to half of
/// the outage's duration would pass before the next one. The new socket begins when the third
/// segment is due, so at most 2 s pass between two segments.
const UNANSWERED_NS: u64 = 3_000_000_000;

/// The age at which TCP first retransmits: a younger socket has lost no time.
const FIRST_RETRY_NS: u64 = 1_000_000_000;

/// A connection attempt of this side.
pub(super) struct ConnAttempt {
    pub(super) stream: Box<dyn Stream>,
    pub(super) peer: Arc<Peer>,
    pub(super) address: SocketAddr,
    pub(super) machine: Connector,
    pub(super) conn_type: ConnType,
    /// Set once the request and the hello are sent.
    pub(super) greeted: bool,
    /// Set if the source port is unprivileged, and so proves nothing to the peer.
    pub(super) unprivileged: bool,
    pub(super) begun_ns: u64,
    /// The time at which the present socket began to connect.
    pub(super) dialled_ns: u64,
    pub(super) deadline_ns: u64,
    /// The permit for the attempt, dropped when the attempt is over.
    pub(super) permit: Option<AttemptPermit>,
}

impl ConnAttempt {
    /// Returns the deadline of the attempt; earlier if peers queue for permits (`crowded`).
    pub(super) fn deadline_ns(&self, crowded: bool) -> u64 {
        let limit_ns = if crowded { CROWDED_NS } else { u64::MAX };
        self.deadline_ns.min(self.begun_ns.saturating_add(limit_ns))
    }

    /// Returns the time at which a new socket replaces an unanswered one: no sooner than after the
    /// shortest pause between attempts. `None` once the TCP connection is established.
    pub(super) fn redial_ns(&self, min_reconnect_ns: u64) -> Option<u64> {
        let unanswered = || self.dialled_ns.saturating_add(UNANSWERED_NS.max(min_reconnect_ns));
        (!self.greeted).then(unanswered)
    }

    /// Returns whether TCP is in retransmission back-off for the socket's first segment.
    pub(super) fn is_unanswered(&self, now_ns: u64) -> bool {
        !self.greeted && self.dialled_ns.saturating_add(FIRST_RETRY_NS) <= now_ns
    }

    /// Sends the request and the hello once the TCP connection is established.
    pub(super) fn greet(&mut self) -> Result<(), ConnFailure> {
        self.stream.connect_result().map_err(|errno| ConnFailure::new(ConnStep::Connect, errno, ""))?;
        let output = self.machine.output();
        match self.stream.send(&[Part::new(output)]) {
            // The greeting fits into the empty buffer of any socket.
            Ok(count) if count == output.len() => {}
            Ok(_) | Err(Errno::EAGAIN) => {
                return Err(ConnFailure::new(
                    ConnStep::Handshake,
                    Errno::ENOBUFS,
                    "the send buffer is too small",
                ));
            }
            Err(errno) => return Err(self.hung_up(errno)),
        }
        self.greeted = true;
        self.peer.state.lock().step = Some(ConnStep::Handshake);
        Ok(())
    }

    pub(super) fn hung_up(&self, errno: Errno) -> ConnFailure {
        let source = if self.unprivileged { "; the source port was not privileged" } else { "" };
        ConnFailure::new(ConnStep::Handshake, errno, format!("{}{source}", self.machine.closed()))
    }
}
