//! Messages that are lost because no receive buffer takes them (X13).

use lnet_api::Errno;
use nlx_core::{Core, MatchCounter, OperationKind, TmId, TmOptions, match_bits};

use super::bed;
use crate::bed::*;

/// Returns the message with other match bits.
fn aside(message: &Arriving, tmid: TmId, counter: MatchCounter) -> Arriving {
    let Body::Put { portal, hdr_data, payload, .. } = message.body.clone() else { unreachable!("a message") };
    let body = Body::Put { portal, bits: match_bits(tmid, counter), hdr_data, payload };
    Arriving { from: message.from, body }
}

#[test]
fn messages_without_a_buffer_are_counted() {
    let bed = bed();
    for expected in 1..=3 {
        assert!(bed.world.arrive(&bed.message(&peer(), 1)).is_none());
        assert_eq!(bed.tm.dropped(), expected);
    }
    // A message that has a buffer is not lost.
    bed.submit(RECEIVE).unwrap();
    bed.receive(&bed.message(&peer(), LENGTH));
    bed.only_event();
    assert_eq!(bed.tm.dropped(), 3);
    bed.assert_no_faults();
}

/// A message that is longer than the remaining room is lost, too.
#[test]
fn messages_that_are_too_long_are_counted() {
    let bed = bed().started(RECEIVE);
    assert!(bed.world.arrive(&bed.message(&peer(), BUFFER_BYTES as u32 + 1)).is_none());
    assert_eq!((bed.tm.dropped(), bed.tm.pending()), (1, false));
    bed.tm.cancel(bed.buffer, COOKIE).unwrap();
    assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED));
}

#[test]
fn messages_for_another_receiver_are_not_counted() {
    let bed = bed();
    let message = bed.message(&peer(), 1);
    let own = bed.tm.address().tmid;
    for other in [
        aside(&message, own, MatchCounter::FIRST),
        aside(&message, TmId::new(own.get() - 1).unwrap(), MatchCounter::UNSOLICITED),
    ] {
        assert!(bed.world.arrive(&other).is_none());
    }
    let beside = bed.core.tm_start(&start(&format!("{OWN_NID}:12345:{PORTAL}:*")), &TmOptions::default());
    let beside = beside.unwrap();
    assert!(bed.world.arrive(&aside(&message, beside.address().tmid, MatchCounter::UNSOLICITED)).is_none());
    assert_eq!((bed.tm.dropped(), beside.dropped()), (0, 1));
}

/// A bulk transfer that comes too late is no loss: its operation has ended.
#[test]
fn a_late_bulk_transfer_is_not_counted() {
    let bed = bed();
    let passive = bed.expose(OperationKind::PassiveReceive);
    bed.tm.cancel(bed.buffer, COOKIE).unwrap();
    assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED));
    assert!(bed.world.arrive(&passive.put(&peer(), 1)).is_none());
    assert_eq!(bed.tm.dropped(), 0);
}

/// The count of the next machine at its address begins at 0.
#[test]
fn a_transfer_machine_that_has_stopped_hears_of_nothing() {
    let bed = bed();
    let message = bed.message(&peer(), 1);
    assert!(bed.world.arrive(&message).is_none());
    bed.tm.stop().unwrap();
    assert!(bed.world.arrive(&message).is_none());
    let next = bed.core.tm_start(&start(&bed.tm.address().to_string()), &TmOptions::default()).unwrap();
    assert!(bed.world.arrive(&message).is_none());
    assert_eq!((bed.tm.dropped(), next.dropped()), (1, 1));
    drop(next);
    assert!(bed.world.arrive(&message).is_none());
}

/// Any number of losses ends one wait, at once.
#[test]
fn a_loss_ends_one_wait() {
    let bed = bed();
    (0..3).for_each(|_| drop(bed.world.arrive(&bed.message(&peer(), 1))));
    assert!(!bed.tm.event_wait(None));
    assert_eq!(bed.tm.dropped(), 3);
    assert!(!bed.tm.event_wait(Some(0)));

    std::thread::scope(|scope| {
        let (waiter, _) = asleep(scope, || bed.tm.event_wait(None));
        assert!(!waiter.is_finished());
        assert!(bed.world.arrive(&bed.message(&peer(), 1)).is_none());
        assert!(!waiter.join().unwrap(), "there is no event");
    });
    assert_eq!(bed.tm.dropped(), 4);
}
