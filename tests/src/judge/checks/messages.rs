//! Messages without effect, and messages that close all connections.

use super::CheckResult;
use crate::judge::active::Target;
use crate::judge::frame::{ACK, GET, Message, NO_HANDLE, PAYLOAD_MAX, PUT, Prefix};
use crate::judge::session::Session;
use crate::judge::wire::{Nid, Order, kind};

/// A portal without buffers for these match bits.
pub(super) const NOWHERE: (u32, u64) = (62, 0x6a75_6467_6500_0000);

/// Checks that a PUT or GET that matches no buffer has no effect: no answer, and the connection
/// remains.
pub(super) fn no_buffer(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let (own, pid) = session.identity(0);
    let (portal, bits) = NOWHERE;
    for length in [0, 1, 100, 4096, 65_536] {
        let handle = session.handle();
        let put = Message::put(own, target.nid, portal, bits, handle, &vec![0xa5; length]);
        session.send(0, &Message { src_pid: pid, ..put })?;
    }
    for (portal, bits) in [NOWHERE, (64, 0), (u32::MAX, u64::MAX)] {
        let handle = session.handle();
        let get = Message::get(own, target.nid, portal, bits, handle, 4096);
        session.send(0, &Message { src_pid: pid, ..get })?;
        let put = Message::put(own, target.nid, portal, bits, handle, b"nobody wants this");
        session.send(0, &Message { src_pid: pid, ..put })?;
    }
    // ACKs and REPLYs without a request, as after a restart.
    let get = Message { src: target.nid, dest: own, ..session.ping_request(0, 0) };
    for kind in [ACK, crate::judge::frame::REPLY] {
        let stray = get.answer(kind, own, b"");
        session.send(0, &Message { dest: target.nid, src_pid: pid, dest_pid: 12345, ..stray })?;
    }
    session.ping(0).map(drop)
}

pub(super) fn keepalive(target: &Target) -> CheckResult {
    let mut session = Session::full(target)?;
    for link in 0..3 {
        session.send_noop(link, 0, 1)?;
        session.send_noop(link, 1, 1)?;
    }
    session.ping(0)?;
    for link in 0..3 {
        session.send_noop(link, 0, 1)?;
    }
    session.ping(0).map(drop)
}

/// Checks that the end of one connection makes the node close all connections of the peer.
pub(super) fn close_all(target: &Target) -> CheckResult {
    for link in 0..3 {
        let mut session = Session::full(target)?;
        session.ping(0)?;
        session.shut(link);
        session.expect_ends()?;
    }
    Ok(())
}

/// Checks that the node closes the connections of a peer that sends an invalid frame.
pub(super) fn bad_frame(target: &Target) -> CheckResult {
    let little = Order::Little;
    let put = |own| Message::put(own, target.nid, NOWHERE.0, NOWHERE.1, NO_HANDLE, b"");
    let neighbour = target.nid.turned(0x80);
    let bytes = |message: Message| message.bytes(target.version(), little);
    type Make<'m> = &'m dyn Fn(Nid) -> Vec<u8>;
    let cases: [(&str, Make<'_>); 8] = [
        ("a prefix of type 0xc2", &|_| Prefix { kind: 0xc2, ..Prefix::default() }.bytes(little)),
        ("a prefix of type 0", &|_| Prefix::default().bytes(little)),
        ("a GET with payload", &|own| bytes(Message { kind: GET, length: 1, ..put(own) })),
        ("an ACK with payload", &|own| bytes(Message { kind: ACK, length: 1, ..put(own) })),
        ("a PUT above 1 MiB", &|own| bytes(Message { kind: PUT, length: PAYLOAD_MAX + 1, ..put(own) })),
        ("a HELLO", &|own| bytes(Message { kind: 4, ..put(own) })),
        ("type 5", &|own| bytes(Message { kind: 5, ..put(own) })),
        ("a PUT for a neighbour", &|own| bytes(Message { dest: neighbour, ..put(own) })),
    ];
    for (name, make) in cases {
        let kinds: &[u32] =
            if target.believes() { &[kind::CONTROL, kind::BULK_IN] } else { &[kind::CONTROL] };
        let mut session = Session::with(target, kinds)?;
        let bytes = make(session.identity(0).0);
        session.send_bytes(0, &bytes)?;
        session.expect_ends().map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}

pub(super) fn checksum(target: &Target) -> CheckResult {
    let mut session = Session::new(target);
    session.version = 2;
    let control = session.open(kind::CONTROL)?;
    let (own, _) = session.identity(control);
    for length in [0, 1, 5000] {
        let mut put = Message::put(own, target.nid, NOWHERE.0, NOWHERE.1, NO_HANDLE, &vec![0x5a; length]);
        put.prefix.csum = put.checksum();
        session.send(control, &put)?;
    }
    let mut request = session.ping_request(control, 272);
    request.prefix.csum = request.checksum();
    session.send(control, &request)?;
    session.reply_to(&request)?;
    // The checksum is verified when the payload is complete; a request in the header may have been
    // answered before.
    let mut wrong = Message::put(own, target.nid, NOWHERE.0, NOWHERE.1, NO_HANDLE, &[0x5a; 5000]);
    wrong.prefix.csum = wrong.checksum() ^ 1;
    session.send(control, &wrong)?;
    session.expect_ends()
}

/// Checks that the node drops a message for another node, and that the connection remains.
pub(super) fn not_a_router(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::CONTROL])?;
    let (own, _) = session.identity(0);
    let elsewhere = target.nid.elsewhere(0x0bad);
    let handle = session.handle();
    session.send(0, &Message::put(own, elsewhere, 1, 1, handle, b"on my way"))?;
    session.send(0, &Message::get(own, elsewhere, 1, 1, handle, 100))?;
    session.ping(0).map(drop)
}
