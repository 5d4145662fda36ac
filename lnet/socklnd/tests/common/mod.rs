//! A node made of a `SockLnd` and a test engine, and peers made of bare sockets.
#![allow(dead_code, unreachable_pub)]

pub mod host;
pub mod raw;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use lnet_api::{Arrival, Errno, Lnd, PayloadTarget, RxContext, RxToken, Sent, Tx, TxToken, Upcalls, Verdict};
use lnet_nid::{MatchBits, Net, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, WriteVec};
use lnet_socklnd::sys::{self, Os};
use lnet_socklnd::{PeerFailure, SockConfig, SockCounters, SockLnd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
pub use nlx_testkit::addresses::unused as address;
pub use nlx_testkit::buffers::pattern;
use nlx_testkit::buffers::{cut, fill, gapped};

use crate::PARTITIONS;

pub const S: u64 = 1_000_000_000;
pub const FAR: u64 = u64::MAX / 2;
/// The port of the tests' nodes: each node has its own address.
pub const PORT: u16 = 21_988;
/// A time after which a test has hung.
const STUCK_MS: u16 = 60_000;

/// Returns an address whose peers are on this partition.
pub fn address_on(partition: usize) -> Ipv4Addr {
    std::iter::repeat_with(address).find(|address| partition_of(*address) == partition).unwrap()
}

/// Peers of consecutive addresses are on consecutive partitions.
fn partition_of(address: Ipv4Addr) -> usize {
    usize::from(address.octets()[3]) % PARTITIONS
}

pub fn nid_of(address: Ipv4Addr) -> Nid {
    Nid::new_v4(Net::TCP, address)
}

pub fn config() -> SockConfig {
    SockConfig { accept_port: PORT, partitions: PARTITIONS, ..SockConfig::default() }
}

/// Returns memory in `fragments` pieces with gaps between them, filled with `bytes`.
pub fn memory(bytes: &[u8], fragments: usize) -> IoVec {
    let memory = gapped(&cut(bytes.len(), fragments));
    fill(&memory, bytes);
    memory
}

/// A received message.
#[derive(Debug)]
pub struct Got {
    pub from: ProcessId,
    pub header: Header,
    pub rx: RxContext,
    pub memory: Option<IoVec>,
    pub result: Option<Result<(), Errno>>,
}

impl Got {
    pub fn bytes(&self) -> Vec<u8> {
        self.memory.as_ref().map_or_else(Vec::new, |memory| memory.read(0..memory.len()).unwrap().to_vec())
    }
}

/// A treatment of the next messages by the test engine.
pub enum Order {
    /// Takes only this number of bytes.
    Truncate(usize),
    Discard,
    Delay,
    Close(Errno),
}

/// The test engine: takes every PUT and REPLY into new memory, answers every GET.
#[derive(Default)]
pub struct Engine {
    lnd: OnceLock<Weak<SockLnd>>,
    pub got: Mutex<Vec<Got>>,
    pub sent: Mutex<HashMap<u64, Result<(), Errno>>>,
    pub lost: Mutex<Vec<(ProcessId, Errno)>>,
    pub orders: Mutex<VecDeque<Order>>,
    /// The number of fragments of the memory for PUTs and REPLYs.
    pub fragments: AtomicU32,
    /// The payload of the next REPLYs; otherwise a pattern of the GET's length.
    pub answer: Mutex<Option<Vec<u8>>>,
    /// The delayed messages that were forgotten.
    pub forgotten: Mutex<Vec<u64>>,
    /// True if a forgotten message is about to be resumed.
    pub resumes_meanwhile: AtomicBool,
    /// The number of upcalls other than queries for a peer's partition.
    pub upcalls: AtomicU64,
}

const DELAYED: u64 = 1 << 40;
const REPLY_TOKENS: u64 = 1 << 50;

impl Engine {
    fn sink(&self, length: usize) -> (Option<IoVec>, Option<WriteVec>) {
        if length == 0 {
            return (None, None);
        }
        let fragments = (self.fragments.load(Ordering::Relaxed) as usize).clamp(1, length);
        let memory = memory(&vec![0; length], fragments);
        let sink = memory.write(0..length).unwrap();
        (Some(memory), Some(sink))
    }

    fn note(&self, arrival: &Arrival<'_>, memory: Option<IoVec>, result: Option<Result<(), Errno>>) -> u64 {
        let mut got = self.got.lock().unwrap();
        got.push(Got { from: arrival.from, header: *arrival.header, rx: arrival.rx, memory, result });
        got.len() as u64 - 1
    }

    fn reply(&self, arrival: &Arrival<'_>, index: u64) {
        let Body::Get { return_wmd, match_bits, sink_length, .. } = arrival.header.body else { return };
        let answer = self.answer.lock().unwrap().clone();
        let bytes = answer.unwrap_or_else(|| pattern(match_bits.0, sink_length as usize));
        let payload = (!bytes.is_empty()).then(|| memory(&bytes, 1).read(0..bytes.len()).unwrap());
        let header = Header {
            dest: arrival.header.src,
            src: ProcessId::lnet(arrival.ni),
            payload_length: bytes.len() as u32,
            body: Body::Reply { dst_wmd: return_wmd },
        };
        let token = TxToken(REPLY_TOKENS + index);
        let (ni, peer, reply_to) = (arrival.ni, arrival.from, Some(arrival.rx));
        let tx = Tx { ni, peer, header, payload, token, reply_to, deadline_ns: FAR };
        let lnd = self.lnd.get().and_then(Weak::upgrade).unwrap();
        if let Sent::Now(result) = lnd.send(tx) {
            self.finish(token, result);
        }
    }

    /// Records the result of a message.
    fn finish(&self, token: TxToken, result: Result<(), Errno>) {
        let before = self.sent.lock().unwrap().insert(token.0, result);
        assert_eq!(before, None, "a send is finalised twice");
    }

    /// Returns the number of completely received messages.
    pub fn received(&self) -> usize {
        self.got.lock().unwrap().iter().filter(|got| got.result.is_some()).count()
    }
}

impl Upcalls for Engine {
    fn forget_delayed(&self, token: RxToken) -> bool {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        self.forgotten.lock().unwrap().push(token.0 - DELAYED);
        !self.resumes_meanwhile.load(Ordering::Relaxed)
    }

    fn partition_of(&self, _: Nid, peer: Nid) -> usize {
        partition_of(peer.ipv4().unwrap())
    }

    fn parse(&self, arrival: &Arrival<'_>) -> Verdict {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        let length = arrival.header.payload_length as usize;
        let order = self.orders.lock().unwrap().pop_front();
        let wanted = match order {
            Some(Order::Truncate(most)) => most.min(length),
            Some(Order::Discard) => {
                self.note(arrival, None, Some(Ok(())));
                return Verdict::Discard;
            }
            Some(Order::Delay) => {
                let index = self.note(arrival, None, None);
                return Verdict::Delay(RxToken(DELAYED + index));
            }
            Some(Order::Close(errno)) => return Verdict::Close(errno),
            None => length,
        };
        match arrival.header.body {
            Body::Put { .. } | Body::Reply { .. } => {
                let (memory, sink) = self.sink(wanted);
                let index = self.note(arrival, memory, None);
                Verdict::Deliver(PayloadTarget { token: RxToken(index), sink })
            }
            Body::Get { .. } => {
                let index = self.note(arrival, None, Some(Ok(())));
                self.reply(arrival, index);
                Verdict::Done
            }
            Body::Ack { .. } => {
                self.note(arrival, None, Some(Ok(())));
                Verdict::Done
            }
        }
    }

    fn finalize_rx(&self, token: RxToken, result: Result<(), Errno>) {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        let mut got = self.got.lock().unwrap();
        let before = got[token.0 as usize].result.replace(result);
        assert_eq!(before, None, "a receive is finalised twice");
    }

    fn finalize_tx(&self, token: TxToken, result: Result<(), Errno>) {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        self.finish(token, result);
    }

    fn sink_of_get(&self, _: TxToken) -> Option<WriteVec> {
        unreachable!("TCP answers each GET by a REPLY")
    }

    fn finalize_get(&self, _: TxToken, _: Result<u32, Errno>) {
        unreachable!("TCP answers each GET by a REPLY")
    }

    fn peer_lost(&self, _: Nid, peer: ProcessId, reason: Errno) {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        self.lost.lock().unwrap().push((peer, reason));
    }
}

/// A node with one NI.
pub struct Node {
    pub lnd: Arc<SockLnd>,
    pub engine: Arc<Engine>,
    pub nid: Nid,
    next_token: AtomicU64,
    /// The time by which the test has advanced the clock.
    ahead_ns: AtomicU64,
}

impl Node {
    pub fn new() -> Node {
        Node::with(config())
    }

    pub fn with(config: SockConfig) -> Node {
        Node::at(address(), config)
    }

    pub fn at(address: Ipv4Addr, config: SockConfig) -> Node {
        Node::over(address, config, Arc::new(Os))
    }

    pub fn over(address: Ipv4Addr, config: SockConfig, net: Arc<dyn sys::TcpStack>) -> Node {
        let lnd = Arc::new(SockLnd::over(config, net).unwrap());
        let engine = Arc::new(Engine::default());
        engine.lnd.set(Arc::downgrade(&lnd)).unwrap();
        let nid = nid_of(address);
        lnd.startup(ProcessId::lnet(nid), engine.clone()).unwrap();
        Node { lnd, engine, nid, next_token: AtomicU64::new(1), ahead_ns: AtomicU64::new(0) }
    }

    pub fn id(&self) -> ProcessId {
        ProcessId::lnet(self.nid)
    }

    pub fn ip(&self) -> IpAddr {
        self.nid.ip().unwrap()
    }

    pub fn listens_on(&self) -> SocketAddr {
        SocketAddr::new(self.ip(), PORT)
    }

    /// Sends a PUT with this payload; returns its token.
    pub fn put(&self, to: ProcessId, payload: &IoVec, match_bits: u64) -> u64 {
        let length = payload.len();
        let payload = (length > 0).then(|| payload.read(0..length).unwrap());
        let body = Body::Put {
            ack_wmd: WireHandle::NONE,
            match_bits: MatchBits(match_bits),
            hdr_data: match_bits ^ 0xff,
            portal: 9,
            offset: 0,
        };
        self.send(to, Header { dest: to, src: self.id(), payload_length: length as u32, body }, payload, FAR)
    }

    pub fn put_bytes(&self, to: ProcessId, bytes: &[u8], match_bits: u64) -> u64 {
        if bytes.is_empty() {
            let empty = memory(&[0], 1).trimmed(0).unwrap();
            return self.put(to, &empty, match_bits);
        }
        self.put(to, &memory(bytes, 1), match_bits)
    }

    /// Sends a GET of 0 bytes over a given NI, whose upcalls are this engine's.
    pub fn get_over(&self, ni: Nid, engine: &Engine, to: ProcessId) -> u64 {
        let body = Body::Get {
            return_wmd: WireHandle::new(1, 0),
            match_bits: MatchBits(0),
            portal: 9,
            src_offset: 0,
            sink_length: 0,
        };
        let header = Header { dest: to, src: ProcessId::lnet(ni), payload_length: 0, body };
        self.send_over(ni, engine, to, header, None, FAR)
    }

    /// Sends a GET of `sink_length` bytes; returns its token.
    pub fn get(&self, to: ProcessId, sink_length: usize, match_bits: u64) -> u64 {
        let body = Body::Get {
            return_wmd: WireHandle::new(1, match_bits),
            match_bits: MatchBits(match_bits),
            portal: 9,
            src_offset: 0,
            sink_length: sink_length as u32,
        };
        self.send(to, Header { dest: to, src: self.id(), payload_length: 0, body }, None, FAR)
    }

    pub fn send(
        &self,
        peer: ProcessId,
        header: Header,
        payload: Option<lnet_region::ReadVec>,
        deadline_ns: u64,
    ) -> u64 {
        self.send_over(self.nid, &self.engine, peer, header, payload, deadline_ns)
    }

    /// Sends a message over a given NI, whose upcalls are this engine's.
    pub fn send_over(
        &self,
        ni: Nid,
        engine: &Engine,
        peer: ProcessId,
        header: Header,
        payload: Option<lnet_region::ReadVec>,
        deadline_ns: u64,
    ) -> u64 {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let tx = Tx { ni, peer, header, payload, token: TxToken(token), reply_to: None, deadline_ns };
        if let Sent::Now(result) = self.lnd.send(tx) {
            engine.finish(TxToken(token), result);
        }
        token
    }

    pub fn now_ns(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let real = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        real + self.ahead_ns.load(Ordering::Relaxed)
    }

    /// Advances the clock.
    pub fn later(&self, ns: u64) {
        self.ahead_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Polls all shards.
    pub fn poll(&self) -> lnet_api::Poll {
        (0..self.lnd.shards()).map(|shard| self.poll_shard(shard)).reduce(lnet_api::Poll::and).unwrap()
    }

    pub fn poll_shard(&self, shard: usize) -> lnet_api::Poll {
        self.lnd.poll(shard, self.now_ns(), lnet_api::POLL_BUDGET)
    }

    /// Arms all shards; `false` if one of them has work.
    pub fn arm(&self) -> bool {
        (0..self.lnd.shards()).all(|shard| self.lnd.arm(shard))
    }

    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        (0..self.lnd.shards()).map(|shard| self.lnd.wait_fd(shard))
    }

    pub fn counters(&self) -> SockCounters {
        self.lnd.counters()
    }

    pub fn failure(&self, nid: Nid) -> PeerFailure {
        self.lnd.last_failure(nid).expect("a connection has failed")
    }

    /// Returns the result of a message, if it has one.
    pub fn sent(&self, token: u64) -> Option<Result<(), Errno>> {
        self.engine.sent.lock().unwrap().get(&token).copied()
    }

    /// Returns the number of completely received messages.
    pub fn received(&self) -> usize {
        self.engine.received()
    }

    pub fn with_got<T>(&self, look: impl FnOnce(&[Got]) -> T) -> T {
        look(&self.engine.got.lock().unwrap())
    }

    pub fn lost(&self) -> Vec<(ProcessId, Errno)> {
        self.engine.lost.lock().unwrap().clone()
    }
}

/// Drives the nodes until `done`. Sleeps when there is nothing to do, until one of the nodes or of
/// `others` has something.
pub fn drive_with(nodes: &[&Node], others: &[BorrowedFd<'_>], mut done: impl FnMut() -> bool) {
    loop {
        if done() {
            return;
        }
        let work: usize = nodes.iter().map(|node| node.poll().work).sum();
        if work > 0 || done() || !nodes.iter().all(|node| node.arm()) {
            continue;
        }
        let fds = nodes.iter().flat_map(|node| node.wait_fds()).chain(others.iter().copied());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let ready = poll(&mut fds, PollTimeout::from(STUCK_MS)).unwrap();
        assert!(ready > 0, "nothing happens any more");
    }
}

pub fn drive(nodes: &[&Node], done: impl FnMut() -> bool) {
    drive_with(nodes, &[], done);
}

/// Polls the nodes until none of them has work.
pub fn settle(nodes: &[&Node]) {
    while nodes.iter().map(|node| node.poll().work).sum::<usize>() > 0 {}
}

/// Returns two connected, idle nodes; this thread has polled the first one last.
pub fn idle_pair() -> (Node, Node) {
    let (a, b) = (Node::new(), Node::new());
    a.put_bytes(b.id(), b"x", 0);
    drive(&[&a, &b], || b.counters().rx.accepts == 3 && a.counters().rx.connects == 3);
    settle(&[&b, &a]);
    a.poll();
    (a, b)
}
