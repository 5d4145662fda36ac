//! Peers from unprivileged ports (lnet-wire 27).

use super::CheckResult;
use crate::judge::active::{Answer, Target, expect_end};
use crate::judge::session::Session;
use crate::judge::wire::{Order, kind, request};

/// Checks that the node closes a connection without an answer, whatever bytes it receives.
pub(super) fn secure(target: &Target) -> CheckResult {
    expect_end(&mut target.say(&[])?)?;
    let hello = target.hello(target.version(), kind::CONTROL, 1).bytes(Order::Little);
    expect_end(&mut target.say(&[request(target.nid, Order::Little), hello].concat())?)
}

/// Checks that the node identifies the judge by its port, although the hello claims another
/// identity: hello and answers are compared with the identity of the port.
pub(super) fn identity(target: &Target) -> CheckResult {
    for own in [(target.own.turned(0x0100), 12345), (target.own, 4242), (target.nid, 12345)] {
        let mut session = Session::new(target);
        session.own = own;
        let control = session.open(kind::CONTROL)?;
        session.ping(control)?;
    }
    Ok(())
}

/// Checks that a second CONTROL from another port with the same claimed identity is not a
/// duplicate.
pub(super) fn ports(target: &Target) -> CheckResult {
    let mut first = Session::with(target, &[kind::CONTROL])?;
    let mut second = Session::new(target);
    match second.offer(kind::CONTROL)? {
        Answer::Accepted(stream, reply) => second.take(stream, kind::CONTROL, reply.src_incarnation)?,
        other => return Err(format!("a connection from another port was {other}")),
    };
    second.ping(0)?;
    first.ping(0)?;
    drop(second);
    first.ping(0).map(drop)
}
