//! Taking a new connection into use.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::{ConnParams, Known, Link};
use parking_lot::Mutex;
use tracing::debug;

use super::Driver;
use super::opening::{Opening, Stage};
use super::rx_conn::RxConn;
use super::source::{EventSource, take_opening};
use crate::buffers::ConnBuffers;
use crate::conn::{Conn, Limits};
use crate::connection::{ConnState, Connection, LiveConn};
use crate::o2ib::Turn;
use crate::sizes;
use crate::work_requests::WorkRequests;
use crate::writes::WriteLimits;
use lnet_lnd::admission::Permit;
use lnet_lnd::closing::close_peer;
use lnet_lnd::shard_table::ShardKey;

impl Driver {
    /// Handles a peer that was accepted and has established its connection.
    pub(super) fn established(&mut self, turn: Turn<'_>, key: ShardKey) {
        let Some(opening) = self.sources.get_mut(key).and_then(EventSource::opening_mut) else { return };
        let Stage::Accepting { link, params } = opening.stage else { return };
        turn.shard.counters.rx.accepts.one();
        self.put_to_use(turn, key, link, params);
    }

    /// Takes an established connection into use.
    pub(super) fn put_to_use(&mut self, turn: Turn<'_>, key: ShardKey, link: Link, params: ConnParams) {
        let Some(opening) = take_opening(&mut self.sources, key) else { return };
        let Opening { endpoint, queues, peer, id, permit, .. } = *opening;
        let Some(queues) = queues else { return };
        let life = Known { version: link.version, stamp: link.peer.stamp };
        let others = {
            let mut state = peer.state.lock();
            // Another connection, established during this handshake (no earlier one can), may lead
            // to another incarnation of the peer.
            let contradicts = state.links.life().is_some_and(|known| known != life);
            state.failure = None;
            contradicts
        };
        if others {
            close_peer(self, turn, &peer, Errno::ECONNRESET);
        }
        let _ = peer.state.lock().links.established(id, life, turn.now_ns);
        let made = queues.sizes.adopt(&peer.ni.own.adjusted, params.queue_depth, params.max_fragments);
        let limits = Limits {
            depth: u8::try_from(params.queue_depth).unwrap_or(u8::MAX),
            high_water: made.high_water,
            sends: made.concurrent_sends,
            works: queues.made.sends,
            messages: sizes::messages(made.depth),
            keepalive_ns: turn.shared.config.keepalive_ns(),
        };
        let ConnBuffers { memory, receive, transmit } = queues.buffers;
        debug!(peer = %peer.key.id.nid, depth = params.queue_depth, fragments = params.max_fragments, "connected");
        let live = LiveConn {
            endpoint,
            machine: Conn::new(&limits, turn.now_ns),
            _memory: memory,
            transmit,
            pieces: Vec::new(),
            batch: WorkRequests::default(),
        };
        let device = peer.ni.own.device.limits();
        let conn = Arc::new(Connection {
            key,
            id,
            link,
            params,
            limits: WriteLimits {
                pieces: made.pieces as usize,
                bytes: device.transfer_bytes,
                writes: params.max_fragments.into(),
            },
            inline: queues.made.inline as usize,
            cksum: turn.shared.config.cksum,
            state: Mutex::new(ConnState { live: Some(live), corked: false, broken: None, closed: None }),
            peer: peer.clone(),
        });
        let rx = RxConn::new(conn.clone(), receive, permit.map(Permit::opened));
        self.sources.replace(key, EventSource::Conn(Box::new(rx)));
        self.make_busy(key);
        peer.state.lock().conns.push(conn);
        self.core.timers.note_activity(turn.now_ns, peer.ni.timeout_ns);
        self.flush_waiting(&peer);
        self.advance(turn, &peer);
    }
}
