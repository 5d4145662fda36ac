//! The passive side: requests of peers to connect (lnet-wire 34).

use crate::o2ib::{self, Ni, Shard};
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use lnet_nid::ProcessId;
use lnet_proto::ib::{
    AcceptRules as Rules, ConnOffer, ConnParams, MESSAGE_MAX, Reject, RejectReason, Version,
};
use tracing::debug;

use super::Driver;
use super::opening::{Opening, Stage};
use super::source::{EventSource, Listening, token};
use crate::admission::DOOR;
use crate::fabric::{self, CmEvent, ConnRequest, Device, FabricError};
use crate::links::ConnAnswer;
use crate::ni::destination;
use crate::o2ib::Turn;
use crate::shard::{O2ibRequest, Offered};
use lnet_lnd::closing::close_peer;
use lnet_lnd::shard_table::ShardKey;

/// The number of requests that the connection manager keeps between polls.
const BACKLOG: u32 = 256;

/// The maximum number of events of the connection manager that a listener takes from its channel
/// when it ends: room for the requests of its backlog, and the same number of other events of a
/// busy shard. The connection manager rejects further requests without a record.
const LOOKED_THROUGH: usize = 2 * BACKLOG as usize;

impl Driver {
    /// Starts a listener at an address.
    pub(crate) fn listen(
        &mut self,
        shard: &Shard,
        device: &Arc<dyn Device>,
        at: SocketAddrV4,
    ) -> Result<(), FabricError> {
        let key = self.sources.insert(EventSource::Vacant);
        match shard.own.channel.listen(token(key), device, at, BACKLOG) {
            Ok(listener) => {
                self.sources
                    .replace(key, EventSource::Listener(Listening { _listener: listener, ip: *at.ip() }));
                Ok(())
            }
            Err(error) => {
                self.sources.remove(key);
                Err(error)
            }
        }
    }

    /// Ends a listener whose NIs have left the table, and rejects the requests that are pending on
    /// it with EARLY.
    ///
    /// The connection manager rejects the pending requests of a listener that is destroyed, but
    /// without LNet's record, and kernel nodes log that as a fatal error (lnet-measured). EARLY is
    /// LNet's answer while an NI is not up (lnet-wire 34): the peer gives up only this attempt, and
    /// its next message begins another one. After CONN_RACE a peer would wait for a connection from
    /// this node; every other reason names something that the peer would have to change.
    pub(super) fn end_listener(&mut self, turn: Turn<'_>, key: ShardKey) {
        let listener = token(key);
        let mut cm_events = std::mem::take(&mut self.kept_events);
        for _ in 0..LOOKED_THROUGH {
            // Without this call, the channel may return only events that it has already read.
            turn.shard.own.channel.rest();
            let Some(cm_event) = turn.shard.own.channel.next() else { break };
            cm_events.push_back(cm_event);
        }
        for cm_event in cm_events {
            match cm_event {
                CmEvent::Request { listener: of, request } if of == listener => {
                    self.handle_request(turn, key, request);
                }
                other => self.kept_events.push_back(other),
            }
        }
        self.sources.remove(key);
    }

    /// Handles a peer's request to connect.
    pub(super) fn handle_request(&mut self, turn: Turn<'_>, key: ShardKey, request: Box<dyn ConnRequest>) {
        let Some(EventSource::Listener(Listening { ip, .. })) = self.sources.get(key) else {
            return reject(request, RejectReason::Early);
        };
        let nis = &turn.shared.nis;
        let rules = Rules {
            require_privileged: turn.shared.config.require_privileged_port,
            oldest: Version::V2,
            destination: |nid| destination(nis, nid, *ip),
        };
        let offer = match rules.judge(request.source().port(), request.private_data()) {
            Ok(offer) => offer,
            Err(refusal) => {
                debug!(source = %request.source(), cause = %refusal.cause, "refused");
                turn.shard.counters.rx.refusals.one();
                return reject_with(request, &refusal.record);
            }
        };
        let Some(ni) = nis.get(offer.link.local.nid) else {
            return reject_with(request, &offer.refuse(RejectReason::Early));
        };
        if !nid_matches_source(&ni, &offer, *request.source().ip()) {
            let detail = "its NID does not match the address that it connects from";
            return reject_peer(turn, &ni, &offer, request, (RejectReason::Fatal, &detail));
        }
        let permit = match ni.own.admission.begin(DOOR, (*request.source().ip()).into()) {
            Ok(permit) => permit,
            Err(full) => {
                turn.shard.counters.rx.no_room.one();
                return reject_peer(turn, &ni, &offer, request, (RejectReason::NoResources, &full));
            }
        };
        let Some(peer) = turn.shared.peer_of(&ni, ProcessId::lnet(offer.link.peer.nid)) else {
            return reject_with(request, &offer.refuse(RejectReason::Early));
        };
        let offered = Offered { request, offer, ni, permit };
        if peer.shard.number == turn.shard.number {
            return self.decide(turn, offered);
        }
        turn.shard.counters.rx.handed_over.one();
        peer.shard.request(o2ib::Request::Own(O2ibRequest::Offered(Box::new(offered))));
    }

    /// Accepts a peer that belongs to this shard, or rejects it.
    pub(super) fn decide(&mut self, turn: Turn<'_>, offered: Offered) {
        let Offered { request, offer, ni, permit } = offered;
        let Some(peer) = turn.shared.peer_of(&ni, ProcessId::lnet(offer.link.peer.nid)) else {
            return reject_with(request, &offer.refuse(RejectReason::Early));
        };
        let (answer, retired) = {
            let mut state = peer.state.lock();
            (state.links.offered(&offer, turn.now_ns), state.retired.is_some())
        };
        let (id, deadline_ns) = match answer {
            ConnAnswer::Accept { id, deadline_ns } => (id, deadline_ns),
            ConnAnswer::Reject { refusal, close_all } => {
                debug!(peer = %peer.key.id.nid, cause = %refusal.cause, "refused");
                turn.shard.counters.rx.refusals.one();
                reject_with(request, &refusal.record);
                if close_all {
                    close_peer(self, turn, &peer, lnet_api::Errno::ECONNRESET);
                    self.advance(turn, &peer);
                }
                return;
            }
        };
        let source = request.source();
        let key = self.sources.insert(EventSource::Vacant);
        let granted = if retired {
            Err((RejectReason::Early, "the NI ends".to_string()))
        } else {
            grant(turn, key, &ni, &offer, request)
        };
        let (endpoint, granted) = match granted {
            Ok(granted) => granted,
            Err((reason, detail)) => {
                if let Some(suppressed) = ni.own.rejected_peers.say(turn.now_ns) {
                    tracing::warn!(peer = %peer.key.id.nid, ?reason, suppressed, "rejected a peer's connection request: {detail}");
                }
                turn.shard.counters.rx.refusals.one();
                self.sources.remove(key);
                // This node's messages do not depend on the peer's attempt; `advance` begins an
                // attempt of this side if one is needed.
                let _ = peer.state.lock().links.failed(id, turn.now_ns);
                return self.advance(turn, &peer);
            }
        };
        self.core.timers.note(deadline_ns);
        let Granted { queues, params } = granted;
        let opening = Opening {
            endpoint,
            queues: Some(queues),
            peer,
            id,
            address: source,
            stage: Stage::Accepting { link: offer.link, params },
            begun_ns: turn.now_ns,
            permit: Some(permit),
        };
        self.sources.replace(key, EventSource::Opening(Box::new(opening)));
    }
}

/// Returns whether a peer connects from the address of its NID, over the network that the request
/// names (lnet-wire 31). A node that used another's NID would get that node's messages, or end its
/// connections as those of another incarnation.
fn nid_matches_source(ni: &Ni, offer: &ConnOffer, from: Ipv4Addr) -> bool {
    let peer = offer.link.peer.nid;
    peer.ipv4() == Some(from) && peer.net() == ni.id.nid.net()
}

/// Rejects a peer that is not admitted. The request changes no state of the peer that it names.
fn reject_peer(
    turn: Turn<'_>,
    ni: &Ni,
    offer: &ConnOffer,
    request: Box<dyn ConnRequest>,
    (reason, detail): (RejectReason, &dyn Display),
) {
    turn.shard.counters.rx.refusals.one();
    if let Some(suppressed) = ni.own.rejected_peers.say(turn.now_ns) {
        let (nid, peer, source) = (ni.id.nid, offer.link.peer.nid, request.source());
        tracing::warn!(%nid, %peer, %source, suppressed, "rejected a peer's connection request: {detail}");
    }
    reject_with(request, &offer.refuse(reason));
}

/// The queues and parameters that a peer is granted.
struct Granted {
    queues: super::opening::Queues,
    params: ConnParams,
}

/// Accepts a request of a peer, or rejects it if the queues cannot be made.
fn grant(
    turn: Turn<'_>,
    key: ShardKey,
    ni: &Arc<Ni>,
    offer: &ConnOffer,
    request: Box<dyn ConnRequest>,
) -> Result<(Box<dyn fabric::Endpoint>, Granted), (RejectReason, String)> {
    let failed = |detail: String| (RejectReason::NoResources, detail);
    let mut endpoint =
        turn.shard.own.channel.adopt(token(key), request).map_err(|error| failed(error.to_string()))?;
    let asked = ConnParams { max_message: MESSAGE_MAX as u32, ..offer.asked };
    let accept = |endpoint: &mut Box<dyn fabric::Endpoint>| {
        let make = || super::opening::make_queues(&mut **endpoint, ni, asked, turn.now_ns);
        let queues = turn.near(make)?;
        let params =
            ConnParams { queue_depth: queues.sizes.depth, max_fragments: queues.sizes.fragments, ..asked };
        let answer = offer.accept(params).map_err(|error| error.to_string())?;
        queues.post_receives(&**endpoint).map_err(|error| error.to_string())?;
        endpoint.accept(&answer, &turn.shared.config.connect_options()).map_err(|error| error.to_string())?;
        Ok::<_, String>(Granted { queues, params })
    };
    match accept(&mut endpoint) {
        Ok(granted) => Ok((endpoint, granted)),
        Err(detail) => {
            let mut record = [0; Reject::LEN];
            if let Ok(length) = offer.refuse(RejectReason::NoResources).emit(&mut record) {
                endpoint.reject(&record[..length]);
            }
            Err(failed(detail))
        }
    }
}

fn reject(request: Box<dyn ConnRequest>, reason: RejectReason) {
    let params = ConnParams { queue_depth: 0, max_fragments: 0, ..ConnParams::DEFAULT };
    reject_with(request, &Reject { version: Version::V2, reason, stamp: 0, params: Some(params) });
}

fn reject_with(request: Box<dyn ConnRequest>, record: &Reject) {
    let mut bytes = [0; Reject::LEN];
    match record.emit(&mut bytes) {
        Ok(length) => request.reject(&bytes[..length]),
        Err(error) => tracing::error!(%error, "cannot encode a reject record"),
    }
}
