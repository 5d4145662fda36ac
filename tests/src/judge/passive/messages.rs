//! The messages that the judge sends as the passive side: requests and answers.

use std::io::Write;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::peers::{Peer, Writer, not_connected};
use super::{PassiveShared, Stage, outgoing};
use crate::judge::frame::{ACK, GET, Message, NO_HANDLE, PING_BITS, PUT, REPLY};
use crate::judge::info::{PingInfo, feature};
use crate::judge::rules;
use crate::judge::session::{DISCOVERY_SINK, MIN_BULK};
use crate::judge::verdict::judge_answer;
use crate::judge::wire::{Nid, Order, kind};

/// The delay after its ACK with which a kernel pushes back (measured).
const PUSH_BACK_AFTER: Duration = Duration::from_millis(3);

impl PassiveShared {
    pub(super) fn discover(self: &Arc<Self>, nid: Nid) -> Result<(), String> {
        let own = self.play.nid;
        let (handle, complete) = {
            let mut state = self.lock();
            let peer = state.peer(nid)?;
            if peer.discovered {
                return Ok(());
            }
            (peer.new_handle(self.incarnation), peer.is_complete())
        };
        let answered = self.ask(nid, &Message::get(own, nid, 0, PING_BITS, handle, DISCOVERY_SINK))?;
        let info = self.judge_table(nid, &answered);
        if info?.features & feature::PUSHES == feature::PUSHES {
            let ack = self.push(nid);
            self.lock().record.note(rules::PUSH, ack.map(drop));
        }
        let mut state = self.lock();
        let peer = state.peer(nid)?;
        peer.discovered = true;
        // The peer has answered after all three hellos, so it has seen its connections established.
        peer.settled |= complete;
        Ok(())
    }

    /// Handles a push: if this node has not discovered the peer yet, it pushes back after a delay.
    fn push_back_later(self: &Arc<Self>, nid: Nid) -> Result<(), String> {
        let mut state = self.lock();
        if state.peer(nid)?.discovered || !state.pushed_back.insert(nid) {
            return Ok(());
        }
        state.pushing_back += 1;
        let shared = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(PUSH_BACK_AFTER);
            let acknowledged = shared.push(nid).map(drop);
            let mut state = shared.lock();
            state.record.note(rules::PUSH_BACK, acknowledged);
            state.pushing_back -= 1;
            drop(state);
            shared.changed.notify_all();
        });
        Ok(())
    }

    /// Sends a push; returns the ACK.
    fn push(self: &Arc<Self>, nid: Nid) -> Result<Message, String> {
        let own = self.play.nid;
        let handle = self.lock().peer(nid)?.new_handle(self.incarnation);
        let info = PingInfo::of(own, feature::KERNEL);
        self.ask(nid, &Message::put(own, nid, 0, PING_BITS, handle, &info.bytes()))
    }

    /// Checks a peer's ping information, in an answer or a push.
    fn judge_table(&self, nid: Nid, message: &Message) -> Result<PingInfo, String> {
        let info = PingInfo::parse(&message.payload);
        let verdict = info.clone().and_then(|info| {
            let known = info.nis.iter().any(|&(listed, _)| listed == nid);
            rules::must(known && info.sequence > 0, || format!("wrong ping information {info:x?}"))
        });
        self.lock().record.note(rules::PING, verdict);
        info
    }

    /// Sends a PUT or GET; returns its answer once the zero-copy ack has arrived, too.
    pub(super) fn ask(self: &Arc<Self>, nid: Nid, asked: &Message) -> Result<Message, String> {
        let handle = asked.handle();
        self.lock().asked.insert((nid, handle), None);
        let cookie = self.send(nid, asked)?;
        let what = if asked.kind == GET { "REPLY" } else { "ACK" };
        let waits = |peer: &Peer| cookie.is_some_and(|cookie| peer.outstanding.contains_key(&cookie));
        let answered = self.wait(
            |state| {
                let answer = state.asked.get(&(nid, handle)).cloned().flatten();
                match state.peers.get(&nid) {
                    Some(peer) => answer.filter(|_| !waits(peer)).map(Ok),
                    // An answer that came before the end may still be unread.
                    None if answer.is_none() && state.reading.values().any(|&read| read == nid) => None,
                    None => Some(answer.filter(|_| cookie.is_none()).ok_or_else(|| not_connected(nid))),
                }
            },
            || format!("no {what}, or no zero-copy ack of cookie {cookie:?}"),
        );
        let mut state = self.lock();
        let answered = match answered {
            Ok(answered) => answered?,
            Err(missing) => {
                let rule = match state.peers.get(&nid).is_some_and(waits) {
                    true => rules::ZC_ACK,
                    _ if asked.is_ping() => rules::PING,
                    _ if asked.is_push() => rules::PUSH,
                    _ => rules::ANSWERS,
                };
                state.record.note(rule, Err(missing.clone()));
                return Err(missing);
            }
        };
        let verdict = judge_answer(asked, &answered);
        state.record.note(rules::ANSWERS, verdict.clone());
        verdict.map(|()| answered)
    }

    /// Sends a message on the connection that a kernel would use; returns the cookie of its
    /// zero-copy request, if any.
    fn send(self: &Arc<Self>, nid: Nid, message: &Message) -> Result<Option<u64>, String> {
        let carries = self.lock().peer(nid)?.carries();
        if !carries {
            outgoing::connect(self, nid)?;
        }
        let (bytes, stream, cookie) = {
            let mut state = self.lock();
            let peer = state.peer(nid)?;
            let is_bulk = message.wire_bytes(peer.version) >= MIN_BULK;
            let conn = peer.choose(if is_bulk { kind::BULK_OUT } else { kind::CONTROL });
            let (stream, on) =
                conn.map(|conn| (conn.stream.clone(), conn.kind)).ok_or("no connection for it")?;
            let cookie = (message.payload.len() >= 16_384).then(|| peer.new_cookie(on));
            let message = message.clone().with_cookie(cookie.unwrap_or(0));
            (message.bytes(peer.version, Order::Little), stream, cookie)
        };
        self.write(&stream, Stage::Frame, bytes)?;
        Ok(cookie)
    }

    pub(super) fn write(&self, stream: &Writer, stage: Stage, mut bytes: Vec<u8>) -> Result<(), String> {
        if let Some(tamper) = &self.play.tamper {
            tamper(stage, &mut bytes);
        }
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&bytes).map_err(|error| format!("cannot send: {error}"))
    }

    /// Handles a message for this node as a kernel does.
    pub(super) fn respond(self: &Arc<Self>, nid: Nid, message: &Message) -> Result<(), String> {
        let own = self.play.nid;
        match message.kind {
            ACK | REPLY => {
                let mut state = self.lock();
                let known = match state.asked.get_mut(&(nid, message.handle())) {
                    Some(place @ None) => {
                        *place = Some(message.clone());
                        true
                    }
                    _ => false,
                };
                let words = || format!("a message of type {} with an unknown handle", message.kind);
                // The requester checks the rest of it.
                if !known {
                    state.record.note(rules::ANSWERS, Err(words()));
                }
                Ok(())
            }
            GET if message.is_ping() => {
                let mut info = PingInfo::of(own, feature::KERNEL).bytes();
                info.truncate(message.sink() as usize);
                self.send(nid, &message.answer(REPLY, own, &info)).map(drop)
            }
            PUT => {
                if message.is_push() {
                    // A kernel acknowledges a push whatever it contains.
                    let _ = self.judge_table(nid, message);
                }
                let kept = message.is_push() || self.lock().store(message);
                if kept && message.handle() != NO_HANDLE {
                    self.send(nid, &message.answer(ACK, own, &[]))?;
                }
                if message.is_push() && self.play.pushes_back {
                    self.push_back_later(nid)?;
                }
                Ok(())
            }
            _ => {
                let stored = self.lock().stored(message);
                stored.map_or(Ok(()), |bytes| self.send(nid, &message.answer(REPLY, own, &bytes)).map(drop))
            }
        }
    }
}
