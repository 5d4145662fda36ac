//! Nodes that exchange messages and verify every byte.

use std::sync::Arc;

use lnet_api::{
    AckRequest, EqHandle, Event, EventKind, Get, LNet, Md, MdHandle, MdOptions, MeSpec, Position, Put,
    Sleeper, Threshold, Unlink, wait_until,
};
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::IoVec;

use crate::TIME_LIMIT;
use crate::buffers::{bytes, filled, pattern, whole};
use crate::events::EventLog;

/// The number of rounds of an exchange: more than a node has partitions, so that each partition
/// gets some.
const ROUNDS: u64 = 12;

/// A node with an event queue.
pub struct Station {
    /// The node.
    pub node: Node,
    /// The LNet of the node.
    pub lnet: Arc<dyn LNet>,
    /// The events of its queue.
    pub log: Arc<EventLog>,
    sleeper: Arc<Sleeper>,
    eq: EqHandle,
}

impl Station {
    /// Starts a node.
    pub fn start(config: &NodeConfig) -> Station {
        let node = Node::start(config).unwrap();
        let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().unwrap());
        let (lnet, log) = (node.lnet(), EventLog::waking(sleeper.clone(), 0));
        let eq = lnet.eq_alloc(log.clone()).unwrap();
        Station { node, lnet, log, sleeper, eq }
    }

    /// Returns the node's process id, by its first NID.
    pub fn id(&self) -> ProcessId {
        ProcessId { nid: self.node.nids()[0], pid: Pid::LNET }
    }

    fn md(&self, memory: &IoVec, threshold: u32, options: MdOptions) -> Md {
        let (memory, threshold) = (memory.clone(), Threshold::Limited(threshold));
        Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    /// Posts a buffer for one operation of a peer.
    pub fn post(&self, portal: Portal, from: ProcessId, bits: MatchBits, memory: &IoVec, options: MdOptions) {
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

    /// Binds a buffer for `operations` active operations.
    pub fn bind(&self, memory: &IoVec, operations: u32) -> MdHandle {
        self.lnet.md_bind(self.md(memory, operations, MdOptions::empty()), Unlink::Auto).unwrap()
    }

    /// Starts a PUT with ACK, which ends with one event, even if the peer fails. Its events have
    /// this number.
    pub fn begin_put(&self, to: ProcessId, portal: Portal, bits: MatchBits, memory: &IoVec, number: u64) {
        let md = Md { user_ptr: number, ..self.md(memory, 2, MdOptions::TRACK_RESPONSE) };
        let md = self.lnet.md_bind(md, Unlink::Auto).unwrap();
        self.put(md, to, portal, bits, AckRequest::Ack, 0);
    }

    /// Sends a PUT.
    pub fn put(
        &self,
        md: MdHandle,
        target: ProcessId,
        portal: Portal,
        match_bits: MatchBits,
        ack: AckRequest,
        hdr_data: u64,
    ) {
        let put = Put { source: None, md, ack, target, portal, match_bits, offset: 0, hdr_data };
        self.lnet.put(&put).unwrap();
    }

    /// Sends a GET into memory.
    pub fn get(&self, memory: &IoVec, target: ProcessId, portal: Portal, match_bits: MatchBits) {
        let get = Get { source: None, md: self.bind(memory, 2), target, portal, match_bits, offset: 0 };
        self.lnet.get(&get).unwrap();
    }

    /// Drives the node until an event of this kind, or an error, comes; returns the event and
    /// panics on an error.
    pub fn expect(&self, kind: EventKind) -> Event {
        let wanted = |event: &Event| event.kind == kind || event.status.is_err();
        let event = self.wait_for(&format!("{kind:?}"), wanted);
        assert_eq!(event.status, Ok(()), "{event:?}");
        event
    }

    /// Drives the node until a wanted event comes, and returns it.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let drive = self.node.drive();
        let deadline_ns = drive.now_ns() + TIME_LIMIT.as_nanos() as u64;
        let mut found = None;
        wait_until(&*drive, &self.sleeper, Some(deadline_ns), || {
            found = found.or_else(|| self.log.take_first(&wanted));
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("no {what} event"))
    }
}

/// Exchanges PUTs with ACK, GETs of `length` bytes, and pings both ways, with entries for one peer
/// and for all.
pub fn exchange(one: &Station, other: &Station, length: usize) {
    let portals = [(Portal::new(50).unwrap(), one.id()), (Portal::new(51).unwrap(), ProcessId::ANY)];
    for round in 0..ROUNDS {
        let bits = MatchBits(round);
        for (portal, from) in portals {
            let (sink, source) = (whole(length), filled(whole(length), round));
            other.post(portal, from, bits, &sink, MdOptions::OP_PUT);
            one.put(one.bind(&source, 2), other.id(), portal, bits, AckRequest::Ack, round);
            one.expect(EventKind::Send);
            assert_eq!(one.expect(EventKind::Ack).mlength as usize, length);
            let arrived = other.expect(EventKind::Put);
            assert_eq!((arrived.hdr_data, arrived.initiator.nid), (round, one.id().nid));
            assert_eq!(bytes(&sink), pattern(round, length));

            let (sink, source) = (whole(length), filled(whole(length), !round));
            other.post(portal, from, bits, &source, MdOptions::OP_GET);
            one.get(&sink, other.id(), portal, bits);
            one.expect(EventKind::Reply);
            other.expect(EventKind::Get);
            assert_eq!(bytes(&sink), pattern(!round, length));
        }
    }
    for (asking, asked) in [(one, other), (other, one)] {
        let answer = asking.node.ping(asked.id().nid, None, TIME_LIMIT).unwrap();
        assert_eq!(answer.nids, asked.node.nids());
    }
}
