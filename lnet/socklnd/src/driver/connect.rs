//! The active side: connecting, and its handshake (lnet-wire 23 and 24).

use crate::sock::Peer;
use std::net::SocketAddr;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::sock::{Attempt, ConnType, ConnectProgress, Connector, Established, Retry};
use tracing::debug;

use super::Driver;
use super::connecting::ConnAttempt;
use super::receive::RxConn;
use super::source::{EventSource, take_connecting};
use crate::attempts::{AttemptPermit, CROWDED_NS};
use crate::config::NS_PER_S;
use crate::links::{AttemptOutcome, NextStep, PeerRun};
use crate::shard::HANDSHAKE_READ;
use crate::sock::Turn;
use crate::sys::{Readiness, RecvResult, Stream};
use crate::{ConnStep, PeerFailure};
use lnet_lnd::ConnFailure;
use lnet_lnd::closing::close_peer;
use lnet_lnd::shard_table::ShardKey;

impl Driver {
    /// Performs the next step that the peer's links require.
    pub(super) fn advance(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        loop {
            let (next, failed) = {
                let mut state = peer.state.lock();
                let Some(waiting) = state.begin_step(&mut self.core.timers) else { return };
                state.links.set_per_type(peer.ni.conns_per_peer());
                let failed = |failure: &PeerFailure| failure.step != ConnStep::Established;
                (state.links.next(turn.now_ns, waiting), state.failure.as_ref().is_some_and(failed))
            };
            match next {
                NextStep::Nothing => return,
                NextStep::Wait { until_ns } => return self.core.timers.note(until_ns),
                NextStep::Unreachable => return peer.fail_waiting(Errno::EHOSTUNREACH),
                NextStep::Connect(conn_type) => {
                    let Some(permit) = turn.shared.own.attempts.begin(peer, failed) else { return };
                    match self.begin_connecting(turn, peer, conn_type, permit) {
                        Ok(()) => return,
                        Err(failure) => {
                            self.attempt_failed(turn, peer, address_of(turn, peer, conn_type), failure)
                        }
                    }
                }
            }
        }
    }

    fn begin_connecting(
        &mut self,
        turn: Turn<'_>,
        peer: &Arc<Peer>,
        conn_type: ConnType,
        permit: AttemptPermit,
    ) -> Result<(), ConnFailure> {
        let (deadline_ns, (version, live_incarnation)) = {
            let mut state = peer.state.lock();
            state.step = Some(ConnStep::Connect);
            (state.links.begin(conn_type, turn.now_ns), state.links.proposal())
        };
        let address = address_of(turn, peer, conn_type);
        let attempt = Attempt {
            local: peer.ni.id,
            incarnation: peer.ni.own.incarnation,
            peer: peer.key.id,
            conn_type,
            version,
            live_incarnation,
        };
        let machine = Connector::new(attempt)
            .map_err(|error| ConnFailure::new(ConnStep::Bind, Errno::EINVAL, error))?;
        let (stream, unprivileged) = dial(turn, peer, address, self.sources.next_key())?;
        debug!(peer = %peer.key.id, %conn_type, %address, "connecting");
        let connecting = ConnAttempt {
            stream,
            peer: peer.clone(),
            address,
            machine,
            conn_type,
            greeted: false,
            unprivileged,
            begun_ns: turn.now_ns,
            dialled_ns: turn.now_ns,
            deadline_ns,
            permit: Some(permit),
        };
        self.note_connecting(turn, &connecting);
        self.sources.insert(EventSource::Connecting(Box::new(connecting)));
        Ok(())
    }

    /// Schedules the next check of the attempt.
    fn note_connecting(&mut self, turn: Turn<'_>, connecting: &ConnAttempt) {
        let crowded_ns = turn.now_ns.saturating_add(CROWDED_NS);
        let redial_ns = connecting.redial_ns(turn.shared.config.min_reconnect_ns()).unwrap_or(u64::MAX);
        self.core.timers.note(connecting.deadline_ns.min(crowded_ns).min(redial_ns));
    }

    /// Replaces the attempt's socket, which got no answer, by a new one, for which TCP has no
    /// retransmission back-off yet. The attempt keeps its deadline.
    pub(super) fn redial(&mut self, turn: Turn<'_>, key: ShardKey) {
        let Some(connecting) = self.sources.get_mut(key).and_then(EventSource::connecting_mut) else {
            return;
        };
        // The poller is about to report an answer, or a refusal, which counts as a failure with its
        // back-off.
        if connecting.stream.peer_addr().is_some() {
            connecting.dialled_ns = turn.now_ns;
            return;
        }
        if let Err(errno) = connecting.stream.connect_result() {
            return self.connecting_failed(turn, key, ConnFailure::new(ConnStep::Connect, errno, ""));
        }
        let Some(connecting) = take_connecting(&mut self.sources, key) else { return };
        let ConnAttempt { stream, peer, address, machine, conn_type, begun_ns, deadline_ns, permit, .. } =
            *connecting;
        debug!(peer = %peer.key.id, %conn_type, %address, "no answer: connecting again from a new socket");
        turn.shard.own.poller.delete(stream.handle());
        // Frees the source port for the new socket.
        drop(stream);
        match dial(turn, &peer, address, key) {
            Ok((stream, unprivileged)) => {
                let connecting = ConnAttempt {
                    stream,
                    peer,
                    address,
                    machine,
                    conn_type,
                    greeted: false,
                    unprivileged,
                    begun_ns,
                    dialled_ns: turn.now_ns,
                    deadline_ns,
                    permit,
                };
                self.note_connecting(turn, &connecting);
                self.sources.replace(key, EventSource::Connecting(Box::new(connecting)));
            }
            Err(failure) => {
                drop(permit);
                self.sources.remove(key);
                self.attempt_failed(turn, &peer, address, failure);
                self.advance(turn, &peer);
            }
        }
    }

    /// Called when bytes have come from the peer: if TCP is in retransmission back-off for this
    /// side's own attempt, a new socket replaces the attempt's at once.
    pub(super) fn redial_if_unanswered(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        if peer.state.lock().step != Some(ConnStep::Connect) {
            return;
        }
        let unanswered = |connecting: &ConnAttempt| {
            Arc::ptr_eq(&connecting.peer, peer) && connecting.is_unanswered(turn.now_ns)
        };
        if let Some(key) = self.sources.keys(|source| source.connecting().is_some_and(unanswered)).first() {
            self.redial(turn, *key);
        }
    }

    /// Continues a connection attempt.
    pub(super) fn continue_connecting(&mut self, turn: Turn<'_>, key: ShardKey, readiness: Readiness) {
        let Some(connecting) = self.sources.get_mut(key).and_then(EventSource::connecting_mut) else {
            return;
        };
        if !connecting.greeted {
            if !readiness.writable {
                return;
            }
            match connecting.greet() {
                Ok(()) => {}
                Err(failure) => return self.connecting_failed(turn, key, failure),
            }
        }
        if readiness.readable {
            self.read_answer(turn, key);
        }
    }

    fn read_answer(&mut self, turn: Turn<'_>, key: ShardKey) {
        loop {
            let Some(connecting) = self.sources.get_mut(key).and_then(EventSource::connecting_mut) else {
                return;
            };
            let mut buffer = [0; HANDSHAKE_READ];
            let input = match connecting.stream.receive(&mut buffer) {
                RecvResult::Bytes(count) => &buffer[..count],
                RecvResult::Nothing => return,
                RecvResult::End => {
                    let failure = connecting.hung_up(Errno::ECONNRESET);
                    return self.connecting_failed(turn, key, failure);
                }
                RecvResult::Broken(errno) => {
                    let failure = connecting.hung_up(errno);
                    return self.connecting_failed(turn, key, failure);
                }
            };
            let (used, progress) = connecting.machine.feed(input);
            match progress {
                ConnectProgress::NeedMore => {}
                ConnectProgress::Established(established) => {
                    return self.connected(turn, key, &established, &input[used..]);
                }
                ConnectProgress::Retry(retry) => return self.attempt_refused(turn, key, retry),
                ConnectProgress::Failed(reason) => {
                    return self.connecting_failed(
                        turn,
                        key,
                        ConnFailure::said(ConnStep::Handshake, &reason),
                    );
                }
            }
        }
    }

    fn connected(&mut self, turn: Turn<'_>, key: ShardKey, established: &Established, behind: &[u8]) {
        let Some(connecting) = self.take_connecting(key) else { return };
        let ConnAttempt { stream, peer, conn_type, unprivileged, .. } = *connecting;
        let hello = &established.hello;
        let run = PeerRun { version: hello.version, incarnation: hello.src_incarnation };
        // A kernel node that accepts any port does not report that it identifies this side by
        // address and port, so that each further connection would be another peer (lnet-wire 27).
        let control_only = established.known_as_pid.map_or(unprivileged, |pid| pid.is_userspace());
        turn.shard.counters.rx.connects.one();
        debug!(peer = %peer.key.id, %conn_type, control_only, "connected");
        // Connections of another incarnation of the peer must have been accepted while this side
        // waited for the answer.
        let contradicts = peer.state.lock().links.contradicts(run);
        if contradicts {
            close_peer(self, turn, &peer, Errno::ECONNRESET);
        }
        {
            let mut state = peer.state.lock();
            state.links.established(conn_type, run, control_only, turn.now_ns);
            state.own.proven = Some(true);
        }
        let rx = RxConn::new(turn, key, stream, &peer, conn_type, run.version, established.byte_order);
        self.put_to_use(turn, key, rx, behind);
        self.advance(turn, &peer);
    }

    fn attempt_refused(&mut self, turn: Turn<'_>, key: ShardKey, retry: Retry) {
        let Some(connecting) = self.take_connecting(key) else { return };
        self.sources.remove(key);
        let ConnAttempt { peer, address, conn_type, .. } = *connecting;
        debug!(peer = %peer.key.id, %conn_type, ?retry, "the peer refuses the connection");
        let outcome = peer.state.lock().links.refused(retry, turn.now_ns);
        match outcome {
            AttemptOutcome::GoOn => {}
            AttemptOutcome::CloseAll => close_peer(self, turn, &peer, Errno::ECONNRESET),
            AttemptOutcome::Failed => {
                let failure =
                    ConnFailure::new(ConnStep::Handshake, Errno::EALREADY, "refused again and again");
                let errno = failure.errno;
                turn.attempt_failed(&peer, address, failure);
                peer.fail_waiting(errno);
            }
        }
        self.advance(turn, &peer);
    }

    /// Ends an attempt at its deadline.
    pub(super) fn connecting_timed_out(&mut self, turn: Turn<'_>, key: ShardKey) {
        let Some(connecting) = self.sources.get_mut(key).and_then(EventSource::connecting_mut) else {
            return;
        };
        let step = if connecting.greeted { ConnStep::Handshake } else { ConnStep::Connect };
        let seconds = turn.now_ns.saturating_sub(connecting.begun_ns) / NS_PER_S;
        let reason = if connecting.deadline_ns > turn.now_ns {
            ", and other peers wait"
        } else if connecting.begun_ns.saturating_add(connecting.peer.ni.timeout_ns) > turn.now_ns {
            ", which was left after the other connections to it"
        } else {
            ""
        };
        let detail = format!("no answer within {seconds} s{reason}");
        self.connecting_failed(turn, key, ConnFailure::new(step, Errno::ETIMEDOUT, detail));
    }

    fn connecting_failed(&mut self, turn: Turn<'_>, key: ShardKey, failure: ConnFailure) {
        let Some(connecting) = self.take_connecting(key) else { return };
        self.sources.remove(key);
        self.attempt_failed(turn, &connecting.peer, connecting.address, failure);
        self.advance(turn, &connecting.peer);
    }

    fn attempt_failed(
        &mut self,
        turn: Turn<'_>,
        peer: &Arc<Peer>,
        address: SocketAddr,
        failure: ConnFailure,
    ) {
        let errno = failure.errno;
        turn.attempt_failed(peer, address, failure);
        let connected = {
            let mut state = peer.state.lock();
            state.step = None;
            state.links.failed(turn.now_ns);
            state.links.is_connected()
        };
        // Messages that wait although there are connections wait for one that can carry them; they
        // fail too.
        debug!(peer = %peer.key.id, connected, "waiting messages fail");
        peer.fail_waiting(errno);
    }

    /// Ends an attempt; its slot in the table stays for the connection.
    fn take_connecting(&mut self, key: ShardKey) -> Option<Box<ConnAttempt>> {
        let mut connecting = take_connecting(&mut self.sources, key)?;
        connecting.permit = None;
        connecting.peer.state.lock().step = None;
        Some(connecting)
    }
}

/// Starts to connect from a new socket, watched under this key. Returns the stream, and whether its
/// source port is unprivileged.
fn dial(
    turn: Turn<'_>,
    peer: &Peer,
    address: SocketAddr,
    key: ShardKey,
) -> Result<(Box<dyn Stream>, bool), ConnFailure> {
    let connection = turn
        .shared
        .own
        .net
        .connect(peer.ni.ip, address, &peer.ni.own.options)
        .map_err(|(step, errno)| ConnFailure::new(step, errno, ""))?;
    let watched = turn.shard.own.poller.add(connection.stream.handle(), key.0);
    watched.map_err(|errno| ConnFailure::new(ConnStep::Bind, errno, "cannot watch the socket"))?;
    Ok((connection.stream, !connection.privileged))
}

/// Returns the address on which a peer listens for connections of a type.
fn address_of(turn: Turn<'_>, peer: &Peer, conn_type: ConnType) -> SocketAddr {
    peer.address(turn.shared.config.port_for(conn_type))
}
