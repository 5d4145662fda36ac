//! Checks of ping information.

use std::io::Read;

use super::CheckResult;
use crate::judge::active::Target;
use crate::judge::frame::{Message, PING_BITS};
use crate::judge::info::{PingInfo, UP, feature};
use crate::judge::session::{DISCOVERY_SINK, LCTL_SINK, Session};
use crate::judge::verdict::judge_answer;
use crate::judge::wire::{Order, kind, request};

pub(super) fn answered(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::CONTROL])?;
    for sink in [DISCOVERY_SINK, LCTL_SINK] {
        let request = session.ping_request(0, sink);
        session.send(0, &request)?;
        let info = PingInfo::parse(&session.reply_to(&request)?.payload)?;
        if info.sequence == 0 {
            return Err("sequence number 0: the first published table has 1".to_string());
        }
        if info.nis.first() != Some(&(target.nid, UP)) {
            return Err(format!("its first NIDs are {:x?}, not {} and up", info.nis, target.nid));
        }
    }
    Ok(())
}

/// Compares all bytes: encoding the decoded information must give the same bytes.
pub(super) fn large(target: &Target) -> CheckResult {
    const LARGE: u32 = feature::LARGE_ADDR | feature::PRIMARY_LARGE;
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let request = session.ping_request(0, LCTL_SINK);
    session.send(0, &request)?;
    let payload = session.reply_to(&request)?.payload;
    let info = PingInfo::parse(&payload)?;
    if info.features & LARGE != LARGE {
        return Err(format!("features {:#x} without those of large NIDs ({LARGE:#x})", info.features));
    }
    if info.bytes() != payload {
        return Err(format!("{payload:02x?} says what {:02x?} says", info.bytes()));
    }
    if info.nis.len() == 1 && payload.len() != 56 {
        return Err(format!("one large NID in {} bytes, not 56", payload.len()));
    }
    Ok(())
}

pub(super) fn cut(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let whole = session.ping_request(0, DISCOVERY_SINK);
    session.send(0, &whole)?;
    let whole = session.reply_to(&whole)?.payload;
    for sink in [whole.len() as u32, 47, 16, 1, 0] {
        let request = session.ping_request(0, sink);
        session.send(0, &request)?;
        let part = session.reply_to(&request)?.payload;
        if part != whole[..sink as usize] {
            return Err(format!("to a sink of {sink} bytes: {part:02x?}"));
        }
    }
    Ok(())
}

/// Checks the answers to many pings in one segment. Answers on one connection keep the order of the
/// requests.
pub(super) fn burst(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let requests: Vec<Message> = (0..64).map(|_| session.ping_request(0, DISCOVERY_SINK)).collect();
    let bytes: Vec<u8> =
        requests.iter().flat_map(|request| request.bytes(session.version, Order::Little)).collect();
    session.send_bytes(0, &bytes)?;
    let mut wanted = requests;
    while !wanted.is_empty() {
        let (_, reply) = session.message()?;
        let place = wanted.iter().position(|request| request.handle() == reply.handle());
        let place = place.ok_or_else(|| format!("a REPLY without a request: {:02x?}", reply.handle()))?;
        judge_answer(&wanted.swap_remove(place), &reply)?;
    }
    Ok(())
}

/// Checks that the node takes pushes, if its features ask for them: as a kernel does, the judge
/// pushes after a ping if the features have both bits. It pushes three times, because the node must
/// post the buffer again.
pub(super) fn push(target: &Target) -> CheckResult {
    let mut session = Session::full(target)?;
    if session.ping(0)?.features & feature::PUSHES != feature::PUSHES {
        return Ok(());
    }
    for sequence in 2..5 {
        let handle = session.handle();
        let (own, _) = session.identity(0);
        let info = PingInfo { sequence, ..PingInfo::of(own, feature::KERNEL) };
        let push = Message::put(own, target.nid, 0, PING_BITS, handle, &info.bytes());
        session.send(0, &push)?;
        let (link, ack) = session.message()?;
        judge_answer(&push, &ack)?;
        session.judge_choice(link, &ack)?;
        if ack.mlength() != push.length {
            return Err(format!("{} of {} bytes of a push taken", ack.mlength(), push.length));
        }
    }
    Ok(())
}

pub(super) fn dest_pid(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let request = Message { dest_pid: 999, ..session.ping_request(0, DISCOVERY_SINK) };
    session.send(0, &request)?;
    session.reply_to(&request).map(drop)
}

/// Checks that the answer goes to the identity in the header: a kernel opens a connection for it.
/// An answer on the request's connection is harmless, too; it must then name that identity.
pub(super) fn source_pid(target: &Target) -> CheckResult {
    const PID: u32 = 777;
    let incoming = target.listen()?;
    let mut session = Session::with(target, &[kind::CONTROL])?;
    session.alias = Some(PID);
    let asked = Message { src_pid: PID, ..session.ping_request(0, DISCOVERY_SINK) };
    session.send(0, &asked)?;
    let next = session.ping_request(0, DISCOVERY_SINK);
    session.send(0, &next)?;
    let (_, reply) = session.message()?;
    if reply.handle() == asked.handle() {
        if reply.dest_pid != PID {
            return Err(format!("the answer to PID {PID} went to PID {}", reply.dest_pid));
        }
        return session.reply_to(&next).map(drop);
    }
    judge_answer(&next, &reply)?;
    let mut connected = incoming.accept()?;
    let expected = request(target.own, Order::Little);
    let mut bytes = vec![0; expected.len()];
    connected.read_exact(&mut bytes).map_err(|error| format!("no connection request: {error}"))?;
    if bytes != expected {
        return Err(format!("it connects out with the request {bytes:02x?}"));
    }
    Ok(())
}
