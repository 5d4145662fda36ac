//! The handshake of a connection that the judge accepts (lnet-wire 21 to 24).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use super::peers::{Conn, PassiveState, Writer};
use super::{PassiveShared, Stage, outgoing};
use crate::judge::active::Policy;
use crate::judge::dial::PRIVILEGED_MIN;
use crate::judge::rules::{self, Rule, must};
use crate::judge::wire::{
    ACCEPTOR_MAGIC, BadHello, Hello, LNET_MAGIC, Nid, Order, PID, PRIVILEGED_MAX, kind, request, request_v1,
    request_v2,
};

/// The size of the shorter request in bytes.
const REQUEST_V1: usize = 16;

/// Accepts the connection, or refuses it as a kernel does.
pub(super) fn shake_hands(
    shared: &Arc<PassiveShared>,
    stream: &mut TcpStream,
    number: usize,
) -> Option<(Hello, Order)> {
    check_source_port(shared, stream)?;
    take_request(shared, stream)?;
    let (hello, order) = take_hello(shared, stream)?;
    let mut state = shared.lock();
    judge_hello(&mut state, shared, &hello, order);
    let races = shared.play.race && state.raced.insert(hello.src);
    if races {
        drop(state);
        outgoing::race(shared, &hello);
        state = shared.lock();
    }
    let connects = races || state.connecting.contains(&hello.src);
    let kind = choose_kind(&mut state, shared.play.nid, &hello, connects);
    if kind == kind::NONE {
        drop(state);
        answer(shared, stream, &own_hello(shared, hello.version, hello.src, kind));
        return None;
    }
    let writer: Writer = Arc::new(Mutex::new(stream.try_clone().ok()?));
    // The hello is the first message, before another thread finds the connection in the table and
    // sends on it.
    answer(shared, stream, &own_hello(shared, hello.version, hello.src, kind));
    let peer = state.add_conn(&hello, Conn { number, kind, stream: writer });
    if peer.conns.len() == 3 && peer.is_complete() {
        peer.conns.sort_unstable_by_key(|conn| conn.number);
        // The types in the peer's view.
        let kinds: Vec<u32> = peer.conns.iter().map(|conn| kind::inverse(conn.kind)).collect();
        let right = kinds == [kind::CONTROL, kind::BULK_IN, kind::BULK_OUT];
        state.record.note(rules::ORDER, must(right, || format!("{kinds:?}")));
        state.record.note(rules::INCARNATION, Ok(()));
    }
    Some((hello, order))
}

/// Checks the peer's port, if the policy demands a privileged one; `None` if it is not.
fn check_source_port(shared: &PassiveShared, stream: &TcpStream) -> Option<()> {
    let port = stream.peer_addr().ok()?.port();
    if shared.play.policy != Policy::Secure {
        return Some(());
    }
    let privileged = (PRIVILEGED_MIN..=PRIVILEGED_MAX).contains(&port);
    let verdict = must(privileged, || format!("a connection from port {port}"));
    note(shared, rules::SOURCE_PORT, verdict).then_some(())
}

/// Reads the hello; `None` if a kernel refuses it. Only a wrong version is answered.
fn take_hello(shared: &PassiveShared, stream: &mut TcpStream) -> Option<(Hello, Order)> {
    let bad = match Hello::read(stream) {
        Ok((hello, order)) => {
            let known_kind = matches!(hello.kind, kind::ANY | kind::CONTROL | kind::BULK_IN | kind::BULK_OUT);
            if hello.src != Nid::ANY && known_kind {
                return Some((hello, order));
            }
            format!("{hello:?}")
        }
        Err(BadHello::Version(version)) => {
            note(shared, rules::HELLO, Err(format!("version {version}")));
            answer(shared, stream, &own_hello(shared, shared.play.nid.version(), Nid::ANY, kind::NONE));
            return None;
        }
        Err(bad) => bad.to_string(),
    };
    note(shared, rules::HELLO, Err(bad));
    None
}

/// Returns the type of the connection in the judge's view, or NONE to refuse it. `connects` says
/// that the judge connects to the peer at the same time.
fn choose_kind(state: &mut PassiveState, own: Nid, hello: &Hello, connects: bool) -> u32 {
    let kind = kind::inverse(hello.kind);
    match state.peers.get(&hello.src) {
        // lnet-wire 24: the connection of the higher NID wins.
        _ if connects && own > hello.src => kind::NONE,
        Some(peer) if (peer.version, peer.incarnation) != (hello.version, hello.src_incarnation) => {
            // A restarted peer, or one whose incarnation changes each time: the latter never gets
            // its connections.
            let verdict = Err(format!("{:#x} beside {:#x}", hello.src_incarnation, peer.incarnation));
            state.record.note(rules::INCARNATION, verdict);
            state.close_peer(hello.src);
            kind::NONE
        }
        Some(peer) if peer.has(kind) => kind::NONE,
        _ => kind,
    }
}

/// Reads the connection request; `None` if the connection has ended.
fn take_request(shared: &PassiveShared, stream: &mut TcpStream) -> Option<()> {
    let own = shared.play.nid;
    let expected = request(own, Order::Little);
    let mut bytes = vec![0; REQUEST_V1];
    let mut read = stream.read_exact(&mut bytes);
    // The rest is read only after the version is known.
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

/// Checks a hello: one that a kernel accepts but never sends is a violation, too.
fn judge_hello(state: &mut PassiveState, shared: &PassiveShared, hello: &Hello, order: Order) {
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

fn own_hello(shared: &PassiveShared, version: u32, to: Nid, kind: u32) -> Hello {
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

fn answer(shared: &PassiveShared, stream: &mut TcpStream, hello: &Hello) {
    let mut bytes = hello.bytes(Order::Little);
    if let Some(tamper) = &shared.play.tamper {
        tamper(Stage::Hello, &mut bytes);
    }
    // The reader notices if the peer is gone.
    let _ = stream.write_all(&bytes);
}

fn note(shared: &PassiveShared, rule: Rule, verdict: Result<(), String>) -> bool {
    shared.lock().record.note(rule, verdict)
}
