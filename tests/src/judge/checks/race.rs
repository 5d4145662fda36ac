//! Two nodes that connect to each other at once (lnet-wire 24).

use std::io::{Read, Write};

use super::CheckResult;
use crate::judge::active::{Answer, Target};
use crate::judge::session::{DISCOVERY_SINK, Session};
use crate::judge::wire::{Hello, Order, kind, request};

/// Checks a connection race. The node may not answer on its BULK_IN, so it connects. While it waits
/// for the judge's hello, the judge offers a connection in the other direction. The answer must
/// come over the connection that wins.
pub(super) fn race(target: &Target) -> CheckResult {
    let incoming = target.listen()?;
    let mut session = Session::with(target, &[kind::BULK_OUT])?;
    let asked = session.ping_request(0, DISCOVERY_SINK);
    session.send(0, &asked)?;
    let mut theirs = incoming.accept()?;
    let mut named = request(target.own, Order::Little);
    theirs.read_exact(&mut named).map_err(|error| format!("no connection request: {error}"))?;
    let (hello, _) = Hello::read(&mut theirs).map_err(|bad| bad.to_string())?;
    let said = (&named, hello.version, hello.src, hello.dst, hello.kind);
    if said != (&request(target.own, Order::Little), session.version, target.nid, target.own, kind::CONTROL) {
        return Err(format!("it connects with the request {named:02x?} and {hello:?}"));
    }
    let wins = target.own > target.nid;
    let mine = session.offer(kind::CONTROL)?;
    let answer = session.hello(if wins { kind::NONE } else { kind::CONTROL }).bytes(Order::Little);
    match mine {
        Answer::Accepted(mine, reply) if wins => {
            theirs.write_all(&answer).map_err(|error| error.to_string())?;
            drop(theirs);
            session.take(mine, kind::CONTROL, reply.src_incarnation)?
        }
        Answer::Refused(_) if !wins => {
            theirs.write_all(&answer).map_err(|error| error.to_string())?;
            session.take(theirs, kind::CONTROL, hello.src_incarnation)?
        }
        other => {
            let rank = if wins { "higher" } else { "lower" };
            return Err(format!("the connection of a {rank} NID was {other} while the node connected"));
        }
    };
    session.reply_to(&asked).map(drop)
}
