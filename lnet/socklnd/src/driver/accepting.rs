//! What is known of a listener, and of a peer that has connected and has yet to say who it is.

use std::net::SocketAddr;

use lnet_lnd::admission::Guest;
use lnet_nid::Nid;
use lnet_proto::sock::Acceptor;

use crate::ni::Locals;
use crate::sys::{self, Stream};

/// A listening socket.
pub(super) struct Listener {
    pub(super) listener: Box<dyn sys::Listener>,
    pub(super) address: SocketAddr,
    /// It stands in the ready list.
    pub(super) queued: bool,
    /// Nothing is accepted before then; `None` while there are descriptors.
    pub(super) paused_until_ns: Option<u64>,
}

/// A peer that has connected and has yet to say who it is.
pub(super) struct Accepting {
    pub(super) stream: Box<dyn Stream>,
    pub(super) remote: SocketAddr,
    pub(super) guest: Guest,
    pub(super) machine: Acceptor<Locals>,
    pub(super) deadline_ns: u64,
    /// The NI the peer asked for, once it has.
    pub(super) ni: Option<Nid>,
}
