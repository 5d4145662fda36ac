//! Events that are taken from the transport together.

use std::sync::mpsc::channel;

use nlx_core::BufferEvent;

use super::*;

/// Starts `count` operations, and returns their last events, each with its number as the length.
fn endings(rig: &Rig, count: usize) -> (Vec<OpId>, Vec<BufferEvent>) {
    let started = (0..count).map(|number| {
        let op = rig.receive(None);
        (op, last(happened(&rig.script.last_operation(), Ok(()), number as u64)))
    });
    started.unzip()
}

/// One call of the transport returns many events; the client gets them one by one, in order, and
/// events and operations are counted until it has taken the last.
// Covers: MT-230, MT-231
#[test]
fn many_events_are_one_call_of_the_transport() {
    const EVENTS: usize = 40;
    let rig = Rig::new();
    let (ops, events) = endings(&rig, EVENTS);
    rig.script.inject_silently(events);
    rig.script.take_asked();
    for (number, op) in ops.into_iter().enumerate() {
        assert!(rig.tm.pending());
        assert_eq!(rig.tm.in_flight(), EVENTS - number);
        let event = rig.tm.take().unwrap().expect("there is an event");
        assert_eq!((event.op, event.length, event.is_last()), (op, number, true));
    }
    assert!(rig.script.take_asked() <= EVENTS / 8, "events are taken together");
    assert!(!rig.tm.pending() && rig.tm.take().unwrap().is_none());
}

/// A thread sleeps in the transport, which wakes it for queued events: another thread that takes
/// one leaves it the rest.
// Covers: MT-230
#[test]
fn a_thread_that_takes_an_event_leaves_the_others_to_one_that_sleeps() {
    let rig = Arc::new(Rig::new());
    let (ops, events) = endings(&rig, 2);
    let (tx, rx) = channel();
    let waiter = std::thread::spawn({
        let rig = rig.clone();
        move || tx.send(rig.tm.wait(None).unwrap().map(|event| event.op))
    });
    until("the waiter sleeps", || rig.script.asleep() > 0);
    rig.script.inject_silently(events);
    let taken = rig.tm.take().unwrap().expect("there is an event");
    rig.script.wake_all();
    assert_eq!(rx.recv_timeout(TIME_LIMIT), Ok(Some(ops[1])));
    assert_eq!(taken.op, ops[0]);
    waiter.join().unwrap().unwrap();
}

/// An event that a thread has taken together with another is the next event of another thread,
/// without a call of the transport.
#[test]
fn a_thread_gets_what_another_has_taken() {
    let rig = Arc::new(Rig::new());
    let (ops, events) = endings(&rig, 3);
    rig.script.inject_silently(events);
    assert_eq!(rig.tm.take().unwrap().map(|event| event.op), Some(ops[0]));
    let other = rig.clone();
    let waited = std::thread::spawn(move || other.tm.wait(None).unwrap().map(|event| event.op));
    assert_eq!(waited.join().unwrap(), Some(ops[1]));
    assert_eq!(rig.tm.poll().unwrap().map(|event| event.op), Some(ops[2]));
}

/// A program must not sleep in its event loop while events taken from the transport are left.
#[test]
fn an_event_loop_is_not_armed_beside_taken_events() {
    let rig = Rig::new();
    let (ops, events) = endings(&rig, 2);
    rig.script.inject_silently(events);
    assert_eq!(rig.now().op, ops[0]);
    assert!(!rig.tm.arm().unwrap());
    assert_eq!(rig.now().op, ops[1]);
    // Now the call reaches the transport, which has no descriptor.
    assert!(rig.tm.arm().is_err());
}

/// An event taken before a stop is delivered after it, and ends its operation.
#[test]
fn events_that_were_taken_outlive_a_stop() {
    let rig = Rig::new();
    let (ops, events) = endings(&rig, 3);
    rig.script.inject_silently(events);
    assert_eq!(rig.now().op, ops[0]);
    rig.tm.stop(Stop::Drain, None).unwrap();
    let left: Vec<_> =
        std::iter::from_fn(|| rig.tm.wait(None).ok().flatten()).map(|event| event.op).collect();
    assert_eq!(left, ops[1..]);
    assert_eq!(rig.tm.state(), TmState::Stopped);
}

/// A callback that panics loses none of the events that were taken with its event: their operations
/// end, and their buffers are dropped.
#[test]
fn a_callback_that_panics_loses_no_event_of_its_batch() {
    const EVENTS: usize = 5;
    let rig = Rig::new();
    let (seen, saw) = channel();
    let builder = rig.domain.machine().callbacks(move |_, event| {
        seen.send(event.op).unwrap();
        assert!(event.length != 1, "the client gives up");
    });
    let tm = builder.start("0@lo:12345:31:1").unwrap();
    let mut events = Vec::new();
    let ops: Vec<_> = (0..EVENTS)
        .map(|number| {
            let op = tm.start(Op::receive(rig.buffer()).min_receive_size(100).max_messages(4)).unwrap().op;
            events.push(last(happened(&rig.script.last_operation(), Ok(()), number as u64)));
            op
        })
        .collect();
    rig.script.inject_silently(events);
    rig.script.wake_all();
    let called: Vec<_> = saw.iter().collect();
    assert_eq!(called, ops[..2], "the callback has gone with its panic");
    drop(tm);
    let mut gone = rig.script.deregistered();
    gone.sort_unstable_by_key(|buffer| buffer.0);
    assert_eq!(gone, rig.script.registered());
}
