//! The end of connections and NIs (lnet-wire 28).

use crate::sock::{Ni, Peer, PeerState};
use std::sync::Arc;

use lnet_api::Errno;

use super::Driver;
use super::source::EventSource;
use crate::choice::{MessageClass, carries_lnet};
use crate::conn::{Conn, Unsent};
use crate::outbox_message::OutboxMessage;
use crate::peer::Choose;
use crate::sock::Turn;
use crate::{Cause, SockConfig};
use lnet_lnd::ConnFailure;
use lnet_lnd::closing::{CloseScope, close_broken};
use lnet_lnd::shard_table::ShardKey;

/// The age up to which the end of a connection may belong to its handshake. A kernel node that has
/// accepted one connection too many, which can happen when both sides connect at the same time,
/// resets it at once (measured). The limit is longer because its host may be busy.
const FRESH_NS: u64 = 1_000_000_000;

impl Driver {
    /// Closes a broken connection.
    pub(super) fn break_off(&mut self, turn: Turn<'_>, key: ShardKey, errno: Errno) {
        close_broken(self, turn, key, ConnFailure::gone(errno, ""));
    }

    /// Closes a connection, and finalises the message in reception. Unsent messages move to the
    /// peer's other connections, if there are any.
    pub(super) fn close_conn(&mut self, turn: Turn<'_>, peer: &Peer, conn: &Arc<Conn>, errno: Errno) {
        turn.shard.own.poller.delete(conn.stream.handle());
        if let Some(EventSource::Conn(mut rx)) = self.sources.remove(conn.key) {
            rx.abandon(errno);
        }
        let Unsent { begun, rest } = conn.close(errno);
        let (failed, others) = {
            let mut state = peer.state.lock();
            let failed: Vec<(OutboxMessage, Errno)> =
                rest.into_iter().filter_map(|message| move_over(turn, &mut state, message, errno)).collect();
            (failed, state.conns.clone())
        };
        for (message, errno) in begun.map(|message| (message, errno)).into_iter().chain(failed) {
            finalize(peer, message, errno);
        }
        others.iter().for_each(|conn| conn.flush());
    }

    /// Ends the listeners and the handshakes of an NI whose peers are gone.
    pub(super) fn end_handshakes(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        let unused = !turn.shared.nis.uses(ni.ip);
        let ends = |source: &EventSource| match source {
            EventSource::Listener(listener) => unused && listener.address.ip() == ni.ip,
            EventSource::Accepting(accepting) => accepting.ni == Some(ni.id.nid),
            EventSource::Connecting(connecting) => Arc::ptr_eq(&connecting.peer.ni, ni),
            EventSource::Conn(_) | EventSource::Vacant => false,
        };
        for key in self.sources.keys(ends) {
            self.sources.remove(key);
        }
    }

    /// Decides whether a connection ends alone or all of the peer's connections end with it. It
    /// ends alone if the peer closed it before sending anything on it, and other connections of its
    /// type exist: a peer ends a surplus connection in this way. Where the NI allows several
    /// connections of a type, a first one that is new also ends alone: while both sides connect,
    /// the peer may keep the one whose handshake ends later. A peer that has restarted, or that
    /// gives up this node, ends all connections (lnet-wire 28), and each one detects that
    /// separately.
    pub(super) fn decide_ends(&self, turn: Turn<'_>, key: ShardKey, failure: &ConnFailure) -> CloseScope {
        let hung_up =
            failure.cause != Cause::Protocol && [Errno::ECONNRESET, Errno::EPIPE].contains(&failure.errno);
        // The peer has sent nothing on this connection since it was established.
        let silent = self.sources.get(key).and_then(EventSource::conn).filter(|rx| hung_up && rx.silent);
        let Some(rx) = silent else { return CloseScope::All };
        let several = rx.peer.ni.conns_per_peer() > 1;
        let fresh = several && turn.now_ns < rx.last_heard_ns.saturating_add(FRESH_NS);
        let state = rx.peer.state.lock();
        let others = || state.conns.iter().filter(|other| other.key != key);
        let does_without = others().any(|other| carries_lnet(other.conn_type, other.version))
            && (fresh || others().any(|other| other.conn_type == rx.conn.conn_type));
        if does_without { CloseScope::Surplus } else { CloseScope::All }
    }
}

/// Updates the peer's links after connections were closed and removed from its state.
pub(crate) fn closed(state: &mut PeerState, gone: &[Arc<Conn>], now_ns: u64) {
    if state.conns.is_empty() {
        state.links.closed_all(now_ns);
        state.own.keepalive = None;
    } else {
        gone.iter().for_each(|conn| state.links.closed_one(conn.conn_type, now_ns));
    }
}

/// Queues a message of a closed connection on another one; returns it with the error if there is
/// none.
fn move_over(
    turn: Turn<'_>,
    state: &mut PeerState,
    message: OutboxMessage,
    errno: Errno,
) -> Option<(OutboxMessage, Errno)> {
    let SockConfig { round_robin, min_bulk, .. } = turn.shared.config;
    let load = match message.token {
        Some(_) => MessageClass::Message { bytes: message.len(), min_bulk: min_bulk as usize },
        None => MessageClass::Noop,
    };
    match state.choose(round_robin, |_| load) {
        Some(conn) => conn.take_over(message),
        None => Some((message, errno)),
    }
}

fn finalize(peer: &Peer, message: OutboxMessage, errno: Errno) {
    if let Some(token) = message.token {
        drop(message);
        peer.ni.upcalls.finalize_tx(token, Err(errno));
    }
}
