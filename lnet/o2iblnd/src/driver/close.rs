//! The end of connections and NIs (lnet-wire 34).

use crate::o2ib::{Ni, Peer};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_lnd::shard_table::ShardKey;

use super::Driver;
use super::events::end;
use super::source::{EventSource, take_opening};
use crate::conn::EndedOp;
use crate::connection::Connection;
use crate::o2ib::Turn;
use lnet_lnd::closing::{close_broken, close_peer};
use lnet_lnd::protocol::Connection as _;
use lnet_lnd::{Cause, ConnFailure};

impl Driver {
    /// Closes a connection or attempt that the peer has ended, or whose device is gone.
    pub(super) fn disconnected(&mut self, turn: Turn<'_>, key: ShardKey) {
        match self.sources.get(key) {
            Some(EventSource::Conn(_)) => {
                // Process what the peer sent before it ended the connection.
                while self.digest(turn, key).is_some_and(|count| count > 0) {}
                let idle =
                    self.sources.get(key).and_then(EventSource::conn).is_some_and(|rx| rx.conn.is_idle());
                let cause = if idle { Cause::Closed } else { Cause::Errno };
                let failure = ConnFailure {
                    cause,
                    ..ConnFailure::gone(Errno::ECONNRESET, "the peer has closed the connection")
                };
                close_broken(self, turn, key, failure);
            }
            Some(EventSource::Opening(_)) => self.opening_reset(turn, key),
            Some(EventSource::Listener(_) | EventSource::Vacant) | None => {}
        }
    }

    /// Destroys the queues of a connection, and then finalises its operations in flight: no device
    /// reads or writes their memory any more.
    pub(super) fn close_conn(&mut self, turn: Turn<'_>, conn: &Arc<Connection>, errno: Errno) {
        let live = {
            let mut state = conn.state.lock();
            state.closed = Some(errno);
            state.live.take()
        };
        let Some(live) = live else { return };
        live.endpoint.disconnect();
        drop(live.endpoint);
        for EndedOp { item, .. } in live.machine.close() {
            end(conn, &turn.shard.counters, EndedOp { item, outcome: Err(errno) });
        }
        // Remove the connection's GETs, which cannot be answered any more.
        {
            let mut gets = turn.shard.own.gets.lock();
            for key in gets.keys(|get| Arc::ptr_eq(&get.conn, conn)) {
                gets.remove(key);
            }
        }
        self.sources.remove(conn.key);
    }

    /// Ends all of this shard's connections and attempts of an NI whose device is gone.
    pub(super) fn lose_device(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        for peer in turn.peers_of(ni) {
            close_peer(self, turn, &peer, Errno::ENODEV);
            for key in self.openings(|of| Arc::ptr_eq(of, &peer)) {
                self.unreachable(turn, key, Errno::ENODEV);
            }
            peer.fail_waiting(Errno::ENODEV);
        }
    }

    /// Returns the attempts to and from the peers for which `wanted` holds.
    fn openings(&self, wanted: impl Fn(&Arc<Peer>) -> bool) -> Vec<ShardKey> {
        self.sources.keys(|source| matches!(source, EventSource::Opening(opening) if wanted(&opening.peer)))
    }

    /// Ends the attempts and listeners of an NI whose peers have been removed.
    ///
    /// A peer that was accepted and has not established its connection yet is rejected without
    /// LNet's record, by the connection manager, when its endpoint is dropped. An explicit reject
    /// after an accept would carry the record, but Linux then repeats the accept for 64 s.
    /// Destroying the endpoint takes the same time, and all other connections of this thread wait
    /// for it ([`Endpoint::reject`](crate::fabric::Endpoint::reject)).
    pub(super) fn end_listeners(&mut self, turn: Turn<'_>, ni: &Arc<Ni>) {
        for key in self.openings(|peer| Arc::ptr_eq(&peer.ni, ni)) {
            drop(take_opening(&mut self.sources, key));
            self.sources.remove(key);
        }
        let unused = !turn.shared.nis.uses(ni.ip);
        let ends = |source: &EventSource| matches!(source, EventSource::Listener(listening) if unused && listening.ip == ni.own.ip);
        for key in self.sources.keys(ends) {
            self.end_listener(turn, key);
        }
    }
}
