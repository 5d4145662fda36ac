//! The descriptors that a shard watches.

use lnet_lnd::slab::Key;
use lnet_lnd::sources::Queued;

use super::accept::{Accepting, Listener};
use super::connecting::Connecting;
use super::receive::RxConn;

/// A watched descriptor with its state.
pub(super) enum Source {
    Listener(Listener),
    Accepting(Box<Accepting>),
    Connecting(Box<Connecting>),
    Conn(Box<RxConn>),
    /// A slot whose handshake has just ended; the same call reuses or frees it.
    Vacant,
}

/// The watched descriptors by the poller's keys. Those that have, or may have, something to read
/// are in the ready list.
pub(super) type Sources = lnet_lnd::sources::Sources<Source>;

lnet_lnd::variants!(Source {
    listener,
    listener_mut: Listener(Listener),
    accepting,
    accepting_mut: Accepting(Accepting),
    connecting,
    connecting_mut: Connecting(Connecting),
    conn,
    conn_mut: Conn(RxConn),
});

impl Queued for Source {
    fn queued(&mut self) -> Option<&mut bool> {
        match self {
            Source::Conn(rx) => Some(&mut rx.queued),
            Source::Listener(listener) => Some(&mut listener.queued),
            _ => None,
        }
    }
}

/// Takes a handshake out of its slot, which stays for the connection.
pub(super) fn take_accepting(sources: &mut Sources, key: Key) -> Option<Box<Accepting>> {
    sources.take(key, Source::Vacant, |source| match source {
        Source::Accepting(accepting) => Ok(accepting),
        other => Err(other),
    })
}

/// Takes an attempt out of its slot, which stays for the connection.
pub(super) fn take_connecting(sources: &mut Sources, key: Key) -> Option<Box<Connecting>> {
    sources.take(key, Source::Vacant, |source| match source {
        Source::Connecting(connecting) => Ok(connecting),
        other => Err(other),
    })
}
