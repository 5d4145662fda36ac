//! The number of locks that a message takes.

use nlx_core::OperationKind;
use nlx_sync::locks_taken;

use super::bed;
use crate::bed::*;

/// Maximum locks of a message that leaves inside the call, as over an idle network.
const LOCKS_MAX: usize = 12;

/// Maximum locks of a message that leaves later: until then it can be unlinked, for which kcore
/// stores its MD and the engine its message.
const LATER_LOCKS_MAX: usize = LOCKS_MAX + 2;

/// Sends a message twice; `leave` lets it leave, if the network has kept it. The second one takes
/// at most `most` locks.
///
/// Counted is each lock of `nlx_sync` that this thread, the only one, takes from the submission
/// until the event of the message has been taken. These are the locks of kcore (ring of events,
/// buffers, operations), those of the engine's partitions, and that of the leases of the message's
/// memory. Not counted are those of the network, which is the test's, and those of checks that only
/// debug builds make. (Other code uses locks of `parking_lot` directly: no such code is on this
/// path.)
fn expect_few_locks(bed: &Bed<EngineWorld>, most: usize, leave: impl Fn()) {
    let send = || {
        bed.submit(OperationKind::Send { length: LENGTH.into(), to: peer() }).unwrap();
        leave();
        let event = bed.tm.event_get().unwrap().expect("it has left");
        assert_eq!((event.unlinked(), event.status()), (true, Ok(())));
    };
    send();
    let ((), taken) = locks_taken(send);
    let places: Vec<_> = taken.iter().map(|place| format!("{}:{}", place.file(), place.line())).collect();
    assert!(places.iter().any(|place| place.starts_with("lnet/engine")), "none of the engine's: {places:#?}");
    assert!(places.iter().any(|place| place.starts_with("kcore")), "none of kcore's: {places:#?}");
    assert!(places.iter().any(|place| place.starts_with("lnet/region")), "none of the memory's: {places:#?}");
    assert!(taken.len() <= most, "{} locks: {places:#?}", taken.len());
}

#[test]
fn a_message_that_leaves_inside_the_call_takes_few_locks() {
    let bed = bed();
    bed.world.send_at_once();
    expect_few_locks(&bed, LOCKS_MAX, || ());
}

#[test]
fn a_message_that_leaves_later_takes_few_locks() {
    let bed = bed();
    expect_few_locks(&bed, LATER_LOCKS_MAX, || {
        let message = bed.world.outgoing().pop().expect("a message is to leave");
        bed.world.leave(&message, Ok(()));
    });
}
