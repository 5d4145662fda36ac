//! Many deadlines, and clocks that jump.

use std::collections::HashMap;

use super::*;

const COUNT: u64 = 100_000;
const HOUR_NS: u64 = 3_600_000_000_000;

/// Each of 100,000 operations with timeouts is cancelled at its deadline, to the nanosecond, and
/// once.
// Covers: MT-240, X-1
#[test]
fn a_hundred_thousand_deadlines_are_each_met() {
    let rig = Rig::new();
    let mut deadlines = HashMap::new();
    for number in 0..COUNT {
        // A permutation of the multiples of 1009 ns.
        let timeout = Duration::from_nanos((number * 7_919 % COUNT + 1) * 1009);
        rig.tm.start(Op::passive_receive(rig.domain.allocate(1).unwrap()).timeout(timeout)).unwrap();
        deadlines.insert(rig.script.last_operation().cookie, timeout.as_nanos() as u64);
    }
    assert!(rig.tm.wait(Some(Duration::from_secs(1))).unwrap().is_none());
    let cancels = rig.script.take_cancels();
    assert_eq!(cancels.len() as u64, COUNT);
    assert!(cancels.is_sorted());
    for (when_ns, cookie) in cancels {
        assert_eq!(deadlines.remove(&cookie), Some(when_ns));
    }
    assert!(rig.tm.wait(Some(Duration::from_secs(1))).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), []);
}

/// A clock that jumps ahead ends the operations that are late by it, once, and no others.
// Covers: MT-240
#[test]
fn a_clock_that_jumps_ahead_times_out_what_is_late() {
    let rig = Rig::new();
    for timeout in [Some(MS), Some(Duration::from_secs(60)), Some(Duration::from_secs(7200)), None] {
        rig.receive(timeout);
    }
    let cookies: Vec<u64> = rig.script.operations().map(|operation| operation.cookie).collect();
    rig.script.set_now_ns(HOUR_NS);
    assert!(rig.tm.poll().unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), [(HOUR_NS, cookies[0]), (HOUR_NS, cookies[1])]);
    assert!(rig.tm.wait(Some(MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), []);
    assert!(rig.tm.wait(Some(Duration::from_secs(7200))).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), [(2 * HOUR_NS, cookies[2])]);
}

/// A clock that jumps back, which no clock should, delays timeouts, and loses and duplicates none.
// Covers: MT-240
#[test]
fn a_clock_that_jumps_back_loses_nothing() {
    let rig = Rig::new();
    rig.script.set_now_ns(HOUR_NS);
    let op = rig.receive(Some(MS));
    rig.script.set_now_ns(0);
    assert!(rig.tm.wait(Some(100 * MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), []);
    let sent = rig.script.operations().next().unwrap();
    let later = rig.receive(Some(MS));
    assert!(rig.tm.wait(Some(2 * MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), [(101 * MS_NS, rig.script.last_operation().cookie)]);
    rig.script.set_now_ns(2 * HOUR_NS);
    assert!(rig.tm.poll().unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), [(2 * HOUR_NS, sent.cookie)]);
    rig.script.inject(last(happened(&sent, Err(Errno::ECANCELED), 0)));
    assert_eq!(rig.now().op, op);
    assert!(rig.tm.cancel(later) && !rig.tm.cancel(op));
}

/// An operation's time counts from the same moment as its timeout, however long the submission
/// takes: one that times out is at least as old as its timeout (MT-85).
#[test]
fn an_operation_is_as_old_as_its_timeout_says() {
    let rig = Rig::new();
    for timeout in [Some(MS), None] {
        rig.script.set_now_ns(HOUR_NS);
        rig.script.at_submit(0, |script| script.set_now_ns(2 * HOUR_NS));
        rig.receive(timeout);
    }
    rig.script.set_now_ns(HOUR_NS);
    rig.script.at_submit(0, |script| script.set_now_ns(2 * HOUR_NS));
    let mut batch = nlx::Batch::new();
    batch.push(Op::passive_receive(rig.buffer()).timeout(MS));
    assert!(rig.tm.submit(&mut batch).all(|outcome| outcome.is_ok()));
    assert_eq!(rig.script.began(), [Some(HOUR_NS), None, Some(HOUR_NS)]);
}
