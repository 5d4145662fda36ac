//! The protocol of services: its header, and both state machines fed with messages of a hostile peer.

use std::collections::HashSet;
use std::time::Duration;

use nlx_service::Class;
use nlx_service::rpc::{
    Action, CallId, Calls, ClientId, Delivery, HEADER, Header, Kind, MessageDecision, NewCall,
    RequestOptions, ResponderOptions, Server,
};

use super::{Outcome, same};

/// Bytes of a message's body in the inputs of the state machines.
const BODY: usize = 3;

/// Bytes of a step: what happens, how much time passes, the peer; then a message.
const STEP: usize = 3 + HEADER + BODY;

const SESSIONS_MAX: usize = 2;

/// A message is refused, or it is read and written back as the same message.
pub(super) fn header(bytes: &[u8]) -> Outcome {
    let Some(header) = Header::parse(bytes) else { return Outcome::of("refused") };
    let body = &bytes[HEADER..];
    same(header.length as usize, body.len(), "the length of the body");
    same(Header::parse(&[&header.emit(), body].concat()), Some(header), "the header that was written");
    Outcome::of((header.kind as u8, header.class == Class::Urgent, header.has_offers, body.len().min(2)))
}

/// Returns the steps of an input, with messages that have the right magic, version and length.
fn steps(bytes: &[u8]) -> impl Iterator<Item = (u8, u64, u8, [u8; HEADER + BODY])> {
    bytes.chunks_exact(STEP).map(|step| {
        let mut message = [0; HEADER + BODY];
        message.copy_from_slice(&step[3..]);
        message[..5].copy_from_slice(b"nlxq\x02");
        message[44..48].copy_from_slice(&(BODY as u32).to_le_bytes());
        // Seconds, on a scale that reaches days.
        (step[0], 1 << (step[1] % 48), step[2] % 4, message)
    })
}

/// No request of a session runs twice, early replies and memory are bounded.
pub(super) fn server(bytes: &[u8]) -> Outcome {
    let session_idle = Duration::from_secs(1);
    let options = ResponderOptions { sessions_max: SESSIONS_MAX, session_idle, ..Default::default() };
    let mut server = Server::new(1, &options);
    let (mut now_ns, mut ran, mut running, mut kinds) = (0, HashSet::new(), Vec::new(), 0_u32);
    for (step, pause_ns, from, message) in steps(bytes) {
        now_ns += pause_ns;
        match step % 4 {
            0 if !running.is_empty() => {
                let id = running.remove(usize::from(from) % running.len());
                assert!(server.answered(id, 0, &message[HEADER..], now_ns).is_some(), "it runs");
                assert!(server.answered(id, 0, b"", now_ns).is_none(), "it has ended");
            }
            1 if !running.is_empty() => server.dropped(running.remove(usize::from(from) % running.len())),
            _ => match server.receive(&message, &from, now_ns) {
                MessageDecision::Run(id, header) => {
                    let name = (from, header.client, header.session, header.slot, header.sequence);
                    assert!(header.kind == Kind::Often || ran.insert(name), "{name:?} has run twice");
                    running.push(id);
                    kinds |= 1;
                }
                MessageDecision::Answer(header, _) => kinds |= 1 << header.kind as u8,
                MessageDecision::Drop => {}
            },
        }
        while let Some((header, _)) = server.early(now_ns) {
            same(header.kind, Kind::Early, "the kind of an early reply");
            kinds |= 1 << 8;
        }
        assert!(server.next_ns().is_none_or(|next_ns| next_ns > now_ns), "an early reply is overdue");
        assert!(server.sessions() <= SESSIONS_MAX, "too many sessions");
        same(server.running(), running.len(), "the number of requests that run");
    }
    Outcome::of((kinds, running.len().min(3)))
}

/// Whatever a server sends, each call ends once, and not after the longest deadline.
pub(super) fn client(bytes: &[u8]) -> Outcome {
    let options = RequestOptions { in_flight_max: 4, ..RequestOptions::default() };
    let client = ClientId { number: 0, incarnation: 7 };
    let mut calls = Calls::<u8, ()>::new(client, options);
    let (mut now_ns, mut open, mut kinds) = (0_u64, HashSet::new(), 0_u32);
    let end = |open: &mut HashSet<CallId>, id| assert!(open.remove(&id), "{id:?} has ended twice");
    for (step, pause_ns, server, mut message) in steps(bytes) {
        now_ns += pause_ns;
        if step % 2 == 0 && calls.check_room(&server).is_ok() {
            let delivery = if step % 4 == 0 { Delivery::AtMostOnce } else { Delivery::AtLeastOnce };
            let deadline_ns = calls.deadline_ns(now_ns);
            let class = Class::Normal;
            let new = NewCall { buffer: (), length: 0, delivery, class, has_offers: false, deadline_ns };
            open.insert(calls.begin(&server, new, now_ns));
        } else {
            // Most messages are for this client, with a small number in its slot.
            message[12..16].fill(0);
            message[16..24].copy_from_slice(&7_u64.to_le_bytes());
            message[33..40].fill(0);
            if let Some(ended) = calls.receive(&message, &server, now_ns) {
                end(&mut open, ended.id);
                kinds |= if ended.result.is_ok() { 1 } else { 2 };
            }
        }
        while let Some(action) = calls.act(now_ns) {
            match action {
                Action::Request { id, .. } => {
                    same(calls.returned(id, ()), None, "the memory of a call that has not ended");
                    assert!(calls.sent(id.tag(), None, now_ns).is_none(), "sending ends no call");
                    kinds |= 4;
                }
                Action::Open { .. } => kinds |= 8,
                Action::Ended(ended) => {
                    end(&mut open, ended.id);
                    kinds |= 16;
                }
            }
        }
        same(calls.in_flight(), open.len(), "the number of calls");
        assert!(calls.next_ns().is_none_or(|next_ns| next_ns > now_ns), "a call is overdue");
    }
    // No server can hold a call for longer than the client's limit.
    now_ns += (options.deadline_max + options.deadline).as_nanos() as u64;
    while let Some(action) = calls.act(now_ns) {
        let Action::Ended(ended) = action else { panic!("a call goes on after its limit: {action:?}") };
        end(&mut open, ended.id);
    }
    same((calls.in_flight(), open.len()), (0, 0), "calls after the limit");
    Outcome::of((kinds, calls.counters().early.min(2)))
}

/// Returns messages of each kind, and the steps of a request that is answered.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let kinds = [Kind::Open, Kind::Opened, Kind::Once, Kind::Often, Kind::Answer, Kind::Refusal, Kind::Early];
    let message = |kind| Header {
        kind,
        class: Class::Normal,
        has_offers: false,
        attempt: 1,
        slot: 0,
        client: ClientId { number: 0, incarnation: 7 },
        session: 0,
        sequence: 1,
        status: 0,
        length: 0,
        time_ms: 1000,
        estimate_ms: 1,
    };
    let step = |what: u8, kind| [&[what, 30, 0], &message(kind).emit()[..], &[0; BODY]].concat();
    let mut seeds: Vec<Vec<u8>> = kinds.into_iter().map(|kind| message(kind).emit().to_vec()).collect();
    seeds.extend(kinds.into_iter().map(|kind| step(3, kind)));
    seeds.push([step(2, Kind::Often), step(3, Kind::Early), step(3, Kind::Answer)].concat());
    seeds.push([step(3, Kind::Often), step(0, Kind::Often), step(3, Kind::Open)].concat());
    seeds.push([step(0, Kind::Open), step(3, Kind::Opened), step(3, Kind::Answer)].concat());
    seeds
}
