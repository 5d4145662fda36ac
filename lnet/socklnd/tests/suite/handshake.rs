//! Handshakes with peers made of bare sockets (lnet-wire 21 to 24), and the bytes recorded between
//! kernel nodes.

use std::net::{Ipv4Addr, TcpListener};

use crate::common::raw::{self, BULK_IN, BULK_OUT, CONTROL, NONE, Wire};
use crate::common::{FAR, Node, PORT, S, address, config, drive, nid_of, settle};
use lnet_api::{Errno, Lnd};
use lnet_nid::{Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_socklnd::{AcceptPolicy, ConnStep, SockConfig, SockLnd};

const INCARNATION: u64 = 0x18e9_ae44_0000_0001;

/// Returns the expected answer to a hello: everything except the node's incarnation is known
/// beforehand.
fn expected_answer(version: u32, from: Ipv4Addr, to: Ipv4Addr, answer: &[u8], conn_type: u32) -> Vec<u8> {
    let incarnation = u64::from_le_bytes(answer[32..40].try_into().unwrap());
    let mut expected = raw::hello(version, from, to, incarnation, conn_type);
    if conn_type != NONE {
        // The peers of these tests have unprivileged ports, so the answer gives them their
        // identity.
        expected[28..32].copy_from_slice(&Pid::LNET.0.to_le_bytes());
    }
    expected
}

/// Returns the items' bytes of a recorded stream of `tests/vectors`, in order.
fn recorded(name: &str, stream: usize) -> Vec<Vec<u8>> {
    let path = format!("{}/../../tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    json["streams"][stream]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let fields = ["hex", "prefix_hex", "header_hex", "payload_hex"];
            fields.iter().filter_map(|field| item[*field].as_str()).flat_map(hex).collect()
        })
        .collect()
}

/// Returns recorded bytes with the NIDs of this test in place of the two nodes' NIDs.
fn moved(bytes: &[u8], from: (Ipv4Addr, Ipv4Addr)) -> Vec<u8> {
    let recorded = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3)].map(raw::nid);
    let ours = [from.0, from.1].map(raw::nid);
    let mut bytes = bytes.to_vec();
    for at in 0..bytes.len().saturating_sub(7) {
        for (recorded, ours) in recorded.iter().zip(&ours) {
            if bytes[at..at + 8] == recorded[..] {
                bytes[at..at + 8].copy_from_slice(ours);
                break;
            }
        }
    }
    bytes
}

/// tcp-ping.json from the passive side: the node answers a kernel node's three connections as a
/// kernel node does.
#[test]
fn a_recorded_active_side_is_answered_as_recorded() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let mut wires = Vec::new();
    for stream in [0, 2, 4] {
        let sent = recorded("tcp-ping.json", stream);
        let answer = moved(&recorded("tcp-ping.json", stream + 1)[0], (peer, ours));
        let mut wire = Wire::connect(peer, 0, &node);
        wire.send(&moved(&sent[..2].concat(), (peer, ours)));
        let mut got = wire.read(&[&node], answer.len());
        got[32..40].copy_from_slice(&answer[32..40]);
        // The recorded node had a privileged port, which proves its PID; this peer gets its PID in
        // the answer.
        assert_eq!(got[28..32], Pid::LNET.0.to_le_bytes());
        got[28..32].copy_from_slice(&answer[28..32]);
        assert_eq!(got, answer);
        wires.push((wire, sent));
    }
    // The recorded GET of a ping arrives unchanged, and a REPLY of the recorded length leaves on
    // the same connection.
    let (wire, sent) = &mut wires[0];
    let recorded_reply = moved(&recorded("tcp-ping.json", 1)[1], (peer, ours));
    *node.engine.answer.lock().unwrap() = Some(recorded_reply[24 + 72..].to_vec());
    wire.send(&moved(&sent[2], (peer, ours)));
    let reply = wire.read(&[&node], recorded_reply.len());
    assert_eq!(reply, recorded_reply);
    node.with_got(|got| {
        assert_eq!(got[0].header.src, ProcessId::lnet(nid_of(peer)));
        assert_eq!(got[0].header.message_type(), lnet_proto::MessageType::Get);
    });
}

/// tcp-ping.json from the active side: the node opens the three connections that a kernel node
/// opens.
#[test]
fn a_recorded_passive_side_is_connected_to_as_recorded() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let listener = raw::listen(peer);
    node.get(ProcessId::lnet(nid_of(peer)), 0xf78, 1 << 63);
    let mut wires = Vec::new();
    for stream in [0, 2, 4] {
        let sent = moved(&recorded("tcp-ping.json", stream)[..2].concat(), (ours, peer));
        let answer = moved(&recorded("tcp-ping.json", stream + 1)[0], (ours, peer));
        let (mut wire, from) = Wire::accept(&listener, &[&node]);
        let mut got = wire.read(&[&node], sent.len());
        got[16 + 32..16 + 40].copy_from_slice(&sent[16 + 32..16 + 40]);
        assert_eq!(got, sent);
        let mut answer = answer;
        if from.port() > 1023 {
            // This test does not run as root; the recorded node did, and its answer had no PID.
            answer[28..32].copy_from_slice(&Pid::LNET.0.to_le_bytes());
        }
        wire.send(&answer);
        wires.push(wire);
    }
    let get = wires[0].read(&[&node], 24 + 72);
    assert_eq!(get[..24 + 32], moved(&recorded("tcp-ping.json", 0)[2], (ours, peer))[..24 + 32]);
    // The keepalive that the passive side sent later changes nothing.
    wires[2].send(&recorded("tcp-ping.json", 5)[1]);
    drive(&[&node], || node.counters().rx.noops == 1);
    assert_eq!((node.counters().rx.connects, node.counters().rx.protocol_errors), (3, 0));
}

#[test]
fn a_handshake_may_come_one_byte_at_a_time() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let mut wire = Wire::connect(peer, 0, &node);
    let bytes = [
        raw::request(ours),
        raw::hello(3, peer, ours, INCARNATION, CONTROL),
        raw::put(peer, ours, 0, 5, b"xyz"),
    ];
    let (last, bytes) = {
        let all = bytes.concat();
        let (a, b) = all.split_at(all.len() - 1);
        (b.to_vec(), a.to_vec())
    };
    for byte in bytes {
        wire.send(&[byte]);
        settle(&[&node]);
    }
    assert_eq!((node.counters().rx.accepts, node.received()), (1, 0));
    wire.send(&last);
    drive(&[&node], || node.received() == 1);
    node.with_got(|got| assert_eq!(got[0].bytes(), b"xyz"));
}

/// Bytes behind the hello in the same segment are not lost.
#[test]
fn messages_right_behind_the_hello_are_received() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let mut wire = Wire::connect(peer, 0, &node);
    let puts: Vec<u8> =
        (0..40).flat_map(|number| raw::put(peer, ours, 0, number, &[number as u8; 20])).collect();
    wire.send(&[raw::request(ours), raw::hello(3, peer, ours, INCARNATION, CONTROL), puts].concat());
    drive(&[&node], || node.received() == 40);
    node.with_got(|got| assert!(got.iter().zip(0..).all(|(got, number)| got.bytes() == [number; 20])));
}

/// lnet-wire 21, the passive side's table: the answer to each beginning of a connection before it
/// is closed.
#[test]
fn foreign_users_are_refused() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    // A request for NID 0, version 1, is the kernel's answer to other versions.
    let our_version = [&[0x00, 0x71, 0xce, 0xac, 1, 0, 0, 0][..], &[0; 8]].concat();
    let unknown_request = [&0xacce_7100_u32.to_le_bytes()[..], &9_u32.to_le_bytes()].concat();
    let any_sender = raw::hello(3, Ipv4Addr::UNSPECIFIED, ours, 1, CONTROL);
    let mut any_sender_bytes = any_sender.clone();
    any_sender_bytes[8..16].fill(0xff);
    let table: [(&str, Vec<u8>, &[u8]); 7] = [
        ("garbage", b"GET / HTTP/1.1\r\n\r\n".to_vec(), &[]),
        ("the old magic", 0xeebc_0ded_u32.to_le_bytes().to_vec(), &[]),
        ("the unified magic", 0x4572_6963_u32.to_le_bytes().to_vec(), &our_version),
        ("an unknown request", unknown_request, &our_version),
        ("a NID that is not the node's", raw::request(peer), &[]),
        ("a hello from nobody", [raw::request(ours), any_sender_bytes].concat(), &[]),
        ("connection type 7", [raw::request(ours), raw::hello(3, peer, ours, 1, 7)].concat(), &[]),
    ];
    for (number, (what, bytes, answer)) in table.iter().enumerate() {
        let mut wire = Wire::connect(peer, 0, &node);
        wire.send(bytes);
        assert_eq!(wire.read_to_end(&[&node]), *answer, "{what}");
        assert_eq!(node.counters().rx.refusals, number as u64 + 1, "{what}");
    }
    assert_eq!(node.counters().rx.accepts, 0);
}

/// An unknown hello version is answered with version 3 (lnet-wire 22.5, step 2).
#[test]
fn an_unknown_hello_version_is_answered_with_our_own() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let mut wire = Wire::connect(peer, 0, &node);
    wire.send(&[raw::request(ours), raw::hello(9, peer, ours, INCARNATION, CONTROL)].concat());
    let answer = wire.read_to_end(&[&node]);
    assert_eq!((answer[..8].to_vec(), answer.len()), (raw::hello(3, peer, peer, 0, 0)[..8].to_vec(), 56));
    assert_eq!(answer[48..52], NONE.to_le_bytes());
}

#[test]
fn hello_versions_2_and_3_are_answered_in_kind() {
    for version in [2, 3] {
        let (peer, node) = (address(), Node::new());
        let ours = node.nid.ipv4().unwrap();
        let mut wire = Wire::connect(peer, 0, &node);
        wire.send(&[raw::request(ours), raw::hello(version, peer, ours, INCARNATION, BULK_OUT)].concat());
        let answer = wire.read(&[&node], 56);
        assert_eq!(answer, expected_answer(version, ours, peer, &answer, BULK_IN));
    }
}

/// A duplicate connection is refused. One of a new incarnation ends the old ones, and is accepted
/// at its next attempt (lnet-wire 24, rows 2 and 3).
#[test]
fn a_duplicate_is_refused_and_another_life_replaces_the_old_connections() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let (mut first, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    assert_eq!(answer, expected_answer(3, ours, peer, &answer, CONTROL));

    let (mut duplicate, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    assert_eq!(answer, expected_answer(3, ours, peer, &answer, NONE));
    assert_eq!(duplicate.read_to_end(&[&node]), b"");

    let (mut restarted, answer) = Wire::shake_hands(peer, &node, INCARNATION + 1, CONTROL);
    assert_eq!(answer, expected_answer(3, ours, peer, &answer, NONE));
    assert_eq!((restarted.read_to_end(&[&node]), first.read_to_end(&[&node])), (vec![], vec![]));
    assert_eq!(node.lost(), [(ProcessId::lnet(nid_of(peer)), Errno::ECONNRESET)]);

    let (_wire, answer) = Wire::shake_hands(peer, &node, INCARNATION + 1, CONTROL);
    assert_eq!(answer, expected_answer(3, ours, peer, &answer, CONTROL));
}

/// lnet-wire 23: after a peer has restarted while its connections were being opened, the node
/// connects again when it has a message for it.
#[test]
fn a_peer_that_restarts_during_an_attempt_is_left_alone() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let id = ProcessId::lnet(nid_of(peer));
    let answer = |incarnation, conn_type| {
        let mut answer = raw::hello(3, peer, ours, incarnation, conn_type);
        // This is the answer of a node that accepts any port: it identifies this node by its NID.
        answer[28..32].copy_from_slice(&Pid::LNET.0.to_le_bytes());
        answer
    };
    let listener = raw::listen(peer);
    let token = node.put_bytes(id, b"first", 1);
    let (mut control, _) = Wire::accept(&listener, &[&node]);
    control.read(&[&node], 16 + 56);
    control.send(&answer(INCARNATION, CONTROL));
    control.read(&[&node], 24 + 72 + 5);
    drive(&[&node], || node.sent(token) == Some(Ok(())));
    let (mut bulk, _) = Wire::accept(&listener, &[&node]);
    let asked = bulk.read(&[&node], 16 + 56);
    drop(control);
    drive(&[&node], || node.lost().len() == 1);
    let conn_type = if asked[16 + 48..16 + 52] == BULK_IN.to_le_bytes() { BULK_OUT } else { BULK_IN };
    bulk.send(&answer(INCARNATION + 1, conn_type));
    assert_eq!(bulk.read_to_end(&[&node]), b"");
    for _ in 0..10 {
        settle(&[&node]);
        node.later(20 * S);
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    node.put_bytes(id, b"second", 1);
    Wire::accept(&listener, &[&node]);
}

/// lnet-wire 24, row 1, both ways: the node is connecting when the peer connects in.
#[test]
fn a_race_is_decided_by_the_order_of_the_nids() {
    for peer_is_higher in [true, false] {
        let mut pair = [address(), address()];
        pair.sort();
        let [low, high] = pair;
        let (peer, own) = if peer_is_higher { (high, low) } else { (low, high) };
        let node = Node::at(own, config());
        let listener = raw::listen(peer);
        let token = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"race", 1);
        let (mut incoming, _) = Wire::accept(&listener, &[&node]);
        let bytes = incoming.read(&[&node], 16 + 56);
        assert_eq!(bytes[16 + 48..16 + 52], CONTROL.to_le_bytes());

        let (mut outgoing, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
        let conn_type = if peer_is_higher { CONTROL } else { NONE };
        assert_eq!(answer, expected_answer(3, own, peer, &answer, conn_type));
        let winner = if peer_is_higher {
            incoming.send(&raw::hello(3, peer, own, INCARNATION, NONE));
            &mut outgoing
        } else {
            incoming.send(&raw::hello(3, peer, own, INCARNATION, CONTROL));
            &mut incoming
        };
        let message = winner.read(&[&node], 24 + 72 + 4);
        assert_eq!(message[24 + 72..], *b"race");
        drive(&[&node], || node.sent(token) == Some(Ok(())));
    }
}

/// A stalled handshake occupies a slot until `accept_timeout`, and does not affect others.
#[test]
fn a_stalled_handshake_is_dropped_after_accept_timeout() {
    let (peer, other, node) = (address(), Node::new(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let mut wire = Wire::connect(peer, 0, &node);
    wire.send(&raw::request(ours)[..7]);
    settle(&[&node]);
    let token = other.put_bytes(node.id(), b"x", 0);
    drive(&[&node, &other], || node.counters().rx.accepts == 3 && other.sent(token).is_some());
    node.later(4 * S);
    settle(&[&node]);
    assert_eq!(node.counters().rx.handshake_timeouts, 0);
    node.later(2 * S);
    assert_eq!(wire.read_to_end(&[&node]), b"");
    assert_eq!(node.counters().rx.handshake_timeouts, 1);
    assert!(node.lost().is_empty());
}

/// A poll returns the deadline of a handshake as the next timeout.
#[test]
fn poll_names_the_time_of_the_next_timeout() {
    let (peer, node) = (address(), Node::new());
    settle(&[&node]);
    assert_eq!(node.poll().deadline_ns, None);
    let before_ns = node.now_ns();
    let _wire = Wire::connect(peer, 0, &node);
    drive(&[&node], || node.poll().deadline_ns.is_some());
    let deadline_ns = node.poll().deadline_ns.unwrap();
    assert!((before_ns + 5 * S..=node.now_ns() + 5 * S).contains(&deadline_ns));
}

#[test]
fn a_host_that_opens_connections_without_end_is_bounded() {
    let (peer, node) = (address(), Node::new());
    let wires: Vec<Wire> = (0..80).map(|_| Wire::connect(peer, 0, &node)).collect();
    drive(&[&node], || node.counters().rx.refusals == 80 - 64);
    drop(wires);
    drive(&[&node], || node.counters().rx.refusals == 80);
    let (_wire, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    assert_eq!(answer[48..52], CONTROL.to_le_bytes());
}

/// Few hosts with many half-open connections do not exclude others, however often they reconnect.
#[test]
fn a_crowd_of_half_open_handshakes_makes_room_for_newcomers() {
    let (peer, node) = (address(), Node::new());
    let crowd = [address(), address(), address(), address()];
    let fill = |count: usize| -> Vec<Wire> {
        let from = crowd.iter().flat_map(|from| std::iter::repeat_n(*from, count));
        from.map(|from| {
            let wire = Wire::connect(from, 0, &node);
            // The listen queue is emptied now, because it holds no more connections than these.
            settle(&[&node]);
            wire
        })
        .collect()
    };
    let mut wires = fill(64);
    settle(&[&node]);
    assert_eq!(node.counters().rx.refusals, 0);
    let (_wire, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    assert_eq!(answer[48..52], CONTROL.to_le_bytes());
    assert_eq!(node.counters().rx.refusals, 1);
    // A handshake under way is not displaced by hosts that have more of them.
    let other = address();
    let ours = node.nid.ipv4().unwrap();
    let mut slow = Wire::connect(other, 0, &node);
    slow.send(&raw::request(ours));
    settle(&[&node]);
    wires.extend(fill(4));
    settle(&[&node]);
    slow.send(&raw::hello(3, other, ours, INCARNATION, CONTROL));
    assert_eq!(slow.read(&[&node], 56)[48..52], CONTROL.to_le_bytes());
}

/// Hellos in the node's own name, for any NI, and hellos in a name that no host can have, are
/// refused.
#[test]
fn names_that_no_peer_can_have_are_refused() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let second = address();
    node.lnd.startup(ProcessId::lnet(nid_of(second)), node.engine.clone()).unwrap();
    let on_net = |net: u32, address: Ipv4Addr| {
        let mut hello = raw::hello(3, address, ours, INCARNATION, CONTROL);
        hello[12..16].copy_from_slice(&net.to_le_bytes());
        hello
    };
    let tcp = 0x0002_0000;
    let names = [
        (tcp, ours),
        (tcp, second),
        (tcp, Ipv4Addr::UNSPECIFIED),
        (tcp, Ipv4Addr::BROADCAST),
        (tcp, Ipv4Addr::new(224, 0, 0, 1)),
        (tcp + 1, peer),
        (0x0005_0000, peer),
        (0x0009_0000, Ipv4Addr::UNSPECIFIED),
    ];
    for (net, name) in names {
        let mut wire = Wire::connect(peer, 0, &node);
        wire.send(&[raw::request(ours), on_net(net, name)].concat());
        assert_eq!(wire.read_to_end(&[&node]), b"", "{name} on {net:x}");
    }
    assert_eq!((node.counters().rx.accepts, node.counters().rx.refusals), (0, names.len() as u64));
    assert!(node.lost().is_empty());
}

/// Under `hello` and from an unprivileged port, no other host can take over the name of a connected
/// peer; the NID's own address takes it back.
#[test]
fn the_name_of_a_connected_peer_cannot_be_stolen() {
    let (peer, thief, node) = (address(), address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let steal = |incarnation| {
        let mut wire = Wire::connect(thief, 0, &node);
        wire.send(&[raw::request(ours), raw::hello(3, peer, ours, incarnation, BULK_OUT)].concat());
        let answer = wire.read(&[&node], 56);
        (wire, answer[48..52].to_vec())
    };
    let (mut wire, _) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    for incarnation in [INCARNATION, INCARNATION + 1] {
        let (mut refused, answer) = steal(incarnation);
        assert_eq!((answer, refused.read_to_end(&[&node])), (NONE.to_le_bytes().to_vec(), vec![]));
    }
    wire.send(&raw::put(peer, ours, 0, 0, b"still there"));
    drive(&[&node], || node.received() == 1);
    assert!(node.lost().is_empty());

    drop(wire);
    drive(&[&node], || node.lost().len() == 1);
    let (_thief, answer) = steal(INCARNATION + 1);
    assert_eq!(answer, BULK_IN.to_le_bytes());
    // As after any restart, the second attempt succeeds (lnet-wire 24).
    let (_, refusal) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    let (_wire, answer) = Wire::shake_hands(peer, &node, INCARNATION, CONTROL);
    assert_eq!((&refusal[48..52], &answer[48..52]), (&NONE.to_le_bytes()[..], &CONTROL.to_le_bytes()[..]));
    assert_eq!(node.lost().len(), 2);
}

fn with_policy(policy: AcceptPolicy) -> Node {
    Node::with(SockConfig { accept: Some(policy), ..config() })
}

/// lnet-wire 20: `accept=secure` closes a connection from an unprivileged port without sending a
/// byte.
#[test]
fn secure_takes_privileged_ports_alone() {
    let (peer, node) = (address(), with_policy(AcceptPolicy::Secure));
    let mut wire = Wire::connect(peer, 0, &node);
    assert_eq!(wire.read_to_end(&[&node]), b"");
    assert_eq!(node.counters().rx.refusals, 1);
    if nix::unistd::geteuid().is_root() {
        let ours = node.nid.ipv4().unwrap();
        let mut wire = Wire::connect(peer, 700, &node);
        wire.send(&[raw::request(ours), raw::hello(3, peer, ours, INCARNATION, CONTROL)].concat());
        assert_eq!(wire.read(&[&node], 56)[48..52], CONTROL.to_le_bytes());
    } else {
        nlx_skip::skipped("a peer with a privileged port", "only root has such ports");
    }
}

/// lnet-wire 27: the peer's identity is its address and port, whatever its hello claims; answers go
/// back on its connection; the node never connects to it.
#[test]
fn all_takes_unprivileged_peers_for_what_their_port_says() {
    let (peer, node) = (address(), with_policy(AcceptPolicy::All));
    let (ours, claimed) = (node.nid.ipv4().unwrap(), Ipv4Addr::new(10, 9, 8, 7));
    let mut wire = Wire::connect(peer, 0, &node);
    let port = wire.0.local_addr().unwrap().port();
    wire.send(&[raw::request(ours), raw::hello(3, claimed, ours, INCARNATION, CONTROL)].concat());
    let answer = wire.read(&[&node], 56);
    assert_eq!(answer[16..24], raw::nid(peer));
    assert_eq!(answer[28..32], (0x8000_0000 | u32::from(port)).to_le_bytes());

    wire.send(&raw::put(claimed, ours, 0, 1, b"hello"));
    drive(&[&node], || node.received() == 1);
    let id = ProcessId::new(nid_of(peer), Pid::of_unprivileged_port(port));
    node.with_got(|got| assert_eq!((got[0].from, got[0].header.src), (id, id)));

    let token = node.put_bytes(id, b"answer", 2);
    assert_eq!(wire.read(&[&node], 24 + 72 + 6)[24 + 72..], *b"answer");
    assert_eq!(node.sent(token), Some(Ok(())));

    drop(wire);
    drive(&[&node], || !node.lost().is_empty());
    let token = node.put_bytes(id, b"too late", 3);
    settle(&[&node]);
    assert_eq!(node.sent(token), Some(Err(Errno::EHOSTUNREACH)));
    assert_eq!(node.counters().rx.connect_failures, 0);
}

/// A node that its peer treats in this way opens a single connection.
#[test]
fn a_peer_that_sees_us_as_userspace_gets_one_control_connection() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let listener = raw::listen(peer);
    node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    let (mut wire, from) = Wire::accept(&listener, &[&node]);
    wire.read(&[&node], 16 + 56);
    let mut answer = raw::hello(3, peer, ours, INCARNATION, CONTROL);
    answer[28..32].copy_from_slice(&(0x8000_0000 | u32::from(from.port())).to_le_bytes());
    wire.send(&answer);
    wire.read(&[&node], 24 + 72 + 1);
    let bulk = crate::common::pattern(0, 100_000);
    node.put_bytes(ProcessId::lnet(nid_of(peer)), &bulk, 0);
    assert_eq!(wire.read(&[&node], 24 + 72 + bulk.len())[24 + 72..], bulk);
    settle(&[&node]);
    assert_eq!(node.counters().rx.connects, 1);
}

#[test]
fn none_accepts_no_peer_but_connects_out() {
    let (a, b) = (with_policy(AcceptPolicy::None), Node::new());
    assert!(std::net::TcpStream::connect(a.listens_on()).is_err());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.received() == 1);
    b.put_bytes(a.id(), b"y", 0);
    drive(&[&a, &b], || a.received() == 1);
}

/// Refusals of the active side's attempts: after the type NONE it retries three times; then the
/// attempt has failed.
#[test]
fn an_attempt_refused_again_and_again_fails() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let listener = raw::listen(peer);
    let token = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    for attempt in 0..4 {
        assert_eq!(node.sent(token), None, "attempt {attempt}");
        let (mut wire, _) = Wire::accept(&listener, &[&node]);
        wire.read(&[&node], 16 + 56);
        wire.send(&raw::hello(3, peer, ours, INCARNATION, NONE));
        assert_eq!(wire.read_to_end(&[&node]), b"");
        node.later(S);
    }
    drive(&[&node], || node.sent(token).is_some());
    assert_eq!(node.sent(token), Some(Err(Errno::EALREADY)));
    assert_eq!(node.failure(nid_of(peer)).step, ConnStep::Handshake);
}

/// A node uses the version that its peer requires at once. If a peer restarts between two
/// connections, the node connects anew.
#[test]
fn a_peers_version_is_learnt() {
    let (peer, node) = (address(), Node::new());
    let ours = node.nid.ipv4().unwrap();
    let listener = raw::listen(peer);
    node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    let (mut wire, _) = Wire::accept(&listener, &[&node]);
    assert_eq!(wire.read(&[&node], 16 + 56)[20..24], 3_u32.to_le_bytes());
    wire.send(&raw::hello(2, peer, ours, INCARNATION, NONE));
    let (mut wire, _) = Wire::accept(&listener, &[&node]);
    assert_eq!(wire.read(&[&node], 16 + 56)[20..24], 2_u32.to_le_bytes());
    wire.send(&raw::hello(2, peer, ours, INCARNATION, CONTROL));
    assert_eq!(wire.read(&[&node], 24 + 72 + 1)[24 + 72..], *b"x");
}

fn failed_attempt(answer: impl FnOnce(&Node, Ipv4Addr) -> Vec<u8>) -> (Errno, String) {
    let (peer, node) = (address(), Node::new());
    let listener = raw::listen(peer);
    let token = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    let (mut wire, _) = Wire::accept(&listener, &[&node]);
    wire.read(&[&node], 16 + 56);
    wire.send(&answer(&node, peer));
    drop((wire, listener));
    drive(&[&node], || node.sent(token).is_some());
    let failure = node.failure(nid_of(peer));
    assert_eq!((failure.step, Err(failure.errno)), (ConnStep::Handshake, node.sent(token).unwrap()));
    (failure.errno, failure.to_string())
}

#[test]
fn a_bad_answer_fails_the_attempt_with_a_reason() {
    let (errno, text) = failed_attempt(|_, _| Vec::new());
    assert_eq!(errno, Errno::ECONNRESET);
    assert!(text.contains("accept=all"), "{text}");

    let (errno, text) = failed_attempt(|_, _| b"SSH-2.0-OpenSSH_9.6\r\n".to_vec());
    assert_eq!(errno, Errno::EPROTO);
    assert!(text.contains("hello starts with"), "{text}");

    let other = Ipv4Addr::new(10, 1, 1, 1);
    let own = |node: &Node| node.nid.ipv4().unwrap();
    let (errno, text) = failed_attempt(|node, _| raw::hello(3, other, own(node), 1, CONTROL));
    assert_eq!(errno, Errno::EPROTO);
    assert!(text.contains("10.1.1.1@tcp"), "{text}");

    let (errno, _) = failed_attempt(|node, peer| raw::hello(3, peer, own(node), 1, BULK_IN));
    assert_eq!(errno, Errno::EPROTO);
}

#[test]
fn a_refused_connection_fails_at_once_and_backs_off() {
    let (peer, node) = (address(), Node::new());
    let id = ProcessId::lnet(nid_of(peer));
    let tokens = [node.put_bytes(id, b"x", 0), node.put_bytes(id, b"y", 0)];
    drive(&[&node], || tokens.iter().all(|token| node.sent(*token).is_some()));
    assert_eq!(tokens.map(|token| node.sent(token).unwrap()), [Err(Errno::ECONNREFUSED); 2]);
    let failure = node.failure(nid_of(peer));
    assert_eq!(
        (failure.step, failure.errno, failure.address.port()),
        (ConnStep::Connect, Errno::ECONNREFUSED, PORT)
    );
    assert!(failure.to_string().contains("is LNet up on that node"), "{failure}");

    // During the back-off a message fails without an attempt, and afterwards with one.
    let token = node.put_bytes(id, b"z", 0);
    drive(&[&node], || node.sent(token).is_some());
    assert_eq!(node.sent(token), Some(Err(Errno::EHOSTUNREACH)));
    assert_eq!(node.counters().rx.connect_failures, 1);
    node.later(S);
    let _listener: TcpListener = raw::listen(peer);
    let token = node.put_bytes(id, b"z", 0);
    drive(&[&node], || node.counters().rx.connects + node.counters().rx.polls > 0);
    settle(&[&node]);
    assert_eq!((node.sent(token), node.counters().rx.connect_failures), (None, 1));
}

/// A program that accepts the connection and never sends a hello is given up after 50 s.
// Covers: S-205
#[test]
fn a_silent_peer_times_out() {
    let (peer, node) = (address(), Node::new());
    let listener = raw::listen(peer);
    let token = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    let id = nid_of(peer);
    assert_eq!(node.lnd.progress(id), None);
    let (mut wire, _) = Wire::accept(&listener, &[&node]);
    wire.read(&[&node], 16 + 56);
    assert_eq!(node.lnd.progress(id), Some(ConnStep::Handshake));
    node.later(49 * S);
    settle(&[&node]);
    assert_eq!(node.sent(token), None);
    node.later(2 * S);
    drive(&[&node], || node.sent(token).is_some());
    assert_eq!(node.sent(token), Some(Err(Errno::ETIMEDOUT)));
    assert_eq!(node.lnd.progress(id), None);
    assert!(node.failure(nid_of(peer)).to_string().contains("does not speak LNet"));
}

/// lnet-wire 24: the whole set of connections has 50 s. A peer that answers each hello just in time
/// is still given up; the message, which needs one connection only, was sent long before.
#[test]
fn a_peer_that_is_slow_with_each_connection_times_out() {
    let (peer, node) = (address(), Node::new());
    let listener = raw::listen(peer);
    let token = node.put_bytes(ProcessId::lnet(nid_of(peer)), b"x", 0);
    let mut wires = Vec::new();
    for conn_type in [CONTROL, BULK_IN] {
        let (mut wire, _) = Wire::accept(&listener, &[&node]);
        wire.read(&[&node], 16 + 56);
        node.later(20 * S);
        settle(&[&node]);
        // This is the connection's type in the view of the peer.
        let inverse = if conn_type == BULK_IN { BULK_OUT } else { conn_type };
        wire.send(&raw::hello(3, peer, node.nid.ipv4().unwrap(), INCARNATION, inverse));
        wires.push(wire);
    }
    let (mut last, _) = Wire::accept(&listener, &[&node]);
    last.read(&[&node], 16 + 56);
    assert_eq!((node.sent(token), node.counters().rx.connects), (Some(Ok(())), 2));
    node.later(8 * S);
    settle(&[&node]);
    assert_eq!(node.counters().rx.connect_failures, 0);
    node.later(3 * S);
    drive(&[&node], || node.counters().rx.connect_failures == 1);
    let failure = node.failure(nid_of(peer));
    assert_eq!((failure.step, failure.errno), (ConnStep::Handshake, Errno::ETIMEDOUT));
    assert!(failure.detail.contains("after the other connections"), "{failure}");
    // A later attempt has the full time again.
    node.later(2 * S);
    let (mut last, _) = Wire::accept(&listener, &[&node]);
    last.read(&[&node], 16 + 56);
    node.later(48 * S);
    settle(&[&node]);
    assert_eq!(node.counters().rx.connect_failures, 1);
}

#[test]
fn a_nid_is_held_by_one_process_that_is_named() {
    let node = Node::new();
    let second = SockLnd::new(SockConfig { accept_port: PORT + 1, ..config() }).unwrap();
    let error = second.startup(node.id(), node.engine.clone()).unwrap_err();
    assert_eq!(error.errno, Errno::EADDRINUSE);
    let me = format!("(pid {})", std::process::id());
    assert!(
        error.what.starts_with(&format!("{} is held by ", node.nid)) && error.what.contains(&me),
        "{error}"
    );
    node.lnd.shutdown(node.nid);
    second.startup(node.id(), node.engine.clone()).unwrap();
}

#[test]
fn what_keeps_an_ni_from_starting_is_said() {
    let node = Node::new();
    let lnd = SockLnd::new(config()).unwrap();
    let start = |nid: Nid| lnd.startup(ProcessId::lnet(nid), node.engine.clone()).unwrap_err();

    let taken = address();
    let _listener = raw::listen(taken);
    let error = start(nid_of(taken));
    assert_eq!(error.errno, Errno::EADDRINUSE);
    assert!(error.what.contains(&format!("{taken}:{PORT}")), "{error}");

    let error = start(nid_of(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(error.errno, Errno::EADDRNOTAVAIL);
    assert!(error.what.contains("192.0.2.1"), "{error}");

    let error = start("0@lo".parse().unwrap());
    assert_eq!(error.errno, Errno::EINVAL);

    let odd = SockConfig { congestion_control: Some("no-such".into()), ..config() };
    let error = SockLnd::new(odd).unwrap().startup(ProcessId::lnet(nid_of(address())), node.engine.clone());
    assert!(error.unwrap_err().what.contains("'no-such'"));
}

/// Under `hello` any host can send a request in another host's name and leave: no connection is
/// opened for the answer, which would wait, with credits that others need, for a host that may not
/// exist. The node connects to a peer that has sent a request from its own address.
#[test]
fn only_a_peer_with_a_proven_address_is_connected_to_for_an_answer() {
    let node = Node::new();
    let ours = node.nid.ipv4().unwrap();
    let (owner, thief) = (address(), address());
    let listener = raw::listen(owner);
    listener.set_nonblocking(true).unwrap();
    let id = ProcessId::lnet(nid_of(owner));
    let answer = |node: &Node, id: ProcessId| {
        let body = Body::Reply { dst_wmd: WireHandle::new(1, 1) };
        node.send(id, Header { dest: id, src: node.id(), payload_length: 0, body }, None, FAR)
    };
    let hang_up = |wire: Wire, lost: usize| {
        drop(wire);
        drive(&[&node], || node.lost().len() == lost);
    };
    let mut wire = Wire::connect(thief, 0, &node);
    wire.send(&[raw::request(ours), raw::hello(3, owner, ours, INCARNATION, CONTROL)].concat());
    assert_eq!(wire.read(&[&node], 56)[48..52], CONTROL.to_le_bytes());
    let over_this = answer(&node, id);
    drive(&[&node], || node.sent(over_this) == Some(Ok(())));
    assert_eq!(wire.read(&[&node], 24 + 72).len(), 24 + 72, "it is answered where it asks");
    hang_up(wire, 1);
    // The thief may have used a PID that LNet does not answer to.
    for id in [id, ProcessId::new(id.nid, Pid(777))] {
        let token = answer(&node, id);
        assert_eq!(node.sent(token), Some(Err(Errno::EHOSTUNREACH)));
    }
    settle(&[&node]);
    assert!(listener.accept().is_err(), "nobody is connected to");
    assert_eq!(node.counters().tx.answers_withheld, 2);

    let (wire, _) = Wire::shake_hands(owner, &node, INCARNATION, CONTROL);
    hang_up(wire, 2);
    let token = answer(&node, id);
    let (_wire, _) = Wire::accept(&listener, &[&node]);
    assert_eq!(node.sent(token), None, "it waits for the connection");
    answer(&node, ProcessId::new(id.nid, Pid(778)));
    let (_wire, _) = Wire::accept(&listener, &[&node]);
}

/// A privileged port shows that root has opened the connection, on any host: it does not make this
/// node connect to another one, under any policy. A program's own messages to that NID go there.
#[test]
fn a_privileged_port_elsewhere_proves_no_address() {
    if !nix::unistd::geteuid().is_root() {
        return nlx_skip::skipped("a peer with a privileged port", "only root has such ports");
    }
    for policy in [AcceptPolicy::Secure, AcceptPolicy::Hello, AcceptPolicy::All] {
        let node = with_policy(policy);
        let ours = node.nid.ipv4().unwrap();
        let (victim, attacker) = (address(), address());
        let listener = raw::listen(victim);
        listener.set_nonblocking(true).unwrap();
        let id = ProcessId::lnet(nid_of(victim));
        let mut wire = Wire::connect(attacker, 701, &node);
        wire.send(&[raw::request(ours), raw::hello(3, victim, ours, INCARNATION, CONTROL)].concat());
        assert_eq!(wire.read(&[&node], 56)[48..52], CONTROL.to_le_bytes());
        drop(wire);
        drive(&[&node], || node.lost().len() == 1);
        let body = Body::Reply { dst_wmd: WireHandle::new(1, 1) };
        let token = node.send(id, Header { dest: id, src: node.id(), payload_length: 0, body }, None, FAR);
        assert_eq!(node.sent(token), Some(Err(Errno::EHOSTUNREACH)));
        settle(&[&node]);
        assert!(listener.accept().is_err(), "the victim is not connected to");
        assert_eq!(node.counters().tx.answers_withheld, 1);
        node.put_bytes(id, b"x", 0);
        let (_wire, _) = Wire::accept(&listener, &[&node]);
    }
}
