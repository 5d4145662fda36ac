//! NIs and peers that end and start again.

use lnet_api::{EventKind, MdOptions};
use nlx_testkit::buffers::{bytes, filled, pattern, whole};
use nlx_testkit::lnds::{Load, S, TestBed, exchange};

use super::on_pairs;
use crate::{AT_ONCE, Bed, Config, NOBODY, Node, connections};

/// The end of an NI under load leaves nothing behind: operations under way end, and the peer goes
/// on working.
// Covers: S-108
#[test]
fn shutdown_under_load() {
    for ends_itself in [true, false] {
        on_pairs(&Config::default(), |bed, [a, b]| {
            exchange(bed, [a, b], &filled(whole(64), 1), &whole(64));
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
            // A receive under way ends because the node learns of the connection's end, not because
            // the time below passes.
            bed.until(&[a, b], || Bed::is_at_rest(a) && Bed::is_at_rest(b));
            [a, b].into_iter().for_each(|node| drop(node.take()));
            // The pause after a failure must be over before the peer is tried again.
            bed.later(&[a, b], 60 * S);
            exchange(bed, [a, b], &filled(whole(70_000), 1), &whole(70_000));
            exchange(bed, [b, a], &filled(whole(70_000), 1), &whole(70_000));
        });
    }
}

/// lnet-wire 24, 34: a peer's new incarnation is detected whichever side connects, and old
/// connections are closed.
#[test]
fn a_node_comes_back_in_another_life() {
    on_pairs(&Config::default(), |bed, [a, b]| {
        exchange(bed, [a, b], &filled(whole(5000), 1), &whole(5000));
        for life in 0..4 {
            b.end();
            b.start();
            // The test continues before `a` has found that the connection ended.
            let ways = if life % 2 == 0 { [a, b] } else { [b, a] };
            bed.until(&[a, b], || a.lnd.conn_stats().connections == 0);
            exchange(bed, ways, &filled(whole(5000), life), &whole(5000));
            exchange(bed, [ways[1], ways[0]], &filled(whole(5000), life), &whole(5000));
        }
        bed.until(&[a, b], || [a, b].iter().all(|node| node.lnd.conn_stats().connections == connections(1)));
    });
}

/// Returns whether the node's PUT was sent and acknowledged, and the other side's PUT has arrived.
fn has_settled(node: &Node) -> bool {
    [EventKind::Send, EventKind::Ack, EventKind::Put].iter().all(|kind| node.count(*kind).1 == 1)
}

/// Both sides connect at once: they agree on the connections, and nothing is lost.
#[test]
fn both_connect_at_once() {
    on_pairs(&Config::default(), |bed, [a, b]| {
        for _ in 0..5 {
            let sinks = [whole(5000), whole(5000)];
            a.post(&sinks[0], 1, MdOptions::OP_PUT);
            b.post(&sinks[1], 1, MdOptions::OP_PUT);
            a.put(b.id, &filled(whole(5000), 1), 1);
            b.put(a.id, &filled(whole(5000), 1), 1);
            bed.until(&[a, b], || [a, b].iter().all(|node| has_settled(node)));
            assert!(sinks.iter().all(|sink| bytes(sink) == pattern(1, 5000)));
            [a, b].into_iter().for_each(Node::clear);
            // The loser of a race tries again a second later, if a connection is still missing
            // then.
            let agree = || {
                let [there, here] = [a, b].map(|node| node.lnd.conn_stats().connections);
                there == here && AT_ONCE.contains(&there)
            };
            for _ in 0..5 {
                bed.later(&[a, b], S);
            }
            bed.until(&[a, b], agree);
            [a, b].into_iter().for_each(Node::end);
            [a, b].into_iter().for_each(Node::start);
        }
    });
}

/// With no node at an existing address, the message fails and the failure has the reason; a node
/// that starts there is found.
#[test]
fn no_listener() {
    on_pairs(&Config::default(), |bed, [a, b]| {
        b.end();
        let put = a.put_unasked(b.id, &filled(whole(5000), 1), 7);
        bed.until(&[a], || a.outcome(EventKind::Send, put).is_some());
        assert!(a.outcome(EventKind::Send, put).unwrap().is_err());
        let failure = a.lnd.last_failure(b.id.nid).unwrap().to_string();
        assert!(failure.contains(NOBODY), "{failure}");
        a.take();
        b.start();
        bed.later(&[a, b], 60 * S);
        exchange(bed, [a, b], &filled(whole(5000), 1), &whole(5000));
    });
}
