//! The end of connections, peers and NIs (lnet-wire 34).

use crate::o2ib::{Ni, Peer};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::slab::Key;
use tracing::info;

use super::Driver;
use super::events::end;
use super::source::{Source, take_opening};
use crate::conn::Ended;
use crate::connection::Connection;
use crate::item::Rx;
use crate::links::Lost;
use crate::o2ib::Turn;
use lnet_lnd::Miss;

impl Driver {
    /// Something failed on a connection.
    pub(super) fn break_off(&mut self, turn: Turn<'_>, key: Key, errno: Errno, detail: &str) {
        self.close_broken(turn, key, Miss::gone(errno, detail));
    }

    /// The peer has ended it, or its device is gone.
    pub(super) fn disconnected(&mut self, turn: Turn<'_>, key: Key) {
        match self.sources.get(key) {
            Some(Source::Conn(_)) => {
                // What the peer has sent before is still to be read.
                while self.digest(turn, key).is_some_and(|count| count > 0) {}
                self.break_off(turn, key, Errno::ECONNRESET, "the peer has ended it");
            }
            Some(Source::Opening(_)) => self.opening_reset(turn, key),
            Some(Source::Listener(_) | Source::Vacant) | None => {}
        }
    }

    /// A connection is at its end; the peer's others stay (lnet-wire 34).
    pub(super) fn close_broken(&mut self, turn: Turn<'_>, key: Key, why: Miss) {
        let Some(rx) = self.sources.get(key).and_then(Source::conn) else { return };
        let conn = rx.conn.clone();
        let peer = conn.peer.clone();
        let errno = why.errno;
        let failure = turn.connection_failed(&peer, peer.address(turn.shared.config.service), why);
        info!(%failure, "a connection is closed");
        self.close_conn(turn, &conn, errno);
        self.advance(turn, &peer);
    }

    /// Closes all connections to a peer.
    pub(super) fn close_peer(&mut self, turn: Turn<'_>, peer: &Arc<Peer>, errno: Errno) {
        let conns = peer.state.lock().conns.clone();
        for conn in &conns {
            self.close_conn(turn, conn, errno);
        }
    }

    fn close_conn(&mut self, turn: Turn<'_>, conn: &Arc<Connection>, errno: Errno) {
        let lost = {
            let mut state = conn.peer.state.lock();
            state.conns.retain(|other| !Arc::ptr_eq(other, conn));
            state.links.lost(conn.id, turn.now_ns)
        };
        self.end_conn(turn, conn, errno);
        turn.shard.counters.rx.closes.one();
        if lost == Lost::Last {
            turn.shard.counters.rx.peers_lost.one();
            conn.ni().upcalls.peer_lost(conn.ni().id.nid, conn.peer.key.id, errno);
        }
    }

    /// Destroys the queues of a connection, and then finalises what was in flight on it: no device reads or writes its memory
    /// any more.
    pub(super) fn end_conn(&mut self, turn: Turn<'_>, conn: &Arc<Connection>, errno: Errno) {
        let live = {
            let mut state = conn.state.lock();
            state.closed = Some(errno);
            state.live.take()
        };
        let Some(live) = live else { return };
        live.endpoint.disconnect();
        drop(live.endpoint);
        for Ended { item, .. } in live.machine.close() {
            end(conn, &turn.shard.counters, Ended { item, outcome: Err(errno) });
        }
        self.forget_receives(turn, conn);
        self.sources.remove(conn.key);
    }

    /// What the engine can name of a connection is gone; what it is about to resume will learn it then.
    fn forget_receives(&mut self, turn: Turn<'_>, conn: &Arc<Connection>) {
        let of_it = |rx: &Rx| match rx {
            Rx::Get { conn: of, .. } | Rx::Held { conn: of, .. } => Arc::ptr_eq(of, conn),
            Rx::Lost { .. } => false,
        };
        let mut gone: Vec<(Key, Option<lnet_api::RxToken>)> = Vec::new();
        for (key, rx) in turn.shard.own.receives.lock().iter() {
            let token = match rx {
                Rx::Held { token, .. } => *token,
                Rx::Get { .. } | Rx::Lost { .. } => None,
            };
            if of_it(rx) {
                gone.push((key, token));
            }
        }
        for (key, token) in gone {
            let forgotten = token.is_none_or(|token| conn.ni().upcalls.forget_delayed(token));
            let mut receives = turn.shard.own.receives.lock();
            if forgotten {
                receives.remove(key);
            } else if let Some(rx) = receives.get_mut(key) {
                *rx = Rx::Lost { conn: conn.clone() };
            }
        }
    }

    /// The device of an NI is gone: all of this shard's that used it ends.
    pub(super) fn lose_device(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        for peer in turn.peers_of(ni) {
            self.close_peer(turn, &peer, Errno::ENODEV);
            for key in self.openings(|of| Arc::ptr_eq(of, &peer)) {
                self.unreachable(turn, key, Errno::ENODEV);
            }
            peer.fail_waiting(Errno::ENODEV);
        }
    }

    /// The attempts of peers.
    fn openings(&self, wanted: impl Fn(&Arc<Peer>) -> bool) -> Vec<Key> {
        self.sources.keys(|source| matches!(source, Source::Opening(opening) if wanted(&opening.peer)))
    }

    /// Ends what else there is of an NI whose peers are gone.
    pub(super) fn end_listeners(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        for key in self.openings(|peer| Arc::ptr_eq(&peer.ni, ni)) {
            if let Some(mut opening) = take_opening(&mut self.sources, key) {
                opening.turn_down();
            }
            self.sources.remove(key);
        }
        let unused = !turn.shared.nis.uses(ni.ip);
        let ends = |source: &Source| matches!(source, Source::Listener(listening) if unused && listening.ip == ni.own.ip);
        for key in self.sources.keys(ends) {
            self.end_listener(turn, key);
        }
        let lost_of = |rx: &Rx| matches!(rx, Rx::Lost { conn } if Arc::ptr_eq(conn.ni(), ni));
        let mut receives = turn.shard.own.receives.lock();
        let lost: Vec<Key> = receives.iter().filter(|(_, rx)| lost_of(rx)).map(|(key, _)| key).collect();
        lost.into_iter().for_each(|key| drop(receives.remove(key)));
    }
}
