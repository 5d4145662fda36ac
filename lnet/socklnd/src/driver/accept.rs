//! The passive side: listeners, and handshakes of peers that connect (lnet-wire 21, 22.5 and 24).

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::sock::{AcceptProgress, Acceptor, Offer, PRIVILEGED_PORT_MAX};
use lnet_region::Part;
use smallvec::SmallVec;
use tracing::debug;

use super::receive::{Rest, RxConn};
use super::{Driver, Source, Turn};
use crate::AcceptPolicy;
use crate::admission::{Entry, Guest};
use crate::links::{Answer, Life};
use crate::ni::{Locals, Ni};
use crate::peer::Peer;
use crate::shard::Request;
use crate::slab::Key;
use crate::sys::{self, Accepted, Received, Stream};
use lnet_api::Errno;
use std::sync::Arc;

/// Connections accepted in one turn of a listener.
const ACCEPTS_PER_TURN: usize = 16;

/// How long accepting pauses when descriptors or memory run out or it is forbidden, while connections in use go on.
pub(super) const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// More than a handshake sends in one piece, and little enough that what follows it is not much.
pub(super) const HANDSHAKE_READ: usize = 256;

/// A listening socket.
pub(super) struct Listener {
    listener: Box<dyn sys::Listener>,
    pub(super) address: SocketAddr,
    /// It stands in the ready list.
    pub(super) queued: bool,
    /// Nothing is accepted before then; `None` while there are descriptors.
    pub(super) paused_until_ns: Option<u64>,
}

/// A peer that has connected and has yet to say who it is.
pub(super) struct Accepting {
    stream: Box<dyn Stream>,
    remote: SocketAddr,
    guest: Guest,
    machine: Acceptor<Locals>,
    pub(super) deadline_ns: u64,
    /// The NI the peer asked for, once it has.
    pub(super) ni: Option<Nid>,
}

/// A peer that has said who it is, on its way to the shard that decides about it. Nothing of it is read meanwhile.
pub(crate) struct Offered {
    stream: Box<dyn Stream>,
    remote: SocketAddr,
    guest: Guest,
    ni: Arc<Ni>,
    id: ProcessId,
    rewrite: Option<ProcessId>,
    offer: Offer,
    /// What came with the hello.
    behind: SmallVec<[u8; HANDSHAKE_READ]>,
}

impl Driver {
    pub(super) fn listen(&mut self, turn: Turn<'_>, listener: Box<dyn sys::Listener>) {
        let address = listener.address();
        if let Err(errno) = turn.shard.poller.add(listener.handle(), self.sources.next_key().0) {
            tracing::error!(%address, %errno, "cannot watch the listening socket: nobody can connect to this node");
            return;
        }
        let key = self.sources.insert(Source::Listener(Listener {
            listener,
            address,
            queued: false,
            paused_until_ns: None,
        }));
        self.make_ready(key);
    }

    /// Accepts connections that wait.
    pub(super) fn accept_some(&mut self, turn: Turn<'_>, key: Key) -> Rest {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Source::Listener(listener)) = self.sources.get_mut(key) else { return Rest::Drained };
            if listener.paused_until_ns.is_some_and(|until_ns| turn.now_ns < until_ns) {
                return Rest::Drained;
            }
            let accepted = listener.listener.accept();
            // The system looks for a descriptor first: any other answer says that there is one.
            if !matches!(accepted, Accepted::Exhausted(_)) && listener.paused_until_ns.take().is_some() {
                tracing::info!(address = %listener.address, "connections are accepted again");
            }
            match accepted {
                Accepted::Connection(stream, remote) => self.begin_accepting(turn, stream, remote),
                Accepted::Gone => {}
                Accepted::Nobody => return Rest::Drained,
                Accepted::Exhausted(errno) => {
                    let until_ns = turn.now_ns.saturating_add(ACCEPT_PAUSE_NS);
                    if listener.paused_until_ns.replace(until_ns).is_none() {
                        tracing::warn!(address = %listener.address, %errno, "cannot accept connections for now");
                    }
                    self.timers.note(until_ns);
                    return Rest::Drained;
                }
            }
        }
        Rest::More
    }

    fn begin_accepting(&mut self, turn: Turn<'_>, stream: Box<dyn Stream>, remote: SocketAddr) {
        let counters = &turn.shard.counters.rx;
        if turn.shared.policy == AcceptPolicy::Secure && remote.port() > PRIVILEGED_PORT_MAX {
            debug!(%remote, "refused: its source port is not privileged, as accept=secure demands");
            counters.refusals.one();
            return;
        }
        let Some(guest) = self.admit(turn, remote) else { return counters.refusals.one() };
        let watched = turn.shard.poller.add(stream.handle(), self.sources.next_key().0);
        if watched.and_then(|()| stream.tune(&turn.shared.options)).is_err() {
            return counters.refusals.one();
        }
        let deadline_ns = turn.now_ns.saturating_add(turn.shared.config.accept_timeout_ns());
        self.timers.note(deadline_ns);
        let machine = Acceptor::new(Locals(turn.shared.nis.clone()));
        let accepting = Accepting { stream, remote, guest, machine, deadline_ns, ni: None };
        let key = self.sources.insert(Source::Accepting(Box::new(accepting)));
        // Request and hello have often come by now.
        self.continue_accepting(turn, key);
    }

    /// Lets a handshake begin. If there are too many on this shard, the oldest of the address that has the most makes room:
    /// whoever fills the house is put out himself.
    fn admit(&mut self, turn: Turn<'_>, remote: SocketAddr) -> Option<Guest> {
        let admission = &turn.shared.admission;
        match admission.begin(turn.shard.number, remote.ip()) {
            Entry::Granted(guest) => return Some(guest),
            Entry::Refused => {
                debug!(%remote, "refused: too many connections or handshakes from its address");
                return None;
            }
            Entry::NoRoom => {
                debug!(%remote, "refused: the descriptors that are left are for this node's own connections");
                turn.shard.counters.rx.no_room.one();
                return None;
            }
            Entry::Full => {}
        }
        let handshakes = self.sources.iter().filter_map(|(key, source)| match source {
            Source::Accepting(accepting) => Some((key, accepting)),
            _ => None,
        });
        let rank = |accepting: &Accepting| {
            (admission.handshakes_of(accepting.remote.ip()), Reverse(accepting.deadline_ns))
        };
        let (key, dropped) = handshakes.max_by_key(|(_, accepting)| rank(accepting))?;
        debug!(remote = %dropped.remote, "dropped: too many handshakes, most of them from its address");
        turn.shard.counters.rx.refusals.one();
        self.drop_accepting(key);
        match admission.begin(turn.shard.number, remote.ip()) {
            Entry::Granted(guest) => Some(guest),
            Entry::Full | Entry::Refused | Entry::NoRoom => None,
        }
    }

    /// Reads on in a handshake.
    pub(super) fn continue_accepting(&mut self, turn: Turn<'_>, key: Key) {
        loop {
            let Some(Source::Accepting(accepting)) = self.sources.get_mut(key) else { return };
            let mut buffer = [0; HANDSHAKE_READ];
            let mut input = match accepting.stream.receive(&mut buffer) {
                Received::Bytes(count) => &buffer[..count],
                Received::Nothing => return,
                Received::End | Received::Broken(_) => {
                    debug!(remote = %accepting.remote, reason = %accepting.machine.closed(), "refused");
                    let Some(_accepting) = self.take_accepting(key) else { return };
                    return self.forget(turn, Some(key));
                }
            };
            let over = loop {
                let (used, progress) = accepting.machine.feed(input);
                input = &input[used..];
                match progress {
                    AcceptProgress::NeedMore => break None,
                    AcceptProgress::RequestOk { nid } => accepting.ni = Some(nid),
                    over => break Some(over),
                }
            };
            match over {
                None | Some(AcceptProgress::NeedMore | AcceptProgress::RequestOk { .. }) => {}
                Some(AcceptProgress::Hello(offer)) => return self.hand_over(turn, key, &offer, input),
                Some(AcceptProgress::Reject { reply, reason }) => {
                    debug!(remote = %accepting.remote, %reason, "refused");
                    let Some(accepting) = self.take_accepting(key) else { return };
                    return self.refuse(turn, Some(key), &*accepting.stream, &reply);
                }
            }
        }
    }

    /// A valid hello is in, so that it is known who the peer is: its shard decides.
    fn hand_over(&mut self, turn: Turn<'_>, key: Key, offer: &Offer, behind: &[u8]) {
        let Some(accepting) = self.take_accepting(key) else { return };
        let Accepting { stream, remote, guest, .. } = *accepting;
        let Some(ni) = turn.shared.nis.get(offer.local_nid()) else { return self.forget(turn, Some(key)) };
        let rewrite = identity_from_port(turn.shared.policy, &ni, remote);
        let id = rewrite.unwrap_or(offer.claimed());
        if !may_be_peer(turn, &ni, id.nid) {
            debug!(%remote, %id, "refused: no peer can have this NID");
            return self.forget(turn, Some(key));
        }
        let shard = turn.shared.shards.shard(ni.sub, ni.upcalls.partition_of(ni.id.nid, id.nid));
        let behind = SmallVec::from_slice(behind);
        let offered = Offered { stream, remote, guest, ni, id, rewrite, offer: *offer, behind };
        if shard.number == turn.shard.number {
            return self.decide(turn, Some(key), offered);
        }
        turn.shard.counters.rx.handed_over.one();
        turn.shard.poller.delete(offered.stream.handle());
        self.sources.remove(key);
        shard.request(Request::Decide(Box::new(offered)));
    }

    /// Takes an offered connection or refuses it (lnet-wire 24). `place`: where it stands in the table, watched, if it came
    /// on a listener of this shard.
    pub(super) fn decide(&mut self, turn: Turn<'_>, place: Option<Key>, offered: Offered) {
        let Offered { stream, remote, guest, ni, id, rewrite, offer, behind } = offered;
        let conn_type = offer.conn_type();
        let life = Life { version: offer.hello.version, incarnation: offer.hello.src_incarnation };
        let Some(peer) = turn.shared.peer_of(&ni, id) else { return self.forget(turn, place) };
        if self.is_elsewhere(turn, &peer, remote) {
            debug!(%remote, %id, "refused: the peer is connected from another address, and nothing proves this one");
            return self.refuse(turn, place, &*stream, &offer.refuse());
        }
        let answer = {
            let mut state = peer.state.lock();
            state.links.set_per_type(ni.conns_per_peer());
            state.links.offered(conn_type, life)
        };
        debug!(%remote, %id, %conn_type, ?answer, "offered a connection");
        if answer == Answer::CloseAllAndRefuse {
            self.close_peer(turn, &peer, Errno::ECONNRESET);
        }
        let reply = match answer {
            Answer::Accept if remote.port() <= PRIVILEGED_PORT_MAX => offer.accept(id),
            Answer::Accept => offer.accept_unprivileged(id),
            Answer::Refuse | Answer::CloseAllAndRefuse => {
                return self.refuse(turn, place, &*stream, &offer.refuse());
            }
        };
        let Ok(reply) = reply else { return self.forget(turn, place) };
        let Some(key) = self.place(turn, place, &*stream) else { return self.forget(turn, None) };
        // What its NI has otherwise than the others: before the hello, nobody knew which it would be.
        if ni.options != turn.shared.options && stream.tune(&ni.options).is_err() {
            return self.forget(turn, Some(key));
        }
        // The reply fits into any socket's empty buffer; what it does not take whole is broken.
        if stream.send(&[Part::new(&reply)]) != Ok(reply.len()) {
            return self.forget(turn, Some(key));
        }
        turn.shard.counters.rx.accepts.one();
        {
            let mut state = peer.state.lock();
            state.links.accepted(conn_type, life);
            state.proven |= is_proven(id.nid, remote);
        }
        let rx = RxConn::new(turn, key, stream, &peer, conn_type, life.version, offer.byte_order);
        self.put_to_use(turn, key, rx.accepted(guest.connected(), rewrite), &behind);
    }

    /// A watched place in the table: the one that it has, or a new one.
    fn place(&mut self, turn: Turn<'_>, place: Option<Key>, stream: &dyn Stream) -> Option<Key> {
        if place.is_some() {
            return place;
        }
        turn.shard.poller.add(stream.handle(), self.sources.next_key().0).ok()?;
        Some(self.sources.insert(Source::Vacant))
    }

    /// Whether a stranger speaks in the name of a peer that is connected from, or to, another address. Under `hello` and
    /// from an unprivileged port that is taken for theft, unless the address is the NID's own. A privileged port is
    /// believed, for kernel nodes may have several addresses (lnet-wire 24).
    fn is_elsewhere(&self, turn: Turn<'_>, peer: &Peer, remote: SocketAddr) -> bool {
        if turn.shared.policy != AcceptPolicy::Hello || is_proven(peer.key.id.nid, remote) {
            return false;
        }
        let elsewhere = |key| match self.sources.get(key) {
            Some(Source::Conn(rx)) => rx.accepted_from() != Some(remote.ip()),
            _ => false,
        };
        peer.state.lock().conns.iter().any(|conn| elsewhere(conn.key))
    }

    /// Says what there is to say; the caller drops the stream.
    fn refuse(&mut self, turn: Turn<'_>, place: Option<Key>, stream: &dyn Stream, reply: &[u8]) {
        if !reply.is_empty() {
            // Whether it arrives is the peer's concern: it sees the end in any case.
            let _ = stream.send(&[Part::new(reply)]);
        }
        self.forget(turn, place);
    }

    /// Counts a refusal, and empties the place that it had.
    fn forget(&mut self, turn: Turn<'_>, place: Option<Key>) {
        turn.shard.counters.rx.refusals.one();
        if let Some(key) = place {
            self.sources.remove(key);
        }
    }

    /// Ends a handshake, whose place in the table stays for the connection.
    fn take_accepting(&mut self, key: Key) -> Option<Box<Accepting>> {
        let place = self.sources.get_mut(key)?;
        let Source::Accepting(_) = place else { return None };
        match std::mem::replace(place, Source::Vacant) {
            Source::Accepting(accepting) => Some(accepting),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Drops a handshake that took too long or whose NI goes away.
    pub(super) fn drop_accepting(&mut self, key: Key) {
        if self.take_accepting(key).is_some() {
            self.sources.remove(key);
        }
    }
}

/// Whether a peer that connects from there is believed to have this NID.
fn is_proven(nid: Nid, remote: SocketAddr) -> bool {
    remote.port() <= PRIVILEGED_PORT_MAX || nid.ip() == Some(remote.ip())
}

/// Whether a peer on this NI's network can have this NID: not this node itself, and an address that one host has.
fn may_be_peer(turn: Turn<'_>, ni: &Ni, nid: Nid) -> bool {
    let one_host = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()),
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast()),
    };
    nid.net() == ni.id.nid.net() && nid.ip().is_some_and(one_host) && turn.shared.nis.get(nid).is_none()
}

/// Who a peer is by its source port alone, where the policy says so (lnet-wire 27).
fn identity_from_port(policy: AcceptPolicy, ni: &Arc<Ni>, remote: SocketAddr) -> Option<ProcessId> {
    if policy != AcceptPolicy::All || remote.port() <= PRIVILEGED_PORT_MAX {
        return None;
    }
    let nid = Nid::new_ip(ni.id.nid.net(), remote.ip());
    Some(ProcessId::new(nid, Pid::of_unprivileged_port(remote.port())))
}
