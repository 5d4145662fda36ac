//! The end of connections, peers and NIs (lnet-wire 28).

use std::sync::Arc;

use lnet_api::Errno;
use lnet_api::tables::PeerTable;
use tracing::{debug, info};

use super::receive::Broken;
use super::{Driver, Source, Turn};
use crate::conn::Conn;
use crate::ni::Ni;
use crate::peer::Peer;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::{Cause, Failure, Step};
use lnet_api::slab::Key;

impl Driver {
    /// A connection is broken, and so all connections to its peer go.
    pub(super) fn broken(&mut self, turn: Turn<'_>, key: Key, errno: Errno) {
        self.close_broken(turn, key, Broken::new(errno, ""));
    }

    /// A connection is broken for this reason, and so all connections to its peer go. What still waits for the peer is
    /// sent over new ones.
    pub(super) fn close_broken(&mut self, turn: Turn<'_>, key: Key, broken: Broken) {
        let Some(Source::Conn(rx)) = self.sources.get(key) else { return };
        let peer = rx.peer.clone();
        let address = rx.remote;
        let Broken { errno, protocol, orderly, detail } = broken;
        let counters = &turn.shard.counters.rx;
        if protocol {
            counters.protocol_errors.one();
        }
        if !protocol && is_timeout(errno) {
            counters.timeouts.one();
        }
        let cause = if protocol { Cause::Protocol } else { Cause::Errno };
        let failure = Failure { peer: peer.key.id, address, step: Step::Established, errno, cause, detail };
        // A peer that ends while nothing is being sent to it is no event for an operator.
        let quiet = orderly && peer.state.lock().conns.iter().all(|conn| conn.queued() == 0);
        if quiet {
            debug!(peer = %failure.peer, %address, "the peer has closed its connections");
        } else {
            info!(%failure, "all connections to the peer are closed");
        }
        peer.state.lock().failure = Some(failure);
        self.close_peer(turn, &peer, errno);
        self.advance_peer(turn, &peer);
    }

    /// Closes all connections to a peer and finalises what was in flight on them.
    pub(super) fn close_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>, errno: Errno) {
        let conns = {
            let mut state = peer.state.lock();
            state.links.closed_all(turn.now_ns);
            state.keepalive = None;
            std::mem::take(&mut state.conns)
        };
        if conns.is_empty() {
            return;
        }
        for conn in &conns {
            self.close_conn(turn, conn, errno);
        }
        turn.shard.counters.rx.peers_lost.one();
        peer.ni.upcalls.peer_lost(peer.key.ni, peer.key.id, errno);
    }

    fn close_conn(&mut self, turn: Turn<'_>, conn: &Arc<Conn>, errno: Errno) {
        turn.shard.poller.delete(conn.stream.handle());
        let Some(place) = self.sources.get_mut(conn.key) else { return };
        let Source::Conn(rx) = place else { return };
        let peer = rx.peer.clone();
        if rx.abandon(errno) {
            *place = Source::Lost(peer.clone());
        } else {
            self.sources.remove(conn.key);
        }
        for message in conn.close(errno) {
            if let Some(token) = message.token {
                drop(message);
                peer.ni.upcalls.finalize_tx(token, Err(errno));
            }
        }
    }

    /// Ends what this shard has of an NI that has left the table: nothing of it is left, and everything in flight is
    /// finalised.
    pub(crate) fn shutdown(&mut self, shared: &Shared, shard: &Shard, ni: &Arc<Ni>) {
        let turn = Turn { shared, shard, now_ns: self.now_ns };
        self.serve_requests(turn);
        let mut peers = Vec::new();
        let mine = |peer: &Peer| Arc::ptr_eq(&peer.ni, ni) && peer.shard.number == shard.number;
        turn.shared.peers.collect(&mut peers, mine);
        for peer in &peers {
            self.end_peer(turn, peer);
        }
        let unused = !turn.shared.nis.any(|other| other.ip == ni.ip);
        let ends = |source: &Source| match source {
            Source::Listener(listener) => unused && listener.address.ip() == ni.ip,
            Source::Accepting(accepting) => accepting.ni == Some(ni.id.nid),
            Source::Connecting(connecting) => Arc::ptr_eq(&connecting.peer.ni, ni),
            Source::Lost(peer) => Arc::ptr_eq(&peer.ni, ni),
            Source::Conn(_) | Source::Vacant => false,
        };
        let ended: Vec<Key> =
            self.sources.iter().filter(|(_, source)| ends(source)).map(|(key, _)| key).collect();
        for key in ended {
            self.drop_accepting(key);
            self.sources.remove(key);
        }
    }

    /// Serves what has been asked of this shard while an NI ended, and lets go of its connections.
    pub(crate) fn clear_up(&mut self, shared: &Shared, shard: &Shard) {
        self.serve_requests(Turn { shared, shard, now_ns: self.now_ns });
        shard.forget_closed();
    }

    /// Removes a peer of an NI that ends.
    fn end_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        let conns = {
            let mut state = peer.state.lock();
            state.retired = Some(Errno::ESHUTDOWN);
            state.links.closed_all(turn.now_ns);
            std::mem::take(&mut state.conns)
        };
        for conn in &conns {
            self.close_conn(turn, conn, Errno::ESHUTDOWN);
            conn.wait_for_writer();
        }
        peer.fail_waiting(Errno::ESHUTDOWN);
        turn.shared.peers.remove(peer);
    }
}

/// Whether this is how the system says, or this LND, that nothing has moved for too long. On a connection that stands the
/// system tells an unreachable network or host only when it gives up.
fn is_timeout(errno: Errno) -> bool {
    [Errno::ETIMEDOUT, Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EHOSTDOWN].contains(&errno)
}

/// Takes a peer out of the table that nothing is remembered of; if the table is `crowded`, the reason of its last failure
/// does not count.
pub(super) fn retire_if_idle(peers: &PeerTable<Peer>, peer: &Arc<Peer>, now_ns: u64, crowded: bool) {
    let idle = {
        let mut state = peer.state.lock();
        let idle = state.conns.is_empty()
            && state.waiting.is_empty()
            && (crowded || state.failure.is_none())
            && state.links.is_forgettable(now_ns);
        if idle {
            state.retired = Some(Errno::EAGAIN);
        }
        idle
    };
    if idle {
        peers.remove(peer);
    }
}
