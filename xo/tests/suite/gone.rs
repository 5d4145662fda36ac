//! Nodes that are gone.

use nlx::{Errno, OpId, Queue, Refused};

use super::pair;
use crate::bed::*;

/// MT-241: whatever is asked of a node that is gone ends with an error, and everything else goes on.
#[test]
fn what_is_asked_of_a_node_that_is_gone_fails() {
    let pair = pair();
    pair.b.receive_one(64);
    pair.pass(b"it is there");
    let (_, sends) = pair.b.tm.passive_send(pair.b.empty(100), 100, None).unwrap();
    let (_, receives) = pair.b.tm.passive_receive(pair.b.empty(100), None).unwrap();
    let Pair { a, b, world } = pair;
    let peer = a.knows(&b);
    let (offered, _) = a.tm.passive_send(a.empty(100), 100, None).unwrap();
    drop(b);
    world.take_away(1);

    fails(&a, || a.tm.send(a.empty(100), 100, &peer, HUNG));
    fails(&a, || a.tm.active_send(a.empty(100), 100, &receives, HUNG));
    fails(&a, || a.tm.active_receive(a.empty(100), &sends, HUNG));
    // What waits for it, waits on.
    assert_eq!(a.tm.in_flight(), 1);
    a.cancel(offered);
    let other = Side::on(&world, 0, "*");
    other.receive_one(64);
    let op = a.send(&other, b"still here");
    assert_eq!(a.end_of(op).status, Ok(()));
    assert_eq!(other.next().message.as_deref(), Some(&b"still here"[..]));
}

/// Until the node knows that the other one is gone, bytes may leave.
fn fails(side: &Side, start: impl Fn() -> Result<OpId, Refused>) {
    loop {
        let event = side.end_of(start().unwrap());
        match event.status {
            Ok(()) => assert_ne!(event.queue, Queue::ActiveBulkReceive, "nobody answers"),
            Err(errno) => {
                assert!(matches!(errno, Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::EHOSTUNREACH), "{errno}");
                assert_eq!(event.length, 0);
                return;
            }
        }
    }
}
