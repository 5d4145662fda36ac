use super::*;

const SOON: Option<Duration> = Some(Duration::from_millis(2));
const NEVER_REACHED: Option<Duration> = Some(Duration::from_secs(3600));

// Covers: MT-83, MT-109, MT-110
#[test]
fn a_wait_ends_at_its_own_timeout() {
    let pair = Pair::new();
    pair.a.start(Op::receive(pair.empty(4096)).timeout(NEVER_REACHED)).unwrap();
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
        let op = pair.a.start(Op::receive(pair.empty(4096)).timeout(SOON)).unwrap().op;
        let event = waiter.join().unwrap();
        assert_eq!((event.op, event.status), (op, Err(Errno::ETIMEDOUT)));
    });
}
