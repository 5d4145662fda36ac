//! Transfer machines over a scripted transport with a simulated clock: timeouts to the nanosecond,
//! refusals, and events in any order (MT-85 to MT-88, MT-213, MT-240, MT-243).

// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use nlx::{
    Buffer, CoreError, Domain, Errno, Error, Event, Op, OpId, Queue, QueueStatistics, Started, Stop,
    TmOptions, TmState, TransferMachine,
};
use nlx_testkit::{TIME_LIMIT, until};

use crate::transport::{Scripted, happened, last};

mod batches;
mod clock;
mod large;
mod layer;
mod transport;

const MS: Duration = Duration::from_millis(1);
const MS_NS: u64 = 1_000_000;

struct Rig {
    script: Arc<Scripted>,
    domain: Domain,
    tm: TransferMachine,
}

impl Rig {
    fn new() -> Rig {
        let script = Scripted::new();
        let domain = Domain::over(script.core());
        let tm = domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap();
        Rig { script, domain, tm }
    }

    fn buffer(&self) -> Buffer {
        self.domain.allocate(1000).unwrap()
    }

    fn receive(&self, timeout: Option<Duration>) -> OpId {
        self.tm
            .start(Op::receive(self.buffer()).min_receive_size(100).max_messages(4).timeout(timeout))
            .unwrap()
            .op
    }

    /// Takes the next event, which must exist; the clock does not move.
    fn now(&self) -> Event {
        self.tm.poll().unwrap().expect("there is an event")
    }

    /// Lets the transport end the operation that was started last.
    fn end(&self, status: Result<(), Errno>) {
        self.script.inject(last(happened(&self.script.last_operation(), status, 0)));
    }
}

// Covers: MT-86, MT-213
#[test]
fn operations_are_cancelled_at_their_deadlines_in_the_order_of_these() {
    let rig = Rig::new();
    let timeouts = [7, 3, 9, 1, 5];
    for timeout in timeouts {
        rig.receive(Some(timeout * MS));
    }
    assert!(rig.tm.wait(Some(8 * MS)).unwrap().is_none());
    let cancels = rig.script.take_cancels();
    assert_eq!(cancels.iter().map(|cancel| cancel.0).collect::<Vec<_>>(), [1, 3, 5, 7].map(|ms| ms * MS_NS));
    assert!(rig.tm.wait(Some(100 * MS)).unwrap().is_none());
    // Each is cancelled once, although its last event has not come.
    assert_eq!(rig.script.take_cancels().iter().map(|cancel| cancel.0).collect::<Vec<_>>(), [9 * MS_NS]);
    assert_eq!(rig.script.now_ns(), 108 * MS_NS);
}

// Covers: MT-85, X-1
#[test]
fn what_was_cancelled_at_its_deadline_has_timed_out() {
    let rig = Rig::new();
    let op = rig.receive(Some(MS));
    assert!(rig.tm.wait(Some(MS)).unwrap().is_none());
    rig.end(Err(Errno::ECANCELED));
    let event = rig.now();
    assert_eq!((event.op, event.status), (op, Err(Errno::ETIMEDOUT)));
    let counters = rig.tm.statistics()[Queue::MessageReceive.index()];
    assert_eq!((counters.adds, counters.cancels, counters.successes, counters.failures), (1, 0, 0, 1));
}

// Covers: S-7, MT-88, MT-240
#[test]
fn success_beats_the_timeout() {
    let rig = Rig::new();
    rig.receive(Some(MS));
    assert!(rig.tm.wait(Some(MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels().len(), 1);
    rig.script.inject(last(happened(&rig.script.last_operation(), Ok(()), 10)));
    let event = rig.now();
    assert_eq!((event.status, event.length), (Ok(()), 10));
    assert_eq!(event.message.unwrap().len(), 10);
}

// The timeout of an operation does not apply to the next.
// Covers: MT-88
#[test]
fn a_timeout_that_lost_does_not_follow_the_buffer() {
    let rig = Rig::new();
    rig.receive(Some(MS));
    assert!(rig.tm.wait(Some(MS)).unwrap().is_none());
    rig.end(Ok(()));
    let buffer = rig.now().buffer.expect("it is given back");
    let op = rig.tm.start(Op::receive(buffer).min_receive_size(100).max_messages(4)).unwrap().op;
    assert!(rig.tm.cancel(op));
    rig.end(Err(Errno::ECANCELED));
    let event = rig.now();
    assert_eq!((event.op, event.status), (op, Err(Errno::ECANCELED)));
}

// Covers: MT-28
#[test]
fn a_send_that_fails_is_counted_as_a_failure() {
    let rig = Rig::new();
    let to = rig.tm.end_point("0@lo:12345:31:7").unwrap();
    let op = rig.tm.start(Op::send(rig.buffer(), &to).length(10)).unwrap().op;
    rig.end(Err(Errno::EIO));
    let event = rig.now();
    assert_eq!((event.op, event.status), (op, Err(Errno::EIO)));
    let counters = rig.tm.statistics()[Queue::MessageSend.index()];
    assert_eq!((counters.adds, counters.cancels, counters.successes, counters.failures), (1, 0, 0, 1));
}

// Covers: MT-19
#[test]
fn a_posted_buffer_makes_no_end_point() {
    let rig = Rig::new();
    let before = rig.tm.end_points();
    rig.receive(None);
    assert_eq!(rig.tm.end_points(), before);
    rig.end(Err(Errno::ECANCELED));
    rig.now();
    assert_eq!(rig.tm.end_points(), before);
}

// Covers: MT-240
#[test]
fn what_is_cancelled_twice_ends_once() {
    let rig = Rig::new();
    let op = rig.receive(Some(MS));
    assert!(rig.tm.cancel(op));
    rig.tm.cancel(op);
    assert!(rig.tm.wait(Some(2 * MS)).unwrap().is_none());
    rig.end(Err(Errno::ECANCELED));
    assert_eq!(rig.now().status, Err(Errno::ECANCELED));
    assert!(rig.tm.poll().unwrap().is_none());
    assert!(!rig.tm.cancel(op));
}

// A message between the cancel and the end does not change the timeout to a cancel.
// Covers: MT-104, MT-240, X-1
#[test]
fn the_reason_of_an_end_stays_whatever_comes_between() {
    let rig = Rig::new();
    let op = rig.receive(Some(MS));
    assert!(rig.tm.wait(Some(MS)).unwrap().is_none());
    rig.script.inject(happened(&rig.script.last_operation(), Ok(()), 10));
    assert_eq!(rig.now().status, Ok(()));
    assert!(rig.tm.cancel(op));
    rig.end(Err(Errno::ECANCELED));
    assert_eq!(rig.now().status, Err(Errno::ETIMEDOUT));
}

// Covers: MT-103, MT-240
#[test]
fn what_was_cancelled_before_its_deadline_was_cancelled() {
    let rig = Rig::new();
    let op = rig.receive(Some(MS));
    assert!(rig.tm.cancel(op));
    assert!(rig.tm.wait(Some(2 * MS)).unwrap().is_none());
    rig.end(Err(Errno::ECANCELED));
    assert_eq!(rig.now().status, Err(Errno::ECANCELED));
}

#[test]
fn other_failures_keep_their_errno() {
    let rig = Rig::new();
    rig.receive(Some(MS));
    assert!(rig.tm.wait(Some(MS)).unwrap().is_none());
    rig.end(Err(Errno::EHOSTUNREACH));
    assert_eq!(rig.now().status, Err(Errno::EHOSTUNREACH));
}

// Another thread may have entered an operation, but not started it, when its deadline passes.
#[test]
fn a_cancel_that_comes_too_early_is_tried_again() {
    let rig = Rig::new();
    rig.receive(Some(MS));
    rig.script.refuse_cancels(2);
    assert!(rig.tm.wait(Some(10 * MS)).unwrap().is_none());
    let times: Vec<u64> = rig.script.take_cancels().iter().map(|cancel| cancel.0).collect();
    assert_eq!(times.len(), 3);
    assert_eq!(times[0], MS_NS);
}

// Covers: MT-213, MT-226, MT-243
#[test]
fn a_refused_operation_gives_its_buffer_back_and_leaves_no_trace() {
    let rig = Rig::new();
    rig.script.refuse_submit(CoreError::TooMany { objects: "events", limit: 5 });
    let refused = rig
        .tm
        .start(Op::receive(rig.buffer()).min_receive_size(100).max_messages(4).timeout(MS))
        .expect_err("it is refused");
    assert_eq!((refused.error.errno(), refused.buffer.len()), (Errno::ENOMEM, 1000));
    assert_eq!(refused.to_string(), "the limit of 5 events is reached");
    assert_eq!(rig.tm.in_flight(), 0);
    assert_eq!(rig.tm.statistics(), [QueueStatistics::default(); Queue::COUNT]);
    assert!(rig.tm.wait(Some(2 * MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), []);
}

// A loopback transport ends operations before the call that starts them returns.
// Covers: S-1
#[test]
fn an_operation_that_ends_inside_its_start_is_reported() {
    let rig = Rig::new();
    rig.script.complete_inside();
    let op = rig.receive(Some(MS));
    let event = rig.now();
    assert_eq!((event.op, event.status), (op, Ok(())));
    assert_eq!(rig.tm.in_flight(), 0);
}

// Covers: MT-213
#[test]
fn an_event_of_no_operation_is_passed_over() {
    let rig = Rig::new();
    let op = rig.receive(None);
    let real = rig.script.last_operation();
    let mut stray = last(happened(&real, Ok(()), 10));
    for cookie in [0, u64::MAX, real.cookie + (1 << 32), real.cookie + 1] {
        stray.cookie = cookie;
        rig.script.inject(stray);
    }
    assert!(rig.tm.poll().unwrap().is_none());
    rig.end(Ok(()));
    assert_eq!(rig.now().op, op);
}

// An offset and length beyond the buffer are the transport's fault, and are reported as an error.
// Covers: MT-25, X-12
#[test]
fn a_message_outside_of_its_buffer_is_an_error() {
    let rig = Rig::new();
    rig.receive(None);
    let mut event = happened(&rig.script.last_operation(), Ok(()), 10);
    for (offset, length) in [(995, 10), (u64::MAX, 1), (0, u64::MAX)] {
        (event.offset, event.length) = (offset, length);
        rig.script.inject(event);
        let event = rig.now();
        assert_eq!((event.status, event.length, event.is_last()), (Err(Errno::EINVAL), 0, false));
        assert!(event.message.is_none());
    }
    rig.end(Ok(()));
    assert!(rig.now().buffer.is_some());
}

/// The same in the last event of its buffer: one event, the buffer is returned, and both counts are
/// right.
// Covers: MT-26, X-12
#[test]
fn a_last_message_outside_of_its_buffer_gives_the_buffer_back() {
    let rig = Rig::new();
    rig.receive(None);
    let event = last(happened(&rig.script.last_operation(), Ok(()), u64::MAX));
    rig.script.inject(event);
    let event = rig.now();
    assert_eq!((event.status, event.is_last()), (Err(Errno::EINVAL), true));
    assert!(event.message.is_none() && event.buffer.is_some());
    let counters = rig.tm.statistics()[Queue::MessageReceive.index()];
    assert_eq!((counters.adds, counters.cancels, counters.successes, counters.failures), (1, 0, 0, 1));
}

/// A program that has overwritten its event queue gets an error from each call that takes events,
/// and from a stop, which fails the machine; a machine with callbacks fails at once.
// Covers: MT-219
#[test]
fn lost_events_are_an_error() {
    let rig = Rig::new();
    let tm = rig
        .domain
        .machine()
        .callbacks(|_, _| panic!("there are no events"))
        .start("0@lo:12345:31:2")
        .unwrap();
    rig.receive(None);
    rig.script.corrupt();
    for outcome in [rig.tm.wait(None), rig.tm.poll(), rig.tm.take()] {
        let error = outcome.expect_err("its events are lost");
        assert!(matches!(error, Error::Core(CoreError::QueueCorrupt { .. })), "{error}");
        assert_eq!(error.errno(), Errno::EIO);
    }
    until("the machine fails", || tm.state() == TmState::Failed);
    let error = rig.tm.stop(Stop::Abort, None).expect_err("its operation cannot end");
    assert!(matches!(error, Error::Core(CoreError::QueueCorrupt { .. })), "{error}");
    assert_eq!(rig.tm.state(), TmState::Failed);
}

// Covers: MT-213
#[test]
fn a_stop_waits_until_the_transport_lets_go() {
    let rig = Rig::new();
    rig.script.refuse_stops(3);
    rig.tm.stop(Stop::Abort, None).unwrap();
    assert_eq!((rig.tm.state(), rig.script.take_stops()), (TmState::Stopped, 4));
}

//
#[test]
fn a_stop_cancels_each_operation_once_and_times_out_at_its_deadline() {
    let rig = Rig::new();
    let ops = [rig.receive(None), rig.receive(None)];
    let error = rig.tm.stop(Stop::Abort, Some(5 * MS)).unwrap_err();
    assert_eq!((error.errno(), rig.script.now_ns()), (Errno::ETIMEDOUT, 5 * MS_NS));
    assert!(error.to_string().ends_with("2 operations are in flight"), "{error}");
    let mut cancelled: Vec<u64> = rig.script.take_cancels().iter().map(|cancel| cancel.1).collect();
    cancelled.sort();
    let cookies = rig.script.operations().map(|operation| operation.cookie);
    assert!(cancelled.into_iter().eq(cookies));
    for operation in rig.script.operations() {
        rig.script.inject(last(happened(&operation, Err(Errno::ECANCELED), 0)));
    }
    rig.tm.stop(Stop::Abort, Some(5 * MS)).unwrap();
    assert!(ops.iter().all(|op| rig.now().op == *op));
}
