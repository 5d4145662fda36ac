//! One accepted connection, and its frames.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handshake::shake_hands;
use super::peers::{PassiveState, Peer};
use super::{PassiveShared, Stage};
use crate::judge::dial::prepare;
use crate::judge::frame::{Frame, GET, Message, NO_HANDLE, NoFrame, PUT, Prefix, read_frame};
use crate::judge::rules::{self, must};
use crate::judge::session::MIN_BULK;
use crate::judge::verdict::{judge_message, no_checksum};
use crate::judge::wire::{Hello, Nid, Order, PID, kind};

/// A kernel's time limit for request and hello (`accept_timeout`).
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two keepalives of a node, less the possible difference of delays.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);

/// Serves a connection until it ends; `number` is its index.
pub(super) fn serve(shared: &Arc<PassiveShared>, mut stream: TcpStream, number: usize) {
    let _ = prepare(&stream, ACCEPT_TIMEOUT);
    let Some((hello, order)) = shake_hands(shared, &mut stream, number) else {
        // As a kernel: further bytes of the peer are not read.
        shared.changed.notify_all();
        return;
    };
    serve_frames(shared, stream, &hello, order, number);
}

/// Handles the frames of an established connection; `hello` is the peer's.
pub(super) fn serve_frames(
    shared: &Arc<PassiveShared>,
    mut stream: TcpStream,
    hello: &Hello,
    order: Order,
    number: usize,
) {
    shared.changed.notify_all();
    let _ = stream.set_read_timeout(None);
    let (nid, kind) = (hello.src, kind::inverse(hello.kind));
    if shared.play.eager && shared.lock().peers.get(&nid).is_some_and(Peer::is_complete) {
        let shared = shared.clone();
        // A failure is in the record.
        std::thread::spawn(move || shared.discover(nid));
    }
    let ended = loop {
        match read_frame(&mut stream, hello.version, order) {
            Ok(frame) => {
                // The fault is already in the record.
                if handle_frame(shared, hello, kind, &frame).is_err() {
                    break Ok(());
                }
                shared.changed.notify_all();
            }
            Err(NoFrame::End) => break Ok(()),
            Err(NoFrame::Cut(error)) => break Err(format!("the end inside a frame: {error}")),
            Err(NoFrame::Wrong(words)) => break Err(words),
        }
    };
    let mut state = shared.lock();
    state.reading.remove(&number);
    // A connection that this side has closed may end inside a frame.
    let stands =
        state.peers.get(&nid).is_some_and(|peer| peer.conns.iter().any(|conn| conn.number == number));
    if stands {
        if let Err(words) = ended {
            state.record.note(rules::FRAMING, Err(words));
        }
        state.close_peer(nid);
    }
    drop(state);
    let _ = stream.shutdown(std::net::Shutdown::Both);
    shared.changed.notify_all();
}

/// Handles a frame on a connection of this type, in the judge's view. An error closes all
/// connections of the peer.
fn handle_frame(shared: &Arc<PassiveShared>, hello: &Hello, on: u32, frame: &Frame) -> Result<(), String> {
    let nid = hello.src;
    match frame {
        Frame::Noop(prefix) => {
            let mut state = shared.lock();
            state.record.note(rules::FRAMING, Ok(()));
            state.record.note(rules::HEADER, no_checksum(prefix));
            judge_keepalive(&mut state, nid, prefix, on);
            take_acks(&mut state, nid, prefix, on)
        }
        Frame::Lnet(message) => {
            judge(shared, hello, on, message)?;
            if message.dest != shared.play.nid {
                // This node is not a router; a message for a node of the same network is an error.
                let neighbour = message.dest.is_neighbour(shared.play.nid);
                return must(!neighbour, || format!("a message for {}", message.dest));
            }
            shared.respond(nid, message)?;
            if message.prefix.zc_req != 0 {
                acknowledge(shared, nid, message.prefix.zc_req)?;
            }
            Ok(())
        }
    }
}

/// Checks each rule for a message on a connection.
fn judge(shared: &PassiveShared, hello: &Hello, on: u32, message: &Message) -> Result<(), String> {
    let own = (shared.play.nid, PID);
    let name = kind::name(kind::inverse(on));
    let size = message.wire_bytes(hello.version);
    let mut state = shared.lock();
    take_acks(&mut state, hello.src, &message.prefix, on)?;
    let PassiveState { record, peers, .. } = &mut *state;
    let Some(peer) = peers.get_mut(&hello.src) else { return Ok(()) };
    record.note(rules::FRAMING, Ok(()));
    if hello.version == 2 && message.prefix.csum != 0 {
        must(message.prefix.csum == message.checksum(), || "a wrong checksum".to_string())?;
    }
    // A header's source may differ behind a router; there is none here.
    record.note(rules::HEADER, judge_message(message, (hello.src, hello.src_pid), own));
    if shared.play.copies {
        let cookie = message.prefix.zc_req;
        record.note(rules::NO_COOKIE, must(cookie == 0, || format!("cookie {cookie} on {size} bytes")));
    }
    let typed = hello.version >= 3;
    if typed {
        record.note(rules::ACK_ONLY, must(on != kind::BULK_OUT, || format!("a message of {size} bytes")));
    }
    let best = if size < MIN_BULK { kind::CONTROL } else { kind::BULK_IN };
    // Until a peer has seen that a connection is established, it uses another one.
    let knows = peer.has(best) && (peer.settled || best == kind::CONTROL || peer.used.contains(&best));
    if typed && on != kind::BULK_OUT && knows {
        record.note(rules::CONNECTION, must(on == best, || format!("a message of {size} bytes on {name}")));
    }
    peer.used.insert(on);
    judge_handle(record, peer, message);
    Ok(())
}

/// Checks a keepalive: its connection, and the time since the previous one.
fn judge_keepalive(state: &mut PassiveState, nid: Nid, prefix: &Prefix, on: u32) {
    let PassiveState { record, peers, .. } = state;
    let Some(peer) = peers.get_mut(&nid).filter(|_| prefix.is_keepalive()) else { return };
    peer.keepalives += 1;
    let now = Instant::now();
    let pause = peer.kept_alive.replace(now).map(|before| now - before);
    // The peer calls it BULK_IN.
    let verdict = must(on == kind::BULK_OUT || !peer.has(kind::BULK_OUT), || {
        format!("a keepalive on {}", kind::name(kind::inverse(on)))
    })
    .and(must(pause.is_none_or(|pause| pause >= KEEPALIVE_PAUSE), || {
        format!("a keepalive {pause:?} after the one before")
    }));
    record.note(rules::KEEPALIVE, verdict);
}

/// Checks that the handles of a peer's PUTs and GETs begin with the same bytes.
fn judge_handle(record: &mut rules::Record, peer: &mut Peer, message: &Message) {
    let handle = message.handle();
    if !matches!(message.kind, PUT | GET) || message.kind == PUT && handle == NO_HANDLE {
        return;
    }
    let mut interface = [0; 8];
    interface.copy_from_slice(&handle[..8]);
    let known = *peer.interface.get_or_insert(interface);
    let verdict = must(handle != NO_HANDLE, || "a GET without handle".to_string())
        .and(must(known == interface, || format!("interface cookie {interface:02x?} after {known:02x?}")));
    record.note(rules::HANDLES, verdict);
}

/// Checks that each acknowledgement was requested (lnet-wire 26).
fn take_acks(state: &mut PassiveState, nid: Nid, prefix: &Prefix, on: u32) -> Result<(), String> {
    for cookie in prefix.acked() {
        let PassiveState { record, peers, .. } = state;
        let Some(peer) = peers.get_mut(&nid) else { return Ok(()) };
        let Some(sent_on) = peer.outstanding.remove(&cookie) else {
            let words = format!("cookie {cookie} acknowledged, which was not asked for");
            record.note(rules::ZC_ACK, Err(words.clone()));
            return Err(words);
        };
        let [used, due] = [on, sent_on].map(kind::inverse).map(kind::name);
        let verdict = must(used == due, || format!("cookie {cookie} of {due} acknowledged on {used}"));
        record.note(rules::ZC_ACK, verdict);
    }
    Ok(())
}

/// Acknowledges a peer's zero-copy request: on BULK_IN, as a kernel does, or on another connection
/// if there is none.
fn acknowledge(shared: &PassiveShared, nid: Nid, cookie: u64) -> Result<(), String> {
    let stream = {
        let mut state = shared.lock();
        let peer = state.peer(nid)?;
        let conn =
            peer.conns.iter().find(|conn| conn.kind == kind::BULK_IN).or_else(|| peer.choose(kind::CONTROL));
        conn.map(|conn| conn.stream.clone()).ok_or("no connection for an acknowledgement")?
    };
    let noop = Prefix::noop(0, cookie);
    shared.write(&stream, Stage::Frame, noop.bytes(Order::Little))
}
