//! The active side: connecting (lnet-wire 33 and 34).

use crate::o2ib::Peer;
use std::net::SocketAddrV4;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::{PRIVILEGED_PORT_MAX, Rejection};
use tracing::debug;

use super::Driver;
use super::opening::{Opening, Stage, make_queues};
use super::source::{EventSource, take_opening, token};
use crate::ConnStep;
use crate::config::NS_PER_S;
use crate::fabric::{DialOptions, Endpoint, FabricError, Rejected};
use crate::links::{AttemptOutcome, LinkId, NextStep};
use crate::ni::can_connect;
use crate::o2ib::Turn;
use lnet_lnd::ConnFailure;
use lnet_lnd::closing::close_peer;
use lnet_lnd::shard_table::ShardKey;

/// Time limit for resolving the peer's address, and again for resolving the route (lnet-wire 31).
const RESOLVE_MS: u32 = 5_000;

impl Driver {
    /// Performs the next actions that a peer's links require.
    pub(super) fn advance(&mut self, turn: Turn<'_>, peer: &Arc<Peer>) {
        loop {
            let (next, connected) = {
                let mut state = peer.state.lock();
                let Some(waiting) = state.begin_step(&mut self.core.timers) else { return };
                (state.links.next(turn.now_ns, waiting), state.links.is_connected())
            };
            // When the port comes up, an event advances the peer: no timer is needed.
            if next != NextStep::Nothing && !can_connect(&peer.ni) {
                if !connected {
                    port_is_down(turn, peer);
                }
                return;
            }
            match next {
                NextStep::Nothing => return,
                NextStep::Wait { until_ns } => return self.core.timers.note(until_ns),
                NextStep::Unreachable => return peer.fail_waiting(Errno::EHOSTUNREACH),
                NextStep::Connect => {
                    let (id, deadline_ns) = peer.state.lock().links.begin(turn.now_ns);
                    self.core.timers.note(deadline_ns);
                    self.dial(turn, peer, id);
                }
            }
        }
    }

    /// Begins a try of an attempt: resolves the route to the peer.
    fn dial(&mut self, turn: Turn<'_>, peer: &Arc<Peer>, id: LinkId) {
        let address = address_of(peer, turn.shared.config.service);
        peer.state.lock().step = Some(ConnStep::Resolve);
        let key = self.sources.insert(EventSource::Vacant);
        match dial_from_some_port(turn, peer, key, address) {
            Ok(endpoint) => {
                debug!(peer = %peer.key.id.nid, %address, "connecting");
                let opening = Opening {
                    endpoint,
                    queues: None,
                    peer: peer.clone(),
                    id,
                    address,
                    stage: Stage::Resolving,
                    begun_ns: turn.now_ns,
                    permit: None,
                };
                self.sources.replace(key, EventSource::Opening(Box::new(opening)));
            }
            Err(error) => {
                self.sources.remove(key);
                let failure = ConnFailure::new(ConnStep::Resolve, error.errno, error.what);
                self.attempt_failed(turn, peer, id, address, failure);
            }
        }
    }

    /// Sends the CONNREQ, as the route to the peer is resolved.
    pub(super) fn resolved(&mut self, turn: Turn<'_>, key: ShardKey) {
        let Some(opening) = self.sources.get_mut(key).and_then(EventSource::opening_mut) else { return };
        let Opening { endpoint, queues, peer, id, stage, .. } = &mut *opening;
        let asked = peer.state.lock().links.params();
        let connected = (|| {
            let no_queues = |detail| ConnFailure::new(ConnStep::Queues, Errno::ENOMEM, detail);
            let made = turn.near(|| make_queues(&mut **endpoint, &peer.ni, asked, turn.now_ns));
            let made = made.map_err(no_queues)?;
            made.post_receives(&**endpoint)
                .map_err(|error| ConnFailure::new(ConnStep::Queues, error.errno, error))?;
            let params = lnet_proto::ib::ConnParams {
                queue_depth: made.sizes.depth,
                max_fragments: made.sizes.fragments,
                ..asked
            };
            *queues = Some(made);
            let mut state = peer.state.lock();
            state.step = Some(ConnStep::Connect);
            let request = state
                .links
                .request(*id, params)
                .map_err(|error| ConnFailure::said(ConnStep::Connect, &error))?;
            let options = turn.shared.config.connect_options();
            let refused = |error: FabricError| ConnFailure::new(ConnStep::Connect, error.errno, error.what);
            endpoint.connect(request, &options).map_err(refused)
        })();
        match connected {
            Ok(()) => *stage = Stage::Asking,
            Err(failure) => self.opening_failed(turn, key, failure),
        }
    }

    /// Establishes a connection that the peer accepts.
    pub(super) fn accepted(&mut self, turn: Turn<'_>, key: ShardKey, private_data: &[u8]) {
        let Some(opening) = self.sources.get_mut(key).and_then(EventSource::opening_mut) else { return };
        let granted = opening.peer.state.lock().links.granted(opening.id, private_data);
        let granted = match granted {
            Ok(granted) => granted,
            Err(error) => {
                return self.opening_failed(turn, key, ConnFailure::said(ConnStep::Connect, &error));
            }
        };
        if let Err(error) = opening.endpoint.establish() {
            let failure = ConnFailure::new(ConnStep::Connect, error.errno, error.what);
            return self.opening_failed(turn, key, failure);
        }
        turn.shard.counters.rx.connects.one();
        self.put_to_use(turn, key, granted.link, granted.params);
    }

    /// Handles a rejection by the peer or its connection manager.
    pub(super) fn rejected(&mut self, turn: Turn<'_>, key: ShardKey, rejected: &Rejected) {
        let rejection = match rejected {
            Rejected::Record(record) => Rejection::Record(record),
            Rejected::Stale => Rejection::StaleConnection,
            Rejected::NoListener => Rejection::NoListener,
            Rejected::Other(status) => {
                let detail = format!("rejected with status {status} of the connection manager");
                let failure = ConnFailure::new(ConnStep::Connect, Errno::ECONNREFUSED, detail);
                return self.opening_failed(turn, key, failure);
            }
        };
        let Some(opening) = take_opening(&mut self.sources, key) else { return };
        self.sources.remove(key);
        let Opening { endpoint, queues, peer, id, address, .. } = *opening;
        drop((endpoint, queues));
        let outcome = {
            let mut state = peer.state.lock();
            let waiting = !state.waiting.is_empty();
            state.links.rejected(id, rejection, waiting, turn.now_ns)
        };
        match outcome {
            Ok(AttemptOutcome::Again { close_all }) => {
                if close_all {
                    close_peer(self, turn, &peer, Errno::ECONNRESET);
                }
                self.dial(turn, &peer, id);
            }
            Ok(AttemptOutcome::GoOn) => {}
            Ok(AttemptOutcome::Failed) => peer.fail_waiting(Errno::ECONNREFUSED),
            Err((cause, outcome)) => {
                let failure = ConnFailure::said(ConnStep::Connect, &cause);
                let errno = failure.errno;
                turn.attempt_failed(&peer, address.into(), failure);
                if outcome == AttemptOutcome::Failed {
                    peer.fail_waiting(errno);
                }
            }
        }
        self.advance(turn, &peer);
    }

    /// Ends an attempt whose connection cannot be made.
    pub(super) fn unreachable(&mut self, turn: Turn<'_>, key: ShardKey, errno: Errno) {
        let Some(opening) = self.sources.get_mut(key).and_then(EventSource::opening_mut) else { return };
        let step = match opening.stage {
            Stage::Resolving => ConnStep::Resolve,
            Stage::Asking | Stage::Accepting { .. } => ConnStep::Connect,
        };
        self.opening_failed(turn, key, ConnFailure::new(step, errno, ""));
    }

    /// Ends an attempt, of either side, that has exceeded its deadline.
    pub(super) fn overdue(&mut self, turn: Turn<'_>, peer: &Arc<Peer>, id: LinkId) {
        let is_it = |source: &EventSource| matches!(source, EventSource::Opening(opening) if opening.id == id && Arc::ptr_eq(&opening.peer, peer));
        let found = self.sources.keys(is_it).first().copied();
        let Some((key, begun_ns)) = found.and_then(|key| {
            Some((key, self.sources.get_mut(key).and_then(EventSource::opening_mut)?.begun_ns))
        }) else {
            let address = address_of(peer, turn.shared.config.service);
            let failure = ConnFailure::new(ConnStep::Connect, Errno::ETIMEDOUT, "");
            return self.attempt_failed(turn, peer, id, address, failure);
        };
        let seconds = turn.now_ns.saturating_sub(begun_ns) / NS_PER_S;
        let detail = format!("no answer within {seconds} s");
        self.opening_failed(turn, key, ConnFailure::new(ConnStep::Connect, Errno::ETIMEDOUT, detail));
    }

    /// Ends an attempt that has failed, and then performs the peer's next action.
    pub(super) fn opening_failed(&mut self, turn: Turn<'_>, key: ShardKey, failure: ConnFailure) {
        let Some(opening) = take_opening(&mut self.sources, key) else { return };
        self.sources.remove(key);
        let Opening { endpoint, queues, peer, id, address, .. } = *opening;
        endpoint.disconnect();
        drop((endpoint, queues));
        self.attempt_failed(turn, &peer, id, address, failure);
        self.advance(turn, &peer);
    }

    /// Ends an attempt whose connection the peer ended before it was established.
    pub(super) fn opening_reset(&mut self, turn: Turn<'_>, key: ShardKey) {
        let failure = ConnFailure::new(
            ConnStep::Connect,
            Errno::ECONNRESET,
            "the peer has closed the connection before it was established",
        );
        self.opening_failed(turn, key, failure);
    }

    fn attempt_failed(
        &mut self,
        turn: Turn<'_>,
        peer: &Arc<Peer>,
        id: LinkId,
        address: SocketAddrV4,
        failure: ConnFailure,
    ) {
        let errno = failure.errno;
        turn.attempt_failed(peer, address.into(), failure);
        let outcome = {
            let mut state = peer.state.lock();
            state.step = None;
            state.links.failed(id, turn.now_ns)
        };
        if outcome == AttemptOutcome::Failed {
            peer.fail_waiting(errno);
        }
    }
}

/// Fails the waiting messages of a peer without a connection while the port is down.
fn port_is_down(turn: Turn<'_>, peer: &Arc<Peer>) {
    if !peer.state.lock().waiting.is_empty() {
        let detail = format!("the port of {} is down", peer.ni.own.device.name());
        let address = address_of(peer, turn.shared.config.service);
        turn.attempt_failed(
            peer,
            address.into(),
            ConnFailure::new(ConnStep::Resolve, Errno::ENETDOWN, detail),
        );
        peer.fail_waiting(Errno::ENETDOWN);
    }
}

/// Dials from the highest free privileged port, or from any port if this process may not use those.
fn dial_from_some_port(
    turn: Turn<'_>,
    peer: &Peer,
    key: ShardKey,
    to: SocketAddrV4,
) -> Result<Box<dyn Endpoint>, FabricError> {
    let options = DialOptions { resolve_ms: RESOLVE_MS, tos: peer.ni.own.tos };
    let dial = |port| {
        turn.shard.own.channel.dial(token(key), &peer.ni.own.device, peer.ni.own.address(port), to, &options)
    };
    if turn.shared.config.use_privileged_port {
        for port in (1..=PRIVILEGED_PORT_MAX).rev() {
            match dial(port) {
                Err(FabricError { errno: Errno::EADDRINUSE | Errno::EADDRNOTAVAIL, .. }) => {}
                Err(FabricError { errno: Errno::EACCES, .. }) => break,
                dialled => return dialled,
            }
        }
    }
    dial(0)
}

/// Returns the address of the peer's NID with this port. A NID without an address does not become a
/// peer.
fn address_of(peer: &Peer, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(peer.key.id.nid.ipv4().unwrap_or(peer.ni.own.ip), port)
}
