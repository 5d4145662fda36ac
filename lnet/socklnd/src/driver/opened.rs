//! The end of a successful handshake, of either side: it becomes a connection.

use crate::sock::PeerState;
use lnet_api::{Errno, TxToken};

use super::Driver;
use super::receive::RxConn;
use super::source::EventSource;
use crate::peer::Choose;
use crate::send::load;
use crate::sock::Turn;
use lnet_lnd::shard_table::ShardKey;

impl Driver {
    /// Turns a finished handshake into a connection: senders see it from now on, and waiting
    /// messages are sent. The connection's slot in the table must exist and be watched.
    pub(super) fn put_to_use(&mut self, turn: Turn<'_>, key: ShardKey, mut rx: RxConn, behind: &[u8]) {
        rx.last_heard_ns = turn.now_ns;
        rx.stash(&mut self.buffers, behind);
        let (conn, peer) = (rx.conn.clone(), rx.peer.clone());
        if self.sources.replace(key, EventSource::Conn(Box::new(rx))).is_none() {
            return;
        }
        self.core.timers.note_activity(turn.now_ns, peer.ni.timeout_ns);
        let failed = {
            let mut state = peer.state.lock();
            state.conns.push(conn);
            state.failure = None;
            send_waiting(turn, &mut state)
        };
        for (token, errno) in failed {
            peer.ni.upcalls.finalize_tx(token, Err(errno));
        }
        let conns = peer.state.lock().conns.clone();
        for conn in conns {
            conn.flush();
        }
        // Bytes may have arrived during the handshake, and no further event reports them.
        self.sources.enqueue(key);
    }
}

/// Queues the waiting messages on the peer's connections; returns those that failed.
fn send_waiting(turn: Turn<'_>, state: &mut PeerState) -> Vec<(TxToken, Errno)> {
    let mut failed = Vec::new();
    while let Some(tx) = state.waiting.take_first() {
        let config = &turn.shared.config;
        match state.choose(config.round_robin, |conn| load(config, &tx, conn.version)).cloned() {
            Some(conn) => failed.extend(conn.queue(tx).err()),
            None => {
                state.waiting.put_back(tx);
                break;
            }
        }
    }
    failed
}
