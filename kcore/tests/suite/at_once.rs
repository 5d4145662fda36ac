//! Operations that end inside the calls that start them, over `0@lo` (MT-225).

use nlx_core::{Operation, OperationKind};

use super::pair;
use crate::bed::*;

/// When the active side's call returns, both sides have their event.
// Covers: MT-225
#[test]
fn both_sides_have_their_event_when_the_call_returns() {
    const BYTES: usize = 5000;
    let pair = pair();
    let (a, b) = (&pair.a, &pair.b);
    let (ours, here) = a.buffer(BYTES);
    let (theirs, there) = b.buffer(BYTES);
    let length = BYTES as u64;
    let end = |side: &Side| {
        assert!(side.tm.pending(), "it has ended already");
        let event = side.tm.event_get().unwrap().unwrap();
        assert_eq!((event.status(), event.length, event.unlinked()), (Ok(()), length, true));
    };
    fill(&here, &pattern(1, BYTES));

    b.submit(theirs, OperationKind::Receive { min_receive_size: length, max_messages: 1 }).unwrap();
    a.submit(ours, OperationKind::Send { length, to: b.tm.address() }).unwrap();
    [a, b].into_iter().for_each(end);
    assert_eq!(content(&there), pattern(1, BYTES));

    fill(&here, &pattern(2, BYTES));
    let descriptor = b.submit(theirs, OperationKind::PassiveReceive).unwrap().descriptor.unwrap();
    a.submit(ours, OperationKind::ActiveSend { descriptor, length }).unwrap();
    [a, b].into_iter().for_each(end);
    assert_eq!(content(&there), pattern(2, BYTES));

    fill(&there, &pattern(3, BYTES));
    let descriptor = b.submit(theirs, OperationKind::PassiveSend { length }).unwrap().descriptor.unwrap();
    a.submit(ours, OperationKind::ActiveReceive { descriptor }).unwrap();
    [a, b].into_iter().for_each(end);
    assert_eq!(content(&here), pattern(3, BYTES));
    pair.assert_idle();
}

/// Each message is received inside the call that sends it.
// Covers: MT-208, MT-225
#[test]
fn messages_to_oneself_are_there_at_once() {
    let pair = pair();
    let tm = &pair.a.tm;
    let (inbox, _) = pair.a.buffer(64);
    let (outbox, _) = pair.a.buffer(8);
    pair.a.submit(inbox, OperationKind::Receive { min_receive_size: 8, max_messages: 100 }).unwrap();
    for number in 0..8 {
        pair.a.submit(outbox, OperationKind::Send { length: 8, to: tm.address() }).unwrap();
        let mut events: Vec<_> = std::iter::from_fn(|| tm.event_get().unwrap()).collect();
        events.sort_by_key(|event| event.buffer() == outbox);
        let [came, sent] = &events[..] else { panic!("{events:?}") };
        assert_eq!((came.offset, came.sender()), (8 * number, Some(tm.address())));
        assert_eq!((came.unlinked(), sent.unlinked()), (number == 7, true));
    }
    pair.assert_idle();
}

/// Operations of a batch end inside the call, before later ones have begun.
// Covers: MT-225
#[test]
fn operations_of_a_batch_end_while_others_have_not_begun() {
    let pair = pair();
    let tm = &pair.a.tm;
    let (inbox, _) = pair.a.buffer(64);
    let [first, second, late] = [(); 3].map(|()| pair.a.buffer(8).0);
    let receive = OperationKind::Receive { min_receive_size: 8, max_messages: 2 };
    let send = OperationKind::Send { length: 8, to: tm.address() };
    let kinds = [(first, send), (inbox, receive), (second, send), (late, send)];
    let operations = kinds.map(|(buffer, kind)| Operation { buffer, cookie: buffer.0, kind });
    let mut began = 0;
    tm.submit_all(None, &operations, &mut |_, outcome| began += usize::from(outcome.is_ok()));
    assert_eq!(began, operations.len());
    let events: Vec<_> = std::iter::from_fn(|| tm.event_get().unwrap()).collect();
    // The first message found no buffer: nothing was posted yet.
    let came: Vec<_> = events.iter().filter(|event| event.buffer() == inbox).collect();
    assert_eq!(
        came.iter().map(|event| (event.offset, event.unlinked())).collect::<Vec<_>>(),
        [(0, false), (8, true)]
    );
    let sent: Vec<_> = events.iter().map(|event| event.buffer()).filter(|&buffer| buffer != inbox).collect();
    assert_eq!(sent, [first, second, late]);
    pair.assert_idle();
}
