//! One accepted connection: its handshake (lnet-wire 21 to 24), and what comes on it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::peers::{Conn, Peer, State, Writer};
use super::{Shared, Stage, outgoing};
use crate::judge::active::Policy;
use crate::judge::dial::{PRIVILEGED_MIN, prepare};
use crate::judge::frame::{Frame, GET, Message, NO_HANDLE, NoFrame, PUT, Prefix, read_frame};
use crate::judge::rules::{self, Rule, must};
use crate::judge::session::{MIN_BULK, judge_message, no_checksum};
use crate::judge::wire::{
    ACCEPTOR_MAGIC, BadHello, Hello, LNET_MAGIC, Nid, Order, PID, PRIVILEGED_MAX, kind, request, request_v1,
    request_v2,
};

/// How long a kernel waits for request and hello (`accept_timeout`).
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the shorter of the two requests.
const REQUEST_V1: usize = 16;

/// How long a node waits from one keepalive to the next, less what the system may delay the one and not the other.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);

/// Serves a connection until it ends; it is the `number`th.
pub(super) fn serve(shared: &Arc<Shared>, mut stream: TcpStream, number: usize) {
    let _ = prepare(&stream, ACCEPT_TIMEOUT);
    let Some((hello, order)) = shake_hands(shared, &mut stream, number) else {
        // As a kernel: what the peer has still to say is not read.
        shared.changed.notify_all();
        return;
    };
    converse(shared, stream, &hello, order, number);
}

/// Hears what comes on a connection that stands; `hello` is the peer's.
pub(super) fn converse(
    shared: &Arc<Shared>,
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
        // Whether it is right stands in the record.
        std::thread::spawn(move || shared.discover(nid));
    }
    let ended = loop {
        match read_frame(&mut stream, hello.version, order) {
            Ok(frame) => {
                // What is wrong with it stands in the record by now.
                if heard(shared, hello, kind, &frame).is_err() {
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
    // What this side has closed itself is cut wherever it was.
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

/// Takes the connection, or refuses it as a kernel does.
fn shake_hands(shared: &Arc<Shared>, stream: &mut TcpStream, number: usize) -> Option<(Hello, Order)> {
    let port = stream.peer_addr().ok()?.port();
    let play = &shared.play;
    if play.policy == Policy::Secure {
        let privileged = (PRIVILEGED_MIN..=PRIVILEGED_MAX).contains(&port);
        let verdict = must(privileged, || format!("a connection from port {port}"));
        if !note(shared, rules::SOURCE_PORT, verdict) {
            return None;
        }
    }
    take_request(shared, stream)?;
    let (hello, order) = match Hello::read(stream) {
        Ok(read) => read,
        Err(BadHello::Version(version)) => {
            note(shared, rules::HELLO, Err(format!("version {version}")));
            answer(shared, stream, &own_hello(shared, play.nid.version(), Nid::ANY, kind::NONE));
            return None;
        }
        Err(bad) => {
            note(shared, rules::HELLO, Err(bad.to_string()));
            return None;
        }
    };
    let known_kind = matches!(hello.kind, kind::ANY | kind::CONTROL | kind::BULK_IN | kind::BULK_OUT);
    if hello.src == Nid::ANY || !known_kind {
        note(shared, rules::HELLO, Err(format!("{hello:?}")));
        return None;
    }
    let mut state = shared.lock();
    judge_hello(&mut state, shared, &hello, order);
    let races = play.race && state.raced.insert(hello.src);
    if races {
        drop(state);
        outgoing::race(shared, &hello);
        state = shared.lock();
    }
    let own_kind = kind::inverse(hello.kind);
    let connects = races || state.connecting.contains(&hello.src);
    let reply = match state.peers.get(&hello.src) {
        // lnet-wire 24: the higher NID's own connection wins.
        _ if connects && play.nid > hello.src => kind::NONE,
        Some(peer) if (peer.version, peer.incarnation) != (hello.version, hello.src_incarnation) => {
            // A restarted peer, or one that says another number each time: the latter never gets its connections.
            let words = || format!("{:#x} beside {:#x}", hello.src_incarnation, peer.incarnation);
            let verdict = Err(words());
            state.record.note(rules::INCARNATION, verdict);
            state.close_peer(hello.src);
            kind::NONE
        }
        Some(peer) if peer.has(own_kind) => kind::NONE,
        _ => own_kind,
    };
    if reply == kind::NONE {
        drop(state);
        answer(shared, stream, &own_hello(shared, hello.version, hello.src, kind::NONE));
        return None;
    }
    let writer: Writer = Arc::new(Mutex::new(stream.try_clone().ok()?));
    // The hello is the first on the connection, before anybody who finds it in the table sends on it.
    answer(shared, stream, &own_hello(shared, hello.version, hello.src, own_kind));
    let peer = state.add_conn(&hello, Conn { number, kind: own_kind, stream: writer });
    if peer.conns.len() == 3 && peer.is_complete() {
        peer.conns.sort_unstable_by_key(|conn| conn.number);
        // The types as the peer calls them.
        let kinds: Vec<u32> = peer.conns.iter().map(|conn| kind::inverse(conn.kind)).collect();
        let right = kinds == [kind::CONTROL, kind::BULK_IN, kind::BULK_OUT];
        state.record.note(rules::ORDER, must(right, || format!("{kinds:?}")));
        state.record.note(rules::INCARNATION, Ok(()));
    }
    Some((hello, order))
}

/// Reads the connection request; `None` if the connection is over.
fn take_request(shared: &Shared, stream: &mut TcpStream) -> Option<()> {
    let own = shared.play.nid;
    let expected = request(own, Order::Little);
    let mut bytes = vec![0; REQUEST_V1];
    let mut read = stream.read_exact(&mut bytes);
    // Of a request of another version no more is read before it is known for one.
    if read.is_ok() && bytes[..8] == expected[..8] {
        bytes.resize(expected.len(), 0);
        read = stream.read_exact(&mut bytes[REQUEST_V1..]);
    }
    if let Err(error) = read {
        note(shared, rules::REQUEST, Err(format!("no request: {error}")));
        return None;
    }
    let verdict = must(bytes == expected, || format!("the request {bytes:02x?}"));
    if note(shared, rules::REQUEST, verdict) {
        return Some(());
    }
    let orders = [Order::Little, Order::Big];
    let magic = |magic| orders.into_iter().find(|order| order.u32_at(&bytes, 0) == magic);
    if let Some(order) = magic(ACCEPTOR_MAGIC) {
        match order.u32_at(&bytes, 4) {
            1 => return (!own.is_large() && bytes == request_v1(own, order)).then_some(()),
            2 => {
                let mut rest = vec![0; request_v2(own, order).len() - bytes.len()];
                stream.read_exact(&mut rest).ok()?;
                return ([bytes, rest].concat() == request_v2(own, order)).then_some(());
            }
            _ => {}
        }
    } else {
        magic(LNET_MAGIC)?;
    }
    let little = Order::Little;
    let _ = stream.write_all(&[&little.u32(ACCEPTOR_MAGIC)[..], &little.u32(1), &[0; 8]].concat());
    None
}

/// What a kernel takes but never sends is a violation as well.
fn judge_hello(state: &mut State, shared: &Shared, hello: &Hello, order: Order) {
    let first = !state.peers.contains_key(&hello.src);
    let verdict = must(order == Order::Little, || "byte order Big".to_string())
        .and(must(!first || hello.version == shared.play.nid.version(), || {
            format!("version {} first", hello.version)
        }))
        .and(must(hello.dst == shared.play.nid, || format!("destination NID {}", hello.dst)))
        .and(must(hello.src_pid == PID, || format!("source PID {}", hello.src_pid)))
        .and(must([0, PID].contains(&hello.dst_pid), || format!("destination PID {}", hello.dst_pid)))
        .and(must(hello.src_incarnation != 0, || "no incarnation".to_string()))
        .and(must([0, shared.incarnation].contains(&hello.dst_incarnation), || {
            format!("destination incarnation {:#x}", hello.dst_incarnation)
        }))
        .and(must(hello.addresses.is_empty(), || format!("addresses {:x?}", hello.addresses)))
        .and(must(hello.kind != kind::ANY, || "type ANY".to_string()));
    state.record.note(rules::HELLO, verdict);
}

fn own_hello(shared: &Shared, version: u32, to: Nid, kind: u32) -> Hello {
    Hello {
        version,
        src: shared.play.nid,
        dst: to,
        src_pid: PID,
        dst_pid: 0,
        src_incarnation: shared.incarnation,
        dst_incarnation: 0,
        kind,
        addresses: Vec::new(),
    }
}

fn answer(shared: &Shared, stream: &mut TcpStream, hello: &Hello) {
    let mut bytes = hello.bytes(Order::Little);
    if let Some(tamper) = &shared.play.tamper {
        tamper(Stage::Hello, &mut bytes);
    }
    // A peer that has gone is noticed by whoever reads.
    let _ = stream.write_all(&bytes);
}

fn note(shared: &Shared, rule: Rule, verdict: Result<(), String>) -> bool {
    shared.lock().record.note(rule, verdict)
}

/// A frame has come on a connection of this type, in the judge's view. An error closes all connections of the peer.
fn heard(shared: &Arc<Shared>, hello: &Hello, on: u32, frame: &Frame) -> Result<(), String> {
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
                // This node is no router; a neighbour's message is another matter.
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

/// Each rule that a message on a connection can break.
fn judge(shared: &Shared, hello: &Hello, on: u32, message: &Message) -> Result<(), String> {
    let own = (shared.play.nid, PID);
    let name = kind::name(kind::inverse(on));
    let size = message.wire_bytes(hello.version);
    let mut state = shared.lock();
    take_acks(&mut state, hello.src, &message.prefix, on)?;
    let State { record, peers, .. } = &mut *state;
    let Some(peer) = peers.get_mut(&hello.src) else { return Ok(()) };
    record.note(rules::FRAMING, Ok(()));
    if hello.version == 2 && message.prefix.csum != 0 {
        must(message.prefix.csum == message.checksum(), || "a wrong checksum".to_string())?;
    }
    // A header's source may be elsewhere behind a router; there is none here.
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
    // Before a peer knows that a connection stands it uses another.
    let knows = peer.has(best) && (peer.settled || best == kind::CONTROL || peer.used.contains(&best));
    if typed && on != kind::BULK_OUT && knows {
        record.note(rules::CONNECTION, must(on == best, || format!("a message of {size} bytes on {name}")));
    }
    peer.used.insert(on);
    judge_handle(record, peer, message);
    Ok(())
}

/// A sign of life: where it belongs, and no oftener than a node may.
fn judge_keepalive(state: &mut State, nid: Nid, prefix: &Prefix, on: u32) {
    let State { record, peers, .. } = state;
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

/// One's own handles, in PUT and GET, begin alike.
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

/// lnet-wire 26: what is acknowledged must have been asked for.
fn take_acks(state: &mut State, nid: Nid, prefix: &Prefix, on: u32) -> Result<(), String> {
    for cookie in prefix.acked() {
        let State { record, peers, .. } = state;
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

/// Acknowledges a peer's zero-copy request: on BULK_IN, as a kernel does, else on what there is.
fn acknowledge(shared: &Shared, nid: Nid, cookie: u64) -> Result<(), String> {
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
