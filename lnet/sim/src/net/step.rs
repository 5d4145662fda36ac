//! Events of messages in flight, and of connections.

use std::sync::Arc;

use lnet_api::{Errno, RxContext, RxToken};
use lnet_nid::{Nid, ProcessId};

use super::SimNet;
use super::note::Note;
use super::state::{Event, PendingTx, Receiving};

impl SimNet {
    pub(super) fn happen(&self, event: Event) {
        match event {
            Event::Arrive { conn, end, sequence } => self.arrive(conn, end, sequence),
            Event::Pump { conn, end } => self.pump(conn, end),
            Event::Payload { conn, end } => self.payload(conn, end),
            Event::Finalize { tx } => self.finalize(tx, Ok(())),
            Event::Fail { tx, errno } => self.finalize(tx, Err(errno)),
            Event::Direct { get, result } => self.direct(get, result),
            Event::FailRx { ni, peer, life, token, sink } => {
                drop(sink);
                self.finalize_rx((ni, peer), life, token, Err(Errno::ECONNRESET), 0);
            }
            Event::Break { conn } => self.state.lock().break_conn(conn, Errno::ECONNRESET, None),
            Event::Notice { conn, end, reason } => self.notice(conn, end, reason),
            Event::Timer(_) => {}
        }
    }

    /// Finalises a message that has left or failed.
    fn finalize(&self, tx: u64, result: Result<(), Errno>) {
        let mut state = self.state.lock();
        let Some(held) = state.held.remove(&tx) else { return };
        state.seen.messages_cut_off += u64::from(result.is_err());
        drop(state);
        match result {
            Err(errno) if held.is_direct_get => self.finalize_get(held, Err(errno)),
            result => self.finalize_tx(held, result),
        }
    }

    fn finalize_tx(&self, held: PendingTx, result: Result<(), Errno>) {
        let PendingTx { ni, peer, life, token, payload, .. } = held;
        let Some(port) = self.state.lock().port(ni, life) else { return };
        // The lease is dropped first, because the engine may notify the memory's owner.
        drop(payload);
        self.notify(Note::FinalizeTx { ni, token, result });
        port.on_shard(ni, peer, |engine| engine.finalize_tx(token, result));
    }

    /// Reports that the network has answered a GET, if its sender still waits.
    fn direct(&self, get: u64, result: Result<Arc<[u8]>, Errno>) {
        let mut state = self.state.lock();
        let conn = state.held.get(&get).and_then(|held| held.conn);
        let lives = conn.and_then(|(conn, _)| state.conns.get(&conn)).is_some_and(|conn| !conn.broken);
        let Some(held) = lives.then(|| state.held.remove(&get)).flatten() else { return };
        state.seen.direct_failures += u64::from(result.is_err());
        drop(state);
        self.finalize_get(held, result);
    }

    fn finalize_get(&self, held: PendingTx, result: Result<Arc<[u8]>, Errno>) {
        let PendingTx { ni, peer, life, token, sink, .. } = held;
        let Some(port) = self.state.lock().port(ni, life) else { return };
        if let (Some(mut sink), Ok(bytes)) = (sink, &result) {
            let length = bytes.len().min(sink.len());
            sink.copy_from(0, &bytes[..length]);
        }
        self.notify(Note::FinalizeGet { ni, token, result: result.clone() });
        let length = result.map(|bytes| bytes.len() as u32);
        port.on_shard(ni, peer, |engine| engine.finalize_get(token, length));
    }

    /// Finalises a received message whose payload is in place or lost.
    pub(super) fn finalize_rx(
        &self,
        (ni, peer): (Nid, Nid),
        life: u64,
        token: RxToken,
        result: Result<(), Errno>,
        written: usize,
    ) {
        let Some(port) = self.state.lock().port(ni, life) else { return };
        self.notify(Note::FinalizeRx { ni, token, result, written });
        port.on_shard(ni, peer, |engine| engine.finalize_rx(token, result));
    }

    /// Handles an end's discovery that its connection is gone: the messages that the end was
    /// sending and receiving are lost.
    pub(super) fn notice(&self, id: u64, end: usize, reason: Errno) {
        let mut state = self.state.lock();
        let Some(conn) = state.conns.get(&id) else { return };
        let (ni, peer, Some(life)) = (conn.nids[end], conn.nids[1 - end], conn.attached[end]) else { return };
        let Some((receiving, last)) = state.detach(id, end) else { return };
        let lost: Vec<u64> = state
            .held
            .iter()
            .filter(|(_, held)| held.conn == Some((id, end)) && held.life == life)
            .map(|(&tx, _)| tx)
            .collect();
        drop(state);
        for tx in lost {
            self.finalize(tx, Err(reason));
        }
        if let Some(receiving) = receiving {
            self.abandon((ni, peer), life, receiving, reason);
        }
        if last {
            self.lose_peer(ni, life, peer, reason);
        }
    }

    /// Fails the message that was being received over a lost connection.
    fn abandon(&self, (ni, peer): (Nid, Nid), life: u64, receiving: Receiving, reason: Errno) {
        match receiving {
            Receiving::Payload { token, sink, .. } => {
                drop(sink);
                self.finalize_rx((ni, peer), life, token, Err(reason), 0);
            }
            Receiving::Delayed { rx, token, .. } => self.forget_delayed((ni, peer), life, rx, token),
        }
    }

    /// Ends the wait of a delayed message, unless the engine is about to resume it: then the
    /// message fails at that time.
    fn forget_delayed(&self, (ni, peer): (Nid, Nid), life: u64, rx: RxContext, token: RxToken) {
        let Some(port) = self.state.lock().port(ni, life) else { return };
        let forgotten = port.on_shard(ni, peer, |engine| engine.forget_delayed(token));
        self.notify(Note::Forgotten { ni, rx, forgotten });
        if forgotten {
            self.state.lock().delayed.remove(&rx.0);
        }
    }

    fn lose_peer(&self, ni: Nid, life: u64, peer: Nid, reason: Errno) {
        let mut state = self.state.lock();
        state.seen.peers_lost += 1;
        let Some(port) = state.port(ni, life) else { return };
        drop(state);
        self.notify(Note::PeerLost { ni, peer, reason });
        port.on_shard(ni, peer, |engine| engine.peer_lost(ni, ProcessId::lnet(peer), reason));
    }

    /// Stops an NI: all its messages in flight fail before this returns.
    pub(super) fn shutdown(&self, ni: Nid) {
        let reason = Errno::ESHUTDOWN;
        loop {
            let state = self.state.lock();
            let next = state.held.iter().find(|(_, held)| held.ni == ni).map(|(&id, _)| id);
            drop(state);
            let Some(tx) = next else { break };
            self.finalize(tx, Err(reason));
        }
        let conns = self.state.lock().conns_of(ni);
        for (id, end) in conns {
            let mut state = self.state.lock();
            let Some(conn) = state.conns.get(&id) else { continue };
            let (life, peer) = (conn.attached[end], conn.nids[1 - end]);
            let detached = state.detach(id, end);
            state.break_conn(id, Errno::ECONNRESET, Some(end));
            drop(state);
            if let (Some(life), Some((Some(receiving), _))) = (life, detached) {
                self.abandon((ni, peer), life, receiving, reason);
            }
        }
        let failing = self.state.lock().take_failing(ni);
        for event in failing {
            self.happen(event);
        }
        let port = self.state.lock().ports.remove(&ni);
        drop(port);
    }
}
