//! Fault rules: losses and delays between two nodes over TCP.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use lnet_api::{AckRequest, EventKind, MdOptions};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_node::{FaultRule, NodeConfig};
use lnet_region::IoVec;
use nlx_testkit::buffers::{bytes, filled, pattern, whole};
use nlx_testkit::station::Station;
use nlx_testkit::until;

const PORT: u16 = 21_986;
/// Payloads of no bytes, of few, of a size that is read in one piece, and of one that is not.
const SIZES: [usize; 4] = [0, 8, 4096, 1 << 20];

/// Starts a node with these fault rules.
fn start(address: &str, partitions: usize, rules: &str) -> Station {
    let table = Arc::new(CptTable::virtual_parts(partitions).unwrap());
    let config =
        NodeConfig::new().net(&format!("tcp({address})")).unwrap().partitions(table).accept_port(PORT);
    let rules = FaultRule::parse_all(rules).unwrap();
    Station::start(&rules.into_iter().fold(config, NodeConfig::fault))
}

fn portal() -> Portal {
    Portal::new(42).unwrap()
}

fn post(at: &Station, bits: u64, memory: &IoVec, options: MdOptions) {
    at.post(portal(), ProcessId::ANY, MatchBits(bits), memory, options);
}

fn put(from: &Station, to: &Station, bits: u64, memory: &IoVec, ack: AckRequest) {
    let md = from.bind(memory, if ack == AckRequest::Ack { 2 } else { 1 });
    from.put(md, to.id(), portal(), MatchBits(bits), ack, 0);
}

fn net(partitions: usize) -> [String; 2] {
    [1, 2].map(|host| format!("127.45.{partitions}.{host}"))
}

/// Requests and answers of all kinds and sizes arrive after their delay.
#[test]
fn late_messages_of_all_kinds_arrive_over_tcp() {
    for partitions in [1, 2, 4] {
        let [a, b] = net(partitions);
        let a = start(&a, partitions, "delay 1ms..2ms ack,reply");
        let b = start(&b, partitions, "delay 100us..3ms put,get portal 42");
        for (number, length) in (1..).zip(SIZES) {
            let (received, sink) = (whole(length), whole(length));
            post(&b, number, &received, MdOptions::OP_PUT);
            put(&a, &b, number, &filled(whole(length), number), AckRequest::Ack);
            post(&b, number + 100, &filled(whole(length), number + 100), MdOptions::OP_GET);
            a.get(&sink, b.id(), portal(), MatchBits(number + 100));
            // Both operations end with their answers. No thread waits at `b`, whose scheduler
            // threads drive it.
            a.expect(EventKind::Ack);
            a.expect(EventKind::Reply);
            assert_eq!(bytes(&received), pattern(number, length));
            assert_eq!(bytes(&sink), pattern(number + 100, length));
        }
        for end in [&a, &b] {
            let [found] = &end.node.faults()[..] else { panic!("one rule") };
            assert_eq!((found.matched, found.delayed, found.dropped), (8, 8, 0), "{}", found.rule);
        }
    }
}

/// Exactly the messages of the rule are lost: the others arrive, in order, and the statistics have
/// the number of losses.
#[test]
fn exactly_the_losses_that_were_asked_for() {
    let [a, b] = net(9);
    let (a, b) = (start(&a, 2, ""), start(&b, 2, ""));
    let rule = b.node.add_fault("drop every 4 put portal 42".parse().unwrap()).unwrap();
    let buffers: Vec<IoVec> = (0..9).map(|_| whole(8)).collect();
    buffers.iter().for_each(|buffer| post(&b, 1, buffer, MdOptions::OP_PUT));
    (1..=12).for_each(|number| put(&a, &b, 1, &filled(whole(8), number), AckRequest::NoAck));
    for _ in 0..9 {
        b.expect(EventKind::Put);
    }
    let arrived: Vec<_> = buffers.iter().map(bytes).collect();
    assert_eq!(arrived, [1, 2, 3, 5, 6, 7, 9, 10, 11].map(|number| pattern(number, 8)));
    // The last message arrives after the others.
    until("the last one", || b.node.faults()[0].matched == 12);
    let found = b.node.remove_fault(rule).unwrap();
    assert_eq!((found.matched, found.dropped), (12, 3));
    assert!(b.node.remove_fault(rule).is_err_and(|error| error.to_string().contains("fault rule")));
    for _ in 0..12 {
        a.expect(EventKind::Send);
    }
}

/// A node ends while it delays a message: the message's connection is closed, and the operations of
/// both sides end.
#[test]
fn a_node_ends_while_messages_are_late() {
    let [a, b] = net(10);
    let (a, b) = (start(&a, 1, ""), start(&b, 1, "delay 60s put"));
    post(&b, 1, &whole(8), MdOptions::OP_PUT);
    put(&a, &b, 1, &whole(8), AckRequest::NoAck);
    a.expect(EventKind::Send);
    until("it is late", || b.node.faults()[0].delayed == 1);
    b.node.shutdown(Duration::ZERO);
    assert_eq!(b.node.counters().drop_count, 1);
}
