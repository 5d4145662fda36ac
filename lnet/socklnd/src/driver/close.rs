//! The end of connections, peers and NIs (lnet-wire 28).

use crate::sock::{Ni, Peer, PeerState};
use std::sync::Arc;

use lnet_api::Errno;
use tracing::{debug, info};

use super::Driver;
use super::receive::RxConn;
use super::source::Source;
use crate::choice::{Load, carries_lnet};
use crate::conn::{Conn, Unsent};
use crate::outgoing::Outgoing;
use crate::peer::Choose;
use crate::sock::Turn;
use crate::{Cause, SockConfig};
use lnet_lnd::Miss;
use lnet_lnd::slab::Key;

/// How long the end of a connection may belong to its handshake. A kernel node that has accepted one too many, as it may
/// when both sides open theirs at once, resets it right then (measured); its host may be busy.
const FRESH_NS: u64 = 1_000_000_000;

impl Driver {
    /// A connection is broken, and so all connections to its peer go, unless it [`ends_alone`].
    pub(super) fn break_off(&mut self, turn: Turn<'_>, key: Key, errno: Errno) {
        self.close_broken(turn, key, Miss::gone(errno, ""));
    }

    /// A connection is broken for this reason, and so all connections to its peer go, unless it
    /// [`ends_alone`]. What still waits for the peer is sent over new ones.
    pub(super) fn close_broken(&mut self, turn: Turn<'_>, key: Key, why: Miss) {
        let Some(rx) = self.sources.get(key).and_then(Source::conn) else { return };
        if ends_alone(turn, rx, &why) {
            return self.close_alone(turn, key, &why);
        }
        let peer = rx.peer.clone();
        let errno = why.errno;
        let failure = turn.connection_failed(&peer, rx.remote, why);
        // A peer that ends while nothing is being sent to it is no event for an operator.
        let idle = || peer.state.lock().conns.iter().all(|conn| conn.queued() == 0);
        if failure.cause == Cause::Closed && idle() {
            debug!(peer = %failure.peer, address = %failure.address, "the peer has closed its connections");
        } else {
            info!(%failure, "all connections to the peer are closed");
        }
        self.close_peer(turn, &peer, errno);
        self.advance(turn, &peer);
    }

    /// Closes one connection. What has not begun to leave on it goes on the others.
    fn close_alone(&mut self, turn: Turn<'_>, key: Key, why: &Miss) {
        let Some(rx) = self.sources.get(key).and_then(Source::conn) else { return };
        let (conn, peer) = (rx.conn.clone(), rx.peer.clone());
        let (id, conn_type, errno) = (peer.key.id, conn.conn_type, why.errno);
        // A node that ends closes its connections one after the other.
        if why.cause == Cause::Closed {
            debug!(peer = %id, %conn_type, "the peer has closed one of its connections");
        } else {
            info!(peer = %id, %conn_type, %errno, "the peer has reset one of its connections; the others stay");
        }
        {
            let mut state = peer.state.lock();
            state.conns.retain(|other| other.key != key);
            state.links.closed_one(conn.conn_type, turn.now_ns);
        }
        let Unsent { begun, rest } = self.end_conn(turn, &conn, errno);
        let (failed, conns) = {
            let mut state = peer.state.lock();
            let failed: Vec<(Outgoing, Errno)> =
                rest.into_iter().filter_map(|message| move_over(turn, &mut state, message, errno)).collect();
            (failed, state.conns.clone())
        };
        for (message, errno) in begun.map(|message| (message, errno)).into_iter().chain(failed) {
            finalize(&peer, message, errno);
        }
        conns.iter().for_each(|conn| conn.flush());
        self.advance(turn, &peer);
    }

    /// Closes all connections to a peer and finalises what was in flight on them.
    pub(super) fn close_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>, errno: Errno) {
        let conns = {
            let mut state = peer.state.lock();
            state.links.closed_all(turn.now_ns);
            state.own.keepalive = None;
            std::mem::take(&mut state.conns)
        };
        if conns.is_empty() {
            return;
        }
        for conn in &conns {
            self.close_conn(turn, peer, conn, errno);
        }
        turn.shard.counters.rx.peers_lost.one();
        peer.ni.upcalls.peer_lost(peer.key.ni, peer.key.id, errno);
    }

    pub(super) fn close_conn(&mut self, turn: Turn<'_>, peer: &Peer, conn: &Arc<Conn>, errno: Errno) {
        let Unsent { begun, rest } = self.end_conn(turn, conn, errno);
        for message in begun.into_iter().chain(rest) {
            finalize(peer, message, errno);
        }
    }

    /// Closes a connection and finalises what was being received on it; gives what it has not sent.
    fn end_conn(&mut self, turn: Turn<'_>, conn: &Arc<Conn>, errno: Errno) -> Unsent {
        turn.shard.own.poller.delete(conn.stream.handle());
        if let Some(rx) = self.sources.get_mut(conn.key).and_then(Source::conn_mut) {
            if rx.abandon(errno) {
                let lost = Source::Lost(rx.peer.clone());
                self.sources.replace(conn.key, lost);
            } else {
                self.sources.remove(conn.key);
            }
        }
        conn.close(errno)
    }

    /// Ends the listeners of an NI whose peers are gone, and the handshakes with it.
    pub(super) fn end_handshakes(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        let unused = !turn.shared.nis.uses(ni.ip);
        let ends = |source: &Source| match source {
            Source::Listener(listener) => unused && listener.address.ip() == ni.ip,
            Source::Accepting(accepting) => accepting.ni == Some(ni.id.nid),
            Source::Connecting(connecting) => Arc::ptr_eq(&connecting.peer.ni, ni),
            Source::Lost(peer) => Arc::ptr_eq(&peer.ni, ni),
            Source::Conn(_) | Source::Vacant => false,
        };
        for key in self.sources.keys(ends) {
            self.sources.remove(key);
        }
    }
}

/// Whether the end of a connection leaves the others to its peer as they are: the peer has hung up on it without a word
/// there, and it is not the only one of its type. So a peer ends a connection that it does without. Where the NI allows
/// several of a type, the first of them counts as well as long as it is fresh: while both sides open theirs, the peer may
/// keep the one whose handshake ends later. A peer that has restarted, or that gives up this node, ends all connections
/// (lnet-wire 28), and each shows that by itself.
fn ends_alone(turn: Turn<'_>, rx: &RxConn, why: &Miss) -> bool {
    let hung_up = why.cause != Cause::Protocol && [Errno::ECONNRESET, Errno::EPIPE].contains(&why.errno);
    if !hung_up || !rx.silent {
        return false;
    }
    // Nothing has been heard on it since it stands.
    let several = rx.peer.ni.conns_per_peer() > 1;
    let fresh = several && turn.now_ns < rx.last_heard_ns.saturating_add(FRESH_NS);
    let state = rx.peer.state.lock();
    let others = || state.conns.iter().filter(|other| other.key != rx.conn.key);
    others().any(|other| carries_lnet(other.conn_type, other.version))
        && (fresh || others().any(|other| other.conn_type == rx.conn.conn_type))
}

/// Queues a message of a connection that has ended on another one; gives it back with the reason if there is none.
fn move_over(
    turn: Turn<'_>,
    state: &mut PeerState,
    message: Outgoing,
    errno: Errno,
) -> Option<(Outgoing, Errno)> {
    let SockConfig { round_robin, min_bulk, .. } = turn.shared.config;
    let load = match message.token {
        Some(_) => Load::Message { bytes: message.len(), min_bulk: min_bulk as usize },
        None => Load::Noop,
    };
    match state.choose(round_robin, |_| load) {
        Some(conn) => conn.take_over(message),
        None => Some((message, errno)),
    }
}

fn finalize(peer: &Peer, message: Outgoing, errno: Errno) {
    if let Some(token) = message.token {
        drop(message);
        peer.ni.upcalls.finalize_tx(token, Err(errno));
    }
}
