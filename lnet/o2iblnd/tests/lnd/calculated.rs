//! A connection takes the device resources and memory that the arithmetic computes, which `nlx
//! o2iblnd-calc` shows.

use std::sync::Arc;

use lnet_api::MdOptions;
use lnet_o2iblnd::fabric::{DeviceLimits, QueueSizes};
use lnet_o2iblnd::sizes::{self, ConnSizes};
use lnet_o2iblnd::{Fabric, O2ibConfig};
use nlx_testkit::buffers::{apart, cut, filled, whole};
use nlx_testkit::heap::live_bytes;
use nlx_testkit::lnds::watched::{Change, Seen, watched_pair};
use nlx_testkit::lnds::{TestBed as _, exchange, get, put};

use crate::{Bed, Node};

/// The tolerated relative difference between counted and calculated bytes, due to names and spare
/// capacity of lists.
const ABOUT: f64 = 0.05;

pub(crate) fn limits(fabric: &Arc<dyn Fabric>, node: &Node) -> DeviceLimits {
    *fabric.open(node.id.nid.ipv4().unwrap()).unwrap().limits()
}

/// Sends a short message, which connects the nodes and registers nothing itself; then waits for all
/// connections.
fn connect(bed: &Bed, [a, b]: [&Node; 2], connections: usize) {
    exchange(bed, [a, b], &filled(whole(64), 1), &whole(64));
    bed.until(&[a, b], || [a, b].iter().all(|node| node.lnd.conn_stats().connections == connections));
}

/// Checks that the last queues made are those calculated; the device must report at least these
/// sizes. Inline bytes depend on the device.
pub(crate) fn check_queues(seen: &Seen, connections: usize, wanted: &ConnSizes) {
    let queues = seen.queues();
    assert!(queues.len() >= connections, "{queues:?}");
    for (asked, made) in &queues[queues.len() - connections..] {
        assert_eq!(*asked, wanted.queues(asked.inline));
        let least = |of: fn(&QueueSizes) -> u32| assert!(of(made) >= of(asked), "{made:?} of {asked:?}");
        least(|sizes| sizes.sends);
        least(|sizes| sizes.receives);
        least(|sizes| sizes.completions);
        least(|sizes| sizes.pieces);
    }
}

/// Queues and registered memory, of both sides, for different tunables.
// Covers: S-501, S-503, S-504, S-506, S-508
#[test]
fn a_connection_takes_what_is_calculated() {
    let small = |limits: &mut DeviceLimits| limits.queue_entries = 1024;
    let as_it_is = |_: &mut DeviceLimits| ();
    let one = |peer_credits| O2ibConfig { peer_credits, ..O2ibConfig::default() };
    let four = |peer_credits| O2ibConfig { conns_per_peer: 4, ..one(peer_credits) };
    let cases: [(O2ibConfig, O2ibConfig, Change); 10] = [
        (one(8), one(8), as_it_is),
        (one(32), one(32), as_it_is),
        (one(128), one(128), as_it_is),
        (four(8), four(8), as_it_is),
        (four(32), one(32), as_it_is),
        // Both sides agree on the smaller depth, after a rejection.
        (one(128), one(8), as_it_is),
        (four(8), one(128), as_it_is),
        // A device reduces the depth, and the requesting side adopts it.
        (one(8), one(8), small),
        (O2ibConfig { wrq_sge: 1, concurrent_sends: 64, ..one(32) }, one(32), as_it_is),
        (O2ibConfig { wrq_sge: 4, concurrent_sends: 4, ..one(8) }, one(8), as_it_is),
    ];
    for (mine, theirs, change) in cases {
        let bed = Bed::new();
        let (nodes, seen) = watched_pair(&bed, [&mine, &theirs], change);
        let [a, b] = &nodes;
        let connections = usize::from(mine.conns_per_peer);
        connect(&bed, [a, b], connections);
        let as_is = limits(&bed.host(1).1, a);
        let mut changed = as_is;
        change(&mut changed);
        let (active, passive) = (sizes::adjust(&mine), sizes::adjust(&theirs));
        let agreed = sizes::negotiate((&active, &as_is), (&passive, &changed)).outcome.unwrap();
        for (seen, wanted) in seen.iter().zip([&agreed.active, &agreed.passive]) {
            check_queues(seen, connections, wanted);
            let registered = wanted.receive_bytes + wanted.transmit_bytes;
            assert_eq!(seen.bytes(), connections as u64 * registered, "{mine:?} {theirs:?}");
        }
        drop(seen);
        bed.end(nodes);
    }
}

/// Each bounce pool is made when it is first needed, with the calculated size.
// Covers: S-506
#[test]
fn the_pool_takes_what_is_calculated() {
    let bed = Bed::new();
    let config = O2ibConfig::default();
    let (nodes, seen) = watched_pair(&bed, [&config; 2], |_| ());
    let [a, b] = &nodes;
    connect(&bed, [a, b], 1);
    let before = seen[0].bytes();
    let lengths = cut(9000, 2);
    let (source, sink) = (whole(9000), apart(&lengths));
    get(&bed, [a, b], &filled(source, 1), &sink);
    // The two parts of the sink have no common key: they lie in separate memory without
    // registration.
    let pools = sizes::pools(&sizes::adjust(&config), 1);
    assert_eq!(seen[0].bytes() - before, pools.bounce_bytes() / 2);
    // Pieces that are too short to be registered have no key either.
    put(&bed, [a, b], &filled(apart(&[3000; 3]), 2), &whole(9000));
    assert_eq!(seen[0].bytes() - before, pools.bounce_bytes());
    assert_eq!((pools.all_transmits(), pools.all_registrations()), (0, 0));
    drop((sink, seen));
    bed.end(nodes);
}

/// The counted heap bytes of a connection, from three more connections on both sides, are those
/// calculated.
// Covers: S-506
#[test]
fn bookkeeping_is_about_what_is_calculated() {
    for (peer_credits, concurrent_sends) in [(8, 0), (32, 64), (128, 0)] {
        let bed = Bed::new();
        let Bed::Simulated(_) = &bed else { return };
        let config = O2ibConfig { peer_credits, concurrent_sends, ..O2ibConfig::default() };
        let (nodes, seen) = watched_pair(&bed, [&config; 2], |_| ());
        let [a, b] = &nodes;
        connect(&bed, [a, b], 1);
        let one = live_bytes();
        a.lnd.set_conns_per_peer(None, 4);
        connect(&bed, [a, b], 4);
        // Each connection gets a message, so that allocations of the first message are included.
        for _ in 0..8 {
            b.post(&whole(64), 9, MdOptions::OP_PUT);
            a.put(b.id, &whole(64), 9);
        }
        bed.until(&[a, b], || a.count(lnet_api::EventKind::Ack).1 == 8);
        [a, b].into_iter().for_each(Node::clear);
        let counted = (live_bytes() - one) as f64;
        let adjusted = sizes::adjust(&config);
        let device = limits(&bed.host(1).1, a);
        let made = sizes::connection(&adjusted, adjusted.peer_credits, adjusted.fragments, &device).unwrap();
        // The message buffers are pages of the system, not heap memory.
        let calculated = (6 * made.bookkeeping_bytes.unwrap()) as f64;
        let off = (counted - calculated).abs() / calculated;
        assert!(off < ABOUT, "{peer_credits}: {counted} counted, {calculated} calculated");
        drop(seen);
        bed.end(nodes);
    }
}
