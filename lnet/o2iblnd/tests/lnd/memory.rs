//! Memory that is registered, and memory that is copied.

use std::sync::Arc;

use lnet_api::{Errno, EventKind, Lnd, MdOptions, POLL_BUDGET};
use lnet_o2iblnd::O2ibConfig;
use lnet_region::{Arena, Fragment, IoVec, Region};
use lnet_sim::ib::{IbBehaviour, IbDevice};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nlx_testkit::buffers::{apart, bytes, cut, filled, pattern, whole};
use nlx_testkit::lnds::watched::{Seen, watched_pair};
use nlx_testkit::lnds::{S, TestBed as _, exchange, get, put};

use crate::{Bed, Node};

/// Returns two nodes whose fabrics count registrations and queues.
fn watched(bed: &Bed, config: &O2ibConfig) -> ([Node; 2], [Arc<Seen>; 2]) {
    watched_pair(bed, [config, config], |_| ())
}

/// The first transfer out of or into memory registers it, and later ones do not; no byte is copied.
// Covers: S-401
#[test]
fn an_operation_registers_nothing() {
    const COUNT: u64 = 20;
    const BYTES: usize = 1 << 20;
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    let (source, sink) = (filled(whole(BYTES), 1), whole(BYTES));
    exchange(&bed, [a, b], &source, &sink);
    exchange(&bed, [b, a], &source, &sink);
    let registered = seen.each_ref().map(|seen| seen.registrations());
    for _ in 0..COUNT {
        exchange(&bed, [a, b], &source, &sink);
        exchange(&bed, [b, a], &source, &sink);
    }
    assert_eq!(seen.each_ref().map(|seen| seen.registrations()), registered);
    for node in &nodes {
        let counters = node.lnd.counters();
        assert_eq!((counters.tx.bytes_copied, counters.rx.bytes_copied), (0, 0));
        assert_eq!((counters.tx.bytes_bounced, counters.rx.bytes_bounced), (0, 0));
        let moved = 2 * (COUNT + 1) * BYTES as u64;
        assert_eq!((counters.tx.bytes_direct, counters.rx.bytes_direct), (moved, moved));
    }
    drop((source, sink, seen));
    bed.end(nodes);
}

/// Memory of several registrations has no single key: as a sink it is written through a bounce
/// buffer, and counted. As a source it is gathered by the device.
// Covers: S-504
#[test]
fn memory_without_one_key_goes_through_the_pool() {
    const BYTES: usize = 1 << 20;
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        let lengths = cut(BYTES, 64);
        put(bed, [a, b], &filled(apart(&lengths), 1), &apart(&lengths));
        get(bed, [a, b], &filled(apart(&lengths), 2), &apart(&lengths));
        let [a, b] = [a, b].map(|node| node.lnd.counters());
        assert_eq!((a.rx.bytes_bounced, b.rx.bytes_bounced), (BYTES as u64, BYTES as u64));
        assert_eq!((a.tx.bytes_bounced, b.tx.bytes_bounced), (0, 0));
        assert_eq!((a.tx.bytes_direct, b.tx.bytes_direct), (BYTES as u64, BYTES as u64));
    });
}

/// More transfers than the pool has buffers: the others wait for one, and all arrive.
#[test]
fn transfers_wait_for_the_pool() {
    const COUNT: usize = 40;
    let config = O2ibConfig { peer_credits: 64, ..O2ibConfig::default() };
    Bed::on_pair(&config, |bed, [a, b]| {
        let sinks: Vec<IoVec> = (0..2 * COUNT).map(|_| apart(&[4096, 5000, 4100])).collect();
        let (puts, gets) = sinks.split_at(COUNT);
        let length = sinks[0].len();
        for (bits, sink) in puts.iter().enumerate() {
            b.post(sink, bits as u64, MdOptions::OP_PUT);
            a.put(b.id, &filled(whole(length), bits as u64), bits as u64);
        }
        for (bits, sink) in gets.iter().enumerate() {
            let bits = (COUNT + bits) as u64;
            b.post(&filled(whole(length), bits), bits, MdOptions::OP_GET);
            a.get(b.id, sink, bits);
        }
        bed.until(&[a, b], || a.count(EventKind::Ack).1 == COUNT && a.count(EventKind::Reply).1 == COUNT);
        for (bits, sink) in sinks.iter().enumerate() {
            assert!(bytes(sink) == pattern(bits as u64, length), "number {bits}");
        }
        assert!(b.lnd.counters().tx.bounces_awaited > 0);
    });
}

/// Memory beyond the limit of locked memory is copied, through bounce buffers within the limit. An
/// ordinary user may lock 8 MiB (in the guest with `--user`).
#[test]
fn more_than_may_be_locked() {
    const BYTES: usize = 1 << 20;
    let little = IbDevice { memory_bytes: 5 << 20, ..IbDevice::LARGE };
    let bed = Bed::with(IbBehaviour { devices: vec![little], ..IbBehaviour::reliable() });
    let config = O2ibConfig { service: 9987, use_privileged_port: false, ..O2ibConfig::default() };
    let nodes = bed.pair(&config);
    let [a, b] = &nodes;
    let large =
        || IoVec::new(vec![Fragment::new(Region::heap(9 << 20).unwrap(), 7, BYTES).unwrap()]).unwrap();
    let (source, sink) = (filled(large(), 1), large());
    for _ in 0..3 {
        exchange(&bed, [a, b], &source, &sink);
        exchange(&bed, [b, a], &source, &sink);
    }
    let moved = |node: &Node| {
        let counters = node.lnd.counters();
        [counters.tx.bytes_bounced, counters.rx.bytes_bounced]
    };
    let bounced = if bed.is_unlimited() { 0 } else { 6 * BYTES as u64 };
    assert_eq!([moved(a), moved(b)], [[bounced; 2]; 2]);
    drop((source, sink));
    bed.end(nodes);
}

/// Memory that a device has refused is offered to it again after a while: other memory may have
/// been freed, or the limit raised. Until then it is copied without another attempt to register it.
// Covers: S-401
#[test]
fn what_was_refused_is_registered_later() {
    const BYTES: usize = 1 << 20;
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    let move_all = |source: &IoVec, sink: &IoVec| {
        exchange(&bed, [a, b], source, sink);
        exchange(&bed, [b, a], source, sink);
    };
    // Now there are connections, and bounce buffers in both directions, because pieces shorter than
    // a page are not registered.
    move_all(&filled(apart(&[3000, 3000]), 1), &apart(&[5000, 5000]));
    let bounced = || {
        let [a, b] = [a, b].map(|node| node.lnd.counters());
        [a.tx.bytes_bounced, a.rx.bytes_bounced, b.tx.bytes_bounced, b.rx.bytes_bounced]
    };
    let (source, sink) = (filled(whole(BYTES), 2), whole(BYTES));
    seen.iter().for_each(|seen| seen.refuse_memory(true));
    let before = bounced();
    move_all(&source, &sink);
    let after = bounced();
    assert_eq!(std::array::from_fn(|at| after[at] - before[at]), [2 * BYTES as u64; 4]);
    if matches!(bed, Bed::Simulated(_)) {
        // Both regions are offered to the device, at both nodes.
        let asked = seen.each_ref().map(|seen| seen.registrations());
        move_all(&source, &sink);
        assert_eq!(seen.each_ref().map(|seen| seen.registrations()), asked, "it is not asked again at once");
    }
    seen.iter().for_each(|seen| seen.refuse_memory(false));
    bed.later(&[a, b], 11 * S);
    let before = bounced();
    move_all(&source, &sink);
    assert_eq!(bounced(), before, "it goes straight to its place");
    drop((source, sink, seen));
    bed.end(nodes);
}

/// While a shard's driver runs, no other thread arms the shard, and a thread that polls it retries
/// soon: if a thread slept as if it were armed, it would miss events.
#[test]
fn no_waiter_sleeps_while_another_drives() {
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(64), 1), &whole(64));
    let (sender, results) = std::sync::mpsc::channel();
    let (lnd, now_ns) = (b.lnd.clone(), bed.now_ns());
    seen[1].while_registering(move || {
        let polled = lnd.poll(0, now_ns, POLL_BUDGET);
        sender.send((lnd.arm(0), polled)).unwrap();
    });
    // The driver registers the sink, which takes long.
    put(&bed, [a, b], &filled(whole(5000), 2), &whole(5000));
    let (armed, polled) = results.try_recv().unwrap();
    assert!(!armed);
    assert_eq!(polled.work, 0);
    assert!(polled.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns + S / 100), "{polled:?}");
    drop(seen);
    bed.end(nodes);
}

/// The registration of memory takes long. Until it ends, other messages are sent on the same
/// connection, for each end of a PUT and of a GET.
#[test]
fn registering_holds_up_no_other_message() {
    const BYTES: usize = 1 << 20;
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(64), 1), &whole(64));
    let small = filled(whole(64), 2);
    let expect = |from: &Node, to: &Node, registers: usize| {
        to.post(&whole(64), 9, MdOptions::OP_PUT);
        seen[registers].while_registering(from.sender(to.id, &small, 9));
    };
    // Source and sink of a PUT, then sink and source of a GET.
    for (registers, get) in [(0, false), (1, false), (0, true), (1, true)] {
        let ends = if registers == 0 { [a, b] } else { [b, a] };
        expect(ends[0], ends[1], registers);
        let (source, sink) = (filled(whole(BYTES), 3), whole(BYTES));
        let kind = if get {
            b.post(&source, 8, MdOptions::OP_GET);
            a.get(b.id, &sink, 8);
            EventKind::Reply
        } else {
            b.post(&sink, 8, MdOptions::OP_PUT);
            a.put(b.id, &source, 8);
            EventKind::Ack
        };
        bed.until(&[a, b], || a.has(kind) && ends[1].has(EventKind::Put));
        bed.until(&[a, b], || [a, b].iter().all(|node| node.engine.sending() == 0));
        assert!(bytes(&sink) == pattern(3, BYTES));
        [a, b].into_iter().for_each(Node::clear);
    }
    drop((small, seen));
    bed.end(nodes);
}

/// A pool whose memory was refused is tried again later. Until then transfers that need it fail,
/// with a warning.
#[test]
fn a_pool_that_was_refused_is_made_later() {
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    put(&bed, [a, b], &filled(whole(64), 1), &whole(64));
    seen.iter().for_each(|seen| seen.refuse_memory(true));
    for _ in 0..3 {
        let refused = a.get(b.id, &whole(5000), 7);
        bed.until(&[a, b], || a.outcome(EventKind::Send, refused).is_some());
        assert_eq!(a.outcome(EventKind::Send, refused), Some(Err(Errno::ENOMEM)));
        a.take();
    }
    seen.iter().for_each(|seen| seen.refuse_memory(false));
    bed.later(&[a, b], 11 * S);
    let lengths = cut(9999, 3);
    get(&bed, [a, b], &filled(apart(&lengths), 2), &apart(&lengths));
    drop(seen);
    bed.end(nodes);
}

/// Pieces of a pool's arena have one registration together.
// Covers: S-401
#[test]
fn an_arena_is_registered_once() {
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(5000), 1), &whole(5000));
    let before = seen[0].registrations();
    let memory = memfd_create(c"arena", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    nix::unistd::ftruncate(&memory, 8 << 20).unwrap();
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    // SAFETY: no other owner has the memory.
    #[allow(unsafe_code, reason = "as above")]
    let arena = unsafe { Arena::trusted(vec![memory]) }.unwrap();
    for number in 0..8 {
        let source = IoVec::whole(arena.allocate(1 << 20).unwrap());
        put(&bed, [a, b], &filled(source, number), &whole(1 << 20));
    }
    assert_eq!(seen[0].registrations() - before, 1);
    drop((arena, seen));
    bed.end(nodes);
}
