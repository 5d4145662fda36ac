//! The link between two devices goes down and comes up again.

use lnet_api::{Errno, EventKind};
use lnet_o2iblnd::O2ibConfig;
use nlx_testkit::buffers::{filled, whole};
use nlx_testkit::lnds::{Load, S, TestBed as _, exchange};

use crate::{Bed, Node};

fn is_up(node: &Node) -> bool {
    node.engine.ni_statistics(node.id.nid).unwrap().up
}

/// Sends a PUT for which the other side has no buffer; returns its result.
fn put([a, b]: [&Node; 2], bed: &Bed) -> Result<(), Errno> {
    let put = a.put_unasked(b.id, &whole(5000), 9);
    bed.until(&[a, b], || a.outcome(EventKind::Send, put).is_some());
    a.outcome(EventKind::Send, put).unwrap()
}

/// lnet-semantics 16: while its port is down an NI is shown as down, and messages without a
/// connection fail at once; when the port is up, so is the NI, and no peer is in a back-off for
/// failures of that time.
// Covers: S-4
#[test]
fn without_its_port_an_ni_is_down() {
    Bed::on_pair(&O2ibConfig::default(), |bed, [a, b]| {
        for _ in 0..3 {
            bed.set_port(1, false);
            bed.until(&[a, b], || !is_up(a));
            let begin_ns = bed.now_ns();
            for _ in 0..3 {
                assert_eq!(put([a, b], bed), Err(Errno::ENETDOWN));
            }
            assert!(
                bed.now_ns() - begin_ns < 5 * S || matches!(bed, Bed::Real(_)),
                "it does not wait for anything"
            );
            let failure = a.lnd.last_failure(b.id.nid).unwrap().to_string();
            assert!(failure.contains("the port of ") && failure.contains(" is down"), "{failure}");
            bed.set_port(1, true);
            bed.until(&[a, b], || is_up(a) && is_up(b));
            [a, b].into_iter().for_each(|node| drop(node.take()));
            exchange(bed, [a, b], &filled(whole(70_000), 1), &whole(70_000));
            exchange(bed, [b, a], &filled(whole(70_000), 2), &whole(70_000));
            // When the node leaves next, there is no connection either.
            a.end();
            bed.until(&[b], || b.lnd.conn_stats().connections == 0);
            a.start();
        }
    });
}

/// A short outage of the link loses nothing: devices resend lost packets. (Soft-RoCE does not: a
/// send that fails because its netdev is down breaks the connection.)
#[test]
fn a_connection_outlasts_a_moment() {
    let bed = Bed::simulated();
    let nodes = bed.pair(&O2ibConfig::default());
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(70_000), 1), &whole(70_000));
    bed.set_port(1, false);
    bed.until(&[a, b], || !is_up(a));
    let put = a.put_unasked(b.id, &whole(64), 9);
    bed.set_port(1, true);
    bed.until(&[a, b], || a.outcome(EventKind::Send, put).is_some());
    assert_eq!(a.outcome(EventKind::Send, put), Some(Ok(())));
    bed.until(&[a, b], || is_up(a) && is_up(b) && b.engine.counters().drop_count == 1);
    assert_eq!(a.lnd.counters().rx.closes + b.lnd.counters().rx.closes, 0);
    [a, b].into_iter().for_each(|node| drop(node.take()));
    exchange(&bed, [b, a], &filled(whole(70_000), 2), &whole(70_000));
    bed.end(nodes);
}

/// Operations under way end, each message once; when the link is up again, the nodes connect again.
// Covers: S-4
#[test]
fn the_link_goes_down_under_load() {
    Bed::on_pair(&O2ibConfig { retry_count: 1, ..O2ibConfig::default() }, |bed, [a, b]| {
        exchange(bed, [a, b], &filled(whole(70_000), 1), &whole(70_000));
        for _ in 0..2 {
            let load = Load::begin([a, b], 100);
            bed.until(&[a, b], || Load::ended(a)[0] > 5);
            assert!(!load.has_ended(a), "it goes down too late");
            bed.set_port(1, false);
            bed.until(&[a, b], || load.has_ended(a));
            bed.set_port(1, true);
            // Operations that either side still waits for end with an error. After a failure a node
            // does not try a peer again for a while.
            bed.later(&[a, b], 60 * S);
            bed.later(&[a, b], 60 * S);
            bed.until(&[a, b], || [a, b].iter().all(|node| node.engine.sending() == 0));
            [a, b].into_iter().for_each(|node| drop(node.take()));
            works_again(bed, [a, b]);
        }
    });
}

/// Retries until a message arrives, as attempts fail while the port comes up, and then exchanges
/// payloads both ways.
fn works_again(bed: &Bed, [a, b]: [&Node; 2]) {
    let mut tries = 0;
    while put([a, b], bed).is_err() {
        tries += 1;
        assert!(tries < 20, "it does not come back: {:?}", a.lnd.last_failure(b.id.nid));
        bed.later(&[a, b], 60 * S);
    }
    [a, b].into_iter().for_each(|node| drop(node.take()));
    exchange(bed, [a, b], &filled(whole(70_000), 2), &whole(70_000));
    exchange(bed, [b, a], &filled(whole(70_000), 3), &whole(70_000));
}
