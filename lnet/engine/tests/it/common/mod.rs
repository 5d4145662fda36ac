//! Engines connected by an in-memory network, whose treatment of messages each test controls.

#![allow(dead_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, Arrival, EqHandle, Errno, Event, Get, LNet, LNetError, Lnd, LndError, Md, MdHandle,
    MdOptions, MeHandle, MeSpec, NiLimits, PayloadTarget, Put, RxContext, Sent, Threshold, Tx, TxToken,
    Unlink, Upcalls, Verdict,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::IoVec;
use nlx_testkit::buffers;
pub(crate) use nlx_testkit::buffers::{bytes as content, whole as memory};
use nlx_testkit::events::EventLog;
use parking_lot::Mutex;

use super::PARTITIONS;

/// The network's treatment of a message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The message has left when `send` returns.
    Now,
    /// The message leaves when it is delivered.
    Later,
    /// The call of `send` fails.
    Fail(Errno),
}

/// A message in flight.
pub(crate) struct Packet {
    pub(crate) from: Nid,
    pub(crate) to: ProcessId,
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    /// The message at its LND, if it is not finalised yet.
    pub(crate) tx: Option<Tx>,
}

/// The receiver and the payload of a delayed message.
type HeldPayload = (Option<Nid>, Vec<u8>);

/// Numbers of arrived headers by verdict.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Verdicts {
    pub(crate) delivered: usize,
    pub(crate) done: usize,
    pub(crate) discarded: usize,
    pub(crate) delayed: usize,
    pub(crate) closed: usize,
}

/// The network: one LND for all nodes of a test.
pub(crate) struct Network {
    pub(crate) sending: Mutex<Sending>,
    pub(crate) limits: Mutex<NiLimits>,
    pub(crate) queue: Mutex<VecDeque<Packet>>,
    pub(crate) verdicts: Mutex<Verdicts>,
    nodes: Mutex<HashMap<Nid, Arc<dyn Upcalls>>>,
    held: Mutex<HashMap<u64, HeldPayload>>,
    next_rx: AtomicUsize,
    /// Messages handed over and not finalised: never more than the credits allow.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) most_in_flight: AtomicUsize,
    /// True if the network gives back messages that are not delivered yet.
    pub(crate) withdraws: AtomicBool,
    /// A function that runs during the start of the next NI.
    pub(crate) while_starting: Mutex<Option<Early>>,
}

type Early = Box<dyn FnOnce(&Network) + Send>;

pub(crate) const LIMITS: NiLimits = NiLimits { credits: 256, peer_credits: 8, timeout_ns: 50_000_000_000 };

impl Network {
    pub(crate) fn new() -> Arc<Network> {
        Arc::new(Network {
            sending: Mutex::new(Sending::Later),
            limits: Mutex::new(LIMITS),
            queue: Mutex::default(),
            verdicts: Mutex::default(),
            nodes: Mutex::default(),
            held: Mutex::default(),
            next_rx: AtomicUsize::new(1),
            in_flight: AtomicUsize::new(0),
            most_in_flight: AtomicUsize::new(0),
            withdraws: AtomicBool::new(false),
            while_starting: Mutex::default(),
        })
    }

    fn upcalls(&self, nid: Nid) -> Option<Arc<dyn Upcalls>> {
        self.nodes.lock().get(&nid).cloned()
    }

    fn finalize_tx(&self, packet: &mut Packet, result: Result<(), Errno>) {
        if let Some(tx) = packet.tx.take() {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            let token = tx.token;
            drop(tx);
            if let Some(sender) = self.upcalls(packet.from) {
                sender.finalize_tx(token, result);
            }
        }
    }

    /// Delivers the oldest message: it leaves, then it arrives.
    pub(crate) fn step(&self) -> bool {
        let Some(mut packet) = self.take(0) else { return false };
        self.finalize_tx(&mut packet, Ok(()));
        self.arrive(packet);
        true
    }

    /// Delivers until nothing is in flight.
    pub(crate) fn run(&self) {
        while self.step() {}
    }

    /// Removes and returns a message of the network.
    pub(crate) fn take(&self, index: usize) -> Option<Packet> {
        self.queue.lock().remove(index)
    }

    /// Loses a message that has left.
    pub(crate) fn lose(&self, index: usize) {
        let mut packet = self.take(index).expect("a message to lose");
        self.finalize_tx(&mut packet, Ok(()));
    }

    /// Loses all messages that have left.
    pub(crate) fn lose_all(&self) {
        while !self.queue.lock().is_empty() {
            self.lose(0);
        }
    }

    /// Makes a message fail at its sender.
    pub(crate) fn fail(&self, index: usize, errno: Errno) {
        let mut packet = self.take(index).expect("a message to fail");
        self.finalize_tx(&mut packet, Err(errno));
    }

    /// Delivers a whole message.
    pub(crate) fn arrive(&self, packet: Packet) {
        if let Some((token, receiver)) = self.arrive_header(&packet) {
            receiver.finalize_rx(token, Ok(()));
        }
    }

    /// Delivers a message up to the end of its payload, without finalising it.
    pub(crate) fn arrive_header(&self, packet: &Packet) -> Option<(lnet_api::RxToken, Arc<dyn Upcalls>)> {
        let receiver = self.upcalls(packet.to.nid)?;
        let rx = RxContext(self.next_rx.fetch_add(1, Ordering::Relaxed) as u64);
        let from = ProcessId::lnet(packet.from);
        let arrival = Arrival { ni: packet.to.nid, from, header: &packet.header, host: None, rx };
        let verdict = receiver.parse(&arrival);
        let mut verdicts = self.verdicts.lock();
        match verdict {
            Verdict::Deliver(delivery) => {
                verdicts.delivered += 1;
                return Some((fill(delivery, &packet.payload), receiver));
            }
            Verdict::Done => verdicts.done += 1,
            Verdict::Discard => verdicts.discarded += 1,
            Verdict::Close(_) => verdicts.closed += 1,
            Verdict::Delay(_) | Verdict::Stay(_) => {
                verdicts.delayed += 1;
                self.hold(rx, packet.to.nid, packet.payload.clone());
            }
        }
        None
    }

    /// Keeps a message that a node has delayed.
    pub(crate) fn hold(&self, rx: RxContext, at: Nid, payload: Vec<u8>) {
        self.held.lock().insert(rx.0, (Some(at), payload));
    }

    pub(crate) fn verdicts(&self) -> Verdicts {
        self.verdicts.lock().clone()
    }

    /// Loses all messages in flight together with the connection.
    pub(crate) fn lose_peer(&self, at: Nid, peer: Nid, reason: Errno) {
        loop {
            let index = self.queue.lock().iter().position(|p| p.from == at && p.to.nid == peer);
            match index {
                Some(index) => self.fail(index, reason),
                None => break,
            }
        }
        let upcalls = self.upcalls(at).expect("a node");
        upcalls.peer_lost(at, ProcessId::lnet(peer), reason);
    }
}

fn fill(delivery: PayloadTarget, payload: &[u8]) -> lnet_api::RxToken {
    if let Some(mut sink) = delivery.sink {
        let length = sink.len();
        assert!(length <= payload.len(), "the sink is no longer than the payload");
        assert_eq!(sink.copy_from(0, &payload[..length]), length);
    }
    delivery.token
}

impl Lnd for Network {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        self.nodes.lock().insert(ni.nid, upcalls);
        let early = self.while_starting.lock().take();
        early.into_iter().for_each(|early| early(self));
        Ok(*self.limits.lock())
    }

    fn shutdown(&self, ni: Nid) {
        loop {
            let index = self.queue.lock().iter().position(|p| p.from == ni);
            match index {
                Some(index) => self.fail(index, Errno::ESHUTDOWN),
                None => break,
            }
        }
        self.nodes.lock().remove(&ni);
    }

    fn send(&self, tx: Tx) -> Sent {
        let payload = tx.payload.as_ref().map(|payload| payload.to_vec()).unwrap_or_default();
        assert_eq!(payload.len(), tx.header.payload_length as usize);
        let sending = *self.sending.lock();
        if let Sending::Fail(errno) = sending {
            return Sent::Now(Err(errno));
        }
        let (from, to, header) = (tx.ni, tx.peer, tx.header);
        let later = sending == Sending::Later;
        if later {
            let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        }
        self.queue.lock().push_back(Packet { from, to, header, payload, tx: later.then_some(tx) });
        if later { Sent::Later } else { Sent::Now(Ok(())) }
    }

    fn withdraw(&self, ni: Nid, peer: ProcessId, token: TxToken) -> bool {
        if !self.withdraws.load(Ordering::Relaxed) {
            return false;
        }
        let taken = {
            let mut queue = self.queue.lock();
            // A token alone does not identify a message: two nodes may use the same one.
            let is_it = |packet: &Packet| {
                let tx = packet.tx.as_ref();
                tx.is_some_and(|tx| (tx.ni, tx.peer, tx.token) == (ni, peer, token))
            };
            queue.iter().position(is_it).and_then(|index| queue.remove(index))
        };
        self.in_flight.fetch_sub(usize::from(taken.is_some()), Ordering::Relaxed);
        taken.is_some()
    }

    fn resume(&self, rx: RxContext, delivery: Option<PayloadTarget>) {
        let held = self.held.lock().remove(&rx.0);
        // A message that a test has delivered to an engine directly has no payload here.
        let (nid, payload) = held.unwrap_or_default();
        let Some(delivery) = delivery else { return };
        let result = if payload.is_empty() { Err(Errno::ECONNRESET) } else { Ok(()) };
        let token = if result.is_ok() { fill(delivery, &payload) } else { delivery.token };
        let upcalls = nid.map_or_else(|| self.nodes.lock().values().next().cloned(), |nid| self.upcalls(nid));
        upcalls.expect("a node").finalize_rx(token, result);
    }
}

/// An engine with an NI on the network, and an event queue.
pub(crate) struct Node {
    pub(crate) engine: Arc<Engine>,
    pub(crate) nid: Nid,
    pub(crate) eq: EqHandle,
    pub(crate) log: Arc<EventLog>,
}

pub(crate) fn nid(last: u8) -> Nid {
    format!("10.77.0.{last}@tcp").parse().expect("a NID")
}

/// Returns the last byte of the NID of the `number`-th node in the partition of `first`.
pub(crate) fn neighbour(first: u8, number: usize) -> u8 {
    let last = first + u8::try_from(number * PARTITIONS).expect("an address of few nodes");
    assert_eq!(nid(last).cpt_of(PARTITIONS), nid(first).cpt_of(PARTITIONS));
    last
}

/// Returns a peer whose messages arrive in this partition.
pub(crate) fn peer_of(partition: usize) -> Nid {
    (10..).map(nid).find(|nid| nid.cpt_of(PARTITIONS) == partition).expect("a NID of each partition")
}

/// Returns a complete PUT of another node.
pub(crate) fn put_from(node: &Node, source: Nid, bits: u64, payload: Vec<u8>) -> Packet {
    let body = Body::Put {
        ack_wmd: WireHandle::NONE,
        match_bits: MatchBits(bits),
        hdr_data: HDR_DATA,
        portal: portal().get(),
        offset: 0,
    };
    let (dest, src) = (node.id(), ProcessId::lnet(source));
    let header = Header { dest, src, payload_length: payload.len() as u32, body };
    Packet { from: source, to: node.id(), header, payload, tx: None }
}

/// Returns the errno of a refusal.
pub(crate) fn errno<T: std::fmt::Debug>(result: Result<T, LNetError>) -> Errno {
    result.expect_err("a refusal").errno()
}

pub(crate) fn cookie(last: u8) -> u64 {
    0x1000 + u64::from(last)
}

/// Returns the configuration with the number of partitions under test.
pub(crate) fn partitioned(config: EngineConfig) -> EngineConfig {
    let partitions = CptTable::virtual_parts(PARTITIONS).expect("a few partitions");
    EngineConfig { partitions: Arc::new(partitions), ..config }
}

/// Creates a node on a new network.
pub(crate) fn one_node() -> (Arc<Network>, Node) {
    let network = Network::new();
    let node = Node::new(&network, 2);
    (network, node)
}

/// Creates two nodes on a new network.
pub(crate) fn two_nodes() -> (Arc<Network>, Node, Node) {
    let (network, a) = one_node();
    let b = Node::new(&network, 3);
    (network, a, b)
}

impl Node {
    pub(crate) fn new(network: &Arc<Network>, last: u8) -> Node {
        Node::with_config(network, last, EngineConfig::new(Pid::LNET, cookie(last)))
    }

    /// Creates a node with this configuration and the number of partitions under test.
    pub(crate) fn with_config(network: &Arc<Network>, last: u8, config: EngineConfig) -> Node {
        let engine = Engine::new(partitioned(config));
        engine.add_ni(ProcessId::lnet(nid(last)), network.clone()).expect("the NI starts");
        Node::over(engine, nid(last))
    }

    /// Wraps an engine with an NI, and creates an event queue.
    pub(crate) fn over(engine: Arc<Engine>, nid: Nid) -> Node {
        let log = EventLog::strict();
        let eq = engine.eq_alloc(log.clone()).expect("room for an EQ");
        Node { engine, nid, eq, log }
    }

    pub(crate) fn id(&self) -> ProcessId {
        ProcessId::lnet(self.nid)
    }

    pub(crate) fn md(&self, memory: &IoVec, options: MdOptions, threshold: u32) -> Md {
        let threshold = Threshold::Limited(threshold);
        Md { memory: memory.clone(), threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    pub(crate) fn bind(&self, memory: &IoVec, threshold: u32) -> MdHandle {
        self.engine.md_bind(self.md(memory, MdOptions::empty(), threshold), Unlink::Auto).expect("a valid MD")
    }

    pub(crate) fn post(&self, bits: u64) -> MeHandle {
        self.engine.me_attach(&spec(bits)).expect("a valid ME")
    }

    /// Posts a buffer for one message.
    pub(crate) fn expect(&self, bits: u64, memory: &IoVec, options: MdOptions) -> MdHandle {
        let md = self.md(memory, options, 1);
        self.engine.md_attach(self.post(bits), md, Unlink::Auto).expect("a valid MD")
    }

    pub(crate) fn put(
        &self,
        md: MdHandle,
        target: ProcessId,
        bits: u64,
        ack: AckRequest,
    ) -> Result<(), LNetError> {
        self.engine.put(&Put {
            source: None,
            md,
            ack,
            target,
            portal: portal(),
            match_bits: MatchBits(bits),
            offset: 0,
            hdr_data: HDR_DATA,
        })
    }

    pub(crate) fn get(&self, md: MdHandle, target: ProcessId, bits: u64) -> Result<(), LNetError> {
        let (portal, match_bits) = (portal(), MatchBits(bits));
        self.engine.get(&Get { source: None, md, target, portal, match_bits, offset: 0 })
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.log.take()
    }

    /// Returns whether nothing is in flight or expected, and all memory is free.
    pub(crate) fn is_quiet(&self) -> bool {
        let counters = self.engine.counters();
        (counters.msgs_alloc, counters.rst_alloc) == (0, 0)
    }
}

pub(crate) const HDR_DATA: u64 = 0x0123_4567_89ab_cdef;

pub(crate) fn portal() -> Portal {
    Portal::new(34).expect("a portal")
}

pub(crate) fn spec(bits: u64) -> MeSpec {
    MeSpec::new(portal(), MatchBits(bits))
}

/// Returns memory filled with a pattern.
pub(crate) fn pattern(bytes: usize, seed: u8) -> IoVec {
    buffers::filled(memory(bytes), seed.into())
}

pub(crate) fn pattern_bytes(bytes: usize, seed: u8) -> Vec<u8> {
    buffers::pattern(seed.into(), bytes)
}

pub(crate) fn token_of(packet: &Packet) -> TxToken {
    packet.tx.as_ref().expect("a message not finalised").token
}

/// Returns the kind, status and `unlinked` of events, which most tests compare.
pub(crate) fn brief(events: &[Event]) -> Vec<(lnet_api::EventKind, Result<(), Errno>, bool)> {
    events.iter().map(|event| (event.kind, event.status, event.unlinked)).collect()
}

impl Node {
    /// Finalises one of this node's messages.
    pub(crate) fn finalize(&self, tx: Tx) {
        let token = tx.token;
        drop(tx);
        self.engine.finalize_tx(token, Ok(()));
    }
}
