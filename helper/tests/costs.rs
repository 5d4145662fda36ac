//! The measured heap use of clients' objects is within the estimates with which users are charged.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

use std::alloc::Layout;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lnet::{Engine, EngineConfig};
use lnet_cpt::CptTable;
use lnet_fake::FakeDrive;
use lnet_nid::Pid;
use nlx_bev_cqueue::{Consumer, Producer, SharedMemory};
use nlx_core::{BufferEvent, BufferHandle, MatchCounter, Operation, OperationKind};
use nlx_driver_proto::{Entry, Hello, Reply, Request, Segment, StartTm, Submission};
use nlx_helper::costs::{
    ARENA_HEAP_BYTES, BUFFER_HEAP_BYTES, CLIENT_HEAP_BYTES, OPERATION_HEAP_BYTES, PLACE_HEAP_BYTES,
    SEGMENT_HEAP_BYTES, TM_HEAP_BYTES,
};
use nlx_helper::{Credentials, Host, HostConfig, ReplyPacket, Session};
use nlx_testkit::heap::WatchedHeap;

/// Bytes in use, as an allocator counts them: in units of 16, with a word before each block.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Peak of the bytes in use: a table that grows exists twice for a moment.
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn block(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(layout.align())
}

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap {
    gives: |layout| {
        let used = USED.fetch_add(block(layout), Relaxed) + block(layout);
        PEAK.fetch_max(used, Relaxed);
        true
    },
    takes: |layout| {
        USED.fetch_sub(block(layout), Relaxed);
    },
};

/// Returns the peak of bytes that `work` allocates.
fn measured<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    ((PEAK.load(Relaxed) - before) as u64, result)
}

/// Checks that the charge is sufficient, and at most 40 times the measured bytes.
#[track_caller]
fn within(kind: &str, count: u64, bytes: u64, each: u64) {
    let charged = count * each;
    assert!(bytes <= charged, "{count} {kind} take {bytes} bytes, {charged} are charged");
    assert!(charged <= 40 * bytes, "{count} {kind} take {bytes} bytes, and {charged} are charged");
}

struct Client {
    session: Session,
    answer: ReplyPacket,
    packet: Vec<u8>,
    ring: Option<Producer<Submission, SharedMemory>>,
}

impl Client {
    fn new(host: &Arc<Host>) -> Client {
        let session = Session::new(host, Credentials { pid: 1, uid: 1000, gid: 1000 }).unwrap();
        let mut client = Client { session, answer: ReplyPacket::default(), packet: Vec::new(), ring: None };
        client.ask(&Request::Hello(Hello::new("measured")));
        let ring = SharedMemory::attach(client.answer.take_fds().unwrap().remove(0)).unwrap();
        client.ring = Some(Producer::new(ring).unwrap());
        client
    }

    fn ask(&mut self, request: &Request) -> Reply {
        self.packet.clear();
        request.write(1, &mut self.packet);
        self.session.request(&self.packet, &mut self.answer).unwrap();
        Reply::read(&self.answer.packet).unwrap().1
    }

    fn arena(&mut self) -> u32 {
        let Reply::Arena { arena, .. } =
            self.ask(&Request::CreateArena { bytes: 4096, huge: false, near: None })
        else {
            panic!("no arena")
        };
        lnet_region::seal(self.answer.take_fds().unwrap()[0].as_fd()).unwrap();
        arena
    }

    fn start(&mut self) -> (u64, Consumer<BufferEvent, SharedMemory>) {
        let address = "0@lo:12345:40:*".parse().unwrap();
        let start = Request::StartTm(StartTm { address, events_max: 10_000, lazy: false });
        let Reply::Started { tm, .. } = self.ask(&start) else { panic!("no machine") };
        let events = SharedMemory::attach(self.answer.take_fds().unwrap().remove(0)).unwrap();
        (tm, Consumer::new(events).unwrap())
    }

    fn push(&mut self, entry: &Entry) {
        self.ring.as_mut().unwrap().push(entry.write()).unwrap();
        assert_eq!(self.session.drain(100).unwrap(), 1);
    }
}

#[test]
fn objects_take_no_more_than_is_charged_for_them() {
    let partitions = Arc::new(CptTable::virtual_parts(4).unwrap());
    let engine = Engine::new(EngineConfig { partitions, ..EngineConfig::new(Pid::LNET, 1) });
    let host = Host::new(engine, FakeDrive::new(), HostConfig::default());
    // LNet's allocations for the first objects of a kind belong to the node.
    let mut first = Client::new(&host);
    first.arena();
    let (_, events) = first.start();
    drop(events);

    let (bytes, mut client) = measured(|| Client::new(&host));
    within("clients", 1, bytes, CLIENT_HEAP_BYTES);

    let (bytes, arenas) = measured(|| (0..64).map(|_| client.arena()).collect::<Vec<_>>());
    within("arenas", 64, bytes, ARENA_HEAP_BYTES);

    let (bytes, machines) = measured(|| (0..64).map(|_| client.start()).collect::<Vec<_>>());
    within("machines", 64, bytes, TM_HEAP_BYTES);

    const BUFFERS: u64 = 5_000;
    let name = |place: u64| BufferHandle(1 << 32 | place);
    let segment = Segment { arena: arenas[0], offset: 0, length: 8 };
    let (bytes, ()) = measured(|| {
        (0..BUFFERS).for_each(|place| client.push(&Entry::Register { buffer: name(place), segment }));
    });
    within("buffers", BUFFERS, bytes, BUFFER_HEAP_BYTES + PLACE_HEAP_BYTES);
    // Only the last slot: the table has the same length, and is empty.
    let (bytes, ()) = measured(|| client.push(&Entry::Register { buffer: name(60_000), segment }));
    within("places", 60_001 - BUFFERS, bytes, PLACE_HEAP_BYTES);

    let (bytes, ()) = measured(|| {
        for place in 0..100 {
            let register = Request::Register { buffer: name(10_000 + place).0, segments: vec![segment; 200] };
            assert_eq!(client.ask(&register), Reply::Done);
        }
    });
    within("segments", 100 * 200, bytes, SEGMENT_HEAP_BYTES);

    let (tm, _) = &machines[0];
    let (bytes, ()) = measured(|| {
        for place in 0..BUFFERS {
            let operation = Operation { buffer: name(place), cookie: 0, kind: OperationKind::PassiveReceive };
            let counter = MatchCounter::new(place + 1).unwrap();
            client.push(&Entry::Operate { tm: *tm, operation, counter });
        }
    });
    assert_eq!(host.status().clients[1].operations, BUFFERS);
    within("operations", BUFFERS, bytes, OPERATION_HEAP_BYTES);
}
