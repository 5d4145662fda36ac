//! Each exchange of lnet-wire 35, in both directions, at all relevant lengths.

use lnet_api::{Errno, EventKind, LNet};
use lnet_o2iblnd::O2ibConfig;
use lnet_region::{Fragment, IoVec, Region};
use nlx_testkit::buffers::{at, bytes, filled, pattern, whole};
use nlx_testkit::lnds::{TestBed as _, exchange, get, put};

use crate::{Bed, Node};

/// The longest payload of an IMMEDIATE (lnet-wire 35).
pub(crate) const IMMEDIATE: usize = 3976;

/// Lengths of one byte, the longest payload of an IMMEDIATE and one byte more, a page and its
/// neighbours, and LNet's longest.
const LENGTHS: [usize; 9] = [1, 64, 3975, 3976, 3977, 4097, 65_537, (1 << 20) - 1, 1 << 20];

fn exchange_all_ways(bed: &Bed, [a, b]: [&Node; 2], source: &IoVec, sink: &IoVec) {
    exchange(bed, [a, b], source, sink);
    exchange(bed, [b, a], source, sink);
}

/// Registered memory is written directly, and is registered once.
// Covers: S-401
#[test]
fn each_length_is_written_to_its_place_or_goes_with_its_message() {
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig::default());
    let [a, b] = &nodes;
    for (number, length) in LENGTHS.into_iter().enumerate() {
        let source = filled(whole(length), number as u64);
        exchange_all_ways(&bed, [a, b], &source, &whole(length));
        assert_eq!(bytes(&source), pattern(number as u64, length));
    }
    let written: usize =
        LENGTHS.into_iter().filter(|length| *length > IMMEDIATE).map(|length| 2 * length).sum();
    let copied: usize =
        LENGTHS.into_iter().filter(|length| *length <= IMMEDIATE).map(|length| 2 * length).sum();
    for node in &nodes {
        let counters = node.lnd.counters();
        assert_eq!((counters.tx.bytes_bounced, counters.rx.bytes_bounced), (0, 0), "{counters:?}");
        assert_eq!((counters.tx.bytes_direct, counters.rx.bytes_direct), (written as u64, written as u64));
        assert_eq!((counters.tx.bytes_copied, counters.rx.bytes_copied), (copied as u64, copied as u64));
    }
    bed.end(nodes);
}

/// Contiguous memory is one fragment, and one work request.
// Covers: S-505, S-506
#[test]
fn neighbours_are_written_as_one() {
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        let together = || {
            let region = Region::heap(1 << 20).unwrap();
            let fragments = (0..256).map(|page| Fragment::new(region.clone(), page * 4096, 4096).unwrap());
            IoVec::new(fragments.collect::<Vec<_>>()).unwrap()
        };
        put(bed, [a, b], &filled(together(), 1), &together());
        assert_eq!(a.lnd.counters().tx.writes, 1);
        get(bed, [a, b], &filled(together(), 2), &together());
        assert_eq!(b.lnd.counters().tx.writes, 1);
    });
}

#[test]
fn odd_offsets_at_both_ends() {
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        for (from, to) in [(1, 4095), (4093, 3), (77, 0)] {
            for length in [1, 3977, 65_535, (1 << 20) - 13] {
                exchange_all_ways(bed, [a, b], &filled(at(from, length), from as u64), &at(to, length));
            }
        }
    });
}

/// lnet-wire 35.2 and 35.3: a PUT without a matching buffer is answered by PUT_NAK with status 0
/// and has been sent well; a GET without a matching buffer ends with ENODATA.
#[test]
fn what_is_not_wanted_is_dropped() {
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        for (number, length) in [64, 5000, 1 << 20].into_iter().enumerate() {
            let memory = filled(whole(length), 1);
            let put = a.put_unasked(b.id, &memory, 7);
            bed.until(&[a, b], || a.outcome(EventKind::Send, put).is_some());
            assert_eq!(a.outcome(EventKind::Send, put), Some(Ok(())), "{length} bytes");
            bed.until(&[a, b], || b.engine.counters().drop_count == 2 * number as u64 + 1);
            let get = a.get(b.id, &memory, 7);
            bed.until(&[a, b], || b.engine.counters().drop_count == 2 * number as u64 + 2);
            if length > IMMEDIATE {
                bed.until(&[a, b], || a.outcome(EventKind::Send, get).is_some());
                assert_eq!(a.outcome(EventKind::Send, get), Some(Err(Errno::ENODATA)), "{length} bytes");
            } else {
                // There is no answer, so the waiting side ends the operation.
                bed.until(&[a, b], || a.outcome(EventKind::Send, get).is_some());
                a.engine.md_unlink(get).unwrap();
            }
            assert!(bytes(&memory) == pattern(1, length), "nothing was written");
            a.take();
        }
        exchange_all_ways(bed, [a, b], &filled(whole(9999), 2), &whole(9999));
    });
}

/// Refusals between nodes of nlx, for senders that request them: the engine refuses a PUT, and a
/// GET that fits a message; GET_DONE refuses a GET_REQ. Each refusal is reported once.
#[test]
fn what_is_not_wanted_is_refused() {
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        for length in [64, 5000, 1 << 20] {
            let memory = filled(whole(length), 1);
            let put = a.start_refusable(EventKind::Put, b.id, &memory, 7);
            bed.until(&[a, b], || a.outcome(EventKind::Ack, put).is_some());
            let ends = [EventKind::Send, EventKind::Ack].map(|kind| a.outcome(kind, put));
            assert_eq!(ends, [Some(Ok(())), Some(Err(Errno::ENODATA))], "{length} bytes");
            let get = a.start_refusable(EventKind::Get, b.id, &memory, 7);
            let last = if length > IMMEDIATE { EventKind::Send } else { EventKind::Reply };
            bed.until(&[a, b], || a.outcome(last, get).is_some());
            assert_eq!(a.outcome(last, get), Some(Err(Errno::ENODATA)), "{length} bytes");
            assert!(bytes(&memory) == pattern(1, length), "nothing was written");
            a.take();
        }
        exchange_all_ways(bed, [a, b], &filled(whole(9999), 2), &whole(9999));
        assert_eq!((a.engine.counters().drop_count, b.engine.counters().drop_count), (0, 6));
    });
}
