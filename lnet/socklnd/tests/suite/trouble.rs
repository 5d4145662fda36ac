//! Errors on connections in use: protocol errors, closed connections, timeouts, and the engine's
//! verdicts on messages.

use std::net::Ipv4Addr;

use crate::common::raw::{self, BULK_IN, BULK_OUT, CONTROL, Wire};
use crate::common::{FAR, Node, Order, S, address, config, drive, memory, nid_of, pattern, settle};
use lnet_api::{Errno, Lnd, PayloadTarget, RxToken};
use lnet_nid::ProcessId;
use lnet_proto::{Body, Header, WireHandle};
use lnet_socklnd::{HeldLimits, SockConfig};

const INCARNATION: u64 = 77;

/// Creates a peer with a CONTROL connection to a node.
fn peer_of(node: &Node) -> (Ipv4Addr, Wire) {
    let peer = address();
    (peer, Wire::shake_hands(peer, node, INCARNATION, CONTROL).0)
}

/// Returns the header of a PUT with this payload length.
fn put_header(node: &Node, dest: ProcessId, payload_length: u32) -> Header {
    let body = Body::Put {
        ack_wmd: WireHandle::NONE,
        match_bits: lnet_nid::MatchBits(0),
        hdr_data: 0,
        portal: 0,
        offset: 0,
    };
    Header { dest, src: node.id(), payload_length, body }
}

/// Checks that another peer's traffic does not suffer: sends a message there and back.
fn bystander_is_served(node: &Node, bystander: &Node) {
    let before = (node.received(), bystander.received());
    bystander.put_bytes(node.id(), b"there", 0);
    node.put_bytes(bystander.id(), b"and back", 0);
    drive(&[node, bystander], || (node.received(), bystander.received()) == (before.0 + 1, before.1 + 1));
}

/// lnet-wire 26: every message with a cookie is acknowledged, whatever LNet's verdict, on the
/// connection that this node calls BULK_IN.
#[test]
fn zero_copy_requests_are_acknowledged_whatever_becomes_of_the_message() {
    let node = Node::new();
    let ours = node.nid.ipv4().unwrap();
    let (peer, mut control) = peer_of(&node);
    // The peer's BULK_OUT is this node's BULK_IN.
    let (mut bulk, _) = Wire::shake_hands(peer, &node, INCARNATION, BULK_OUT);
    let payload = pattern(1, 20_000);
    let orders = [None, Some(Order::Truncate(100)), Some(Order::Discard), Some(Order::Truncate(0))];
    for (number, order) in orders.into_iter().enumerate() {
        let cookie = 100 + 10 * number as u64;
        node.engine.orders.lock().unwrap().extend(order);
        control.send_all(&[&node], &raw::put(peer, ours, cookie, 0, &payload));
        assert_eq!(bulk.read(&[&node], 24), raw::noop(0, cookie));
        drive(&[&node], || node.received() == number + 1);
    }
    node.with_got(|got| {
        assert_eq!(got[0].bytes(), payload);
        assert_eq!(got[1].bytes(), payload[..100]);
    });
}

/// Without such a connection any other is used; several cookies of a burst share a NOOP.
#[test]
fn acknowledgements_of_a_burst_are_merged() {
    let node = Node::new();
    let ours = node.nid.ipv4().unwrap();
    let (peer, mut control) = peer_of(&node);
    let puts: Vec<u8> = (2..12).flat_map(|cookie| raw::put(peer, ours, cookie, 0, &[7; 30])).collect();
    control.send(&puts);
    assert_eq!(control.read(&[&node], 24), raw::noop(2, 11));
    assert_eq!(node.counters().tx.zc_acks, 1);
    assert_eq!(node.received(), 10);
}

/// More messages than one poll handles, read by one call: no event follows for the rest.
#[test]
fn a_burst_beyond_the_budget_of_a_poll_is_received_whole() {
    let node = Node::new();
    let ours = node.nid.ipv4().unwrap();
    let (peer, mut wire) = peer_of(&node);
    settle(&[&node]);
    let count = 3 * lnet_api::POLL_BUDGET as u64 + 5;
    let puts: Vec<u8> =
        (0..count).flat_map(|number| raw::put(peer, ours, 0, number, &[number as u8; 9])).collect();
    wire.send(&puts);
    drive(&[&node], || node.received() == count as usize);
    node.with_got(|got| assert!(got.iter().zip(0..).all(|(got, number)| got.bytes() == [number; 9])));
}

/// Makes messages that wait on a lazy portal stay on their connections.
const NO_MEMORY: HeldLimits = HeldLimits { peer_kb: 0, all_kb: 0, drop_beyond: false };

/// A PUT on a lazy portal, without memory for it: nothing behind it on its connection is read until
/// it is resumed.
// Covers: S-201
#[test]
fn a_delayed_message_holds_its_connection_alone() {
    for taken in [true, false] {
        let node = Node::with(SockConfig { keepalive_s: 0, held: NO_MEMORY, ..config() });
        let bystander = Node::new();
        let ours = node.nid.ipv4().unwrap();
        let (peer, mut wire) = peer_of(&node);
        node.engine.orders.lock().unwrap().push_back(Order::Delay);
        let payload = pattern(2, 50_000);
        wire.send_all(&[&node], &raw::put(peer, ours, 9, 1, &payload));
        wire.send_all(&[&node], &raw::put(peer, ours, 0, 2, b"behind"));
        drive(&[&node], || node.with_got(|got| got.len() == 1));
        settle(&[&node]);
        assert_eq!(node.with_got(|got| got.len()), 1);
        bystander_is_served(&node, &bystander);
        // The message waits for the engine, not for the peer.
        node.later(900 * S);
        settle(&[&node]);
        assert_eq!(wire.read(&[&node], 24), raw::noop(0, 1), "it shows that it lives");
        assert!(node.lost().iter().all(|(lost, _)| lost.nid != nid_of(peer)), "{:?}", node.lost());

        let rx = node.with_got(|got| got[0].rx);
        if taken {
            let place = memory(&vec![0; payload.len()], 3);
            let sink = place.write(0..place.len()).unwrap();
            node.engine.got.lock().unwrap()[0].memory = Some(place);
            node.lnd.resume(rx, Some(PayloadTarget { token: RxToken(0), sink: Some(sink) }));
        } else {
            node.lnd.resume(rx, None);
        }
        assert_eq!(wire.read(&[&node], 24), raw::noop(0, 9));
        let behind = |node: &Node| node.with_got(|got| got.iter().any(|got| got.bytes() == b"behind"));
        drive(&[&node], || behind(&node));
        if taken {
            node.with_got(|got| assert!(got[0].bytes() == payload && got[0].result == Some(Ok(()))));
        }
    }
}

#[test]
fn a_delayed_message_whose_peer_is_gone_is_forgotten() {
    let node = Node::with(SockConfig { held: NO_MEMORY, ..config() });
    let (peer, mut wire) = peer_of(&node);
    node.engine.orders.lock().unwrap().push_back(Order::Delay);
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 1, b"lost"));
    drive(&[&node], || node.with_got(|got| got.len() == 1));
    drop(wire);
    let (other, _) = Wire::shake_hands(peer, &node, INCARNATION, BULK_IN);
    drop(other);
    drive(&[&node], || node.lost().len() == 1);
    assert_eq!(*node.engine.forgotten.lock().unwrap(), [0]);
    // The message is not received any more.
    settle(&[&node]);
    node.with_got(|got| assert_eq!(got[0].result, None));
}

#[test]
fn a_delayed_message_whose_peer_is_gone_fails_when_it_is_resumed() {
    let node = Node::with(SockConfig { held: NO_MEMORY, ..config() });
    node.engine.resumes_meanwhile.store(true, std::sync::atomic::Ordering::Relaxed);
    let (peer, mut wire) = peer_of(&node);
    node.engine.orders.lock().unwrap().push_back(Order::Delay);
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 1, b"lost"));
    drive(&[&node], || node.with_got(|got| got.len() == 1));
    // Another connection of the same peer breaks, and this one ends with it.
    let (other, _) = Wire::shake_hands(peer, &node, INCARNATION, BULK_IN);
    drop(other);
    drive(&[&node], || node.lost().len() == 1);
    let place = memory(&[0; 4], 1);
    let sink = place.write(0..4).unwrap();
    node.lnd
        .resume(node.with_got(|got| got[0].rx), Some(PayloadTarget { token: RxToken(0), sink: Some(sink) }));
    drive(&[&node], || node.received() == 1);
    node.with_got(|got| assert_eq!(got[0].result, Some(Err(Errno::ECONNRESET))));
    assert!(place.write(0..4).is_ok(), "the lease has been given back");
}

/// Sends bytes that break the protocol on a peer's CONTROL connection; returns the error with which
/// the peer is lost.
fn breaks_with(bytes: impl FnOnce(Ipv4Addr, Ipv4Addr) -> Vec<u8>) -> Errno {
    let (node, bystander) = (Node::new(), Node::new());
    bystander_is_served(&node, &bystander);
    let (peer, mut wire) = peer_of(&node);
    let (mut second, _) = Wire::shake_hands(peer, &node, INCARNATION, BULK_OUT);
    wire.send(&bytes(peer, node.nid.ipv4().unwrap()));
    assert_eq!((wire.read_to_end(&[&node]), second.read_to_end(&[&node])), (vec![], vec![]));
    assert_eq!(node.counters().rx.protocol_errors, 1);
    bystander_is_served(&node, &bystander);
    let lost = node.lost();
    assert_eq!((lost.len(), lost[0].0), (1, ProcessId::lnet(nid_of(peer))));
    lost[0].1
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_all_its_connections() {
    let unknown_prefix = |_, _| raw::prefix(0xc2, 0, 0);
    assert_eq!(breaks_with(unknown_prefix), Errno::EPROTO);
    // lnet-wire 26: one cookie, a pair, a range, nearly all numbers, and one attached to a message.
    for (zc_req, zc_ack) in [(0, 5), (5, 5), (7, 5), (5, 7), (1, u64::MAX), (2, 1), (1, 2)] {
        let acks_never_asked_for = |_, _| raw::noop(zc_req, zc_ack);
        assert_eq!(breaks_with(acks_never_asked_for), Errno::EPROTO, "{zc_req} {zc_ack}");
    }
    let piggybacked = |peer, ours| {
        let mut put = raw::put(peer, ours, 0, 0, b"");
        put[16..24].copy_from_slice(&5_u64.to_le_bytes());
        put
    };
    assert_eq!(breaks_with(piggybacked), Errno::EPROTO);
    let unknown_type = |peer, ours| {
        let mut put = raw::put(peer, ours, 0, 0, b"");
        put[24 + 24] = 9;
        put
    };
    assert_eq!(breaks_with(unknown_type), Errno::EPROTO);
    let too_long = |peer, ours| {
        let mut put = raw::put(peer, ours, 0, 0, b"");
        put[24 + 28..24 + 32].copy_from_slice(&((1_u32 << 20) + 1).to_le_bytes());
        put
    };
    assert_eq!(breaks_with(too_long), Errno::EPROTO);
    let wrong_checksum = |peer, ours| {
        let mut put = raw::put(peer, ours, 0, 0, b"abc");
        put[4..8].copy_from_slice(&0x1234_u32.to_le_bytes());
        put
    };
    assert_eq!(breaks_with(wrong_checksum), Errno::EIO);
}

#[test]
fn what_lnet_does_not_take_closes_the_peer() {
    let node = Node::new();
    let (peer, mut wire) = peer_of(&node);
    node.engine.orders.lock().unwrap().push_back(Order::Close(Errno::EPROTO));
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 0, b"x"));
    assert_eq!(wire.read_to_end(&[&node]), b"");
    assert_eq!(node.lost(), [(ProcessId::lnet(nid_of(peer)), Errno::EPROTO)]);
    // The failure names the destination: a node behind a translated address is known by another NID
    // (lnet-wire 27).
    let failure = node.lnd.last_failure(nid_of(peer)).unwrap();
    assert!(failure.detail.contains(&format!("the PUT it sent to {}", node.nid)), "{failure}");
}

#[test]
fn noops_and_keepalives_are_just_noted() {
    let node = Node::new();
    let (peer, mut wire) = peer_of(&node);
    wire.send(&[raw::noop(0, 0), raw::noop(0, 1), raw::noop(1, 1)].concat());
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 0, b"x"));
    drive(&[&node], || node.received() == 1);
    assert_eq!((node.counters().rx.noops, node.counters().rx.protocol_errors), (3, 0));
}

/// lnet-wire 28: a stream that ends inside a message is EPROTO; the message in reception is
/// finalised with it.
#[test]
fn a_hang_up_in_the_middle_of_bulk_ends_the_receive() {
    for cut in [50, 24 + 72, 24 + 72 + 10, 24 + 72 + 200_000] {
        let node = Node::new();
        let (peer, mut wire) = peer_of(&node);
        let put = raw::put(peer, node.nid.ipv4().unwrap(), 0, 0, &pattern(0, 1 << 20));
        wire.send_all(&[&node], &put[..cut]);
        drop(wire);
        drive(&[&node], || node.lost().len() == 1);
        assert_eq!(node.lost(), [(ProcessId::lnet(nid_of(peer)), Errno::EPROTO)]);
        node.with_got(|got| match got {
            [] => assert!(cut < 24 + 72),
            [got] => {
                assert_eq!(got.result, Some(Err(Errno::EPROTO)));
                let memory = got.memory.as_ref().unwrap();
                assert!(memory.write(0..memory.len()).is_ok(), "the lease has been given back");
            }
            _ => panic!("{got:?}"),
        });
    }
}

#[test]
fn a_hang_up_between_messages_is_a_reset() {
    let node = Node::new();
    let (peer, mut wire) = peer_of(&node);
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 0, b"whole"));
    drop(wire);
    drive(&[&node], || node.lost().len() == 1);
    assert_eq!((node.received(), node.lost()[0].1), (1, Errno::ECONNRESET));
    assert!(node.failure(nid_of(peer)).to_string().contains("the peer closed it"));
}

/// lnet-wire 28: a message that has begun and does not progress for 50 s.
#[test]
fn a_message_that_does_not_end_times_out() {
    for cut in [3, 24 + 72 + 10] {
        let node = Node::new();
        let (peer, mut wire) = peer_of(&node);
        wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 0, &[1; 200])[..cut]);
        drive(&[&node], || node.counters().rx.calls > 0);
        settle(&[&node]);
        node.later(49 * S);
        settle(&[&node]);
        assert!(node.lost().is_empty());
        node.later(14 * S);
        drive(&[&node], || node.lost().len() == 1);
        assert_eq!(node.lost()[0].1, Errno::ETIMEDOUT);
        assert_eq!(node.counters().rx.timeouts, 1);
    }
}

/// A byte now and then keeps a message from stalling, but does not extend its time limit.
#[test]
fn a_message_that_trickles_times_out() {
    for cut in [3, 24 + 72 + 10] {
        let node = Node::new();
        let (peer, mut wire) = peer_of(&node);
        let put = raw::put(peer, node.nid.ipv4().unwrap(), 0, 0, &[1; 4096]);
        // Completed messages do not count.
        for _ in 0..3 {
            wire.send(&put);
            node.later(40 * S);
            settle(&[&node]);
        }
        drive(&[&node], || node.received() == 3);
        wire.send(&put[..cut]);
        let calls = node.counters().rx.calls;
        drive(&[&node], || node.counters().rx.calls > calls);
        for (number, byte) in put[cut..cut + 24].iter().enumerate() {
            settle(&[&node]);
            assert!(node.lost().is_empty(), "after {number} bytes");
            node.later(4 * S);
            wire.send(&[*byte]);
        }
        settle(&[&node]);
        node.later(20 * S);
        drive(&[&node], || node.lost().len() == 1);
        assert_eq!(node.lost()[0].1, Errno::ETIMEDOUT);
    }
}

/// A message held on a connection stays no longer than its peer.
#[test]
fn a_held_connection_ends_with_its_peer() {
    let node = Node::with(SockConfig { keepalive_s: 0, held: NO_MEMORY, ..config() });
    let (peer, mut wire) = peer_of(&node);
    node.engine.orders.lock().unwrap().push_back(Order::Delay);
    wire.send(&raw::put(peer, node.nid.ipv4().unwrap(), 0, 1, b"held"));
    drive(&[&node], || node.with_got(|got| got.len() == 1));
    wire.0.shutdown(std::net::Shutdown::Write).unwrap();
    settle(&[&node]);
    node.later(20 * S);
    drive(&[&node], || node.lost().len() == 1);
    assert_eq!(node.lost(), [(ProcessId::lnet(nid_of(peer)), Errno::ECONNRESET)]);
    assert_eq!(*node.engine.forgotten.lock().unwrap(), [0]);
}

/// A peer that stops reading: nothing can be written for 50 s.
#[test]
fn a_send_without_progress_times_out() {
    let node = Node::with(SockConfig { tx_buffer_size: 4096, ..config() });
    let (peer, wire) = peer_of(&node);
    let id = ProcessId::lnet(nid_of(peer));
    // More than the sockets' buffers hold.
    let bulk = memory(&pattern(0, 1 << 20), 1);
    let tokens: Vec<u64> = (0..64).map(|number| node.put(id, &bulk, number)).collect();
    settle(&[&node]);
    assert_eq!(node.sent(tokens[63]), None);
    node.later(10 * S);
    settle(&[&node]);
    // The node has slept: a live peer would send something within an eighth of the timeout.
    node.later(63 * S);
    settle(&[&node]);
    assert_eq!(node.sent(tokens[63]), None);
    node.later(7 * S);
    drive(&[&node], || node.sent(tokens[63]).is_some());
    assert_eq!(node.sent(tokens[63]), Some(Err(Errno::ETIMEDOUT)));
    assert_eq!(node.lost(), [(id, Errno::ETIMEDOUT)]);
    assert!(bulk.write(0..1 << 20).is_ok(), "all leases have been given back");
    drop(wire);
}

#[test]
fn a_queued_message_whose_deadline_passes_is_not_sent() {
    let node = Node::with(SockConfig { tx_buffer_size: 256 << 10, ..config() });
    let (peer, mut wire) = peer_of(&node);
    let id = ProcessId::lnet(nid_of(peer));
    let bulk = memory(&pattern(0, 1 << 20), 1);
    let tokens: Vec<u64> = (0..16).map(|number| node.put(id, &bulk, number)).collect();
    let late = node.send(id, put_header(&node, id, 0), None, node.now_ns() + 20 * S);
    node.later(30 * S);
    settle(&[&node]);
    assert_eq!(node.sent(late), Some(Err(Errno::ETIMEDOUT)));
    // The other messages are complete.
    wire.read(&[&node], 16 * (24 + 72 + (1 << 20)));
    drive(&[&node], || tokens.iter().all(|token| node.sent(*token) == Some(Ok(()))));
    settle(&[&node]);
    assert!(node.lost().is_empty());
}

/// Messages in a sender's batch that could not be written keep their deadlines; the partly sent one
/// cannot be taken back, and ends the connection when it is long overdue, however slowly the peer
/// reads.
#[test]
fn messages_that_wait_for_a_slow_reader_keep_their_deadlines() {
    let node = Node::with(SockConfig { tx_buffer_size: 4096, keepalive_s: 0, ..config() });
    let (peer, mut wire) = peer_of(&node);
    let id = ProcessId::lnet(nid_of(peer));
    let bulk = memory(&pattern(0, 1 << 20), 1);
    let header = put_header(&node, id, 1 << 20);
    let deadline_ns = node.now_ns() + 20 * S;
    let tokens: Vec<u64> =
        (0..64).map(|_| node.send(id, header, Some(bulk.read(0..1 << 20).unwrap()), deadline_ns)).collect();
    settle(&[&node]);
    // Once the socket was writable again, all queued messages are in the batch.
    wire.read(&[&node], 1 << 20);
    settle(&[&node]);
    node.later(40 * S);
    settle(&[&node]);
    let begun = tokens.iter().position(|token| node.sent(*token).is_none()).unwrap();
    assert!(begun > 0 && tokens[..begun].iter().all(|token| node.sent(*token) == Some(Ok(()))));
    for token in &tokens[begun + 1..] {
        assert_eq!(node.sent(*token), Some(Err(Errno::ETIMEDOUT)));
    }
    assert!(node.lost().is_empty());
    // Something was sent within the last 50 s, but not this message to its end.
    node.later(35 * S);
    settle(&[&node]);
    node.later(7 * S);
    drive(&[&node], || node.lost().len() == 1);
    assert_eq!(node.sent(tokens[begun]), Some(Err(Errno::ETIMEDOUT)));
    assert!(bulk.write(0..1 << 20).is_ok(), "all leases have been given back");
}

// Covers: S-205
#[test]
fn a_message_that_waits_too_long_for_a_connection_times_out() {
    let node = Node::new();
    let peer = address();
    let listener = raw::listen(peer);
    let id = ProcessId::lnet(nid_of(peer));
    let body = Body::Get {
        return_wmd: WireHandle::NONE,
        match_bits: lnet_nid::MatchBits(0),
        portal: 0,
        src_offset: 0,
        sink_length: 0,
    };
    let header = Header { dest: id, src: node.id(), payload_length: 0, body };
    let short = node.send(id, header, None, node.now_ns() + 5 * S);
    let long = node.send(id, header, None, FAR);
    let (_wire, _) = Wire::accept(&listener, &[&node]);
    node.later(6 * S);
    drive(&[&node], || node.sent(short).is_some());
    assert_eq!((node.sent(short), node.sent(long)), (Some(Err(Errno::ETIMEDOUT)), None));
}

/// lnet-wire 28: after 30 s of silence, and again after 10 s at the earliest; on the BULK_IN
/// connection.
#[test]
fn an_idle_peer_is_sent_keepalives() {
    let node = Node::new();
    let (peer, _control) = peer_of(&node);
    let (mut bulk, _) = Wire::shake_hands(peer, &node, INCARNATION, BULK_OUT);
    settle(&[&node]);
    for expected in [0, 0, 0, 1] {
        node.later(8 * S);
        settle(&[&node]);
        assert_eq!(node.counters().tx.keepalives, expected);
    }
    assert_eq!(bulk.read(&[&node], 24), raw::noop(0, 1));
    node.later(8 * S);
    settle(&[&node]);
    assert_eq!(node.counters().tx.keepalives, 1);
    node.later(8 * S);
    settle(&[&node]);
    assert_eq!(bulk.read(&[&node], 24), raw::noop(0, 1));
    // A NOOP from the peer ends the keepalives for another 30 s.
    bulk.send(&raw::noop(0, 1));
    drive(&[&node], || node.counters().rx.noops == 1);
    node.later(29 * S);
    settle(&[&node]);
    assert_eq!(node.counters().tx.keepalives, 2);
}

/// lnet-wire 26: version 2 has no keepalives.
#[test]
fn a_peer_of_version_2_is_sent_no_keepalives() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let mut wire = Wire::connect(peer, 0, &node);
    wire.send(&[raw::request(ours), raw::hello(2, peer, ours, INCARNATION, CONTROL)].concat());
    wire.read(&[&node], 56);
    for _ in 0..20 {
        node.later(8 * S);
        settle(&[&node]);
    }
    assert_eq!((node.counters().tx.keepalives, node.counters().tx.calls), (0, 0));
    assert!(node.lost().is_empty());
}

/// A node that sends only NOOPs has nothing to send: this is no send without progress.
#[test]
fn a_connection_that_only_receives_after_a_noop_stays() {
    let node = Node::new();
    let (peer, mut wire) = peer_of(&node);
    let ours = node.nid.ipv4().unwrap();
    wire.send(&raw::put(peer, ours, 7, 0, b"x"));
    assert_eq!(wire.read(&[&node], 24), raw::noop(0, 7));
    for number in 2..12 {
        node.later(20 * S);
        wire.send(&raw::put(peer, ours, 0, 0, b"x"));
        drive(&[&node], || node.received() == number);
    }
    assert!(node.lost().is_empty(), "{:?}", node.lost());
}

#[test]
fn messages_in_flight_on_a_broken_connection_fail_and_later_ones_reconnect() {
    let (a, peer) = (Node::with(SockConfig { tx_buffer_size: 4096, ..config() }), address());
    let id = ProcessId::lnet(nid_of(peer));
    let (mut wire, _) = Wire::shake_hands(peer, &a, INCARNATION, CONTROL);
    let bulk = memory(&pattern(0, 1 << 20), 1);
    let stuck: Vec<u64> = (0..64).map(|number| a.put(id, &bulk, number)).collect();
    settle(&[&a]);
    wire.send(&raw::prefix(0xdead, 0, 0));
    drive(&[&a], || stuck.iter().all(|token| a.sent(*token).is_some()));
    assert_eq!(a.sent(stuck[63]), Some(Err(Errno::EPROTO)));

    let listener = raw::listen(peer);
    let token = a.put_bytes(id, b"again", 0);
    let (mut wire, _) = Wire::accept(&listener, &[&a]);
    wire.read(&[&a], 16 + 56);
    wire.send(&raw::hello(3, peer, a.nid.ipv4().unwrap(), INCARNATION + 1, CONTROL));
    assert_eq!(wire.read(&[&a], 24 + 72 + 5)[24 + 72..], *b"again");
    drive(&[&a], || a.sent(token) == Some(Ok(())));
}

/// All operations in flight end with ESHUTDOWN before `shutdown` returns, and the NID is free
/// again.
// Covers: S-201
#[test]
fn shutdown_finalises_everything_and_frees_the_nid() {
    let node = Node::with(SockConfig { tx_buffer_size: 4096, ..config() });
    let ours = node.nid.ipv4().unwrap();
    let (peer, mut wire) = peer_of(&node);
    let bulk = memory(&pattern(0, 1 << 20), 1);
    let sends: Vec<u64> =
        (0..64).map(|number| node.put(ProcessId::lnet(nid_of(peer)), &bulk, number)).collect();
    wire.send(&raw::put(peer, ours, 0, 0, &[1; 1000])[..500]);
    let silent = address();
    let _listener = raw::listen(silent);
    let waiting = node.put_bytes(ProcessId::lnet(nid_of(silent)), b"x", 0);
    drive(&[&node], || node.with_got(|got| got.len() == 1));
    node.lnd.shutdown(node.nid);
    assert_eq!(node.sent(sends[63]), Some(Err(Errno::ESHUTDOWN)));
    assert_eq!(node.sent(waiting), Some(Err(Errno::ESHUTDOWN)));
    node.with_got(|got| assert_eq!(got[0].result, Some(Err(Errno::ESHUTDOWN))));
    assert!(bulk.write(0..1 << 20).is_ok() && !node.lnd.is_active());
    let late = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"late", 0);
    assert_eq!(node.sent(late), Some(Err(Errno::ESHUTDOWN)));
    settle(&[&node]);
    assert!(node.lost().is_empty());
    node.lnd.startup(node.id(), node.engine.clone()).unwrap();
    let (_wire, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    assert_eq!(answer[48..52], CONTROL.to_le_bytes());
}

/// Messages that wait for the next poll when the last NI ends would wait for ever, and their
/// connection would keep its descriptor: no thread polls an LND without NIs.
#[test]
fn nothing_is_left_to_poll_for_when_the_last_ni_ends() {
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.received() == 1 && b.counters().rx.accepts == 3);
    settle(&[&b, &a]);
    // The second message since the last poll, which was this node's, may wait for the next one.
    let tokens = [b"y", b"z"].map(|bytes| a.put_bytes(b.id(), bytes, 0));
    assert_eq!((a.sent(tokens[1]), a.arm()), (None, false));
    a.lnd.shutdown(a.nid);
    assert_eq!(a.sent(tokens[1]), Some(Err(Errno::ESHUTDOWN)));
    assert!(!a.lnd.is_active());
}

/// Each message that a thread is sending when the NI ends is finalised once.
#[test]
fn shutdown_while_others_send() {
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let bytes = memory(&pattern(0, 3000), 1);
                loop {
                    let token = a.put(b.id(), &bytes, 0);
                    if a.sent(token) == Some(Err(Errno::ESHUTDOWN)) {
                        return;
                    }
                }
            });
        }
        drive(&[&a, &b], || b.received() > 100);
        a.lnd.shutdown(a.nid);
    });
    let sent = a.engine.sent.lock().unwrap();
    assert!((1..=sent.len() as u64).all(|token| sent.contains_key(&token)), "no message is forgotten");
}

/// A payload shorter or longer than the header's length would corrupt the stream.
#[test]
fn a_message_whose_payload_does_not_fit_its_header_is_refused() {
    let node = Node::new();
    let (peer, _wire) = peer_of(&node);
    let id = ProcessId::lnet(nid_of(peer));
    let header = put_header(&node, id, 5);
    let token = node.send(id, header, Some(memory(b"four", 1).read(0..4).unwrap()), FAR);
    assert_eq!(node.sent(token), Some(Err(Errno::EINVAL)));
}

#[test]
fn a_peer_without_an_address_or_of_an_ni_that_is_not_there_is_unreachable() {
    let node = Node::new();
    for nid in ["5@gni", "0@lo"] {
        let token = node.put_bytes(ProcessId::lnet(nid.parse().unwrap()), b"x", 0);
        assert_eq!(node.sent(token), Some(Err(Errno::EHOSTUNREACH)));
    }
    let token = node.put_bytes(node.id(), b"x", 0);
    assert_eq!(node.sent(token), Some(Err(Errno::EHOSTUNREACH)));
}

/// Measured: a kernel node that allows one connection of each bulk type sometimes resets a second
/// one after it has accepted it, and keeps the others.
// Covers: S-208
#[test]
fn a_surplus_connection_that_is_reset_leaves_the_others() {
    let node = Node::with(SockConfig { conns_per_peer: 2, ..config() });
    let (ours, peer) = (node.nid.ipv4().unwrap(), address());
    let listener = raw::listen(peer);
    let welcome = |wanted: u32| {
        let (mut wire, _) = Wire::accept(&listener, &[&node]);
        let greeting = wire.read(&[&node], 16 + 56);
        assert_eq!(u32::from(greeting[16 + 48]), wanted);
        let inverse = [raw::NONE, CONTROL, BULK_OUT, BULK_IN][wanted as usize];
        wire.send(&raw::hello(3, peer, ours, INCARNATION, inverse));
        wire
    };
    let to = ProcessId::lnet(nid_of(peer));
    let first = node.put_bytes(to, b"x", 0);
    let mut wires = [CONTROL, BULK_IN, BULK_OUT, BULK_IN, BULK_OUT].map(welcome).map(Some);
    drive(&[&node], || node.counters().rx.connects == 5 && node.sent(first) == Some(Ok(())));
    let surplus = wires[4].take().unwrap();
    socket2::SockRef::from(&surplus.0).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(surplus);
    settle(&[&node]);
    // Traffic continues on the remaining connections, and the peer gets no further requests.
    for size in [10, 5_000] {
        node.put_bytes(to, &pattern(3, size), 0);
    }
    let [control, bulk] = [0, 2].map(|place| wires[place].take().unwrap());
    for (mut wire, size) in [(control, 24 + 72 + 1 + 24 + 72 + 10), (bulk, 24 + 72 + 5_000)] {
        wire.read(&[&node], size);
        settle(&[&node]);
        assert_eq!(wire.0.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        wires.iter_mut().find(|place| place.is_none()).unwrap().replace(wire);
    }
    assert_eq!(node.lost(), []);
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // After `max_reconnect_ms` the peer gets a request again.
    node.later(61 * S);
    welcome(BULK_OUT);
}
