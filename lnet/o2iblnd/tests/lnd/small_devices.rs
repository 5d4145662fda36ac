//! Devices with low limits, and memory in many pieces: S-504, S-505.

use lnet_api::{Errno, EventKind, MdOptions};
use lnet_o2iblnd::O2ibConfig;
use nlx_testkit::buffers::{apart, cut, filled, gapped, whole};
use nlx_testkit::lnds::watched::{Change, watched_pair};
use nlx_testkit::lnds::{S, TestBed as _, exchange};
use nlx_testkit::warnings::Warnings;

use crate::{Bed, Node};

/// A device with one piece for each work request, a queue for one transfer, and requests of few
/// bytes, with which LNet's largest payload just fits.
const SMALL: [Change; 4] = [
    |limits| limits.pieces = 1,
    |limits| limits.queue_entries = 258,
    |limits| limits.transfer_bytes = 4096,
    |limits| (limits.pieces, limits.queue_entries, limits.transfer_bytes) = (1, 300, 1 << 16),
];

/// Each path of a payload, with the small device on either side: source of a PUT and of a REPLY,
/// sink of a PUT and of a GET.
// Covers: S-504
#[test]
fn scattered_memory_on_small_devices() {
    for small in SMALL {
        let bed = Bed::new();
        let (nodes, seen) = watched_pair(&bed, [&O2ibConfig::default(); 2], small);
        let [a, b] = &nodes;
        for (from, to) in [(1, 256), (256, 1), (256, 256), (7, 100)] {
            for length in [5000, 1 << 18] {
                for make in [gapped, apart] {
                    let source = filled(make(&cut(length, from)), length as u64);
                    exchange(&bed, [a, b], &source, &make(&cut(length, to)));
                    exchange(&bed, [b, a], &source, &make(&cut(length, to)));
                }
            }
        }
        // Messages of LNet's greatest length.
        exchange(&bed, [a, b], &filled(whole(1 << 20), 1), &whole(1 << 20));
        exchange(&bed, [b, a], &filled(whole(1 << 20), 2), &whole(1 << 20));
        drop(seen);
        bed.end(nodes);
    }
}

/// A megabyte is more than 257 requests of 2048 bytes, for any memory: it fails at both sides, with
/// a warning. Shorter payloads still work, over the same connection.
// Covers: S-504
#[test]
fn what_a_device_cannot_write_is_refused_with_advice() {
    let bed = Bed::new();
    let (nodes, seen) =
        watched_pair(&bed, [&O2ibConfig::default(); 2], |limits| limits.transfer_bytes = 2048);
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(1 << 19), 1), &whole(1 << 19));
    let warnings = Warnings::heard();
    let failed = |node: &Node| {
        let events = node.take();
        assert!(events.iter().any(|event| event.status == Err(Errno::EMSGSIZE)), "{events:?}");
    };
    for (source, sink) in
        [(filled(whole(1 << 20), 1), whole(1 << 20)), (gapped(&cut(1 << 20, 256)), whole(1 << 20))]
    {
        // The node is the source of a PUT, then of a REPLY.
        a.post(&sink, 7, MdOptions::OP_PUT);
        b.put_unasked(a.id, &source, 7);
        bed.until(&[a, b], || b.has(EventKind::Send) && a.has(EventKind::Put));
        [a, b].into_iter().for_each(failed);
        b.post(&source, 8, MdOptions::OP_GET);
        let get = a.get(b.id, &sink, 8);
        bed.until(&[a, b], || a.outcome(EventKind::Send, get).is_some() && b.has(EventKind::Get));
        [a, b].into_iter().for_each(failed);
        bed.later(&[a, b], 11 * S);
    }
    let warnings = warnings.with("a transfer failed");
    assert!(
        !warnings.is_empty() && warnings.iter().all(|warning| warning.contains("pieces and 2048 bytes")),
        "{warnings:?}"
    );
    exchange(&bed, [b, a], &filled(whole(1 << 19), 2), &whole(1 << 19));
    assert_eq!((a.lnd.counters().rx.closes, b.lnd.counters().rx.closes), (0, 0));
    drop(seen);
    bed.end(nodes);
}

/// With a device that supports less than it reports, queues are tried a few times, at intervals,
/// and not with each peer that connects.
#[test]
fn a_device_that_has_less_than_it_promises() {
    let bed = Bed::new();
    let config = O2ibConfig { peer_credits: 128, ..O2ibConfig::default() };
    let (nodes, seen) = watched_pair(&bed, [&config; 2], |_| ());
    let [a, b] = &nodes;
    let again = |ways| {
        exchange(&bed, ways, &filled(whole(70_000), 1), &whole(70_000));
        b.end();
        bed.until(&[a], || a.lnd.conn_stats().connections == 0);
        b.start();
    };
    let depth = || seen[0].queues().last().unwrap().0.sends / 258;
    again([a, b]);
    let whole = depth();
    // The device refuses queues for more than ten entries of 258.
    seen.iter().for_each(|seen| seen.refuse_queues(2600));
    again([a, b]);
    let refused = seen[0].queues_refused();
    assert!((1..=20).contains(&refused), "{refused}");
    assert!(whole > 10 && (7..=10).contains(&depth()), "{}", depth());
    again([a, b]);
    assert_eq!(seen[0].queues_refused(), refused, "it is not asked again at once");
    bed.later(&[a, b], 11 * S);
    seen.iter().for_each(|seen| seen.refuse_queues(u32::MAX));
    again([a, b]);
    assert_eq!(depth(), whole);
    drop(seen);
    bed.end(nodes);
}

/// A device that cannot make a queue for one transfer cannot serve a network: starting the NI
/// fails.
#[test]
fn a_device_that_is_too_small() {
    let bed = Bed::new();
    let (address, fabric) = bed.host(1);
    let (fabric, _seen) =
        nlx_testkit::lnds::watched::WatchedFabric::over(fabric, |limits| limits.queue_entries = 257);
    let error = Node::refused(address, fabric, O2ibConfig::default(), bed.now_ns());
    assert!(error.contains("send queue: 258 entries") && error.contains("use another device"), "{error}");
}
