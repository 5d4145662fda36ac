//! A whole node against captured bytes: it answers the requests of real nodes, and sends requests
//! that real nodes answered. The peer is made of raw bytes (lnet-measured, the captures in
//! `vectors/`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use lnet_nid::{Net, Nid};
use lnet_node::{Node, NodeConfig};
use support::{Capture, assert_same_meaning, connect, free_port, message, read, write};

/// The incarnation in a hello, which differs in each run (lnet-wire 22.2).
const INCARNATION: std::ops::Range<usize> = 32..40;
/// The receiver's PID in a hello: set for peers whose source port is unprivileged, as in these
/// tests; the captured nodes used privileged ports.
const RECEIVER_PID: std::ops::Range<usize> = 28..32;
const PREFIX: usize = 24;
const HEADER: usize = 72;
/// The sequence number in a ping info's first entry, behind prefix and header (lnet-wire 16).
const SEQUENCE: std::ops::Range<usize> = PREFIX + HEADER + 24..PREFIX + HEADER + 28;

fn node(address: Ipv4Addr, port: u16) -> Node {
    let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(port);
    Node::start(&config).unwrap()
}

#[test]
fn a_captured_ping_is_answered_as_the_real_node_answered() {
    let (peer, ours) = (Ipv4Addr::new(127, 2, 1, 1), Ipv4Addr::new(127, 2, 1, 2));
    let port = free_port(ours);
    let _node = node(ours, port);
    let capture = Capture::load("tcp-ping.json", peer, ours);
    // The three connections in the order in which the real node opened them.
    let mut connections = Vec::new();
    for number in 0..3 {
        let (asked, answered) = (capture.items("active", number), capture.items("passive", number));
        let mut connection = connect(peer, ours, port);
        write(&mut connection, &[&asked[0].bytes[..], &asked[1].bytes].concat());
        let hello = read(&mut connection, answered[0].bytes.len());
        assert_same_meaning(&hello, &answered[0].bytes, &[INCARNATION, RECEIVER_PID]);
        if number == 0 {
            write(&mut connection, &asked[2].bytes);
            let reply = read(&mut connection, answered[1].bytes.len());
            assert_same_meaning(&reply, &answered[1].bytes, &[SEQUENCE]);
        }
        connections.push(connection);
    }
}

#[test]
fn a_captured_push_is_acknowledged_as_the_real_node_acknowledged_it() {
    let (peer, ours) = (Ipv4Addr::new(127, 2, 2, 1), Ipv4Addr::new(127, 2, 2, 2));
    let port = free_port(ours);
    let _node = node(ours, port);
    let capture = Capture::load("tcp-discover.json", peer, ours);
    let (asked, answered) = (capture.items("active", 0), capture.items("passive", 0));
    let mut connection = connect(peer, ours, port);
    // All at once: request, hello, ping, push, and the selftest's messages, for which no buffer is
    // posted here.
    let everything: Vec<u8> =
        asked.iter().filter(|item| item.message != "ACK").flat_map(|item| item.bytes.clone()).collect();
    write(&mut connection, &everything);
    let hello = read(&mut connection, answered[0].bytes.len());
    assert_same_meaning(&hello, &answered[0].bytes, &[INCARNATION, RECEIVER_PID]);
    let reply = message(&answered, "REPLY");
    assert_same_meaning(&read(&mut connection, reply.bytes.len()), &reply.bytes, &[SEQUENCE]);
    let ack = message(&answered, "ACK");
    assert_same_meaning(&read(&mut connection, ack.bytes.len()), &ack.bytes, &[]);
    // The connection remains: another ping is answered.
    write(&mut connection, &message(&asked, "GET").bytes);
    assert_same_meaning(&read(&mut connection, reply.bytes.len()), &reply.bytes, &[SEQUENCE]);
}

// Covers: S-207
#[test]
fn our_ping_asks_as_the_real_node_asked() {
    let (ours, peer) = (Ipv4Addr::new(127, 2, 3, 1), Ipv4Addr::new(127, 2, 3, 2));
    let listener = TcpListener::bind(SocketAddr::from((peer, 0))).unwrap();
    let node = node(ours, listener.local_addr().unwrap().port());
    let capture = Capture::load("tcp-ping.json", ours, peer);
    let judge = std::thread::spawn(move || {
        let mut connections = Vec::new();
        // CONTROL, BULK_IN, BULK_OUT, in this order.
        for number in 0..3 {
            let (asked, answered) = (capture.items("active", number), capture.items("passive", number));
            let (mut connection, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), ours);
            assert_same_meaning(&read(&mut connection, asked[0].bytes.len()), &asked[0].bytes, &[]);
            assert_same_meaning(
                &read(&mut connection, asked[1].bytes.len()),
                &asked[1].bytes,
                &[INCARNATION],
            );
            let mut hello = answered[0].bytes.clone();
            if from.port() > 1023 {
                // Without root: a node with a kernel's policy would name this peer by its port,
                // unless the hello has a receiver's PID.
                hello[RECEIVER_PID].copy_from_slice(&12345u32.to_le_bytes());
            }
            write(&mut connection, &hello);
            if number == 0 {
                answer_ping(&mut connection, &asked[2].bytes, &answered[1].bytes);
            }
            connections.push(connection);
        }
        connections
    });
    let target = Nid::new_v4(Net::TCP, peer);
    let answer = node.ping(target, None, Duration::from_secs(20)).unwrap();
    assert_eq!(answer.nids, [target]);
    // The scheduler thread opens the other two; the judge keeps all three open until it has
    // accepted them.
    assert_eq!(judge.join().unwrap().len(), 3);
}

/// Reads a ping GET, compares it with a captured one, and sends the captured answer with its
/// handle.
fn answer_ping(connection: &mut std::net::TcpStream, asked: &[u8], answered: &[u8]) {
    let get = read(connection, PREFIX + HEADER);
    let handle = PREFIX + 32..PREFIX + 48;
    let sink_length = PREFIX + 64..PREFIX + 68;
    assert_same_meaning(&get, asked, &[handle.clone(), sink_length.clone()]);
    let room = u32::from_le_bytes(get[sink_length].try_into().unwrap());
    // The minimum that a real node requests (lnet-wire 15).
    assert!(room >= 272, "room for {room} bytes");
    let mut reply = answered.to_vec();
    reply[handle.clone()].copy_from_slice(&get[handle]);
    write(connection, &reply);
}
