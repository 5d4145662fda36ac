//! Events that LNet would never produce (MT-229), and orders of them (S-411).

use lnet_api::{Errno, EventKind};
use lnet_fake::ScriptedEvent;
use nlx_core::{OperationKind, Queue};

use super::bed;
use crate::bed::*;

const KINDS: [EventKind; 6] =
    [EventKind::Get, EventKind::Put, EventKind::Reply, EventKind::Ack, EventKind::Send, EventKind::Unlink];

/// Returns every event: of each kind, the last one or not, successful or not; each of a different
/// length.
fn every_event(last: bool) -> Vec<ScriptedEvent> {
    let statuses =
        [ScriptedEvent::succeeded, |scripted_event: ScriptedEvent| scripted_event.failed(Errno::EIO)];
    let with = |kind| statuses.iter().map(move |status| status(ScriptedEvent::new(kind)));
    let all = KINDS.into_iter().flat_map(with).zip(1..);
    all.map(|(event, length)| {
        let event = event.mlength(length);
        if last { event.last() } else { event.not_last() }
    })
    .collect()
}

/// Starts an operation, injects these events, and compares the client's events with the model.
fn play(bed: &Bed<FakeWorld>, kind: OperationKind, events: &[&ScriptedEvent]) {
    bed.submit(kind).unwrap();
    let md = bed.spy.last_md();
    let before = bed.core.faults();
    for event in events {
        // A message that never left has been unlinked.
        if bed.world.fake.has_md(md) {
            bed.world.fake.inject(md, *event);
        }
    }
    assert!(!bed.world.fake.has_md(md));
    let trace: Vec<_> = bed.spy.take_events().into_iter().map(Trace::Said).collect();
    let taken: Vec<_> =
        std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|event| ClientEvent::by(&event)).collect();
    let (expected, faults) = expected(kind.queue(), &trace, &mut |_| ());
    assert_eq!(taken, expected, "{kind:?}: {trace:?}");
    assert_eq!(taken.iter().filter(|event| event.last).count(), 1);
    let now = bed.core.faults();
    assert_eq!((now.unexpected - before.unexpected, now.stale - before.stale, now.overruns), (faults, 0, 0));
    assert_eq!(bed.tm.needed(), 0);
}

/// Up to three events of every kind in every order. An operation ends with its last event and not
/// before, whatever that event is; impossible ones are counted.
// Covers: S-411, MT-21, MT-229
#[test]
fn every_order_of_any_events_ends_the_operation_with_the_last() {
    let (more, last) = (every_event(false), every_event(true));
    for kind in every_operation() {
        let bed = bed();
        // Room for the number of injected events.
        let kind = match kind {
            OperationKind::Receive { min_receive_size, .. } => {
                OperationKind::Receive { min_receive_size, max_messages: 8 }
            }
            other => other,
        };
        for end in &last {
            play(&bed, kind, &[end]);
            for second in &more {
                play(&bed, kind, &[second, end]);
                for first in &more {
                    play(&bed, kind, &[first, second, end]);
                }
            }
        }
        bed.world.fake.take_calls();
        bed.spy.take_calls();
    }
}

/// More messages than a buffer may take: there is room for the last event, and for no other.
// Covers: S-407, MT-229
#[test]
fn messages_beyond_the_most_are_counted_and_leave_room_for_the_last() {
    let bed = bed().started(OperationKind::Receive { min_receive_size: 1, max_messages: 3 });
    let md = bed.spy.last_md();
    for _ in 0..5 {
        bed.world.fake.inject(md, ScriptedEvent::put().length(1).not_last().impossible());
    }
    bed.world.fake.inject(md, ScriptedEvent::put().length(2).last().impossible());
    let taken: Vec<_> =
        std::iter::from_fn(|| bed.tm.event_get().unwrap()).map(|e| (e.length, e.unlinked())).collect();
    assert_eq!(taken, [(1, false), (1, false), (2, true)]);
    let faults = bed.core.faults();
    assert_eq!((faults.unexpected, faults.stale, faults.overruns), (3, 0, 0));
    bed.assert_idle();
}

/// Events of unknown operations.
// Covers: MT-229
#[test]
fn events_of_no_operation_are_counted_and_do_no_harm() {
    let bed = bed();
    let passive = bed.expose(OperationKind::PassiveReceive);
    let eq = bed.spy.last_eq();
    for user_ptr in [0, 1, 77 << 32, u64::MAX] {
        bed.world.fake.inject_stray(eq, ScriptedEvent::put().user_ptr(user_ptr).last());
        // An ACK that was not requested is no fault.
        bed.world.fake.inject_stray(eq, ScriptedEvent::ack().user_ptr(user_ptr));
    }
    assert!(!bed.tm.pending());
    let faults = bed.core.faults();
    assert_eq!((faults.stale, faults.unexpected, faults.overruns), (4, 0, 0));
    bed.receive(&passive.put(&peer(), 1));
    assert_eq!(bed.only_event().status(), Ok(()));
}

/// An MD that LNet keeps although its message never left is unlinked (lnet-semantics 8).
#[test]
fn what_never_left_is_unlinked_and_ends_with_its_own_status() {
    let bed = bed().started(active_receive(LENGTH.into()));
    let md = bed.spy.last_md();
    bed.spy.take_calls();
    bed.world.fake.inject(md, ScriptedEvent::send().failed(Errno::EHOSTUNREACH).not_last());
    assert!(matches!(bed.spy.take_calls()[..], [lnet_fake::Call::MdUnlink(unlinked)] if unlinked == md));
    assert_eq!(bed.only_event().status(), Err(Errno::EHOSTUNREACH));
}

/// lnet-semantics 7: an operation that is unlinked in flight ends with ETIMEDOUT, reported as
/// cancelled; older versions of LNet end it with success.
// Covers: S-414
#[test]
fn what_is_cancelled_in_flight_ends_as_lnet_says() {
    let cancelled = Err(Errno::ECANCELED);
    let outcomes = [(false, cancelled), (true, Ok(()))];
    for (kind, (wins, status)) in
        every_operation().into_iter().flat_map(|kind| outcomes.map(|outcome| (kind, outcome)))
    {
        let bed = bed().started(kind);
        let md = bed.spy.last_md();
        bed.world.fake.set_busy(true);
        bed.tm.cancel(bed.buffer, COOKIE).unwrap();
        let ends = match kind.queue() {
            Queue::MessageReceive | Queue::PassiveBulkReceive => vec![ScriptedEvent::put()],
            Queue::PassiveBulkSend => vec![ScriptedEvent::get()],
            // Of a GET the REPLY first: the unlink waits for the SEND.
            Queue::ActiveBulkReceive => vec![ScriptedEvent::reply(), ScriptedEvent::send()],
            // Likewise the ACK of an acknowledged PUT.
            Queue::ActiveBulkSend => vec![ScriptedEvent::ack(), ScriptedEvent::send()],
            _ => vec![ScriptedEvent::send()],
        };
        for end in ends {
            bed.world.fake.inject(md, if wins { end.succeeded() } else { end });
        }
        bed.world.fake.set_busy(false);
        assert_eq!(bed.only_event().status(), status, "{kind:?}");
    }
}
