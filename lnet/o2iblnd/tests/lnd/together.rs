//! Messages that are posted together, and payloads that are sent from their own memory.

use lnet_api::{EventKind, MdOptions, corked};
use lnet_o2iblnd::{O2ibConfig, TxCounters};
use lnet_region::{Fragment, IoVec, Region};
use nlx_testkit::buffers::{bytes, filled, pattern, whole};
use nlx_testkit::lnds::{TestBed as _, get, put};

use crate::{Bed, Node};

const BYTES: usize = 2000;

fn tx(node: &Node) -> TxCounters {
    node.lnd.counters().tx
}

/// Returns the first `length` bytes of memory that has been registered by sending all of it.
fn part_of_registered(bed: &Bed, [a, b]: [&Node; 2], length: usize) -> IoVec {
    let region = Region::heap(1 << 16).unwrap();
    put(bed, [a, b], &filled(IoVec::whole(region.clone()), 1), &whole(1 << 16));
    IoVec::new(vec![Fragment::new(region, 0, length).unwrap()]).unwrap()
}

/// A program that sends several messages under a cork causes one post to the device; the messages
/// that they cause at the peer return the credits that it owes.
#[test]
fn a_cork_holds_messages_together() {
    const COUNT: u64 = 4;
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        put(bed, [a, b], &filled(whole(64), 0), &whole(64));
        for length in [64, 1 << 16] {
            let sinks: Vec<IoVec> = (0..COUNT).map(|_| whole(length)).collect();
            for (sink, bits) in sinks.iter().zip(0..) {
                b.post(sink, bits, MdOptions::OP_PUT);
            }
            let before = tx(a);
            corked(|| {
                for bits in 0..COUNT {
                    a.put(b.id, &filled(whole(length), bits), bits);
                }
                assert_eq!(tx(a).posts, before.posts, "nothing leaves before its end");
            });
            let after = tx(a);
            assert_eq!((after.posts - before.posts, after.sends - before.sends), (1, COUNT));
            bed.until(&[a, b], || a.count(EventKind::Ack).1 == COUNT as usize);
            for (sink, bits) in sinks.iter().zip(0..) {
                assert!(bytes(sink) == pattern(bits, length));
            }
            [a, b].into_iter().for_each(Node::clear);
        }
        assert_eq!(tx(b).noops, 0);
    });
}

/// More than a few messages begin to be sent before the cork's end.
#[test]
fn a_long_batch_does_not_wait_for_its_end() {
    const COUNT: usize = 30;
    let config = O2ibConfig { peer_credits: 64, ..O2ibConfig::default() };
    Bed::on_pair(&config, |bed, [a, b]| {
        put(bed, [a, b], &filled(whole(64), 0), &whole(64));
        b.serve(&whole(64), 7, MdOptions::OP_PUT);
        corked(|| {
            let before = tx(a);
            for _ in 0..COUNT {
                a.put(b.id, &filled(whole(64), 0), 7);
            }
            assert!(tx(a).posts > before.posts && tx(a).posts - before.posts < COUNT as u64 / 4);
        });
        bed.until(&[a, b], || a.count(EventKind::Ack).1 == COUNT);
    });
}

/// The payload of an IMMEDIATE is sent from its own memory, if that is registered already and long
/// enough to be worth it. Nothing is registered for it.
// Covers: S-401
#[test]
fn payloads_in_registered_memory_are_gathered() {
    for (wrq_sge, length, cksum, gathered) in
        [(2, BYTES, false, true), (2, 100, false, false), (1, BYTES, false, false), (2, BYTES, true, false)]
    {
        let config = O2ibConfig { wrq_sge, cksum, ..O2ibConfig::default() };
        Bed::on_pair(&config, |bed, [a, b]| {
            let source = part_of_registered(bed, [a, b], length);
            let before = tx(a);
            put(bed, [a, b], &source, &whole(length));
            let after = tx(a);
            let moved = (after.bytes_direct - before.bytes_direct, after.bytes_copied - before.bytes_copied);
            assert_eq!(moved, if gathered { (length as u64, 0) } else { (0, length as u64) });
            put(bed, [a, b], &filled(whole(BYTES), 4), &whole(BYTES));
            assert_eq!(tx(a).bytes_copied - after.bytes_copied, BYTES as u64, "it is not registered");
        });
    }
}

/// A short payload in memory that is not registered is written from the message's own buffer: no
/// bounce buffer is made for it.
#[test]
fn small_answers_need_no_bounce_buffer() {
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        for length in [1, 48, 4032] {
            // Regions of less than a page are not registered.
            let source = filled(IoVec::whole(Region::heap(length).unwrap()), length as u64);
            let before = tx(b);
            get(bed, [a, b], &source, &whole(5000));
            let after = tx(b);
            assert_eq!(after.bytes_copied - before.bytes_copied, length as u64);
            assert_eq!((after.bytes_bounced, after.bytes_direct), (0, 0));
            assert_eq!(after.writes - before.writes, 1);
        }
    });
}
