//! A connection that this side is opening: what is known of it, and its part of the handshake (lnet-wire 23).

use std::net::SocketAddr;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::sock::{ConnType, Connector};
use lnet_region::Part;

use crate::attempts::{CROWDED_NS, Permit};
use crate::peer::Peer;
use crate::sys::Stream;
use crate::{Cause, Step};

/// A connection that this side is opening.
pub(super) struct Connecting {
    pub(super) stream: Box<dyn Stream>,
    pub(super) peer: Arc<Peer>,
    pub(super) address: SocketAddr,
    pub(super) machine: Connector,
    pub(super) conn_type: ConnType,
    /// Request and hello are sent.
    pub(super) greeted: bool,
    /// The source port proves nothing to the peer.
    pub(super) unprivileged: bool,
    pub(super) begun_ns: u64,
    pub(super) deadline_ns: u64,
    /// Given back when the attempt is over.
    pub(super) permit: Option<Permit>,
}

/// Why an attempt failed.
pub(super) struct Miss {
    pub(super) step: Step,
    pub(super) errno: Errno,
    pub(super) cause: Cause,
    pub(super) detail: String,
}

impl Miss {
    pub(super) fn new(step: Step, errno: Errno, detail: impl ToString) -> Miss {
        Miss { step, errno, cause: Cause::Errno, detail: detail.to_string() }
    }
}

impl Connecting {
    /// When it has taken too long.
    pub(super) fn deadline_ns(&self, crowded: bool) -> u64 {
        let patience_ns = if crowded { CROWDED_NS } else { u64::MAX };
        self.deadline_ns.min(self.begun_ns.saturating_add(patience_ns))
    }

    /// The TCP connection stands, or has failed: sends the request and the hello.
    pub(super) fn greet(&mut self) -> Result<(), Miss> {
        self.stream.connect_result().map_err(|errno| Miss::new(Step::Connect, errno, ""))?;
        let output = self.machine.output();
        match self.stream.send(&[Part::new(output)]) {
            // It fits into any socket's empty buffer.
            Ok(count) if count == output.len() => {}
            Ok(_) | Err(Errno::EAGAIN) => {
                return Err(Miss::new(Step::Handshake, Errno::ENOBUFS, "the send buffer is too small"));
            }
            Err(errno) => return Err(self.hung_up(errno)),
        }
        self.greeted = true;
        self.peer.state.lock().step = Some(Step::Handshake);
        Ok(())
    }

    pub(super) fn hung_up(&self, errno: Errno) -> Miss {
        let source = if self.unprivileged { "; the source port was not privileged" } else { "" };
        Miss::new(Step::Handshake, errno, format!("{}{source}", self.machine.closed()))
    }
}
