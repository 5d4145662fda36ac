//! A node: an engine with an LND, and a log of its events.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventKind, Get, LNet, Lnd, Md, MdHandle, MdOptions, MeSpec,
    POLL_BUDGET, Poll, Position, Put, Threshold, Unlink,
};
use lnet_cpt::CptTable;
use lnet_lnd::Network;
use lnet_nid::{MatchBits, Net, Nid, Pid, Portal, ProcessId};
use lnet_region::IoVec;

use super::Kind;
use crate::events::EventLog;

/// The portal of all buffers.
pub const PORTAL: u32 = 34;

/// A thread that has not finished after this time hangs.
const HUNG: Duration = Duration::from_secs(60);

/// Returns [`PORTAL`] as a portal.
pub fn portal() -> Portal {
    Portal::new(PORTAL).unwrap()
}

fn put_of(md: MdHandle, ack: AckRequest, target: ProcessId, match_bits: u64) -> Put {
    let (portal, match_bits) = (portal(), MatchBits(match_bits));
    Put { source: None, md, ack, target, portal, match_bits, offset: 0, hdr_data: 5 }
}

fn get_of(md: MdHandle, target: ProcessId, match_bits: u64) -> Get {
    Get { source: None, md, target, portal: portal(), match_bits: MatchBits(match_bits), offset: 0 }
}

/// Describes the state of nodes for a test's failure.
pub fn states<K: Kind>(nodes: &[&Node<K>]) -> String {
    nodes.iter().map(|node| node.state(nodes)).collect::<Vec<_>>().join("\n")
}

impl<K: Kind> Drop for Node<K> {
    /// Removes the NI: after a failed test it is still up, and occupies its address.
    fn drop(&mut self) {
        let _ = self.engine.remove_ni(self.id.nid);
    }
}

/// An engine with one NI over an LND, and an event queue whose events are recorded.
pub struct Node<K: Kind> {
    /// The process id with the NID of the NI.
    pub id: ProcessId,
    /// The engine.
    pub engine: Arc<Engine>,
    /// The LND.
    pub lnd: Arc<Network<K>>,
    log: Arc<EventLog>,
    eq: EqHandle,
}

impl<K: Kind> Node<K> {
    /// Creates a node whose NI is up.
    pub fn new(address: Ipv4Addr, system: Arc<K::System>, config: K::Config, now_ns: u64) -> Node<K> {
        let node = Node::down(address, system, config, now_ns);
        node.start();
        node
    }

    /// Returns the error with which a node fails to start.
    pub fn refused(address: Ipv4Addr, system: Arc<K::System>, config: K::Config, now_ns: u64) -> String {
        let node = Node::<K>::down(address, system, config, now_ns);
        node.engine.add_ni(node.id, node.lnd.clone()).unwrap_err().to_string()
    }

    fn down(address: Ipv4Addr, system: Arc<K::System>, config: K::Config, now_ns: u64) -> Node<K> {
        static SEED: AtomicU64 = AtomicU64::new(1);
        let partitions = Arc::new(CptTable::virtual_parts(K::partitions(&config)).unwrap());
        let lnd = Arc::new(Network::over(config, system).unwrap());
        let seed = SEED.fetch_add(1, Ordering::Relaxed);
        let engine = Engine::new(EngineConfig { partitions, ..EngineConfig::new(Pid::LNET, seed) });
        engine.advance(now_ns);
        let log = EventLog::new();
        let eq = engine.eq_alloc(log.clone()).unwrap();
        let id = ProcessId::lnet(Nid::new_v4(Net::new(K::NET_TYPE, 0), address));
        Node { id, engine, lnd, log, eq }
    }

    /// Brings the NI up, also after it was taken down.
    pub fn start(&self) {
        self.engine.add_ni(self.id, self.lnd.clone()).unwrap();
    }

    /// Takes the NI down.
    pub fn end(&self) {
        self.engine.remove_ni(self.id.nid).unwrap();
        assert!(!self.lnd.is_active());
    }

    /// Describes the node's state for a test's failure.
    fn state(&self, all: &[&Node<K>]) -> String {
        let short = |event: &Event| format!("{:?} {:#x} {:?}", event.kind, event.match_bits.0, event.status);
        let events: Vec<String> = self.events().iter().map(short).collect();
        let Node { id, lnd, .. } = self;
        let failures: Vec<_> = all.iter().filter_map(|peer| lnd.last_failure(peer.id.nid)).collect();
        format!("{id}: {:?} {:?} {failures:?} {events:?}", lnd.conn_stats(), lnd.counters())
    }

    /// Polls all shards and the engine's timers.
    pub fn poll(&self, now_ns: u64) -> Poll {
        let due = Poll { work: 0, deadline_ns: self.engine.advance(now_ns) };
        (0..self.lnd.shards()).map(|shard| self.lnd.poll(shard, now_ns, POLL_BUDGET)).fold(due, Poll::and)
    }

    /// Arms all shards; returns `false` if one of them has work.
    pub fn arm(&self) -> bool {
        (0..self.lnd.shards()).all(|shard| self.lnd.arm(shard))
    }

    /// Posts a buffer for one message with these match bits.
    pub fn post(&self, memory: &IoVec, match_bits: u64, options: MdOptions) -> MdHandle {
        self.attach(memory, match_bits, options, Threshold::Limited(1))
    }

    /// Posts a buffer for all messages with these match bits.
    pub fn serve(&self, memory: &IoVec, match_bits: u64, options: MdOptions) -> MdHandle {
        let options = options | MdOptions::TRUNCATE | MdOptions::MANAGE_REMOTE;
        self.attach(memory, match_bits, options, Threshold::Infinite)
    }

    fn attach(&self, memory: &IoVec, match_bits: u64, options: MdOptions, threshold: Threshold) -> MdHandle {
        let spec = MeSpec {
            portal: portal(),
            match_id: ProcessId::ANY,
            match_bits: MatchBits(match_bits),
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        };
        let me = self.engine.me_attach(&spec).unwrap();
        self.engine.md_attach(me, self.md(memory, options, threshold), Unlink::Auto).unwrap()
    }

    fn md(&self, memory: &IoVec, options: MdOptions, threshold: Threshold) -> Md {
        Md { memory: memory.clone(), threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    fn bind(&self, memory: &IoVec, threshold: u32) -> MdHandle {
        let md = self.md(memory, MdOptions::empty(), Threshold::Limited(threshold));
        self.engine.md_bind(md, Unlink::Auto).unwrap()
    }

    /// Sends a GET or an acknowledged PUT that accepts a refusal.
    pub fn start_refusable(&self, kind: EventKind, to: ProcessId, memory: &IoVec, bits: u64) -> MdHandle {
        let md = self.md(memory, MdOptions::TAKES_REFUSALS, Threshold::Limited(2));
        let md = self.engine.md_bind(md, Unlink::Auto).unwrap();
        match kind {
            EventKind::Get => self.engine.get(&get_of(md, to, bits)),
            _ => self.engine.put(&put_of(md, AckRequest::Ack, to, bits)),
        }
        .unwrap();
        md
    }

    /// Sends a PUT, and requests an ACK.
    pub fn put(&self, to: ProcessId, memory: &IoVec, match_bits: u64) -> MdHandle {
        self.put_with(to, memory, match_bits, AckRequest::Ack)
    }

    /// Sends a PUT that ends with one event.
    pub fn put_unasked(&self, to: ProcessId, memory: &IoVec, match_bits: u64) -> MdHandle {
        self.put_with(to, memory, match_bits, AckRequest::NoAck)
    }

    fn put_with(&self, to: ProcessId, memory: &IoVec, match_bits: u64, ack: AckRequest) -> MdHandle {
        let md = self.bind(memory, if ack == AckRequest::Ack { 2 } else { 1 });
        self.engine.put(&put_of(md, ack, to, match_bits)).unwrap();
        md
    }

    /// Returns a function that makes another thread send a PUT, and waits until it has.
    pub fn sender(&self, to: ProcessId, memory: &IoVec, match_bits: u64) -> impl FnOnce() + Send + use<K> {
        let (engine, md) = (self.engine.clone(), self.bind(memory, 1));
        let put = put_of(md, AckRequest::NoAck, to, match_bits);
        move || {
            let (sent, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                engine.put(&put).unwrap();
                sent.send(()).unwrap();
            });
            receiver.recv_timeout(HUNG).expect("the sending thread waits");
        }
    }

    /// Sends a GET.
    pub fn get(&self, from: ProcessId, memory: &IoVec, match_bits: u64) -> MdHandle {
        let md = self.bind(memory, 2);
        self.engine.get(&get_of(md, from, match_bits)).unwrap();
        md
    }

    /// Returns the events since the last [`Node::take`].
    pub fn events(&self) -> Vec<Event> {
        self.log.events()
    }

    /// Returns the number of events of this kind, and of those that are successful.
    pub fn count(&self, kind: EventKind) -> (usize, usize) {
        let events = self.events();
        let of_kind = || events.iter().filter(|event| event.kind == kind);
        (of_kind().count(), of_kind().filter(|event| event.status.is_ok()).count())
    }

    /// Returns whether there has been an event of this kind.
    pub fn has(&self, kind: EventKind) -> bool {
        self.count(kind).0 > 0
    }

    /// Returns the status of the first event of this kind of this MD.
    pub fn outcome(&self, kind: EventKind, md: MdHandle) -> Option<Result<(), Errno>> {
        self.events().iter().find(|event| event.kind == kind && event.md == md).map(|event| event.status)
    }

    /// Removes the recorded events, all of which must be successful.
    pub fn clear(&self) {
        let events = self.take();
        assert!(events.iter().all(|event| event.status == Ok(())), "{events:?}");
    }

    /// Removes and returns the recorded events.
    pub fn take(&self) -> Vec<Event> {
        self.log.take()
    }
}
