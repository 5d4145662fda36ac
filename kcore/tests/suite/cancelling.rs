//! Cancelling, and its races with completion (S-414).

use lnet_api::Errno;
use nlx_core::{Core, CoreError, OperationKind, TmOptions};

use super::bed;
use crate::bed::*;

/// Lets the messages of all started operations leave.
fn leave_all<W: World>(bed: &Bed<W>) {
    bed.world.outgoing().iter().for_each(|message| bed.world.leave(message, Ok(())));
}

// Covers: S-413, S-414, MT-30, MT-32, MT-39, MT-42
#[test]
fn every_operation_can_be_cancelled() {
    for kind in every_operation() {
        let bed = bed().started(kind);
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        leave_all(&bed);
        assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED), "{kind:?}");
    }
}

// Covers: MT-240
#[test]
fn an_operation_that_is_cancelled_twice_ends_once() {
    for kind in every_operation() {
        let bed = bed().started(kind);
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        let again = bed.tm.cancel(bed.buffer, COOKIE);
        assert!(again.is_ok() || bed.tm.pending(), "{kind:?}: {again:?}");
        leave_all(&bed);
        assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED), "{kind:?}");
        assert_eq!(bed.tm.cancel(bed.buffer, COOKIE).unwrap_err().errno(), Errno::ENOENT);
    }
}

#[test]
fn a_timeout_of_lnet_itself_stays_one() {
    let bed = bed();
    let message = bed.send(OperationKind::Send { length: 1, to: peer() });
    bed.world.leave(&message, Err(Errno::ETIMEDOUT));
    assert_eq!(bed.only_event().status(), Err(Errno::ETIMEDOUT));
}

/// A message is being received when the buffer is cancelled.
// Covers: S-414
#[test]
fn what_is_arriving_when_it_is_cancelled_ends_once_and_with_the_message() {
    for result in [Ok(()), Err(Errno::EIO)] {
        let bed = bed();
        let passive = bed.expose(OperationKind::PassiveReceive);
        let finish = bed.world.arrive(&passive.put(&peer(), 100)).unwrap();
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        assert!(!bed.tm.pending(), "LNet still writes to the buffer");
        finish(result);
        let event = bed.only_event();
        assert!(matches!(event.status(), Ok(()) | Err(Errno::ECANCELED | Errno::EIO)), "{event:?}");
    }
}

#[test]
fn a_cancel_that_comes_too_late_finds_nothing() {
    let bed = bed();
    let gone = Err(CoreError::NoSuchOperation { buffer: bed.buffer, cookie: COOKIE });
    assert_eq!(bed.tm.cancel(bed.buffer, COOKIE), gone);
    let passive = bed.expose(OperationKind::PassiveReceive);
    bed.receive(&passive.put(&peer(), 1));
    assert_eq!(bed.tm.cancel(bed.buffer, COOKIE), gone);
    assert_eq!(bed.only_event().status(), Ok(()));
}

// Covers: S-414
#[test]
fn a_late_cancel_does_not_hit_the_next_operation_of_the_buffer() {
    let bed = bed().started(OperationKind::PassiveReceive);
    bed.spy.take_calls();
    assert_eq!(bed.tm.cancel(bed.buffer, COOKIE - 1).unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(bed.spy.take_kinds(), []);
}

#[test]
fn a_cancel_through_another_transfer_machine_finds_nothing() {
    let bed = bed();
    let wanted = start(&format!("{OWN_NID}:12345:{PORTAL}:*"));
    let other = bed.core.tm_start(&wanted, &TmOptions::default()).unwrap();
    let passive = bed.expose(OperationKind::PassiveReceive);
    assert_eq!(other.cancel(bed.buffer, COOKIE).unwrap_err().errno(), Errno::ENOENT);
    bed.receive(&passive.put(&peer(), 1));
    assert_eq!(bed.only_event().status(), Ok(()));
}

#[test]
fn messages_that_came_before_the_cancel_are_delivered() {
    let bed = bed().started(RECEIVE);
    bed.receive(&bed.message(&peer(), 10));
    bed.tm.cancel(bed.buffer, COOKIE).unwrap();
    let first = bed.tm.event_get().unwrap().unwrap();
    assert_eq!((first.status(), first.length, first.unlinked()), (Ok(()), 10, false));
    assert_eq!(bed.only_event().status(), Err(Errno::ECANCELED));
}

/// One operation has ended and its event is pending while the others are cancelled, and its buffer
/// is used again.
// Covers: MT-244
#[test]
fn others_are_cancelled_and_buffers_used_again_while_events_wait() {
    let bed = bed();
    let ended = bed.core.register(&bed.memory).unwrap();
    let descriptor = bed.submit_on(ended, 1, OperationKind::PassiveReceive).unwrap().descriptor.unwrap();
    let others = [(RECEIVE, 2), (OperationKind::PassiveSend { length: 1 }, 3)].map(|(kind, cookie)| {
        let buffer = bed.core.register(&bed.memory).unwrap();
        bed.submit_on(buffer, cookie, kind).unwrap();
        (buffer, cookie)
    });
    bed.receive(&Passive(passive_of(&descriptor)).put(&peer(), 1));
    for (buffer, cookie) in others {
        bed.tm.cancel(buffer, cookie).unwrap();
    }
    bed.submit_on(ended, 4, OperationKind::PassiveReceive).unwrap();
    bed.tm.cancel(ended, 4).unwrap();
    let events: Vec<_> =
        std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|e| (e.cookie, e.status())).collect();
    let cancelled = Err(Errno::ECANCELED);
    assert_eq!(events, [(1, Ok(())), (2, cancelled), (3, cancelled), (4, cancelled)]);
    bed.assert_idle();
}
