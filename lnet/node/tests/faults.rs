//! Losses and delays on purpose, between two nodes over TCP.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use lnet_api::{
    AckRequest, EqHandle, Event, EventKind, Get, LNet, Md, MdOptions, MeSpec, Position, Put, Threshold,
    Unlink,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_node::{FaultRule, Node, NodeConfig};
use lnet_region::{IoVec, Region};

/// What takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 21_986;
/// Nothing, a little, what is read whole, and what is not.
const SIZES: [usize; 4] = [0, 8, 4096, 1 << 20];

struct End {
    node: Node,
    lnet: Arc<dyn LNet>,
    eq: EqHandle,
}

impl End {
    fn start(address: &str, partitions: usize, rules: &str) -> End {
        let table = Arc::new(CptTable::virtual_parts(partitions).unwrap());
        let config =
            NodeConfig::new().net(&format!("tcp({address})")).unwrap().partitions(table).accept_port(PORT);
        let rules = FaultRule::parse_all(rules).unwrap();
        let node = Node::start(&rules.into_iter().fold(config, NodeConfig::fault)).unwrap();
        let lnet = node.lnet();
        let eq = lnet.eq_alloc_polled(1024, None).unwrap();
        End { node, lnet, eq }
    }

    fn id(&self) -> ProcessId {
        ProcessId::lnet(self.node.nids()[0])
    }

    fn md(&self, memory: &IoVec, options: MdOptions, threshold: u32) -> Md {
        let (memory, threshold) = (memory.clone(), Threshold::Limited(threshold));
        Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    fn post(&self, bits: u64, memory: &IoVec, options: MdOptions) {
        let me = MeSpec {
            portal: portal(),
            match_id: ProcessId::ANY,
            match_bits: MatchBits(bits),
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        };
        let me = self.lnet.me_attach(&me).unwrap();
        self.lnet.md_attach(me, self.md(memory, options, 1), Unlink::Auto).unwrap();
    }

    fn put(&self, to: &End, bits: u64, memory: &IoVec, ack: AckRequest) {
        let threshold = if ack == AckRequest::Ack { 2 } else { 1 };
        let md = self.lnet.md_bind(self.md(memory, MdOptions::empty(), threshold), Unlink::Auto).unwrap();
        let (portal, match_bits) = (portal(), MatchBits(bits));
        let put = Put { source: None, md, ack, target: to.id(), portal, match_bits, offset: 0, hdr_data: 0 };
        self.lnet.put(&put).unwrap();
    }

    fn get(&self, from: &End, bits: u64, memory: &IoVec) {
        let md = self.lnet.md_bind(self.md(memory, MdOptions::empty(), 2), Unlink::Auto).unwrap();
        let (portal, match_bits) = (portal(), MatchBits(bits));
        self.lnet.get(&Get { source: None, md, target: from.id(), portal, match_bits, offset: 0 }).unwrap();
    }

    fn drive_until(&self, happens: impl Fn() -> bool) {
        let begun = Instant::now();
        while !happens() {
            assert!(begun.elapsed() < PATIENCE, "it hangs");
            self.node.eq_poll(&[self.eq], Some(Duration::from_millis(1))).unwrap();
        }
    }

    /// So many events of a kind, each a success; others are passed over.
    fn await_events(&self, kind: EventKind, count: usize) -> Vec<Event> {
        let mut found = Vec::new();
        while found.len() < count {
            let polled = self.node.eq_poll(&[self.eq], Some(PATIENCE)).unwrap().expect("it hangs");
            assert_eq!((polled.event.status, polled.missed), (Ok(()), 0));
            found.extend(Some(polled.event).filter(|event| event.kind == kind));
        }
        found
    }
}

fn portal() -> Portal {
    Portal::new(42).unwrap()
}

fn memory(bytes: usize, seed: u8) -> IoVec {
    let memory = IoVec::whole(Region::heap(bytes.max(1)).unwrap()).trimmed(bytes).unwrap();
    if bytes > 0 {
        memory.write(0..bytes).unwrap().copy_from(0, &vec![seed; bytes]);
    }
    memory
}

fn content(memory: &IoVec) -> Vec<u8> {
    if memory.is_empty() { Vec::new() } else { memory.read(0..memory.len()).unwrap().to_vec() }
}

fn net(partitions: usize) -> [String; 2] {
    [1, 2].map(|host| format!("127.45.{partitions}.{host}"))
}

/// Requests and answers of all kinds and sizes are late, and all arrive.
#[test]
fn late_messages_of_all_kinds_arrive_over_tcp() {
    for partitions in [1, 2, 4] {
        let [a, b] = net(partitions);
        let a = End::start(&a, partitions, "delay 1ms..2ms ack,reply");
        let b = End::start(&b, partitions, "delay 100us..3ms put,get portal 42");
        for (number, bytes) in (1u8..).zip(SIZES) {
            let (sent, received) = (memory(bytes, number), memory(bytes, 0));
            b.post(u64::from(number), &received, MdOptions::OP_PUT);
            a.put(&b, u64::from(number), &sent, AckRequest::Ack);
            let (source, sink) = (memory(bytes, number + 100), memory(bytes, 0));
            b.post(u64::from(number) + 100, &source, MdOptions::OP_GET);
            a.get(&b, u64::from(number) + 100, &sink);
            // The answers end both; nobody waits at `b`, whose own threads drive it.
            let ends = [EventKind::Ack, EventKind::Reply];
            let mut left = ends.len();
            while left > 0 {
                let event = a.node.eq_poll(&[a.eq], Some(PATIENCE)).unwrap().expect("it hangs").event;
                assert_eq!(event.status, Ok(()));
                left -= usize::from(ends.contains(&event.kind));
            }
            assert_eq!(content(&received), content(&sent));
            assert_eq!(content(&sink), content(&source));
        }
        for end in [&a, &b] {
            let [found] = &end.node.faults()[..] else { panic!("one rule") };
            assert_eq!((found.matched, found.delayed, found.dropped), (8, 8, 0), "{}", found.rule);
        }
    }
}

/// What is not lost arrives, in order; the report says how many were.
#[test]
fn exactly_the_losses_that_were_asked_for() {
    let [a, b] = net(9);
    let (a, b) = (End::start(&a, 2, ""), End::start(&b, 2, ""));
    let rule = b.node.add_fault("drop every 4 put portal 42".parse().unwrap()).unwrap();
    let buffers: Vec<IoVec> = (0..9).map(|_| memory(8, 0)).collect();
    buffers.iter().for_each(|buffer| b.post(1, buffer, MdOptions::OP_PUT));
    (1..=12).for_each(|number| a.put(&b, 1, &memory(8, number), AckRequest::NoAck));
    b.await_events(EventKind::Put, 9);
    let arrived: Vec<u8> = buffers.iter().map(|buffer| content(buffer)[0]).collect();
    assert_eq!(arrived, [1, 2, 3, 5, 6, 7, 9, 10, 11]);
    // The last one arrives after those.
    b.drive_until(|| b.node.faults()[0].matched == 12);
    let found = b.node.remove_fault(rule).unwrap();
    assert_eq!((found.matched, found.dropped), (12, 3));
    assert!(b.node.remove_fault(rule).is_err_and(|error| error.to_string().contains("fault rule")));
    a.await_events(EventKind::Send, 12);
}

/// A late message's connection is closed, for its node goes; both ends come to their end.
#[test]
fn a_node_ends_while_messages_are_late() {
    let [a, b] = net(10);
    let (a, b) = (End::start(&a, 1, ""), End::start(&b, 1, "delay 60s put"));
    b.post(1, &memory(8, 0), MdOptions::OP_PUT);
    a.put(&b, 1, &memory(8, 1), AckRequest::NoAck);
    a.await_events(EventKind::Send, 1);
    b.drive_until(|| b.node.faults()[0].delayed == 1);
    b.node.shutdown(Duration::ZERO);
    assert_eq!(b.node.counters().drop_count, 1);
}
