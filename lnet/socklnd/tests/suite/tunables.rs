//! The effects of tunables that the other tests leave unchanged.

use std::net::TcpListener;
use std::sync::Arc;

use crate::common::host::Host;
use crate::common::raw::{self, BULK_IN, CONTROL, NONE, Wire};
use crate::common::{Node, PORT, S, address, config, drive, memory, nid_of, pattern, settle};
use lnet_api::{Errno, Lnd};
use lnet_nid::{Nid, ProcessId};
use lnet_socklnd::{NiConfig, SockConfig, SockLnd};

const INCARNATION: u64 = 5;

/// `accept_port_bulk`: CONTROL uses one port, all others the other; the node listens on both.
#[test]
fn bulk_connections_may_have_a_port_of_their_own() {
    let config = SockConfig { accept_port_bulk: Some(PORT + 1), ..config() };
    let (a, b) = (Node::with(config.clone()), Node::with(config));
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3);

    let peer = address();
    let listeners = [PORT, PORT + 1].map(|port| TcpListener::bind((peer, port)).unwrap());
    a.put_bytes(ProcessId::lnet(nid_of(peer)), b"y", 0);
    for (number, expected) in [(0, CONTROL), (1, BULK_IN)] {
        let (mut wire, _) = Wire::accept(&listeners[number], &[&a]);
        let bytes = wire.read(&[&a], 16 + 56);
        assert_eq!(bytes[16 + 48..16 + 52], expected.to_le_bytes());
        wire.send(&raw::hello(3, peer, a.nid.ipv4().unwrap(), INCARNATION, expected));
        // Closing the connection would end all others.
        std::mem::forget(wire);
    }
    // The NI's end closes both ports.
    a.lnd.shutdown(a.nid);
    for port in [PORT, PORT + 1] {
        assert!(std::net::TcpStream::connect((a.ip(), port)).is_err());
    }
}

/// `round_robin`: equally good connections take turns, or the first one takes all.
#[test]
fn connections_of_a_type_take_turns() {
    for (round_robin, expected) in [(true, [4, 4]), (false, [8, 0])] {
        let node = Node::with(SockConfig { conns_per_peer: 2, round_robin, ..config() });
        let peer = address();
        // The peer's BULK_IN is this node's BULK_OUT.
        let mut wires = [0; 2].map(|_| Wire::shake_hands(peer, &node, INCARNATION, BULK_IN).0);
        let bulk = memory(&pattern(0, 2000), 1);
        for _ in 0..8 {
            node.put(ProcessId::lnet(nid_of(peer)), &bulk, 0);
            node.poll();
        }
        for (wire, expected) in wires.iter_mut().zip(expected) {
            wire.read(&[&node], expected * (24 + 72 + 2000));
        }
    }
}

/// `nconnds_max`: further peers queue, and have their turn when an attempt ends, however it ends.
// Covers: S-205
#[test]
fn attempts_to_connect_are_bounded() {
    let host = Arc::new(Host::new(usize::MAX));
    let node = Node::over(address(), SockConfig { nconnds_max: 1, ..config() }, host.clone());
    let peers = [address(), address(), address()];
    let listeners = [raw::listen(peers[0]), raw::listen(peers[1])];
    let tokens = peers.map(|peer| node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0));
    let tried = || host.connects.lock().unwrap().iter().map(|(to, _)| to.ip()).collect::<Vec<_>>();
    settle(&[&node]);
    // The shards determine which one is first. The attempt to the port without a listener ends at
    // once.
    let under_way = tried().iter().filter(|ip| **ip != std::net::IpAddr::V4(peers[2])).count();
    assert_eq!(under_way, 1, "the others queue");
    let served = |ip| listeners.iter().find(|listener| listener.local_addr().unwrap().ip() == ip);
    let mut wires = Vec::new();
    for attempt in 0..3 {
        drive(&[&node], || tried().len() > attempt);
        let Some(listener) = served(tried()[attempt]) else { continue };
        let (mut wire, _) = Wire::accept(listener, &[&node]);
        wire.read(&[&node], 16 + 56);
        assert_eq!(tried().len(), attempt + 1);
        // A refusing peer is tried again a second later, and is last then.
        let std::net::IpAddr::V4(peer) = tried()[attempt] else { unreachable!() };
        wire.send(&raw::hello(3, peer, node.nid.ipv4().unwrap(), INCARNATION, NONE));
        wires.push(wire);
    }
    drive(&[&node], || node.sent(tokens[2]).is_some());
    assert_eq!(node.sent(tokens[2]), Some(Err(Errno::ECONNREFUSED)));
    assert_eq!(tried().iter().collect::<std::collections::HashSet<_>>().len(), 3, "each once: {:?}", tried());
    node.lnd.shutdown(node.nid);
    assert!(tokens.iter().all(|token| node.sent(*token).is_some()));
}

/// Peers that never answer hold all permits: others have their turn long before those time out, and
/// ahead of those that have failed before.
#[test]
fn peers_that_do_not_answer_do_not_keep_others_from_connecting() {
    let node = Node::with(SockConfig { nconnds_max: 2, ..config() });
    let silent = [(); 6].map(|()| address());
    let _listeners = silent.map(raw::listen);
    let healthy = [Node::new(), Node::new()];
    // Two at a time, the silent ones have their ten seconds; the next time they all queue behind.
    for (healthy, within_ns) in healthy.iter().zip([35 * S, 15 * S]) {
        let tokens = silent.map(|peer| node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0));
        settle(&[&node]);
        let token = node.put_bytes(healthy.id(), b"x", 0);
        let begun_ns = node.now_ns();
        while node.sent(token).is_none() && node.now_ns() < begun_ns + within_ns {
            node.later(S);
            // Connections within the host take no time.
            settle(&[&node, healthy]);
        }
        assert_eq!(node.sent(token), Some(Ok(())));
        while tokens.iter().any(|token| node.sent(*token).is_none()) {
            node.later(S);
            settle(&[&node]);
        }
        // Longer than any pause by now.
        node.later(10 * S);
        settle(&[&node]);
    }
}

/// Accepted connections take three quarters of the descriptors at most: this node can connect all
/// the same.
#[test]
fn descriptors_are_kept_for_connections_of_our_own() {
    let node = Node::over(address(), config(), Arc::new(Host::new(40)));
    let wires: Vec<(Wire, _)> =
        (0..30).map(|_| Wire::shake_hands(address(), &node, INCARNATION, CONTROL)).collect();
    let mut late = Wire::connect(address(), 0, &node);
    assert_eq!(late.read_to_end(&[&node]), b"");
    let counters = node.counters().rx;
    assert_eq!((counters.accepts, counters.no_room, counters.refusals), (30, 1, 1));
    let other = Node::new();
    node.put_bytes(other.id(), b"out", 0);
    drive(&[&node, &other], || other.received() == 1);
    drop(wires);
    drive(&[&node, &other], || node.lost().len() == 30);
    let (_wire, answer) = Wire::shake_hands(address(), &node, INCARNATION, CONTROL);
    assert_eq!(answer[48..52], CONTROL.to_le_bytes());
}

fn own(change: impl FnOnce(&mut NiConfig)) -> NiConfig {
    let mut own = NiConfig::from(&config());
    change(&mut own);
    own
}

/// Each NI may have its own tunables; the others keep those of the LND.
#[test]
fn an_ni_has_tunables_of_its_own() {
    let host = Arc::new(Host::new(usize::MAX));
    let node = Node::over(address(), config(), host.clone());
    let other = nid_of(address());
    let special =
        own(|own| (own.credits, own.peer_credits, own.timeout_s, own.tos) = (99, 3, 20, Some(0x20)));
    node.lnd.configure(other, special).unwrap();
    let limits = node.lnd.startup(ProcessId::lnet(other), node.engine.clone()).unwrap();
    assert_eq!((limits.credits, limits.peer_credits, limits.timeout_ns), (99, 3, 20 * S));

    let silent = [address(), address()];
    let listeners = silent.map(raw::listen);
    let id = |number: usize| ProcessId::lnet(nid_of(silent[number]));
    let usual = node.put_bytes(id(0), b"x", 0);
    let hasty = node.get_over(other, &node.engine, id(1));
    for listener in &listeners {
        Wire::accept(listener, &[&node]).0.read(&[&node], 16 + 56);
    }
    // The streams are gone with their wires: both attempts have failed, unless they timed out.
    drive(&[&node], || node.sent(usual).is_some() && node.sent(hasty).is_some());
    let connects = host.connects.lock().unwrap();
    let tos = |nid: Nid| connects.iter().find(|(to, _)| Some(to.ip()) == nid.ip()).unwrap().1.tos;
    assert_eq!((tos(id(0).nid), tos(id(1).nid)), (None, Some(0x20)));
}

/// The timeout of an NI applies to its attempts and its connections.
#[test]
fn an_ni_has_a_timeout_of_its_own() {
    let (node, peer) = (Node::new(), address());
    let other = nid_of(address());
    node.lnd.configure(other, own(|own| own.timeout_s = 20)).unwrap();
    node.lnd.startup(ProcessId::lnet(other), node.engine.clone()).unwrap();
    let listener = raw::listen(peer);
    let hasty = node.get_over(other, &node.engine, ProcessId::lnet(nid_of(peer)));
    let (_wire, _) = Wire::accept(&listener, &[&node]);
    let usual = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    let (_wire, _) = Wire::accept(&listener, &[&node]);
    node.later(19 * S);
    settle(&[&node]);
    assert_eq!((node.sent(hasty), node.sent(usual)), (None, None));
    node.later(2 * S);
    drive(&[&node], || node.sent(hasty).is_some());
    assert_eq!((node.sent(hasty), node.sent(usual)), (Some(Err(Errno::ETIMEDOUT)), None));
}

#[test]
fn an_nis_tunables_are_checked() {
    let lnd = SockLnd::new(config()).unwrap();
    for (what, bad) in [
        ("conns_per_peer", own(|own| own.conns_per_peer = 0)),
        ("peer_credits", own(|own| own.peer_credits = own.credits + 1)),
        ("sock_timeout", own(|own| own.timeout_s = 0)),
    ] {
        let error = lnd.configure(nid_of(address()), bad).unwrap_err();
        assert!(error.to_string().starts_with(what), "{error}");
    }
}

/// `eager_ack` and `tos` are socket options: connections must work with them.
#[test]
fn options_of_the_socket_are_set() {
    let config = SockConfig { eager_ack: 0xe, tos: Some(0x10), nagle: true, ..config() };
    let (a, b) = (Node::with(config.clone()), Node::with(config));
    a.put_bytes(b.id(), &pattern(1, 100_000), 0);
    drive(&[&a, &b], || b.received() == 1);
    b.with_got(|got| assert!(got[0].bytes() == pattern(1, 100_000)));
}
