use super::*;

const SOON: Option<Duration> = Some(Duration::from_millis(2));
const NEVER_REACHED: Option<Duration> = Some(Duration::from_secs(3600));

// MT-85, MT-86
#[test]
fn operations_that_nobody_completes_time_out() {
    let pair = Pair::new();
    let ops = [
        pair.a.receive(pair.empty(4096), ONE_MESSAGE, SOON).unwrap(),
        pair.a.passive_receive(pair.empty(4096), SOON).unwrap().0,
        pair.a.passive_send(pair.empty(4096), 1, SOON).unwrap().0,
    ];
    let mut ended = Vec::new();
    for _ in ops {
        let event = next(&pair.a);
        assert_eq!(event.status, Err(Errno::ETIMEDOUT));
        assert!(event.is_last() && event.after >= SOON.unwrap());
        let counters = pair.a.statistics()[event.queue.index()];
        assert_eq!((counters.adds, counters.cancels, counters.successes, counters.failures), (1, 0, 0, 1));
        assert!(counters.time_in_queue >= SOON.unwrap());
        ended.push(event.op);
    }
    ended.sort();
    assert_eq!(ended, ops);
}

// MT-87
#[test]
fn only_what_has_a_timeout_times_out() {
    let pair = Pair::new();
    let stays = pair.a.receive(pair.empty(4096), ONE_MESSAGE, None).unwrap();
    let later = pair.a.receive(pair.empty(4096), ONE_MESSAGE, NEVER_REACHED).unwrap();
    let soon = pair.a.receive(pair.empty(4096), ONE_MESSAGE, SOON).unwrap();
    assert_eq!(end_of(&pair.a, soon).status, Err(Errno::ETIMEDOUT));
    for op in [stays, later] {
        assert!(pair.a.cancel(op));
        assert_eq!(end_of(&pair.a, op).status, Err(Errno::ECANCELED));
    }
}

// Motr's add gives ETIME (motr-transport 2.6.2).
#[test]
fn a_timeout_that_has_passed_is_refused() {
    let pair = Pair::new();
    let refused =
        pair.a.receive(pair.empty(4096), ONE_MESSAGE, Some(Duration::ZERO)).expect_err("it is too late");
    assert_eq!(refused.error.errno(), Errno::ETIME);
    assert_eq!(pair.a.in_flight(), 0);
}

#[test]
fn an_operation_that_ends_in_time_does_not_time_out() {
    let pair = Pair::new();
    let op = pair.b.receive(pair.empty(4096), ONE_MESSAGE, NEVER_REACHED).unwrap();
    pair.send(b"in time");
    assert_eq!(end_of(&pair.b, op).status, Ok(()));
    assert!(pair.b.wait(Some(Duration::ZERO)).unwrap().is_none());
}

// MT-240: messages came before the timeout.
#[test]
fn a_receive_buffer_with_messages_times_out() {
    let pair = Pair::new();
    let receive = Receive { min_receive_size: 100, max_messages: 10 };
    let op = pair.b.receive(pair.empty(4096), receive, Some(Duration::from_millis(50))).unwrap();
    pair.send(b"before");
    let first = next(&pair.b);
    if !first.is_last() {
        assert_eq!(&first.message.expect("it came first")[..], b"before");
        assert_eq!(end_of(&pair.b, op).status, Err(Errno::ETIMEDOUT));
    }
}

#[test]
fn a_wait_ends_at_its_own_timeout() {
    let pair = Pair::new();
    pair.a.receive(pair.empty(4096), ONE_MESSAGE, NEVER_REACHED).unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert!(pair.a.wait(Some(timeout)).unwrap().is_none());
    }
    assert!(pair.a.poll().unwrap().is_none());
    assert!(!pair.a.pending());
}

// The waiter sleeps without a deadline when the operation with one is started.
#[test]
fn a_waiter_hears_of_deadlines_that_come_later() {
    let pair = Pair::new();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| next(&pair.a));
        let op = pair.a.receive(pair.empty(4096), ONE_MESSAGE, SOON).unwrap();
        let event = waiter.join().unwrap();
        assert_eq!((event.op, event.status), (op, Err(Errno::ETIMEDOUT)));
    });
}
