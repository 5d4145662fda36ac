//! The decision on a peer after its hello: whether it is accepted, and on which shard (lnet-wire
//! 22.5, 24 and 27).

use crate::sock::{Ni, Peer, Request};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::sock::{ConnOffer, PRIVILEGED_PORT_MAX};
use lnet_region::Part;
use smallvec::SmallVec;
use tracing::debug;

use super::Driver;
use super::accept::Accepting;
use super::receive::RxConn;
use super::source::{EventSource, take_accepting};
use crate::AcceptPolicy;
use crate::links::{ConnAnswer, PeerRun};
use crate::shard::Offered;
use crate::shard::SockRequest;
use crate::sock::Turn;
use crate::sys::Stream;
use lnet_lnd::closing::close_peer;
use lnet_lnd::shard_table::ShardKey;

impl Driver {
    /// Called when a valid hello has identified the peer: passes the connection to the peer's shard
    /// for the decision.
    pub(super) fn hand_over(&mut self, turn: Turn<'_>, key: ShardKey, offer: &ConnOffer, behind: &[u8]) {
        let Some(accepting) = take_accepting(&mut self.sources, key) else { return };
        let Accepting { stream, remote, permit, .. } = *accepting;
        let Some(ni) = turn.shared.nis.get(offer.local_nid()) else { return self.forget(turn, Some(key)) };
        let rewrite = identity_from_port(turn.shared.own.policy, &ni, remote);
        let id = rewrite.unwrap_or(offer.claimed());
        if !may_be_peer(turn, &ni, id.nid) {
            debug!(%remote, %id, "refused: no peer can have this NID");
            return self.forget(turn, Some(key));
        }
        let shard = turn.shared.shards.shard(ni.sub, ni.upcalls.partition_of(ni.id.nid, id.nid));
        let behind = SmallVec::from_slice(behind);
        let offered = Offered { stream, remote, permit, ni, id, rewrite, offer: *offer, behind };
        if shard.number == turn.shard.number {
            return self.decide(turn, Some(key), offered);
        }
        turn.shard.counters.rx.handed_over.one();
        turn.shard.own.poller.delete(offered.stream.handle());
        self.sources.remove(key);
        shard.request(Request::Own(SockRequest::Decide(Box::new(offered))));
    }

    /// Accepts or refuses an offered connection (lnet-wire 24). `slot`: its watched slot in the
    /// table, if it came on a listener of this shard.
    pub(super) fn decide(&mut self, turn: Turn<'_>, slot: Option<ShardKey>, offered: Offered) {
        let Offered { stream, remote, permit, ni, id, rewrite, offer, behind } = offered;
        let conn_type = offer.conn_type();
        let run = PeerRun { version: offer.hello.version, incarnation: offer.hello.src_incarnation };
        let Some(peer) = turn.shared.peer_of(&ni, id) else { return self.forget(turn, slot) };
        if self.is_elsewhere(turn, &peer, remote) {
            debug!(%remote, %id, "refused: the peer is connected from another address, and nothing proves this one");
            return self.refuse(turn, slot, &*stream, &offer.refuse());
        }
        let answer = {
            let mut state = peer.state.lock();
            state.links.set_per_type(ni.conns_per_peer());
            state.links.offered(conn_type, run)
        };
        debug!(%remote, %id, %conn_type, ?answer, "offered a connection");
        if answer == ConnAnswer::CloseAllAndRefuse {
            close_peer(self, turn, &peer, Errno::ECONNRESET);
        }
        let reply = match answer {
            ConnAnswer::Accept if remote.port() <= PRIVILEGED_PORT_MAX => offer.accept(id),
            ConnAnswer::Accept => offer.accept_unprivileged(id),
            ConnAnswer::Refuse | ConnAnswer::CloseAllAndRefuse => {
                self.refuse(turn, slot, &*stream, &offer.refuse());
                return self.redial_if_unanswered(turn, &peer);
            }
        };
        let Ok(reply) = reply else { return self.forget(turn, slot) };
        let Some(key) = self.watched_slot(turn, slot, &*stream) else { return self.forget(turn, None) };
        // The options of the NI replace those of the listener: before the hello, the NI was
        // unknown.
        if ni.own.options != turn.shared.own.options && stream.tune(&ni.own.options).is_err() {
            return self.forget(turn, Some(key));
        }
        // The reply fits into the empty buffer of any socket; a short write means a broken
        // connection.
        if stream.send(&[Part::new(&reply)]) != Ok(reply.len()) {
            return self.forget(turn, Some(key));
        }
        turn.shard.counters.rx.accepts.one();
        {
            let mut state = peer.state.lock();
            state.links.accepted(conn_type, run);
            if id.nid.ip() == Some(remote.ip()) {
                state.own.proven = Some(true);
            }
        }
        let rx = RxConn::new(turn, key, stream, &peer, conn_type, run.version, offer.byte_order);
        self.put_to_use(turn, key, rx.accepted(permit.opened(), rewrite), &behind);
        self.redial_if_unanswered(turn, &peer);
    }

    /// Returns the connection's watched slot in the table: the existing one, or a new one.
    fn watched_slot(
        &mut self,
        turn: Turn<'_>,
        slot: Option<ShardKey>,
        stream: &dyn Stream,
    ) -> Option<ShardKey> {
        if slot.is_some() {
            return slot;
        }
        turn.shard.own.poller.add(stream.handle(), self.sources.next_key().0).ok()?;
        Some(self.sources.insert(EventSource::Vacant))
    }

    /// Returns whether this peer is already connected from, or to, another address, so that the
    /// offer may be an impersonation. Under `hello` and from an unprivileged port this is refused,
    /// unless the address is the NID's own. A privileged port is trusted, because kernel nodes may
    /// have several addresses (lnet-wire 24).
    fn is_elsewhere(&self, turn: Turn<'_>, peer: &Peer, remote: SocketAddr) -> bool {
        if turn.shared.own.policy != AcceptPolicy::Hello || is_proven(peer.key.id.nid, remote) {
            return false;
        }
        let elsewhere = |key| {
            self.sources
                .get(key)
                .and_then(EventSource::conn)
                .is_some_and(|rx| rx.accepted_from() != Some(remote.ip()))
        };
        peer.state.lock().conns.iter().any(|conn| elsewhere(conn.key))
    }

    /// Sends the reply, if there is one; the caller drops the stream.
    pub(super) fn refuse(
        &mut self,
        turn: Turn<'_>,
        slot: Option<ShardKey>,
        stream: &dyn Stream,
        reply: &[u8],
    ) {
        if !reply.is_empty() {
            // An error is ignored: the peer sees the end of the connection in any case.
            let _ = stream.send(&[Part::new(reply)]);
        }
        self.forget(turn, slot);
    }

    /// Counts a refusal, and frees the connection's slot.
    pub(super) fn forget(&mut self, turn: Turn<'_>, slot: Option<ShardKey>) {
        turn.shard.counters.rx.refusals.one();
        if let Some(key) = slot {
            self.sources.remove(key);
        }
    }
}

/// Returns whether the source address proves that the peer has this NID, or its port is trusted.
fn is_proven(nid: Nid, remote: SocketAddr) -> bool {
    remote.port() <= PRIVILEGED_PORT_MAX || nid.ip() == Some(remote.ip())
}

/// Returns whether a peer on this NI's network can have this NID: not one of this node's own, and a
/// unicast address.
fn may_be_peer(turn: Turn<'_>, ni: &Ni, nid: Nid) -> bool {
    let one_host = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()),
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast()),
    };
    // Another NI of this LND may belong to another node of this process.
    let is_own = |other: Arc<Ni>| std::ptr::addr_eq(Arc::as_ptr(&other.upcalls), Arc::as_ptr(&ni.upcalls));
    let is_free = !turn.shared.nis.get(nid).is_some_and(is_own);
    nid.net() == ni.id.nid.net() && nid.ip().is_some_and(one_host) && is_free
}

/// Returns the peer's identity derived from its source port, where the policy requires that
/// (lnet-wire 27).
fn identity_from_port(policy: AcceptPolicy, ni: &Arc<Ni>, remote: SocketAddr) -> Option<ProcessId> {
    if policy != AcceptPolicy::All || remote.port() <= PRIVILEGED_PORT_MAX {
        return None;
    }
    let nid = Nid::new_ip(ni.id.nid.net(), remote.ip());
    Some(ProcessId::new(nid, Pid::of_unprivileged_port(remote.port())))
}
