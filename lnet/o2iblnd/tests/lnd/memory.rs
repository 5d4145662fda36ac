//! What is registered, what is copied, and what a connection takes of the device.

use std::sync::Arc;

use lnet_api::{EventKind, MdOptions};
use lnet_o2iblnd::{O2ibConfig, fabric::QueueSizes, sizes};
use lnet_region::{Arena, Fragment, IoVec, Region};
use lnet_sim::ib::{IbDevice, IbHabits};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::bed::Bed;
use crate::buffers::{apart, bytes, cut, filled, pattern, whole};
use crate::exchange::{exchange, get, put};
use crate::node::Node;
use crate::watched::{Seen, WatchedFabric};

/// Two nodes whose fabrics count.
fn watched(bed: &Bed, config: &O2ibConfig) -> ([Node; 2], [Arc<Seen>; 2]) {
    let [a, b] = [1, 2].map(|number| {
        let (address, fabric) = bed.host(number);
        let (fabric, seen) = WatchedFabric::over(fabric);
        (Node::new(address, fabric, config.clone(), bed.now_ns()), seen)
    });
    ([a.0, b.0], [a.1, b.1])
}

/// S-401: the first transfer out of or into memory registers it, and none after that; no byte is copied.
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

/// What lies in several registrations has no key of its own: as a sink it is written to a bounce buffer, and counted. As a
/// source it is gathered by the device.
#[test]
fn memory_without_one_key_goes_through_the_pool() {
    const BYTES: usize = 1 << 20;
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig::default());
    let [a, b] = &nodes;
    let lengths = cut(BYTES, 64);
    put(&bed, [a, b], &filled(apart(&lengths), 1), &apart(&lengths));
    get(&bed, [a, b], &filled(apart(&lengths), 2), &apart(&lengths));
    let [a, b] = [a, b].map(|node| node.lnd.counters());
    assert_eq!((a.rx.bytes_bounced, b.rx.bytes_bounced), (BYTES as u64, BYTES as u64));
    assert_eq!((a.tx.bytes_bounced, b.tx.bytes_bounced), (0, 0));
    assert_eq!((a.tx.bytes_direct, b.tx.bytes_direct), (BYTES as u64, BYTES as u64));
    bed.end(nodes);
}

/// More transfers than the pool has buffers: the others wait for one, and all arrive.
#[test]
fn transfers_wait_for_the_pool() {
    const COUNT: usize = 40;
    let bed = Bed::new();
    let config = O2ibConfig { peer_credits: 64, ..O2ibConfig::default() };
    let nodes = bed.pair(&config);
    let [a, b] = &nodes;
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
    drop(sinks);
    bed.end(nodes);
}

/// Memory that may not be locked is copied, through as many bounce buffers as may. An ordinary user has 8 MiB of it (in the
/// guest with `--user`).
#[test]
fn more_than_may_be_locked() {
    const BYTES: usize = 1 << 20;
    let little = IbDevice { memory_bytes: 5 << 20, ..IbDevice::LARGE };
    let bed = Bed::with(IbHabits { devices: vec![little], ..IbHabits::reliable() });
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

/// S-504, S-506: what the device says that it has made is what the arithmetic says that a connection takes; the inline bytes
/// are its own affair.
#[test]
fn queues_are_as_large_as_calculated() {
    for (peer_credits, wrq_sge, concurrent_sends) in [(8, 2, 0), (32, 1, 64), (8, 4, 4), (128, 2, 0)] {
        let bed = Bed::new();
        let config = O2ibConfig { peer_credits, wrq_sge, concurrent_sends, ..O2ibConfig::default() };
        let (nodes, seen) = watched(&bed, &config);
        let [a, b] = &nodes;
        let limits = bed.host(1).1.open(a.id.nid.ipv4().unwrap()).map(|device| *device.limits());
        exchange(&bed, [a, b], &filled(whole(5000), 1), &whole(5000));
        let adjusted = sizes::adjust(&config);
        let limits = limits.unwrap();
        let wanted =
            sizes::connection(&adjusted, adjusted.peer_credits, adjusted.fragments, &limits).unwrap();
        for seen in seen {
            let queues = seen.queues();
            let [(asked, made)] = queues[..] else { panic!("{queues:?}") };
            assert_eq!(asked, wanted.queues(asked.inline));
            let least =
                |of: fn(&QueueSizes) -> u32| assert!(of(&made) >= of(&asked), "{made:?} of {asked:?}");
            least(|sizes| sizes.sends);
            least(|sizes| sizes.receives);
            least(|sizes| sizes.completions);
            least(|sizes| sizes.pieces);
        }
        bed.end(nodes);
    }
}

/// Pieces of a pool's arena: one registration for all of them.
#[test]
fn an_arena_is_registered_once() {
    let bed = Bed::new();
    let (nodes, seen) = watched(&bed, &O2ibConfig::default());
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(5000), 1), &whole(5000));
    let before = seen[0].registrations();
    let memory = memfd_create(c"arena", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    nix::unistd::ftruncate(&memory, 8 << 20).unwrap();
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    // SAFETY: nobody else has the memory.
    #[allow(unsafe_code, reason = "as above")]
    let arena = unsafe { Arena::trusted(memory) }.unwrap();
    for number in 0..8 {
        let source = IoVec::whole(arena.allocate(1 << 20).unwrap());
        put(&bed, [a, b], &filled(source, number), &whole(1 << 20));
    }
    assert_eq!(seen[0].registrations() - before, 1);
    drop((arena, seen));
    bed.end(nodes);
}
