//! Connections that the judge makes as the passive side: for messages without a connection, and
//! against peers that connect at the same time (lnet-wire 24).

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use super::PassiveShared;
use super::conn::serve_frames;
use super::peers::Conn;
use crate::judge::active::{Answer, Target};
use crate::judge::rules::{self, must};
use crate::judge::wire::{Hello, Nid, Order, kind};

/// Opens a connection for a message that no connection may carry, unless the peer's attempt wins.
pub(super) fn connect(shared: &Arc<PassiveShared>, nid: Nid) -> Result<(), String> {
    let version = {
        let mut state = shared.lock();
        state.connecting.insert(nid);
        state.peer(nid)?.version
    };
    let answer = offer(shared, nid, version, kind::CONTROL);
    let lost = match answer {
        Ok(Answer::Accepted(stream, reply)) => keep(shared, stream, reply).map(|()| false),
        Ok(Answer::Refused(_)) => Ok(true),
        Ok(Answer::Closed) => Err(format!("{nid} closed a connection to it")),
        Err(fault) => Err(fault),
    };
    shared.lock().connecting.remove(&nid);
    if !lost? {
        return Ok(());
    }
    let carries = |state: &mut super::PassiveState| match state.peer(nid).map(|peer| peer.carries()) {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(gone) => Some(Err(gone)),
    };
    shared.wait(carries, || format!("{nid} refused a connection, and has made none"))?
}

/// Connects to a peer whose first hello has arrived and waits for its answer, so that both are
/// connecting.
pub(super) fn race(shared: &Arc<PassiveShared>, hello: &Hello) {
    let verdict = if shared.play.nid > hello.src { win(shared, hello) } else { lose(shared, hello) };
    shared.lock().record.note(rules::RACE, verdict);
}

/// Checks that the peer accepts the judge's connections: the judge's NID is the higher one.
fn win(shared: &Arc<PassiveShared>, hello: &Hello) -> Result<(), String> {
    for kind in [kind::CONTROL, kind::BULK_IN, kind::BULK_OUT] {
        match offer(shared, hello.src, hello.version, kind)? {
            Answer::Accepted(stream, reply) => {
                let (here, there) = (reply.src_incarnation, hello.src_incarnation);
                let verdict = must(here == there, || format!("{here:#x}, and {there:#x} where it connects"));
                shared.lock().record.note(rules::INCARNATION, verdict);
                keep(shared, stream, reply)?;
            }
            other => return Err(format!("the {} of a higher NID was {other}", kind::name(kind))),
        }
    }
    Ok(())
}

/// Checks that the peer refuses the judge's connection: the judge's NID is the lower one.
fn lose(shared: &Arc<PassiveShared>, hello: &Hello) -> Result<(), String> {
    match offer(shared, hello.src, hello.version, kind::CONTROL)? {
        Answer::Refused(_) => Ok(()),
        other => Err(format!("the CONTROL of a lower NID was {other}, not answered NONE")),
    }
}

fn offer(shared: &Arc<PassiveShared>, nid: Nid, version: u32, kind: u32) -> Result<Answer, String> {
    let play = &shared.play;
    let to = SocketAddr::new(nid.address(), play.listen.port());
    let target = Target {
        from: play.listen.ip(),
        privileged: play.policy == super::Policy::Secure,
        policy: play.policy,
        patience: play.patience,
        ..Target::new(to, nid, play.nid)
    };
    target.offer(&target.hello(version, kind, shared.incarnation))
}

/// Adds a connection that the peer has accepted.
fn keep(shared: &Arc<PassiveShared>, stream: TcpStream, reply: Hello) -> Result<(), String> {
    let writer = stream.try_clone().map_err(|error| error.to_string())?;
    let number = shared.new_number();
    let conn = Conn { number, kind: kind::inverse(reply.kind), stream: Arc::new(Mutex::new(writer)) };
    shared.lock().add_conn(&reply, conn);
    let shared = shared.clone();
    std::thread::spawn(move || serve_frames(&shared, stream, &reply, Order::Little, number));
    Ok(())
}
