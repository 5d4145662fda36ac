//! Nodes that exchange messages and verify every byte.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lnet_api::{
    AckRequest, EqHandle, Event, EventHandler, EventKind, Get, LNet, Md, MdHandle, MdOptions, MeSpec,
    Position, Put, Sleeper, Threshold, Unlink, wait_until,
};
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};

/// Longer than anything here takes; only a test that fails waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// More than partitions, so that each has some.
const ROUNDS: u64 = 12;

/// Keeps events and wakes whoever waits for them.
pub struct Inbox {
    events: Mutex<Vec<Event>>,
    sleeper: Arc<Sleeper>,
}

impl EventHandler for Inbox {
    fn event(&self, event: &Event) {
        self.events.lock().unwrap().push(*event);
    }

    fn wake(&self) {
        self.sleeper.wake();
    }
}

impl Inbox {
    /// All that has come.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

/// A node with an event queue.
pub struct Station {
    pub node: Node,
    pub lnet: Arc<dyn LNet>,
    pub inbox: Arc<Inbox>,
    eq: EqHandle,
}

impl Station {
    pub fn start(config: &NodeConfig) -> Station {
        let node = Node::start(config).unwrap();
        let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().unwrap());
        let inbox = Arc::new(Inbox { events: Mutex::default(), sleeper });
        let lnet = node.lnet();
        let eq = lnet.eq_alloc(inbox.clone()).unwrap();
        Station { node, lnet, inbox, eq }
    }

    pub fn id(&self) -> ProcessId {
        ProcessId { nid: self.node.nids()[0], pid: Pid::LNET }
    }

    fn md(&self, memory: IoVec, threshold: u32, options: MdOptions) -> Md {
        let threshold = Threshold::Limited(threshold);
        Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    /// Posts a buffer for one operation of a peer.
    fn post(&self, portal: Portal, from: ProcessId, bits: MatchBits, memory: IoVec, options: MdOptions) {
        let me = MeSpec {
            portal,
            match_id: from,
            match_bits: bits,
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        };
        let me = self.lnet.me_attach(&me).unwrap();
        self.lnet.md_attach(me, self.md(memory, 1, options), Unlink::Auto).unwrap();
    }

    fn bind(&self, memory: IoVec, operations: u32) -> MdHandle {
        self.lnet.md_bind(self.md(memory, operations, MdOptions::empty()), Unlink::Auto).unwrap()
    }

    /// Begins a PUT with ACK, which ends with one event that says so, whatever becomes of the peer. Its events have this
    /// number.
    pub fn begin_put(&self, to: ProcessId, portal: Portal, bits: MatchBits, memory: IoVec, number: u64) {
        let md = Md { user_ptr: number, ..self.md(memory, 2, MdOptions::TRACK_RESPONSE) };
        let md = self.lnet.md_bind(md, Unlink::Auto).unwrap();
        self.put(md, to, portal, bits, 0);
    }

    fn put(&self, md: MdHandle, target: ProcessId, portal: Portal, match_bits: MatchBits, hdr_data: u64) {
        let ack = AckRequest::Ack;
        let put = Put { source: None, md, ack, target, portal, match_bits, offset: 0, hdr_data };
        self.lnet.put(&put).unwrap();
    }

    /// Drives the node until it has had an event of this kind, without an error, and gives it.
    pub fn expect(&self, kind: EventKind) -> Event {
        let event = self.wait_for(&format!("{kind:?}"), |event| event.kind == kind);
        assert_eq!(event.status, Ok(()), "{event:?}");
        event
    }

    /// Drives the node until it has had such an event, and gives it.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let drive = self.node.drive();
        let deadline_ns = drive.now_ns() + PATIENCE.as_nanos() as u64;
        let mut found = None;
        wait_until(&*drive, &self.inbox.sleeper, Some(deadline_ns), || {
            let mut events = self.inbox.events.lock().unwrap();
            if let Some(at) = events.iter().position(&wanted) {
                found = Some(events.remove(at));
            }
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("no {what} event"))
    }
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed) as u8).collect()
}

fn memory(content: &[u8]) -> IoVec {
    let memory = IoVec::whole(Region::heap(content.len()).unwrap());
    memory.write(0..content.len()).unwrap().copy_from(0, content);
    memory
}

fn content(memory: &IoVec) -> Vec<u8> {
    memory.read(0..memory.len()).unwrap().to_vec()
}

/// PUTs with ACK, GETs of so many bytes, and pings both ways, with entries for one peer and for all.
pub fn exchange(one: &Station, other: &Station, length: usize) {
    let portals = [(Portal::new(50).unwrap(), one.id()), (Portal::new(51).unwrap(), ProcessId::ANY)];
    for round in 0..ROUNDS {
        let bits = MatchBits(round);
        for (portal, from) in portals {
            let (sink, source) = (memory(&vec![0; length]), memory(&bytes(round, length)));
            other.post(portal, from, bits, sink.clone(), MdOptions::OP_PUT);
            one.put(one.bind(source, 2), other.id(), portal, bits, round);
            one.expect(EventKind::Send);
            assert_eq!(one.expect(EventKind::Ack).mlength as usize, length);
            let arrived = other.expect(EventKind::Put);
            assert_eq!((arrived.hdr_data, arrived.initiator.nid), (round, one.id().nid));
            assert_eq!(content(&sink), bytes(round, length));

            let (sink, source) = (memory(&vec![0; length]), memory(&bytes(!round, length)));
            other.post(portal, from, bits, source, MdOptions::OP_GET);
            let get = Get {
                source: None,
                md: one.bind(sink.clone(), 2),
                target: other.id(),
                portal,
                match_bits: bits,
                offset: 0,
            };
            one.lnet.get(&get).unwrap();
            one.expect(EventKind::Reply);
            other.expect(EventKind::Get);
            assert_eq!(content(&sink), bytes(!round, length));
        }
    }
    for (asking, asked) in [(one, other), (other, one)] {
        let answer = asking.node.ping(asked.id().nid, None, PATIENCE).unwrap();
        assert_eq!(answer.nids, asked.node.nids());
    }
}
