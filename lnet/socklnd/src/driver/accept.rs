//! The passive side: listeners, and handshakes of peers that connect in (lnet-wire 21 and 22.5).
//! The decision to accept is in `decide.rs`.

use std::cmp::Reverse;
use std::net::SocketAddr;

use lnet_nid::Nid;
use lnet_proto::sock::{AcceptProgress, Acceptor, PRIVILEGED_PORT_MAX};
use tracing::debug;

use super::Driver;
use super::receive::Rest;
use super::source::{EventSource, take_accepting};
use crate::AcceptPolicy;
use crate::ni::Locals;
use crate::shard::HANDSHAKE_READ;
use crate::sock::Turn;
use crate::sys::{self, Accepted, RecvResult, Stream};
use lnet_lnd::admission::{Full, Permit};
use lnet_lnd::shard_table::ShardKey;

/// Connections accepted in one turn of a listener.
const ACCEPTS_PER_TURN: usize = 16;

/// Pause of accepting when descriptors or memory run out or the system forbids it; connections in
/// use continue.
pub(super) const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// A listening socket, and the time from which it accepts again.
pub(super) struct ListenSocket {
    pub(super) listener: Box<dyn sys::Listener>,
    pub(super) address: SocketAddr,
    /// Set while the listener is in the ready list.
    pub(super) queued: bool,
    /// No connection is accepted before this time; `None` while descriptors are available.
    pub(super) paused_until_ns: Option<u64>,
}

/// A peer that has connected in, before its hello.
pub(super) struct Accepting {
    pub(super) stream: Box<dyn Stream>,
    pub(super) remote: SocketAddr,
    pub(super) permit: Permit,
    pub(super) machine: Acceptor<Locals>,
    pub(super) deadline_ns: u64,
    /// The NI in the peer's request, once that has arrived.
    pub(super) ni: Option<Nid>,
}

impl Driver {
    pub(super) fn listen(&mut self, turn: Turn<'_>, listener: Box<dyn sys::Listener>) {
        let address = listener.address();
        if let Err(errno) = turn.shard.own.poller.add(listener.handle(), self.sources.next_key().0) {
            tracing::error!(%address, %errno, "cannot watch the listening socket: peers cannot connect to this node");
            return;
        }
        let listener = ListenSocket { listener, address, queued: false, paused_until_ns: None };
        let key = self.sources.insert(EventSource::Listener(listener));
        self.sources.enqueue(key);
    }

    /// Accepts waiting connections.
    pub(super) fn accept_some(&mut self, turn: Turn<'_>, key: ShardKey) -> Rest {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.sources.get_mut(key).and_then(EventSource::listener_mut) else {
                return Rest::Drained;
            };
            if listener.paused_until_ns.is_some_and(|until_ns| turn.now_ns < until_ns) {
                return Rest::Drained;
            }
            let accepted = listener.listener.accept();
            // The system takes a descriptor first, so any other result shows that one was
            // available.
            if !matches!(accepted, Accepted::Exhausted(_)) && listener.paused_until_ns.take().is_some() {
                tracing::info!(address = %listener.address, "accepting connections again");
            }
            match accepted {
                Accepted::Connection(stream, remote) => self.begin_accepting(turn, stream, remote),
                Accepted::Gone => {}
                Accepted::Nobody => return Rest::Drained,
                Accepted::Exhausted(errno) => {
                    let until_ns = turn.now_ns.saturating_add(ACCEPT_PAUSE_NS);
                    if listener.paused_until_ns.replace(until_ns).is_none() {
                        tracing::warn!(address = %listener.address, %errno, "cannot accept connections for now: retrying soon");
                    }
                    self.core.timers.note(until_ns);
                    return Rest::Drained;
                }
            }
        }
        Rest::More
    }

    fn begin_accepting(&mut self, turn: Turn<'_>, stream: Box<dyn Stream>, remote: SocketAddr) {
        let counters = &turn.shard.counters.rx;
        if turn.shared.own.policy == AcceptPolicy::Secure && remote.port() > PRIVILEGED_PORT_MAX {
            debug!(%remote, "refused: its source port is not privileged, as accept=secure demands");
            counters.refusals.one();
            return;
        }
        let Some(permit) = self.admit(turn, remote) else { return counters.refusals.one() };
        let watched = turn.shard.own.poller.add(stream.handle(), self.sources.next_key().0);
        if watched.and_then(|()| stream.tune(&turn.shared.own.options)).is_err() {
            return counters.refusals.one();
        }
        let deadline_ns = turn.now_ns.saturating_add(turn.shared.config.accept_timeout_ns());
        self.core.timers.note(deadline_ns);
        let machine = Acceptor::new(Locals(turn.shared.nis.clone()));
        let accepting = Accepting { stream, remote, permit, machine, deadline_ns, ni: None };
        let key = self.sources.insert(EventSource::Accepting(Box::new(accepting)));
        // The request and the hello have often arrived by now.
        self.continue_accepting(turn, key);
    }

    /// Admits a handshake. If this shard has too many, drops the oldest one of the address that has
    /// the most, so that an address that fills the shard displaces itself.
    fn admit(&mut self, turn: Turn<'_>, remote: SocketAddr) -> Option<Permit> {
        let admission = &turn.shared.own.admission;
        match admission.begin(turn.shard.number, remote.ip()) {
            Ok(permit) => return Some(permit),
            Err(Full::OfAddress(_)) => {
                debug!(%remote, "refused: too many connections or handshakes from its address");
                return None;
            }
            Err(Full::NoRoom) => {
                debug!(%remote, "refused: the descriptors that are left are for this node's own connections");
                turn.shard.counters.rx.no_room.one();
                return None;
            }
            Err(Full::Opening(_)) => {}
        }
        let handshakes = self.sources.iter().filter_map(|(key, source)| Some((key, source.accepting()?)));
        let rank = |accepting: &Accepting| {
            (admission.opening_of(accepting.remote.ip()), Reverse(accepting.deadline_ns))
        };
        let (key, dropped) = handshakes.max_by_key(|(_, accepting)| rank(accepting))?;
        debug!(remote = %dropped.remote, "dropped: too many handshakes, most of them from its address");
        turn.shard.counters.rx.refusals.one();
        self.sources.remove(key);
        admission.begin(turn.shard.number, remote.ip()).ok()
    }

    /// Continues reading a handshake.
    pub(super) fn continue_accepting(&mut self, turn: Turn<'_>, key: ShardKey) {
        loop {
            let Some(accepting) = self.sources.get_mut(key).and_then(EventSource::accepting_mut) else {
                return;
            };
            let mut buffer = [0; HANDSHAKE_READ];
            let mut input = match accepting.stream.receive(&mut buffer) {
                RecvResult::Bytes(count) => &buffer[..count],
                RecvResult::Nothing => return,
                RecvResult::End | RecvResult::Broken(_) => {
                    debug!(remote = %accepting.remote, reason = %accepting.machine.closed(), "refused");
                    let Some(_accepting) = take_accepting(&mut self.sources, key) else { return };
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
                    let Some(accepting) = take_accepting(&mut self.sources, key) else { return };
                    return self.refuse(turn, Some(key), &*accepting.stream, &reply);
                }
            }
        }
    }
}
