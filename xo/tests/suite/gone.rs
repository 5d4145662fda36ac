//! Nodes that are gone.

use nlx::{Address, Descriptor, Errno, Event, Nid, Op, OpId, Queue, Refused, Started, Stop};
use nlx_core::PassiveBuffer;

use super::pair;
use crate::bed::*;

/// Every operation with a node that is gone ends with an error, and everything else goes on.
// Covers: MT-241
#[test]
fn what_is_asked_of_a_node_that_is_gone_fails() {
    let pair = pair();
    pair.b.receive_one(64);
    pair.pass(b"it is there");
    let sends = pair.b.tm.start(Op::passive_send(pair.b.empty(100))).unwrap().offer;
    let receives = pair.b.tm.start(Op::passive_receive(pair.b.empty(100))).unwrap().offer;
    let Pair { a, b, world } = pair;
    let peer = a.knows(&b);
    let offered = a.tm.start(Op::passive_send(a.empty(100))).unwrap().op;
    drop(b);
    world.take_away(1);

    fails(&a, || a.tm.start(Op::send(a.empty(100), &peer).timeout(HUNG)));
    fails(&a, || a.tm.start(Op::active_send(a.empty(100), &receives).timeout(HUNG)));
    fails(&a, || a.tm.start(Op::active_receive(a.empty(100), &sends).timeout(HUNG)));
    // An operation that waits for that node stays in flight.
    assert_eq!(a.tm.in_flight(), 1);
    a.cancel(offered);
    let other = Side::on(&world, 0, "*");
    other.receive_one(64);
    let op = a.send(&other, b"still here");
    assert_eq!(a.end_of(op).status, Ok(()));
    assert_eq!(other.next().message.as_deref(), Some(&b"still here"[..]));
}

/// Repeats an operation until it fails: it may succeed until the node has detected that the other
/// one is gone.
fn fails(side: &Side, start: impl Fn() -> Result<Started, Refused>) {
    loop {
        let event = side.end_of(start().unwrap().op);
        match event.status {
            Ok(()) => assert_ne!(event.queue, Queue::ActiveBulkReceive, "nobody answers"),
            Err(errno) => {
                assert!(
                    matches!(
                        errno,
                        Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::EHOSTUNREACH | Errno::EPIPE
                    ),
                    "{errno}"
                );
                assert_eq!(event.length, 0);
                return;
            }
        }
    }
}

/// Operations with a node that never answers end when they are cancelled, at their timeouts, or
/// with the stop. The test relies on nothing else: a connection is given up long after the test is
/// considered hung.
// Covers: MT-238, MT-241
#[test]
fn what_is_asked_of_a_node_that_says_nothing_is_cancelled_times_out_or_is_stopped() {
    let pair = pair();
    let Started { op: offer, offer: sends } = pair.b.tm.start(Op::passive_send(pair.b.empty(100))).unwrap();
    let Started { op: other, offer: receives } =
        pair.b.tm.start(Op::passive_receive(pair.b.empty(100))).unwrap();
    pair.b.cancel(offer);
    pair.b.cancel(other);
    let silent = pair.world.silent().expect("there are two nodes");
    let [sends, receives] = [sends, receives].map(|offer| redirected(&offer.descriptor(0), silent.nid));
    let a = &pair.a;
    let to = a.tm.end_point(&format!("{}:12345:{PORTAL}:1", silent.nid)).unwrap();
    let start = |timeout| {
        [
            Op::send(a.empty(100), &to).timeout(timeout),
            Op::active_send(a.empty(100), receives).timeout(timeout),
            Op::active_receive(a.empty(100), sends).timeout(timeout),
        ]
        .map(|op| a.tm.start(op).unwrap().op)
    };
    let end = |mut ops: [OpId; 3], errno| {
        let mut ended = ops.map(|_| ends_with(&a.next(), errno));
        ops.sort();
        ended.sort();
        assert_eq!(ended, ops);
    };
    end(start(SOON), Errno::ETIMEDOUT);
    let ops = start(None);
    for op in ops {
        // Sends may have ended.
        let _ = a.tm.cancel(op);
    }
    end(ops, Errno::ECANCELED);

    start(None);
    a.tm.stop(Stop::Abort, HUNG).unwrap();
    let rest = a.rest();
    assert_eq!(rest.len(), 3);
    for event in &rest {
        ends_with(event, Errno::ECANCELED);
    }
}

/// Only without connections can a message leave for a node that never answers.
fn ends_with(event: &Event, errno: Errno) -> OpId {
    let left = event.queue != Queue::ActiveBulkReceive && event.status.is_ok();
    assert!(left || event.status == Err(errno), "{event:?}");
    event.op
}

/// Returns the same offer with the NID of another node.
fn redirected(offer: &Descriptor, nid: Nid) -> Descriptor {
    let passive = offer.for_active_receive(u64::MAX).or_else(|_| offer.for_active_send(1)).unwrap();
    let address = Address { nid, ..passive.address };
    Descriptor::encode(&PassiveBuffer { address, ..passive }).unwrap()
}
