//! Bulk messages, and the acknowledgements of zero-copy requests.

use std::collections::BTreeSet;

use super::CheckResult;
use super::messages::NOWHERE;
use crate::judge::active::Target;
use crate::judge::frame::{Frame, Message, NO_HANDLE, frame_bytes};
use crate::judge::session::{MIN_BULK, Session};
use crate::judge::verdict::judge_answer;
use crate::judge::wire::kind;

/// The size in bytes from which a kernel requests zero-copy acks.
const ZC_MIN: usize = 16_384;

pub(super) fn stray_ack(target: &Target) -> CheckResult {
    for (zc_req, zc_ack) in [(0, 99), (100, 99), (98, 99)] {
        let mut session = Session::full(target)?;
        session.send_noop(1, zc_req, zc_ack)?;
        session.expect_ends().map_err(|fault| format!("cookies {zc_req} and {zc_ack}: {fault}"))?;
    }
    Ok(())
}

/// Checks that each cookie of bulk messages on the judge's BULK_OUT is acknowledged once, on that
/// connection, although no buffer matches the messages.
pub(super) fn zc_ack(target: &Target) -> CheckResult {
    let mut session = Session::full(target)?;
    let (own, _) = session.identity(0);
    let mut wanted = BTreeSet::new();
    for (cookie, length) in (2..).zip([65_536, 1 << 20, ZC_MIN, 65_536, 1 << 20, 1 << 20]) {
        let put = Message::put(own, target.nid, NOWHERE.0, NOWHERE.1, NO_HANDLE, &vec![cookie as u8; length]);
        session.send(2, &put.with_cookie(cookie))?;
        wanted.insert(cookie);
    }
    collect_acks(&mut session, &mut wanted, 2)?;
    session.ping(0).map(drop)
}

/// Checks that the next frames acknowledge these cookies, each once, on this connection.
fn collect_acks(session: &mut Session<'_>, wanted: &mut BTreeSet<u64>, on: usize) -> CheckResult {
    while !wanted.is_empty() {
        match session.next_frame()? {
            (link, Frame::Noop(prefix)) => {
                if link != on {
                    return Err(format!("cookies {:?} acknowledged on another connection", prefix.acked()));
                }
                for cookie in prefix.acked() {
                    if !wanted.remove(&cookie) {
                        return Err(format!("cookie {cookie} acknowledged twice, or never given"));
                    }
                }
            }
            (_, Frame::Lnet(message)) => return Err(format!("a message of type {}", message.kind)),
        }
    }
    Ok(())
}

/// Checks that the only connection of a peer carries all messages, and that the node makes no
/// other: after a ping it has not connected.
pub(super) fn zc_control(target: &Target) -> CheckResult {
    let incoming = target.listen()?;
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let (own, pid) = session.identity(0);
    for cookie in 2..6 {
        let put = Message::put(own, target.nid, NOWHERE.0, NOWHERE.1, NO_HANDLE, &[7; 65_536]);
        session.send(0, &Message { src_pid: pid, ..put.with_cookie(cookie) })?;
    }
    collect_acks(&mut session, &mut (2..6).collect(), 0)?;
    session.ping(0)?;
    match incoming.none() {
        true => Ok(()),
        false => Err("it connected back, though CONTROL was open".to_string()),
    }
}

/// Checks PUT, ACK, GET and REPLY with the node's buffer: the GET returns the bytes of the PUT, and
/// each message is on the right connection.
pub(super) fn bulk(target: &Target) -> CheckResult {
    let Some((portal, bits)) = target.buffer else { return Ok(()) };
    let mut session = Session::full(target)?;
    let (own, _) = session.identity(0);
    let bulk_from = MIN_BULK - frame_bytes(session.version);
    for (cookie, length) in
        (2..).zip([0, 1, bulk_from - 1, bulk_from, 4096, ZC_MIN, 65_536, (1 << 20) - 1, 1 << 20])
    {
        let payload: Vec<u8> =
            (0..length).map(|at: usize| (at as u64 * cookie + (at as u64 >> 8)) as u8).collect();
        let handle = session.handle();
        let put = Message::put(own, target.nid, portal, bits, handle, &payload);
        let is_bulk = put.wire_bytes(session.version) >= MIN_BULK;
        let asks = length >= ZC_MIN;
        let put = if asks { put.with_cookie(cookie) } else { put };
        session.send(if is_bulk { 2 } else { 0 }, &put)?;
        expect_ack(&mut session, &put, asks).map_err(|fault| format!("PUT of {length} bytes: {fault}"))?;
        let handle = session.handle();
        let get = Message::get(own, target.nid, portal, bits, handle, length as u32);
        session.send(0, &get)?;
        let reply = session.reply_to(&get).map_err(|fault| format!("GET of {length} bytes: {fault}"))?;
        if reply.payload != payload {
            return Err(format!("GET of {length} bytes: other bytes came back"));
        }
    }
    Ok(())
}

/// Waits for the ACK of a PUT on CONTROL, and for its zero-copy acknowledgement on the bulk
/// connection, in either order.
fn expect_ack(session: &mut Session<'_>, put: &Message, asks: bool) -> CheckResult {
    let (mut acked, mut noop) = (false, !asks);
    while !(acked && noop) {
        match session.next_frame()? {
            (2, Frame::Noop(prefix)) if !noop && prefix.acked() == [put.prefix.zc_req] => noop = true,
            (link, Frame::Lnet(ack)) if !acked => {
                judge_answer(put, &ack)?;
                session.judge_choice(link, &ack)?;
                if ack.mlength() != put.length {
                    return Err(format!("{} bytes acknowledged", ack.mlength()));
                }
                acked = true;
            }
            (link, frame) => return Err(format!("{frame:x?} on connection {link}")),
        }
    }
    Ok(())
}
