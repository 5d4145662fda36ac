//! Hellos that are accepted.

use std::io::Write;
use std::net::Ipv4Addr;

use super::CheckResult;
use crate::judge::active::{Answer, Target};
use crate::judge::session::Session;
use crate::judge::wire::{Hello, Order, kind, request, request_v2 as v2_request};

pub(super) fn v2(target: &Target) -> CheckResult {
    version(target, 2)
}

pub(super) fn v3(target: &Target) -> CheckResult {
    version(target, 3)
}

pub(super) fn v4(target: &Target) -> CheckResult {
    version(target, 4)
}

/// Checks the length of a large hello: `Hello::read` reads exactly the bytes of the version, and
/// with one more or less the next frame could not be read.
pub(super) fn large(target: &Target) -> CheckResult {
    version(target, 4)
}

/// Checks that the node accepts a hello of this version and uses it: the answer to a ping has a
/// header of the version.
fn version(target: &Target, version: u32) -> CheckResult {
    let mut session = Session::new(target);
    session.version = version;
    let control = session.open(kind::CONTROL)?;
    session.ping(control).map(drop)
}

pub(super) fn request_v2(target: &Target) -> CheckResult {
    for version in [3, 4] {
        let mut session = Session::new(target);
        session.version = version;
        accept_behind(&mut session, target, v2_request(target.nid, Order::Little))?;
    }
    Ok(())
}

/// Opens CONTROL after the given request, and pings.
fn accept_behind(session: &mut Session<'_>, target: &Target, request: Vec<u8>) -> CheckResult {
    let hello = session.hello(kind::CONTROL);
    accept_bytes(session, target, &hello, &[request, hello.bytes(session.order)].concat())
}

/// Opens CONTROL with the given bytes, which encode this hello, and pings.
fn accept_bytes(session: &mut Session<'_>, target: &Target, hello: &Hello, bytes: &[u8]) -> CheckResult {
    match target.offer_bytes(hello, bytes)? {
        Answer::Accepted(stream, reply) => {
            let control = session.take(stream, kind::CONTROL, reply.src_incarnation)?;
            session.ping(control).map(drop)
        }
        other => Err(other.to_string()),
    }
}

/// Fields that a receiver does not check: its PID and its incarnation.
pub(super) fn unchecked(target: &Target) -> CheckResult {
    for (dst_pid, dst_incarnation) in [(999, 0), (0, 999)] {
        let mut session = Session::new(target);
        let hello = Hello { dst_pid, dst_incarnation, ..session.hello(kind::CONTROL) };
        let bytes = [request(target.nid, Order::Little), hello.bytes(Order::Little)].concat();
        accept_bytes(&mut session, target, &hello, &bytes)
            .map_err(|fault| format!("for PID {dst_pid}, incarnation {dst_incarnation}: {fault}"))?;
    }
    Ok(())
}

/// Checks that each connection type is accepted. `Target::offer` compares each answer with the
/// expected one; the session compares the incarnation when it adds a connection.
pub(super) fn types(target: &Target) -> CheckResult {
    let mut session = Session::full(target)?;
    session.ping(0)?;
    // The node accepts another order as well, and each type alone.
    drop(session);
    drop(Session::with(target, &[kind::BULK_OUT, kind::CONTROL, kind::BULK_IN])?);
    drop(Session::with(target, &[kind::BULK_IN])?);
    drop(Session::with(target, &[kind::BULK_OUT])?);
    Ok(())
}

/// Checks that big-endian peers are served. V4 has no numbers that kernels forget to swap. Prefixes
/// are in the sender's byte order, LNet's headers never.
pub(super) fn swapped(target: &Target) -> CheckResult {
    let mut session = Session::new(target);
    session.version = 4;
    session.order = Order::Big;
    let control = session.open(kind::CONTROL)?;
    session.ping(control)?;
    session.ping(control)?;
    drop(session);
    accept_behind(&mut Session::new(target), target, request(target.nid, Order::Big))
}

pub(super) fn addresses(target: &Target) -> CheckResult {
    let mut session = Session::new(target);
    let mut hello = session.hello(kind::CONTROL);
    hello.addresses = (1..=16).map(|last| u32::from(Ipv4Addr::new(192, 0, 2, last))).collect();
    let bytes = [request(target.nid, Order::Little), hello.bytes(Order::Little)].concat();
    accept_bytes(&mut session, target, &hello, &bytes)
}

/// Checks that a handshake and a message are accepted with every byte in a separate segment.
pub(super) fn pieces(target: &Target) -> CheckResult {
    let mut session = Session::new(target);
    let hello = session.hello(kind::CONTROL);
    let request = request(target.nid, Order::Little);
    let mut stream = target.dial()?;
    let mut rest = [request, hello.bytes(Order::Little)].concat();
    let last = rest.pop();
    for byte in rest {
        stream.write_all(&[byte]).map_err(|error| format!("closed within the handshake: {error}"))?;
    }
    // The reply cannot come before the last byte.
    stream.write_all(last.as_slice()).map_err(|error| error.to_string())?;
    let (reply, _) = Hello::read(&mut stream).map_err(|bad| format!("it answered {bad}"))?;
    let control = session.take(stream, kind::CONTROL, reply.src_incarnation)?;
    let request = session.ping_request(control, 272);
    for byte in request.bytes(session.version, Order::Little) {
        session.send_bytes(control, &[byte])?;
    }
    session.reply_to(&request).map(drop)
}

pub(super) fn foreign_source(target: &Target) -> CheckResult {
    let mut session = Session::new(target);
    session.own.0 = target.own.turned(0x5500);
    let control = session.open(kind::CONTROL)?;
    session.ping(control).map(drop)
}

/// Checks a connection of type ANY beside CONTROL. With ANY alone the node has no connection for
/// answers; it answers requests from ANY on CONTROL.
pub(super) fn type_any(target: &Target) -> CheckResult {
    let mut session = Session::with(target, &[kind::ANY, kind::CONTROL])?;
    session.ping(0)?;
    session.ping(0).map(drop)
}
