//! Operations submitted together.

use lnet_api::Errno;
use lnet_fake::CallKind;
use nlx_core::{BufferEvent, BufferHandle, Core, Operation, OperationKind, Submitted, TmOptions};
use proptest::prelude::*;

use super::{PARTITIONS, bed};
use crate::bed::*;

type Outcome = Result<Submitted, Errno>;

/// Submits the operations in one call, and returns the outcome of each.
fn together<W: World>(bed: &Bed<W>, operations: &[Operation]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    bed.tm.submit_all(None, operations, &mut |place, outcome| {
        assert_eq!(place, outcomes.len(), "each is told once and in order");
        outcomes.push(outcome.map_err(|error| error.errno()));
    });
    assert_eq!(outcomes.len(), operations.len());
    outcomes
}

fn one_by_one<W: World>(bed: &Bed<W>, operations: &[Operation]) -> Vec<Outcome> {
    let submit = |operation| bed.tm.submit(operation).map_err(|error| error.errno());
    operations.iter().map(submit).collect()
}

fn errors(outcomes: &[Outcome]) -> Vec<Option<Errno>> {
    outcomes.iter().map(|outcome| outcome.err()).collect()
}

/// Registers `count` further buffers.
fn buffers<W: World>(bed: &Bed<W>, count: usize) -> Vec<BufferHandle> {
    (0..count).map(|_| bed.core.register(&memory(BUFFER_BYTES)).unwrap()).collect()
}

/// Returns one operation of each queue, each with a separate buffer.
fn one_of_each<W: World>(bed: &Bed<W>) -> Vec<Operation> {
    let kinds = every_operation();
    let numbered = buffers(bed, kinds.len()).into_iter().zip(1..);
    numbered.zip(kinds).map(|((buffer, cookie), kind)| Operation { buffer, cookie, kind }).collect()
}

/// Ends all operations in flight, and returns the pending events.
fn end<W: World>(bed: &Bed<W>, operations: &[Operation]) -> Vec<BufferEvent> {
    for operation in operations {
        // Fails for those that were refused.
        let _ = bed.tm.cancel(operation.buffer, operation.cookie);
    }
    bed.world.outgoing().iter().for_each(|message| bed.world.leave(message, Ok(())));
    std::iter::from_fn(|| bed.tm.event_get().unwrap()).collect()
}

/// There is room for all of them, and each ends once.
// Covers: S-407, MT-212
#[test]
fn operations_of_all_queues_start_together_and_end_one_by_one() {
    let bed = bed();
    let operations = one_of_each(&bed);
    assert_eq!(errors(&together(&bed, &operations)), [None; 6]);
    assert_eq!(bed.tm.needed(), MESSAGES as usize + 5);
    let mut ended: Vec<u64> = end(&bed, &operations).iter().map(|event| event.cookie).collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3, 4, 5, 6]);
    bed.assert_idle();
}

/// Refused before LNet is called, by LNet, and between others that start.
// Covers: MT-226
#[test]
fn a_refusal_does_not_stop_those_behind_it() {
    let bed = bed();
    let mut operations = one_of_each(&bed);
    operations[0].kind = OperationKind::PassiveSend { length: 0 };
    bed.spy.fail(CallKind::BindPut, Errno::ENOMEM);
    operations[4].buffer = operations[3].buffer;
    let outcomes = errors(&together(&bed, &operations));
    let (invalid, refused, busy) = (Some(Errno::EINVAL), Some(Errno::ENOMEM), Some(Errno::EBUSY));
    assert_eq!(outcomes, [invalid, refused, None, None, busy, None]);
    assert_eq!(bed.tm.needed(), 3, "what was refused needs no room");
    assert_eq!(end(&bed, &operations).len(), 3);
    bed.assert_idle();
}

/// In order, while there is room; a smaller operation behind a refused one may still find room.
// Covers: S-407
#[test]
fn without_room_for_all_those_start_that_find_room() {
    let bed = Bed::with(bed().world, &TmOptions::default().events_max(MESSAGES + 2));
    let numbered = buffers(&bed, 5).into_iter().zip(1..);
    let small = OperationKind::PassiveReceive;
    let kinds = [small, RECEIVE, RECEIVE, small, small];
    let operations: Vec<_> =
        numbered.zip(kinds).map(|((buffer, cookie), kind)| Operation { buffer, cookie, kind }).collect();
    let none = Some(Errno::ENOMEM);
    assert_eq!(errors(&together(&bed, &operations)), [None, None, none, None, none]);
    assert_eq!(bed.tm.needed(), MESSAGES as usize + 2);
    assert_eq!(end(&bed, &operations).len(), 3);
    bed.assert_idle();
}

#[test]
fn a_batch_of_more_events_than_can_be_counted_is_refused() {
    let bed = bed();
    let kind = OperationKind::Receive { min_receive_size: 1, max_messages: u32::MAX };
    let operations: Vec<_> =
        buffers(&bed, 3).into_iter().map(|buffer| Operation { buffer, cookie: 1, kind }).collect();
    assert_eq!(errors(&together(&bed, &operations)), [Some(Errno::EINVAL); 3]);
    bed.assert_idle();
}

#[test]
fn a_batch_of_none_does_nothing() {
    let bed = bed();
    assert_eq!(together(&bed, &[]), []);
    assert_eq!(bed.spy.take_kinds(), []);
    bed.assert_idle();
}

// Covers: S-414
#[test]
fn one_of_a_batch_is_cancelled_and_the_others_go_on() {
    let bed = bed();
    let operations = one_of_each(&bed);
    together(&bed, &operations);
    let cancelled = operations[2];
    bed.tm.cancel(cancelled.buffer, cancelled.cookie).unwrap();
    let event = bed.tm.event_get().unwrap().unwrap();
    assert_eq!((event.cookie, event.status()), (cancelled.cookie, Err(Errno::ECANCELED)));
    assert_eq!(bed.tm.event_get().unwrap(), None);
    assert_eq!(end(&bed, &operations).len(), 5);
    bed.assert_idle();
}

#[test]
fn a_panic_in_the_middle_of_a_batch_leaves_no_room_reserved() {
    let bed = bed();
    let operations = one_of_each(&bed);
    let submit = std::panic::AssertUnwindSafe(|| {
        bed.tm.submit_all(None, &operations, &mut |place, _| assert!(place < 2, "the client gives up"));
    });
    assert!(std::panic::catch_unwind(submit).is_err());
    assert_eq!(bed.tm.needed(), MESSAGES as usize + 2, "three have started");
    assert_eq!(end(&bed, &operations).len(), 3);
    bed.assert_idle();
}

/// Kinds of operations, some of which are refused.
fn kinds() -> impl Strategy<Value = OperationKind> {
    let wrong = OperationKind::PassiveSend { length: BUFFER_BYTES as u64 + 1 };
    prop_oneof![6 => prop::sample::select(every_operation().to_vec()), 1 => Just(wrong)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is submitted, and whatever LNet refuses: a batch has the same result as its
    /// operations one by one, for the client and for LNet.
    // Covers: S-1
    #[test]
    fn a_batch_is_what_its_operations_are_one_by_one(
        wanted in prop::collection::vec((0usize..7, kinds()), 0..10),
        refused in prop::collection::vec(prop::sample::select(
            vec![CallKind::MeAttach, CallKind::MdAttach, CallKind::BindPut, CallKind::BindGet]), 0..3),
    ) {
        let run = |submit: fn(&Bed<_>, &[Operation]) -> Vec<Outcome>| {
            let bed = Bed::with(bed().world, &TmOptions::default().events_max(3 * MESSAGES));
            // The last handle is unknown.
            let mut handles = buffers(&bed, 6);
            handles.push(BufferHandle(u64::MAX));
            let numbered = wanted.iter().zip(1..);
            let operations: Vec<_> = numbered
                .map(|(&(buffer, kind), cookie)| Operation { buffer: handles[buffer], cookie, kind })
                .collect();
            refused.iter().for_each(|&call| bed.spy.fail(call, Errno::EHOSTUNREACH));
            let outcomes = submit(&bed, &operations);
            let (calls, needed) = (bed.spy.take_kinds(), bed.tm.needed());
            let events = end(&bed, &operations);
            assert_eq!(bed.tm.needed(), 0, "{PARTITIONS} partitions");
            (outcomes, calls, needed, events)
        };
        prop_assert_eq!(run(together), run(one_by_one));
    }
}

/// Taking events in batches has the same result as one by one, over several calls, and
/// releases their room.
// Covers: MT-212
#[test]
fn events_are_taken_together() {
    let bed = bed();
    let operations = one_of_each(&bed);
    together(&bed, &operations);
    for operation in &operations {
        bed.tm.cancel(operation.buffer, operation.cookie).unwrap();
    }
    bed.world.outgoing().iter().for_each(|message| bed.world.leave(message, Ok(())));
    let mut cookies = Vec::new();
    for expected in [4, 2, 0, 0] {
        let mut events = [BufferEvent::ZERO; 4];
        assert_eq!(bed.tm.events_get(&mut []).unwrap(), 0, "no places, no events");
        assert_eq!(bed.tm.events_get(&mut events).unwrap(), expected);
        let (taken, untouched) = events.split_at(expected);
        assert!(taken.iter().all(BufferEvent::unlinked));
        assert!(untouched.iter().all(|event| *event == BufferEvent::ZERO));
        cookies.extend(taken.iter().map(|event| event.cookie));
        assert_eq!(bed.tm.pending(), cookies.len() < operations.len());
        assert_eq!(bed.tm.needed() == 0, cookies.len() == operations.len());
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2, 3, 4, 5, 6]);
    bed.assert_idle();
}
