//! NIs and peers that go and come back.

use crate::{Bed, Node};
use lnet_api::{EventKind, MdOptions};
use lnet_o2iblnd::O2ibConfig;
use lnet_region::IoVec;
use nlx_testkit::lnds::{Load, S, TestBed as _, exchange};

use nlx_testkit::buffers::{bytes, filled, pattern, whole};

/// S-108: an NI that ends takes nothing with it: what was under way ends, and the peer works on.
#[test]
fn shutdown_under_load() {
    for ends_itself in [true, false] {
        let bed = Bed::new();
        let nodes = bed.pair(&O2ibConfig::default());
        let [a, b] = &nodes;
        exchange(&bed, [a, b], &filled(whole(64), 1), &whole(64));
        let load = Load::begin([a, b], 60);
        bed.until(&[a, b], || Load::ended(a)[0] > 5);
        if ends_itself {
            a.end();
            assert!(load.has_ended(a), "what is under way ends with its NI");
            a.take();
            a.start();
        } else {
            b.end();
            bed.until(&[a], || load.has_ended(a));
            a.take();
            b.start();
        }
        bed.until(&[a, b], || a.engine.sending() == 0 && b.engine.sending() == 0);
        // What was being received ends when a node hears that its connection has: not by time, which is to pass now.
        bed.until(&[a, b], || a.lnd.census().operations + b.lnd.census().operations == 0);
        [a, b].into_iter().for_each(|node| drop(node.take()));
        // After a failure a peer is left in peace for a while.
        bed.later(&[a, b], 60 * S);
        exchange(&bed, [a, b], &filled(whole(70_000), 1), &whole(70_000));
        exchange(&bed, [b, a], &filled(whole(70_000), 1), &whole(70_000));
        bed.end(nodes);
    }
}

/// lnet-wire 34: a peer in another life is found out, whoever connects: old connections go, and a request that names an old life
/// is refused as stale and asked again.
#[test]
fn a_node_comes_back_in_another_life() {
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig::default());
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(5000), 1), &whole(5000));
    for life in 0..4 {
        b.end();
        b.start();
        // It is not waited for that `a` hears of the end.
        let ways = if life % 2 == 0 { [a, b] } else { [b, a] };
        bed.until(&[a, b], || a.lnd.census().connections == 0);
        exchange(&bed, ways, &filled(whole(5000), life), &whole(5000));
        exchange(&bed, [ways[1], ways[0]], &filled(whole(5000), life), &whole(5000));
    }
    assert_eq!((a.lnd.census().connections, b.lnd.census().connections), (1, 1));
    bed.end(nodes);
}

/// Its PUT has left and was acknowledged, and the other's is here.
fn has_settled(node: &Node) -> bool {
    [EventKind::Send, EventKind::Ack, EventKind::Put].iter().all(|kind| node.count(*kind).1 == 1)
}

/// Both begin at once: both attempts are accepted, and nothing is lost.
#[test]
fn both_connect_at_once() {
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig::default());
    let [a, b] = &nodes;
    for _ in 0..5 {
        let sinks = [whole(5000), whole(5000)];
        a.post(&sinks[0], 1, MdOptions::OP_PUT);
        b.post(&sinks[1], 1, MdOptions::OP_PUT);
        a.put(b.id, &filled(whole(5000), 1), 1);
        b.put(a.id, &filled(whole(5000), 1), 1);
        bed.until(&[a, b], || [a, b].iter().all(|node| has_settled(node)));
        assert!(sinks.iter().all(|sink| bytes(sink) == pattern(1, 5000)));
        [a, b].into_iter().for_each(Node::clear);
        [a, b].into_iter().for_each(Node::end);
        [a, b].into_iter().for_each(Node::start);
    }
    bed.end(nodes);
}

/// Nobody listens at an address that exists: the message fails, and says what is wrong; when somebody does, it is found.
#[test]
fn nobody_listens() {
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig::default());
    let [a, b] = &nodes;
    b.end();
    let put = a.put_unasked(b.id, &filled(whole(5000), 1), 7);
    bed.until(&[a], || a.outcome(EventKind::Send, put).is_some());
    assert!(a.outcome(EventKind::Send, put).unwrap().is_err());
    let failure = a.lnd.last_failure(b.id.nid).unwrap().to_string();
    assert!(failure.contains("nobody listens there"), "{failure}");
    a.take();
    b.start();
    bed.later(&[a, b], 60 * S);
    exchange(&bed, [a, b], &filled(whole(5000), 1), &whole(5000));
    bed.end(nodes);
}

/// A sender in another thread wakes the driver, which sleeps.
#[test]
#[ignore = "needs real time: in the guest"]
fn a_sender_in_another_thread() {
    const COUNT: u64 = 300;
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig { partitions: 2, ..O2ibConfig::default() });
    let [a, b] = &nodes;
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
    drop(sinks);
    bed.end(nodes);
}
