//! How many locks a message takes.

use nlx_core::OperationKind;
use nlx_sync::locks_taken;

use super::bed;
use crate::bed::*;

/// The most locks of one message over an idle network.
const LOCKS_MAX: usize = 12;

/// Sends a message twice; `leave` lets it leave, if the network has kept it. The second one takes few locks.
///
/// Counted is from the submission until the event of the message has been taken: each lock of `nlx_sync` that this thread takes,
/// and it is the only one. These are the locks of kcore (ring of events, buffers, operations) and those of the engine's
/// partitions. Not counted are those of the network, which is the test's, and those of checks that only debug builds make. (Other
/// code takes locks of `parking_lot` itself: no such code lies on this way.)
fn expect_few_locks(bed: &Bed<EngineWorld>, leave: impl Fn()) {
    let send = || {
        bed.submit(OperationKind::Send { length: LENGTH.into(), to: peer() }).unwrap();
        leave();
        let event = bed.tm.event_get().expect("it has left");
        assert_eq!((event.unlinked(), event.status()), (true, Ok(())));
    };
    send();
    let ((), taken) = locks_taken(send);
    let places: Vec<_> = taken.iter().map(|place| format!("{}:{}", place.file(), place.line())).collect();
    assert!(places.iter().any(|place| place.starts_with("lnet/engine")), "none of the engine's: {places:#?}");
    assert!(places.iter().any(|place| place.starts_with("kcore")), "none of kcore's: {places:#?}");
    assert!(taken.len() <= LOCKS_MAX, "{} locks: {places:#?}", taken.len());
}

#[test]
fn a_message_that_leaves_inside_the_call_takes_few_locks() {
    let bed = bed();
    bed.world.send_at_once();
    expect_few_locks(&bed, || ());
}

#[test]
fn a_message_that_leaves_later_takes_few_locks() {
    let bed = bed();
    expect_few_locks(&bed, || {
        let message = bed.world.outgoing().pop().expect("a message is to leave");
        bed.world.leave(&message, Ok(()));
    });
}
