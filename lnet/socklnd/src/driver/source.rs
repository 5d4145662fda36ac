//! The descriptors that a shard watches.

use lnet_lnd::shard_table::ShardKey;
use lnet_lnd::sources::Queued;

use super::accept::{Accepting, ListenSocket};
use super::connecting::ConnAttempt;
use super::receive::RxConn;

/// A watched descriptor with its state.
pub(super) enum EventSource {
    Listener(ListenSocket),
    Accepting(Box<Accepting>),
    Connecting(Box<ConnAttempt>),
    Conn(Box<RxConn>),
    /// A slot whose handshake has just ended; the same call reuses or frees it.
    Vacant,
}

/// The watched descriptors by the poller's keys. Those that have, or may have, something to read
/// are in the ready list.
pub(super) type EventSources = lnet_lnd::sources::EventSources<EventSource>;

lnet_lnd::variants!(EventSource {
    listener,
    listener_mut: Listener(ListenSocket),
    accepting,
    accepting_mut: Accepting(Accepting),
    connecting,
    connecting_mut: Connecting(ConnAttempt),
    conn,
    conn_mut: Conn(RxConn),
});

impl Queued for EventSource {
    fn queued(&mut self) -> Option<&mut bool> {
        match self {
            EventSource::Conn(rx) => Some(&mut rx.queued),
            EventSource::Listener(listener) => Some(&mut listener.queued),
            _ => None,
        }
    }
}

/// Takes a handshake out of its slot, which stays for the connection.
pub(super) fn take_accepting(sources: &mut EventSources, key: ShardKey) -> Option<Box<Accepting>> {
    sources.take(key, EventSource::Vacant, |source| match source {
        EventSource::Accepting(accepting) => Ok(accepting),
        other => Err(other),
    })
}

/// Takes an attempt out of its slot, which stays for the connection.
pub(super) fn take_connecting(sources: &mut EventSources, key: ShardKey) -> Option<Box<ConnAttempt>> {
    sources.take(key, EventSource::Vacant, |source| match source {
        EventSource::Connecting(connecting) => Ok(connecting),
        other => Err(other),
    })
}
