use nlx::{Error, TmState};

use super::*;

// Covers: MT-61, MT-238
#[test]
fn a_stop_without_abort_waits_for_what_is_in_flight() {
    let pair = Pair::new();
    let op = pair.b.start(Op::receive(pair.empty(4096))).unwrap().op;
    let error = pair.b.stop(Stop::Drain, Some(Duration::from_millis(1))).unwrap_err();
    assert_eq!((&error, error.errno()), (&Error::StopTimedOut { in_flight: 1 }, Errno::ETIMEDOUT));
    assert_eq!(pair.b.state(), TmState::Stopping);
    assert!(pair.b.start(Op::receive(pair.empty(4096))).is_err());
    std::thread::scope(|scope| {
        let stopper = scope.spawn(|| pair.b.stop(Stop::Drain, None));
        pair.send(b"the last one");
        assert_eq!(stopper.join().unwrap(), Ok(()));
    });
    let event = end_of(&pair.b, op);
    assert_eq!(&event.message.unwrap()[..], b"the last one");
}

// Covers: MT-238, X-2
#[test]
fn a_stop_ends_the_waits_of_others() {
    let pair = Pair::new();
    pair.a.start(Op::receive(pair.empty(4096))).unwrap();
    std::thread::scope(|scope| {
        let wait = || {
            let mut events = 0;
            while let Ok(event) = pair.a.wait(None) {
                events += u32::from(event.is_some());
            }
            events
        };
        let waiters = [scope.spawn(wait), scope.spawn(wait), scope.spawn(wait)];
        pair.a.stop(Stop::Abort, None).unwrap();
        let events: u32 = waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum();
        assert_eq!(events, 1);
    });
}

/// When a node is shut down below its transfer machines, no thread waits on: a wait ends with an
/// error, a machine with callbacks fails and returns all buffers, and a stop ends.
#[test]
fn a_node_that_is_shut_down_leaves_no_waiter() {
    let domain = domain();
    // Over a helper the node belongs to the helper, whose loss has a separate test.
    let Some(node) = domain.node() else { return };
    let waited = machine(&domain);
    let (tx, rx) = std::sync::mpsc::channel();
    let states = tx.clone();
    let called = domain
        .machine()
        .observer(move |_, event| drop(states.send(format!("{event:?}"))))
        .callbacks(move |_, event| drop(tx.send(format!("{:?} {}", event.status, event.is_last()))))
        .start("0@lo:12345:31:7")
        .unwrap();
    for tm in [&*waited, &*called] {
        tm.start(Op::receive(domain.allocate(4096).unwrap())).unwrap();
    }
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let event = waited.wait(None);
            // Its receive buffer may end first.
            event.map_or_else(Err, |_| waited.wait(None))
        });
        node.shutdown(Duration::ZERO);
        assert_eq!(waiter.join().unwrap().unwrap_err().errno(), Errno::ESHUTDOWN);
    });
    waited.stop(Stop::Abort, None).unwrap();
    assert_eq!((waited.state(), waited.in_flight()), (TmState::Stopped, 0));
    // Its event thread notices the end by itself.
    let mut reports = vec![rx.recv().unwrap(), rx.recv().unwrap()];
    called.stop(Stop::Abort, None).unwrap();
    assert_eq!((called.state(), called.in_flight()), (TmState::Failed, 0));
    drop(called);
    reports.extend(rx.iter());
    // It fails once its operations have ended; their events are delivered all the same.
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert!(reports[0].contains("Started"), "{reports:?}");
    assert!(reports[1].contains("Failed") && reports[1].contains("ESHUTDOWN"), "{reports:?}");
    assert_eq!(reports[2], "Err(ECANCELED) true");
}
