//! Messages on an established connection, each with another error: the connection ends, and no
//! other.

use lnet_api::{Errno, EventKind, LNet, MdOptions};
use lnet_o2iblnd::sizes::BOUNCES;
use lnet_region::IoVec;
use nlx_testkit::buffers::{apart, bytes, filled, whole};
use nlx_testkit::lnds::{S, portal, put};

use super::bytes::*;
use super::stranger::{Line, Scene};
use crate::Node;

/// A function that makes the message for the node with this incarnation.
type Saying<'a> = &'a dyn Fn(End) -> Vec<u8>;

/// Sends the message on a line, and waits for the end of the line.
fn ends(scene: &Scene, what: &str, say: impl FnOnce(&Scene, &mut Line, End)) {
    let before = scene.victim().lnd.counters().rx.closes;
    let (mut line, other) = scene.connected();
    say(scene, &mut line, other);
    scene.expect_ended(&line, what);
    assert_eq!(scene.victim().lnd.counters().rx.closes, before + 1, "{what}");
}

/// Each wrong message ends its connection and no other (lnet-wire 32, 35.5, 36).
#[test]
fn each_wrong_message_ends_its_connection_alone() {
    let scene = Scene::new();
    let own = scene.own();
    let noop = |other| message(NOOP, own, other, &[]);
    let wrong: [(&str, Saying<'_>); 29] = [
        ("a byte", &|_| vec![0x91]),
        ("half a head", &|other| noop(other)[..24].to_vec()),
        ("ones", &|_| vec![0xff; 4096]),
        ("zeros", &|_| vec![0; 4096]),
        ("magic", &|other| changed(&noop(other), 0, &[0])),
        ("version", &|other| changed(&noop(other), 4, &[0x13])),
        ("no type", &|other| changed(&noop(other), 6, &[0])),
        ("unknown type", &|other| changed(&noop(other), 6, &[0xd8])),
        ("longer than it is", &|other| changed(&noop(other), 8, &[49])),
        ("shorter than a head", &|other| changed(&noop(other), 8, &[47])),
        ("from nobody", &|other| changed(&noop(other), 16, &[0xff; 8])),
        ("from another node", &|other| changed(&noop(other), 16, &[9])),
        ("of another life", &|other| changed(&noop(other), 24, &[9])),
        ("to another node", &|other| changed(&noop(other), 32, &[9])),
        ("to another life", &|other| noop(End { stamp: !other.stamp, ..other })),
        ("more credits than there are", &|other| changed(&noop(other), 7, &[9])),
        ("a CONNREQ", &|other| message(CONNREQ, own, other, &params(8, 257, 4096))),
        ("a CONNACK", &|other| message(CONNACK, own, other, &params(8, 257, 4096))),
        ("PUT_NAK of nothing", &|other| message(PUT_NAK, own, other, &[7; 12])),
        ("PUT_DONE of nothing", &|other| message(PUT_DONE, own, other, &[7; 12])),
        ("GET_DONE of nothing", &|other| message(GET_DONE, own, other, &[7; 12])),
        ("PUT_ACK of nothing", &|other| {
            message(PUT_ACK, own, other, &[&[7; 16][..], &descriptor(1, 1, &[(8, 8)])].concat())
        }),
        ("a PUT_ACK without fragments", &|other| {
            message(PUT_ACK, own, other, &[&[7; 16][..], &descriptor(1, 0, &[])].concat())
        }),
        ("an IMMEDIATE without its payload", &|other| {
            message(IMMEDIATE, own, other, &header(1, own.nid, other.nid, 100, 7))
        }),
        ("an LNet header of no type", &|other| {
            message(IMMEDIATE, own, other, &header(9, own.nid, other.nid, 0, 7))
        }),
        ("a PUT_REQ without its cookie", &|other| {
            message(PUT_REQ, own, other, &header(1, own.nid, other.nid, 5000, 7))
        }),
        ("a GET_REQ of 300 fragments", &|other| {
            get_req(own, other, other.nid, &descriptor(1, 300, &[(8, 8)]))
        }),
        ("a GET_REQ of 3 fragments, and 2", &|other| {
            get_req(own, other, other.nid, &descriptor(1, 3, &[(8, 8), (8, 8)]))
        }),
        ("a GET_REQ through this node", &|other| {
            get_req(own, other, other.nid + 1, &descriptor(1, 1, &[(5000, 8)]))
        }),
    ];
    for (what, say) in wrong {
        ends(&scene, what, |_, line, other| line.send(&say(other)));
    }
    assert!(scene.victim().lnd.counters().rx.protocol_errors >= wrong.len() as u64 - 1);
    scene.end();
}

fn get_req(own: End, other: End, target: u64, descriptor: &[u8]) -> Vec<u8> {
    let body = [&header(2, own.nid, target, 5000, 7)[..], &[1; 8], descriptor].concat();
    message(GET_REQ, own, other, &body)
}

fn put_req(own: End, other: End, cookie: u8) -> Vec<u8> {
    message(PUT_REQ, own, other, &[&header(1, own.nid, other.nid, 5000, 7)[..], &[cookie; 8]].concat())
}

/// A message that is longer than a receive buffer.
#[test]
fn an_oversize_message() {
    let scene = Scene::new();
    for length in [4097, 8192] {
        ends(&scene, "oversize", |_, line, other| {
            let mut bytes = message(NOOP, scene.own(), other, &[]);
            bytes.resize(length, 0);
            line.send(&bytes);
        });
    }
    scene.end();
}

/// lnet-wire 36: a peer with eight credits cannot begin nine transfers.
#[test]
fn more_than_its_credits() {
    let scene = Scene::new();
    scene.victim().engine.set_lazy(portal(), true);
    ends(&scene, "overrun", |scene, line, other| {
        (0..9).for_each(|cookie| line.send(&put_req(scene.own(), other, cookie)));
    });
    assert_eq!(scene.victim().engine.waiting(portal()), 0);
    scene.victim().engine.set_lazy(portal(), false);
    scene.end();
}

/// A PUT_DONE with more bytes than were requested.
#[test]
fn more_than_was_asked_for() {
    let scene = Scene::new();
    for status in [5001_i32, i32::MAX] {
        scene.victim().post(&whole(5000), 7, MdOptions::OP_PUT);
        ends(&scene, "status", |scene, line, other| {
            line.send(&put_req(scene.own(), other, 1));
            let mut received = Vec::new();
            scene.until(|| {
                received.extend(line.messages());
                !received.is_empty()
            });
            assert_eq!(received[0][6], PUT_ACK);
            let done = [&received[0][56..64], &status.to_le_bytes()].concat();
            line.send(&message(PUT_DONE, scene.own(), other, &done));
        });
        scene.victim().take();
    }
    scene.end();
}

/// A PUT_DONE without a write: the sink gets no data of other transfers that used the bounce buffer
/// before.
#[test]
fn done_without_a_write() {
    const PARTS: [usize; 3] = [4096, 5000, 4096];
    let length: usize = PARTS.iter().sum();
    let scene = Scene::new();
    let [victim, honest] = &scene.nodes;
    // Each buffer of the pool has been used before, so it has data of another transfer.
    let sinks: Vec<IoVec> = (0..BOUNCES).map(|_| apart(&PARTS)).collect();
    for (bits, sink) in sinks.iter().enumerate() {
        victim.post(sink, 100 + bits as u64, MdOptions::OP_PUT);
        honest.put(victim.id, &filled(whole(length), 1), 100 + bits as u64);
    }
    scene.until(|| honest.count(EventKind::Ack).1 == BOUNCES as usize);
    [victim, honest].into_iter().for_each(Node::clear);
    let (mut line, other) = scene.connected();
    for cookie in 0..BOUNCES as u8 {
        let sink = filled(apart(&PARTS), 2);
        victim.post(&sink, 7, MdOptions::OP_PUT | MdOptions::TRUNCATE);
        let header = header(1, scene.own().nid, other.nid, length as u32, 7);
        line.send(&message(PUT_REQ, scene.own(), other, &[&header[..], &[cookie; 8]].concat()));
        let mut received = Vec::new();
        scene.until(|| {
            received.extend(line.messages().into_iter().filter(|bytes| bytes[6] == PUT_ACK));
            !received.is_empty()
        });
        let done = [&received[0][56..64], &(length as i32).to_le_bytes()].concat();
        line.send(&message(PUT_DONE, scene.own(), other, &done));
        scene.until(|| victim.has(EventKind::Put));
        assert_eq!(bytes(&sink), vec![0; length], "number {cookie}");
        victim.clear();
    }
    drop(line);
    scene.end();
}

/// A peer that never writes to the bounce buffers that were described to it occupies half of them;
/// other peers' transfers get buffers at once. Its own waiting transfers are refused, before its
/// connection is closed for the unanswered ones.
// Covers: S-505
#[test]
fn one_peer_holds_half_of_the_pool() {
    const ASKED: u8 = 6;
    const HELD: usize = BOUNCES as usize / 4;
    let scene = Scene::new();
    let [victim, honest] = &scene.nodes;
    let (mut line, other) = scene.connected();
    for cookie in 0..ASKED {
        victim.post(&apart(&[4096, 5000]), 200 + u64::from(cookie), MdOptions::OP_PUT);
        let header = header(1, scene.own().nid, other.nid, 9096, 200 + u64::from(cookie));
        line.send(&message(PUT_REQ, scene.own(), other, &[&header[..], &[cookie; 8]].concat()));
    }
    let mut received = Vec::new();
    let mut expect = |line: &Line, kind, count| {
        scene.until(|| {
            received.extend(line.messages().into_iter().map(|bytes| bytes[6]));
            received.iter().filter(|received_kind| **received_kind == kind).count() == count
        });
    };
    expect(&line, PUT_ACK, HELD);
    assert_eq!(victim.lnd.conn_stats().bounces, HELD);
    put(&scene.bed, [honest, victim], &filled(whole(9096), 1), &apart(&[4096, 5000]));
    assert_eq!(victim.lnd.conn_stats().bounces, HELD);
    // This is half of the timeout, and a quarter until the next check.
    (0..4).for_each(|_| scene.later(10 * S));
    expect(&line, PUT_NAK, usize::from(ASKED) - HELD);
    assert_eq!(victim.lnd.conn_stats().connections, 2);
    (0..4).for_each(|_| scene.later(10 * S));
    scene.expect_ended(&line, "it owes writes");
    victim.take();
    drop(line);
    scene.end();
}

/// A GET that has waited for a bounce buffer gives the peer the whole timeout from then on: its
/// connection is not closed for the wait.
// Covers: S-505
#[test]
fn a_get_that_waits_for_the_pool() {
    const HELD: usize = BOUNCES as usize / 4;
    let scene = Scene::new();
    let victim = scene.victim();
    let (mut line, other) = scene.connected();
    for bits in 0..=HELD as u64 {
        victim.get(scene.id(), &apart(&[4096, 5000]), bits);
    }
    let mut cookies = Vec::new();
    let mut asked = |line: &Line, count| {
        scene.until(|| {
            let requests = line.messages().into_iter().filter(|bytes| bytes[6] == GET_REQ);
            cookies.extend(requests.map(|bytes| bytes[120..128].to_vec()));
            cookies.len() == count
        });
        cookies.clone()
    };
    let answer = |line: &mut Line, cookie: &[u8]| {
        let body = [cookie, &(-(Errno::ENODATA as i32)).to_le_bytes()].concat();
        line.send(&message(GET_DONE, scene.own(), other, &body));
    };
    let first = asked(&line, HELD);
    scene.later(20 * S);
    first.iter().for_each(|cookie| answer(&mut line, cookie));
    let last = asked(&line, HELD + 1).pop().unwrap();
    // The node is polled until after the time at which the GET would have ended without the wait.
    (0..4).for_each(|_| scene.later(10 * S));
    assert_eq!(victim.count(EventKind::Send), (HELD, 0));
    answer(&mut line, &last);
    scene.until(|| victim.count(EventKind::Send) == (HELD + 1, 0));
    assert_eq!((victim.lnd.conn_stats().connections, victim.lnd.conn_stats().bounces), (2, 0));
    victim.take();
    drop(line);
    scene.end();
}

/// A key without memory: the peer refuses the node's write, and the node loses this connection
/// only.
#[test]
fn wrong_keys() {
    let scene = Scene::new();
    for right_key in [false, true] {
        let memory = filled(whole(5000), 1);
        scene.victim().post(&memory, 7, MdOptions::OP_GET);
        ends(&scene, "a wrong key", |scene, line, other| {
            let (address, key) = line.target();
            let (address, key) =
                if right_key { (address.wrapping_sub(1 << 40), key) } else { (address, !key) };
            let descriptor = descriptor(key, 1, &[(5000, address)]);
            line.send(&get_req(scene.own(), other, other.nid, &descriptor));
        });
        assert_eq!(scene.victim().count(EventKind::Get), (1, 0), "the GET has failed");
        scene.victim().take();
    }
    scene.end();
}

/// The device closes the connection to a peer without receive buffers.
#[test]
fn deafness() {
    let scene = Scene::new();
    let (mut line, other) = scene.deaf();
    // The node answers that no buffer matches.
    line.send(&put_req(scene.own(), other, 1));
    scene.expect_ended(&line, "deaf");
    drop(line);
    scene.end();
}

/// A peer that receives everything and answers nothing: its connection is closed after the timeout,
/// and the messages sent to it fail.
#[test]
fn silence() {
    let scene = Scene::new();
    let (line, _) = scene.connected();
    let put = scene.victim().put_unasked(scene.id(), &filled(whole(5000), 1), 7);
    let get = scene.victim().get(scene.id(), &whole(5000), 7);
    scene.until(|| line.messages().len() + 2 > 2);
    for _ in 0..8 {
        scene.later(10 * S);
    }
    let over = |md| scene.victim().outcome(EventKind::Send, md).is_some_and(|outcome| outcome.is_err());
    scene.until(|| over(put) && over(get));
    scene.expect_ended(&line, "silence");
    scene.victim().take();
    drop(line);
    scene.end();
}
