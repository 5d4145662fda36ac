//! Receiving messages from the network.

use std::sync::Arc;

use lnet_api::{Arrival, Errno, PayloadTarget, RxContext, Verdict};
use lnet_nid::ProcessId;
use lnet_proto::{Header, ProtoError};
use lnet_region::WriteVec;

use super::SimNet;
use super::note::{Judgement, Lane, Note};
use super::state::{Delayed, Event, Packet, Port, Receiving, State};

impl SimNet {
    /// Handles the arrival of a message at the end that is not `end`.
    pub(super) fn arrive(&self, id: u64, end: usize, sequence: u64) {
        let superseded = self.state.lock().superseded(id, 1 - end);
        if let Some((old, at)) = superseded {
            self.notice(old, at, Errno::ECONNRESET);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if !state.attach(id, 1 - end) {
            state.seen.unreachable += 1;
            return state.break_conn(id, Errno::ECONNREFUSED, None);
        }
        let Some(conn) = state.conns.get_mut(&id) else { return };
        let pipe = &mut conn.pipes[end];
        let Some(place) = pipe.flying.iter().position(|packet| packet.sequence == sequence) else { return };
        state.seen.overtook += u64::from(place > 0 && pipe.flying[0].sequence < sequence);
        let Some(packet) = pipe.flying.remove(place) else { return };
        state.seen.blocked += u64::from(pipe.receiving.is_some());
        pipe.inbox.push_back(packet);
        let now = state.now_ns;
        state.schedule(now, Event::Pump { conn: id, end });
    }

    /// Parses the next message of a pipe, unless the one before it is incomplete.
    pub(super) fn pump(&self, id: u64, end: usize) {
        let Some((port, packet, rx)) = self.state.lock().next_packet(id, end) else { return };
        let (ni, peer) = match self.state.lock().conns.get(&id) {
            Some(conn) => (conn.nids[1 - end], conn.nids[end]),
            None => return,
        };
        let Ok(header) = parse(&packet.header) else {
            return self.state.lock().break_conn(id, Errno::EPROTO, None);
        };
        let from = ProcessId::lnet(peer);
        let lane = Lane { connection: id, end, sequence: packet.sequence };
        let payload = packet.payload.clone();
        self.notify(Note::Arriving { ni, from, header, payload, rx, lane });
        if let Some(get) = packet.get {
            self.state.lock().direct.insert(rx.0, get);
        }
        let arrival = Arrival { ni, from, header: &header, host: None, rx };
        let verdict = port.on_shard(ni, peer, |engine| engine.parse(&arrival));
        self.notify(Note::Judged { ni, rx, judgement: judgement(&verdict) });
        let mut state = self.state.lock();
        let state = &mut *state;
        // A GET that matches no entry gets no REPLY, but the network still answers it.
        if let Verdict::Discard = verdict
            && let Some(get) = state.direct.remove(&rx.0)
        {
            let latency = state.link(ni).latency_ns;
            let at = state.now_ns + state.rng.between(latency);
            state.schedule(at, Event::Direct { get, result: Err(Errno::ENODATA) });
        }
        match verdict {
            Verdict::Deliver(delivery) => state.receive(id, end, delivery, packet.payload.clone()),
            Verdict::Delay(token) | Verdict::Stay(token) => {
                state.delayed.insert(rx.0, Delayed { conn: id, end, ni, peer, life: port.life });
                if let Some(conn) = state.conns.get_mut(&id) {
                    let payload = packet.payload.clone();
                    conn.pipes[end].receiving = Some(Receiving::Delayed { rx, token, payload });
                }
            }
            Verdict::Done | Verdict::Discard => state.go_on(id, end),
            Verdict::Close(errno) => state.break_conn(id, errno, None),
        }
    }

    /// Completes the payload that a pipe was receiving.
    pub(super) fn payload(&self, id: u64, end: usize) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(conn) = state.conns.get_mut(&id) else { return };
        let (ni, peer, life) = (conn.nids[1 - end], conn.nids[end], conn.attached[1 - end]);
        if !matches!(conn.pipes[end].receiving, Some(Receiving::Payload { .. })) {
            return;
        }
        let receiving = conn.pipes[end].receiving.take();
        let (Some(life), Some(Receiving::Payload { token, sink, payload, lost })) = (life, receiving) else {
            return;
        };
        let share = if lost { state.rng.index(payload.len()) } else { payload.len() };
        if lost {
            state.seen.payloads_lost += 1;
            state.break_conn(id, Errno::ECONNRESET, None);
        } else {
            state.go_on(id, end);
        }
        drop(guard);
        let written = sink.map_or(0, |sink| fill(sink, &payload[..share]));
        let result = if lost { Err(Errno::ECONNRESET) } else { Ok(()) };
        self.finalize_rx((ni, peer), life, token, result, written);
    }

    pub(super) fn resume(&self, rx: RxContext, delivery: Option<PayloadTarget>) {
        let Some(Delayed { conn: id, end, ni, peer, life }) = self.state.lock().delayed.remove(&rx.0) else {
            return;
        };
        let told = delivery.as_ref().map(|d| (d.token, d.sink.as_ref().map_or(0, WriteVec::len)));
        self.notify(Note::Resumed { ni, rx, delivery: told });
        let mut state = self.state.lock();
        let state = &mut *state;
        let waiting = state.conns.get_mut(&id).and_then(|conn| {
            let pipe = &mut conn.pipes[end];
            let here = matches!(pipe.receiving, Some(Receiving::Delayed { rx: held, .. }) if held == rx);
            pipe.receiving.take_if(|_| here)
        });
        match (waiting, delivery) {
            (Some(Receiving::Delayed { payload, .. }), Some(delivery)) => {
                state.receive(id, end, delivery, payload);
            }
            (Some(_), None) => state.go_on(id, end),
            (Some(_), _) | (None, None) => {}
            // The connection and the payload are gone, and the engine did not forget the message.
            (None, Some(PayloadTarget { token, sink })) => {
                state.schedule(state.now_ns, Event::FailRx { ni, peer, life, token, sink });
            }
        }
    }
}

fn judgement(verdict: &Verdict) -> Judgement {
    match verdict {
        Verdict::Deliver(d) => Judgement::Deliver(d.token, d.sink.as_ref().map_or(0, WriteVec::len)),
        Verdict::Done => Judgement::Done,
        Verdict::Discard => Judgement::Discard,
        Verdict::Delay(token) | Verdict::Stay(token) => Judgement::Delay(*token),
        Verdict::Close(errno) => Judgement::Close(*errno),
    }
}

fn parse(bytes: &[u8]) -> Result<Header, ProtoError> {
    if let Ok(small) = <&[u8; Header::LEN]>::try_from(bytes) {
        return Header::parse(small);
    }
    let mut large = [0; Header::LARGE_LEN];
    large[..bytes.len().min(Header::LARGE_LEN)].copy_from_slice(&bytes[..bytes.len().min(Header::LARGE_LEN)]);
    Header::parse_large(&large)
}

/// Writes the received part of a payload; returns the number of bytes that fitted.
fn fill(mut sink: WriteVec, bytes: &[u8]) -> usize {
    let length = sink.len().min(bytes.len());
    sink.copy_from(0, &bytes[..length])
}

impl State {
    /// Returns the old, broken connection of an end whose peer uses a new one: the end detects it
    /// by that.
    fn superseded(&self, id: u64, end: usize) -> Option<(u64, usize)> {
        let conn = self.conns.get(&id).filter(|conn| conn.attached[end].is_none())?;
        let (ni, peer) = (conn.nids[end], conn.nids[1 - end]);
        let known = self.ends.get(&(ni, peer))?;
        let old =
            known.iter().copied().find(|known| self.conns.get(known).is_some_and(|conn| conn.broken))?;
        Some((old, usize::from(self.conns[&old].nids[0] != ni)))
    }

    /// Attaches an end to its connection, if its NI is up and the connection is not broken.
    fn attach(&mut self, id: u64, end: usize) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return true };
        if conn.attached[end].is_some() || conn.broken {
            return true;
        }
        let Some(port) = self.ports.get(&conn.nids[end]) else { return false };
        conn.attached[end] = Some(port.life);
        let key = (conn.nids[end], conn.nids[1 - end]);
        self.ends.entry(key).or_default().push(id);
        true
    }

    fn next_packet(&mut self, id: u64, end: usize) -> Option<(Port, Packet, RxContext)> {
        let rx = RxContext(self.id());
        let conn = self.conns.get_mut(&id)?;
        let (ni, life) = (conn.nids[1 - end], conn.attached[1 - end]?);
        let late = conn.attached[end].is_none() && conn.broken;
        let pipe = &mut conn.pipes[end];
        if pipe.receiving.is_some() {
            return None;
        }
        let packet = pipe.inbox.pop_front()?;
        self.seen.late_lives += u64::from(late);
        Some((self.port(ni, life)?, packet, rx))
    }

    fn receive(&mut self, id: u64, end: usize, delivery: PayloadTarget, payload: Arc<[u8]>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let ni = conn.nids[1 - end];
        let link = self.link(ni);
        let delay = self.rng.between(link.payload_ns);
        let lost = self.rng.chance(link.payload_lost);
        self.seen.payloads_late += u64::from(delay > 0);
        let PayloadTarget { token, sink } = delivery;
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.pipes[end].receiving = Some(Receiving::Payload { token, sink, payload, lost });
        }
        self.schedule(self.now_ns + delay, Event::Payload { conn: id, end });
    }

    /// Lets the next message of the pipe be parsed.
    fn go_on(&mut self, id: u64, end: usize) {
        self.schedule(self.now_ns, Event::Pump { conn: id, end });
    }
}
