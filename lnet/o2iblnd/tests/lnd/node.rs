//! A node: an engine with the verbs LND, and what it is told.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventHandler, EventKind, Get, LNet, Lnd, Md, MdHandle, MdOptions,
    MeSpec, POLL_BUDGET, Poll, Position, Put, Threshold, Unlink,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Net, NetType, Nid, Pid, Portal, ProcessId};
use lnet_o2iblnd::{Fabric, O2ibConfig, O2ibLnd};
use lnet_region::IoVec;
use parking_lot::Mutex;

pub(crate) const PORTAL: u32 = 34;

/// After this long a thread is not expected to go on.
const HUNG: Duration = Duration::from_secs(60);

pub(crate) fn portal() -> Portal {
    Portal::new(PORTAL).unwrap()
}

#[derive(Default)]
pub(crate) struct Inbox(Mutex<Vec<Event>>);

impl EventHandler for Inbox {
    fn event(&self, event: &Event) {
        self.0.lock().push(*event);
    }
    fn wake(&self) {}
}

/// How nodes are, for people.
pub(crate) fn states(nodes: &[&Node]) -> String {
    nodes.iter().map(|node| node.state(nodes)).collect::<Vec<_>>().join("\n")
}

impl Drop for Node {
    /// After a failure it is still up, and holds its addresses.
    fn drop(&mut self) {
        let _ = self.engine.remove_ni(self.id.nid);
    }
}

pub(crate) struct Node {
    pub(crate) id: ProcessId,
    pub(crate) engine: Arc<Engine>,
    pub(crate) lnd: Arc<O2ibLnd>,
    inbox: Arc<Inbox>,
    eq: EqHandle,
}

impl Node {
    pub(crate) fn new(address: Ipv4Addr, fabric: Arc<dyn Fabric>, config: O2ibConfig, now_ns: u64) -> Node {
        let node = Node::down(address, fabric, config, now_ns);
        node.start();
        node
    }

    /// Why it cannot start.
    pub(crate) fn refused(
        address: Ipv4Addr,
        fabric: Arc<dyn Fabric>,
        config: O2ibConfig,
        now_ns: u64,
    ) -> String {
        let node = Node::down(address, fabric, config, now_ns);
        node.engine.add_ni(node.id, node.lnd.clone()).unwrap_err().to_string()
    }

    fn down(address: Ipv4Addr, fabric: Arc<dyn Fabric>, config: O2ibConfig, now_ns: u64) -> Node {
        static SEED: AtomicU64 = AtomicU64::new(1);
        let partitions = Arc::new(CptTable::virtual_parts(config.partitions).unwrap());
        let lnd = Arc::new(O2ibLnd::over(config, fabric).unwrap());
        let seed = SEED.fetch_add(1, Ordering::Relaxed);
        let engine = Engine::new(EngineConfig { partitions, ..EngineConfig::new(Pid::LNET, seed) });
        engine.advance(now_ns);
        let inbox = Arc::new(Inbox::default());
        let eq = engine.eq_alloc(inbox.clone()).unwrap();
        let id = ProcessId::lnet(Nid::new_v4(Net::new(NetType::O2IB, 0), address));
        Node { id, engine, lnd, inbox, eq }
    }

    /// Brings its NI up, for another life.
    pub(crate) fn start(&self) {
        self.engine.add_ni(self.id, self.lnd.clone()).unwrap();
    }

    /// Takes its NI down.
    pub(crate) fn end(&self) {
        self.engine.remove_ni(self.id.nid).unwrap();
        assert!(!self.lnd.is_active());
    }

    /// How it is, for people.
    fn state(&self, all: &[&Node]) -> String {
        let short = |event: &Event| format!("{:?} {:#x} {:?}", event.kind, event.match_bits.0, event.status);
        let events: Vec<String> = self.events().iter().map(short).collect();
        let Node { id, lnd, .. } = self;
        let failures: Vec<_> = all.iter().filter_map(|peer| lnd.last_failure(peer.id.nid)).collect();
        format!("{id}: {:?} {:?} {failures:?} {events:?}", lnd.census(), lnd.counters())
    }

    /// Polls all shards and the engine's timers.
    pub(crate) fn poll(&self, now_ns: u64) -> Poll {
        let due = Poll { work: 0, deadline_ns: self.engine.advance(now_ns) };
        (0..self.lnd.shards()).map(|shard| self.lnd.poll(shard, now_ns, POLL_BUDGET)).fold(due, Poll::and)
    }

    /// Arms all shards; `false` if one of them has work.
    pub(crate) fn arm(&self) -> bool {
        (0..self.lnd.shards()).all(|shard| self.lnd.arm(shard))
    }

    /// A buffer for one message with these match bits.
    pub(crate) fn post(&self, memory: &IoVec, match_bits: u64, options: MdOptions) -> MdHandle {
        self.attach(memory, match_bits, options, Threshold::Limited(1))
    }

    /// A buffer for all messages with these match bits.
    pub(crate) fn serve(&self, memory: &IoVec, match_bits: u64, options: MdOptions) -> MdHandle {
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

    /// Sends a GET or an acknowledged PUT that takes a refusal.
    pub(crate) fn start_refusable(
        &self,
        kind: EventKind,
        to: ProcessId,
        memory: &IoVec,
        bits: u64,
    ) -> MdHandle {
        let md = self.md(memory, MdOptions::TAKES_REFUSALS, Threshold::Limited(2));
        let md = self.engine.md_bind(md, Unlink::Auto).unwrap();
        let (portal, match_bits) = (portal(), MatchBits(bits));
        let started = match kind {
            EventKind::Get => {
                self.engine.get(&Get { source: None, md, target: to, portal, match_bits, offset: 0 })
            }
            _ => {
                let ack = AckRequest::Ack;
                let put =
                    Put { source: None, md, ack, target: to, portal, match_bits, offset: 0, hdr_data: 5 };
                self.engine.put(&put)
            }
        };
        started.unwrap();
        md
    }

    /// Sends a PUT, and asks for an ACK.
    pub(crate) fn put(&self, to: ProcessId, memory: &IoVec, match_bits: u64) -> MdHandle {
        self.put_with(to, memory, match_bits, AckRequest::Ack)
    }

    /// Sends a PUT: one event tells its end.
    pub(crate) fn put_unasked(&self, to: ProcessId, memory: &IoVec, match_bits: u64) -> MdHandle {
        self.put_with(to, memory, match_bits, AckRequest::NoAck)
    }

    fn put_with(&self, to: ProcessId, memory: &IoVec, match_bits: u64, ack: AckRequest) -> MdHandle {
        let md = self.bind(memory, if ack == AckRequest::Ack { 2 } else { 1 });
        let match_bits = MatchBits(match_bits);
        let put =
            Put { source: None, md, ack, target: to, portal: portal(), match_bits, offset: 0, hdr_data: 5 };
        self.engine.put(&put).unwrap();
        md
    }

    /// Has another thread send a PUT, whenever it is called, and waits until that has.
    pub(crate) fn sender(
        &self,
        to: ProcessId,
        memory: &IoVec,
        match_bits: u64,
    ) -> impl FnOnce() + Send + use<> {
        let (engine, md) = (self.engine.clone(), self.bind(memory, 1));
        let put = Put {
            source: None,
            md,
            ack: AckRequest::NoAck,
            target: to,
            portal: portal(),
            match_bits: MatchBits(match_bits),
            offset: 0,
            hdr_data: 5,
        };
        move || {
            let (sent, hears) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                engine.put(&put).unwrap();
                sent.send(()).unwrap();
            });
            hears.recv_timeout(HUNG).expect("whoever sends waits");
        }
    }

    pub(crate) fn get(&self, from: ProcessId, memory: &IoVec, match_bits: u64) -> MdHandle {
        let md = self.bind(memory, 2);
        let match_bits = MatchBits(match_bits);
        let get = Get { source: None, md, target: from, portal: portal(), match_bits, offset: 0 };
        self.engine.get(&get).unwrap();
        md
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.inbox.0.lock().clone()
    }

    /// How many events of this kind there have been, and how many of them tell of a success.
    pub(crate) fn count(&self, kind: EventKind) -> (usize, usize) {
        let inbox = self.inbox.0.lock();
        let of_kind = || inbox.iter().filter(|event| event.kind == kind);
        (of_kind().count(), of_kind().filter(|event| event.status.is_ok()).count())
    }

    pub(crate) fn has(&self, kind: EventKind) -> bool {
        self.count(kind).0 > 0
    }

    /// What the first event of this kind of this MD says.
    pub(crate) fn outcome(&self, kind: EventKind, md: MdHandle) -> Option<Result<(), Errno>> {
        let inbox = self.inbox.0.lock();
        inbox.iter().find(|event| event.kind == kind && event.md == md).map(|event| event.status)
    }

    /// Forgets its events, none of which tells of a failure.
    pub(crate) fn clear(&self) {
        let events = std::mem::take(&mut *self.inbox.0.lock());
        assert!(events.iter().all(|event| event.status == Ok(())), "{events:?}");
    }

    /// Forgets its events.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.inbox.0.lock())
    }
}
