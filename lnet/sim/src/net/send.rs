//! Sending messages to the network.

use std::sync::Arc;

use lnet_api::{Errno, Sent, Tx, TxToken};
use lnet_nid::Nid;
use lnet_proto::{Body, Header};

use super::SimNet;
use super::link::{DEFECT_CHANCE, Defect, LinkModel};
use super::note::Note;
use super::state::{Event, Packet, PendingTx, State};

/// The factor of a slow message's delay.
const SLOW_FACTOR: u64 = 100;

impl SimNet {
    pub(super) fn send(&self, tx: Tx) -> Sent {
        let payload: Arc<[u8]> =
            tx.payload.as_ref().map(|payload| payload.to_vec()).unwrap_or_default().into();
        let (ni, token) = (tx.ni, tx.token);
        self.notify(Note::Sent {
            ni,
            peer: tx.peer,
            header: tx.header,
            payload: payload.clone(),
            token,
            deadline_ns: tx.deadline_ns,
        });
        let answer = match self.refuse(&tx) {
            Some(errno) => Sent::Now(Err(errno)),
            None => self.accept(tx, payload),
        };
        self.notify(Note::Taken { ni, token, answer });
        answer
    }

    /// Returns the error with which `send` fails at once, if it does.
    fn refuse(&self, tx: &Tx) -> Option<Errno> {
        let mut state = self.state.lock();
        state.seen.messages += 1;
        let chance = state.link(tx.ni).send_fails;
        let errno = match state.ports.contains_key(&tx.ni) {
            false => Errno::ESHUTDOWN,
            true if state.rng.chance(chance) => Errno::EHOSTUNREACH,
            true => return None,
        };
        state.seen.sends_failed += 1;
        Some(errno)
    }

    fn accept(&self, tx: Tx, payload: Arc<[u8]>) -> Sent {
        let is_get = matches!(tx.header.body, Body::Get { .. });
        let (direct, port) = {
            let state = self.state.lock();
            (is_get && state.link(tx.ni).direct_gets, state.ports.get(&tx.ni).cloned())
        };
        let Some(port) = port else { return Sent::Now(Err(Errno::ESHUTDOWN)) };
        // If the network writes the REPLY's data directly, the memory for the data must be known
        // before the GET leaves.
        let sink = if direct { self.sink(&port, tx.ni, tx.token) } else { None };
        let mut state = self.state.lock();
        let state = &mut *state;
        let link = state.link(tx.ni);
        let is_direct_get = sink.is_some();
        let held = PendingTx {
            ni: tx.ni,
            peer: tx.peer.nid,
            life: port.life,
            token: tx.token,
            conn: None,
            sink,
            is_direct_get,
            payload: tx.payload,
        };
        let answered = tx.reply_to.and_then(|rx| state.direct.remove(&rx.0));
        if let Some(get) = answered {
            state.seen.direct_gets += 1;
            let at = state.now_ns + state.rng.between(link.latency_ns);
            state.schedule(at, Event::Direct { get, result: Ok(payload) });
            return state.hold(held, &link, None);
        }
        let to = tx.peer.nid;
        if state.is_cut(tx.ni, to) {
            state.seen.unreachable += 1;
            let at = state.now_ns + state.rng.between(link.notice_ns);
            return state.fail_later(held, at, Errno::EHOSTUNREACH);
        }
        let conn = state.connect(tx.ni, to, port.life);
        let end = usize::from(state.conns[&conn].nids[0] != tx.ni);
        let id = state.id();
        let packet = Packet {
            sequence: state.conns[&conn].pipes[end].sent,
            header: emit(&tx.header, link.large_headers),
            payload,
            get: is_direct_get.then_some(id),
        };
        state.fly(&link, conn, end, packet);
        state.hold_as(id, held, &link, Some((conn, end)))
    }

    fn sink(&self, port: &super::state::Port, ni: Nid, token: TxToken) -> Option<lnet_region::WriteVec> {
        let sink = port.upcalls.sink_of_get(token);
        self.notify(Note::Sink { ni, token, sink: sink.as_ref().map(lnet_region::WriteVec::len) });
        sink
    }
}

/// Encodes a header: the network transfers only what the wire format can express.
fn emit(header: &Header, large: bool) -> Vec<u8> {
    let mut small = [0; Header::LEN];
    if !large && header.emit(&mut small).is_ok() {
        return small.to_vec();
    }
    let mut bytes = [0; Header::LARGE_LEN];
    // A header that cannot be emitted arrives as zeros, which are not a valid header: the far end
    // closes the connection.
    let _ = header.emit_large(&mut bytes);
    bytes.to_vec()
}

impl State {
    /// Stores a message until it is finalised.
    fn hold(&mut self, held: PendingTx, link: &LinkModel, conn: Option<(u64, usize)>) -> Sent {
        let id = self.id();
        self.hold_as(id, held, link, conn)
    }

    fn hold_as(&mut self, id: u64, held: PendingTx, link: &LinkModel, conn: Option<(u64, usize)>) -> Sent {
        if !held.is_direct_get && self.rng.chance(link.sent_now) {
            return Sent::Now(Ok(()));
        }
        let forgotten = link.defect == Some(Defect::ForgetsFinalisation) && self.rng.chance(DEFECT_CHANCE);
        if held.is_direct_get {
            // A response may never come, whatever the reason at the far end, so it has a timeout.
            let at = self.now_ns.saturating_add(link.limits.timeout_ns);
            self.schedule(at, Event::Fail { tx: id, errno: Errno::ETIMEDOUT });
        } else if !forgotten {
            let at = self.now_ns + self.rng.between(link.hold_ns);
            self.schedule(at, Event::Finalize { tx: id });
        }
        self.held.insert(id, PendingTx { conn, ..held });
        Sent::Later
    }

    fn fail_later(&mut self, held: PendingTx, at_ns: u64, errno: Errno) -> Sent {
        let id = self.id();
        self.schedule(at_ns, Event::Fail { tx: id, errno });
        self.held.insert(id, held);
        Sent::Later
    }

    /// Puts a message on its connection. If the connection is broken, the message is lost, and the
    /// sender gets an error later.
    fn fly(&mut self, link: &LinkModel, id: u64, end: usize, packet: Packet) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[end];
        pipe.sent += 1;
        if conn.broken || pipe.cut {
            return;
        }
        let has_defect = |defect| link.defect == Some(defect);
        let defective = link.defect.is_some() && self.rng.chance(DEFECT_CHANCE);
        if self.rng.chance(link.vanish) || defective && has_defect(Defect::LosesSilently) {
            self.seen.vanished += 1;
            return;
        }
        if self.rng.chance(link.lost) {
            pipe.cut = true;
            let at = self.now_ns + self.rng.between(link.latency_ns);
            return self.schedule(at, Event::Break { conn: id });
        }
        let mut packet = packet;
        if defective && has_defect(Defect::Corrupts) && !packet.payload.is_empty() {
            let mut bytes = packet.payload.to_vec();
            bytes[0] ^= 0x80;
            packet.payload = bytes.into();
        }
        let overtakes = link.overtaking || defective && has_defect(Defect::Reorders);
        let doubled = self.rng.chance(link.twice) || defective && has_defect(Defect::Duplicates);
        if doubled {
            self.seen.doubled += 1;
            self.enter(link, id, end, packet.clone(), overtakes);
        }
        self.enter(link, id, end, packet, overtakes);
    }

    fn enter(&mut self, link: &LinkModel, id: u64, end: usize, packet: Packet, overtakes: bool) {
        let mut delay = self.rng.between(link.latency_ns);
        if self.rng.chance(link.slow) {
            delay *= SLOW_FACTOR;
        }
        if let Some(rate) = link.bytes_per_us {
            delay += (packet.header.len() + packet.payload.len()) as u64 * 1_000 / rate.max(1);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[end];
        let in_order = (self.now_ns + delay).max(pipe.last_arrival_ns);
        let at = if overtakes { self.now_ns + delay / 4 } else { in_order };
        pipe.last_arrival_ns = pipe.last_arrival_ns.max(at);
        let sequence = packet.sequence;
        pipe.flying.push_back(packet);
        self.schedule(at, Event::Arrive { conn: id, end, sequence });
    }
}
