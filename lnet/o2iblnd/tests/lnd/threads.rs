//! Threads that race for a node's shards while all of them send: each message ends once, and no
//! thread misses an event in its sleep.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use lnet_api::{
    AckRequest, Clock, Drive, EqHandle, Event, EventKind, LNet, Lnd, Md, MdOptions, MeSpec, Poll, Put,
    Sleeper, Threshold, Tokens, Unlink, wait_until,
};
use lnet_nid::{MatchBits, ProcessId};
use lnet_o2iblnd::O2ibConfig;
use lnet_region::IoVec;
use lnet_sim::Rng;
use lnet_sim::ib::IbBehaviour;
use nlx_testkit::buffers::{bytes, filled, pattern, whole};
use nlx_testkit::events::on_both;
use nlx_testkit::lnds::{S, TestBed as _, portal, states};

use crate::{Bed, Node};

/// The number of threads of each node.
const THREADS: usize = 3;
/// The number of messages of each thread.
const MESSAGES: usize = 120;
/// The maximum number of messages that a thread sends before it waits for them.
const BURST: u64 = 12;
const LENGTHS: [usize; 4] = [64, 3976, 5000, 70_000];

/// A time after which a test has hung.
const HUNG_NS: u64 = 60 * S;

/// A node that several threads drive.
struct Driven<'a> {
    bed: &'a Bed,
    node: &'a Node,
    tokens: Tokens,
}

impl Clock for Driven<'_> {
    fn now_ns(&self) -> u64 {
        self.bed.now_ns()
    }
}

impl Drive for Driven<'_> {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    fn poll(&self, shard: usize, budget: usize) -> Poll {
        let now_ns = self.now_ns();
        let polled = self.node.lnd.poll(shard, now_ns, budget);
        polled.and(Poll { work: 0, deadline_ns: self.node.engine.advance(now_ns) })
    }

    fn arm(&self, shard: usize) -> bool {
        self.node.lnd.arm(shard)
    }

    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        self.node.lnd.wait_fd(shard)
    }
}

/// The events of a node; a new one wakes its threads.
struct Board {
    /// For each message number: the number of times that a message of this node has been sent and
    /// acknowledged, and that one of the other node has arrived.
    sent: Vec<AtomicU32>,
    acked: Vec<AtomicU32>,
    arrived: Vec<AtomicU32>,
    failed: AtomicU32,
    /// The number of events of each thread's messages.
    ended: [AtomicUsize; THREADS],
    sleepers: [Arc<Sleeper>; THREADS],
}

impl Board {
    fn new() -> Board {
        let counts = || (0..THREADS * MESSAGES).map(|_| AtomicU32::new(0)).collect();
        Board {
            sent: counts(),
            acked: counts(),
            arrived: counts(),
            failed: AtomicU32::new(0),
            ended: Default::default(),
            sleepers: std::array::from_fn(|_| Arc::new(Sleeper::new().unwrap())),
        }
    }

    fn wake_all(&self) {
        self.sleepers.iter().for_each(|sleeper| sleeper.wake());
    }

    fn note(&self, event: &Event) {
        let (counts, number) = match event.kind {
            EventKind::Send => (&self.sent, event.user_ptr),
            EventKind::Ack => (&self.acked, event.user_ptr),
            _ => (&self.arrived, event.hdr_data),
        };
        let number = number as usize;
        counts[number].fetch_add(1, Ordering::SeqCst);
        self.failed.fetch_add(u32::from(event.status.is_err()), Ordering::SeqCst);
        if matches!(event.kind, EventKind::Send | EventKind::Ack) {
            self.ended[number / MESSAGES].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// One side: a node, its events, and the node that it sends to.
struct Side<'a> {
    drive: Driven<'a>,
    board: Arc<Board>,
    eq: EqHandle,
    peer: ProcessId,
}

impl<'a> Side<'a> {
    fn new(bed: &'a Bed, node: &'a Node, peer: ProcessId) -> Side<'a> {
        let board = Arc::new(Board::new());
        let (noting, waking) = (board.clone(), board.clone());
        let handler = on_both(move |event| noting.note(event), move || waking.wake_all());
        let eq = node.engine.eq_alloc(handler).unwrap();
        let spec = MeSpec::new(portal(), MatchBits(7));
        let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
        let me = node.engine.me_attach(&spec).unwrap();
        let md = md(&whole(LENGTHS[3]), (Threshold::Infinite, options), 0, eq);
        node.engine.md_attach(me, md, Unlink::Auto).unwrap();
        Side { drive: Driven { bed, node, tokens: Tokens::new(node.lnd.shards()) }, board, eq, peer }
    }

    fn send(&self, number: usize, memory: &IoVec) {
        let engine = &self.drive.node.engine;
        let md = md(memory, (Threshold::Limited(2), MdOptions::empty()), number as u64, self.eq);
        let md = engine.md_bind(md, Unlink::Auto).unwrap();
        let (portal, match_bits, hdr_data) = (portal(), MatchBits(7), number as u64);
        let put = Put {
            source: None,
            md,
            ack: AckRequest::Ack,
            target: self.peer,
            portal,
            match_bits,
            offset: 0,
            hdr_data,
        };
        engine.put(&put).unwrap();
    }

    /// Waits as a program does, driving free shards.
    fn wait(&self, thread: usize, what: &str, so: impl FnMut() -> bool) {
        let deadline_ns = self.drive.now_ns() + HUNG_NS;
        let came = wait_until(&self.drive, &self.board.sleepers[thread], Some(deadline_ns), so);
        assert!(came, "{what}: {}", states(&[self.drive.node]));
    }

    /// Runs one thread: it sends, and waits for the answers, or polls once and leaves the rest to
    /// others.
    fn work(&self, thread: usize) {
        let mut rng = Rng::new(thread as u64);
        let memory = LENGTHS.map(|length| filled(whole(length), length as u64));
        let mut sent = 0;
        while sent < MESSAGES {
            for _ in 0..rng.between((1, BURST)).min((MESSAGES - sent) as u64) {
                self.send(thread * MESSAGES + sent, &memory[rng.index(LENGTHS.len())]);
                sent += 1;
            }
            if rng.below(4) == 0 {
                (&self.drive as &dyn Drive).poll_free_shards();
            } else {
                let ended = || self.board.ended[thread].load(Ordering::SeqCst) == 2 * sent;
                self.wait(thread, "its messages have not ended", ended);
            }
        }
    }
}

fn md(memory: &IoVec, (threshold, options): (Threshold, MdOptions), user_ptr: u64, eq: EqHandle) -> Md {
    Md { memory: memory.clone(), threshold, max_size: 0, options, user_ptr, eq: Some(eq) }
}

fn race(bed: Bed, config: &O2ibConfig) {
    let nodes = bed.pair(config);
    let ids = [nodes[0].id, nodes[1].id];
    let sides = [Side::new(&bed, &nodes[0], ids[1]), Side::new(&bed, &nodes[1], ids[0])];
    // The number of threads that have not finished.
    let left = AtomicUsize::new(2 * THREADS);
    let over = AtomicBool::new(false);
    let all_ended = |side: &Side<'_>| {
        let ended = |of: &AtomicUsize| of.load(Ordering::SeqCst) == 2 * MESSAGES;
        side.board.ended.iter().all(ended)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| bed.keep_time(&over));
        // The flag is set after a panic, too: otherwise the other threads would not end.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _end = End(&over);
        let work = |side: &Side<'_>, thread: usize| {
            side.work(thread);
            left.fetch_sub(1, Ordering::SeqCst);
            sides.iter().for_each(|side| side.board.wake_all());
            // A thread that has finished continues to drive for the other node.
            side.wait(thread, "the others are not through", || {
                left.load(Ordering::SeqCst) == 0 && sides.iter().all(all_ended)
            });
            sides.iter().for_each(|side| side.board.wake_all());
        };
        let threads: Vec<_> = sides
            .iter()
            .flat_map(|side| (0..THREADS).map(move |thread| (side, thread)))
            .map(|(side, thread)| scope.spawn(move || work(side, thread)))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    for side in &sides {
        let once = |counts: &[AtomicU32]| counts.iter().all(|count| count.load(Ordering::SeqCst) == 1);
        let Board { sent, acked, arrived, failed, .. } = &*side.board;
        assert!(once(sent) && once(acked) && once(arrived), "each message once");
        assert_eq!(failed.load(Ordering::SeqCst), 0);
    }
    drop(sides);
    bed.end(nodes);
}

/// Returns a configuration with long timeouts: no timer wakes a thread that has missed an event.
fn patient() -> O2ibConfig {
    O2ibConfig { timeout_s: 1_000, keepalive_s: 4_000, ..O2ibConfig::default() }
}

/// Threads that poll, arm, ring and send.
// Covers: S-4
#[test]
fn threads_race_for_a_shard() {
    for (partitions, conns_per_peer) in [(1, 1), (2, 1), (1, 4)] {
        race(Bed::new(), &O2ibConfig { partitions, conns_per_peer, ..patient() });
    }
}

/// Threads race in the same way when completions are reported much later than they are visible, or
/// at once.
#[test]
fn threads_race_with_late_interrupts() {
    for interrupt_ns in [(0, 0), (0, 300_000)] {
        for latency_ns in [(0, 0), (20_000, 200_000)] {
            let behaviour = IbBehaviour { interrupt_ns, latency_ns, kib_ns: 0, ..IbBehaviour::reliable() };
            race(Bed::with(behaviour), &patient());
        }
    }
}

/// A sender in another thread wakes the driver, which sleeps.
#[test]
#[ignore = "needs real time: in the guest"]
fn a_sender_in_another_thread() {
    const COUNT: u64 = 300;
    Bed::on_pair(&O2ibConfig { partitions: 2, ..O2ibConfig::default() }, |bed, [a, b]| {
        let sinks: Vec<IoVec> = (0..COUNT).map(|_| whole(5000)).collect();
        for (bits, sink) in sinks.iter().enumerate() {
            b.post(sink, bits as u64, MdOptions::OP_PUT);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for bits in 0..COUNT {
                    a.put(b.id, &filled(whole(5000), bits), bits);
                }
            });
            bed.until(&[a, b], || a.count(EventKind::Ack).1 == COUNT as usize);
        });
        assert!(sinks.iter().enumerate().all(|(bits, sink)| bytes(sink) == pattern(bits as u64, 5000)));
    });
}
