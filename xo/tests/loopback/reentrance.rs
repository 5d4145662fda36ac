//! Calls that a client may make within its observer.

use std::sync::{Arc, OnceLock, Weak};

use nlx::{Error, Machine, TmEvent, TmState};

use super::*;

/// An observer is called while a thread waits; it may wait too, and stop the machine.
#[test]
fn an_observer_may_wait_and_stop() {
    let domain = domain();
    let observed = domain.clone();
    let itself = Arc::new(OnceLock::<Weak<TransferMachine>>::new());
    let own = itself.clone();
    let observer = move |_: &Machine, event: &TmEvent| {
        if matches!(event, TmEvent::NoBuffer { .. }) {
            let tm = own.get().unwrap().upgrade().unwrap();
            let timeout = Some(Duration::from_millis(10));
            let op =
                tm.start(Op::passive_receive(observed.allocate(64).unwrap()).timeout(timeout)).unwrap().op;
            let event = tm.wait(None).unwrap().unwrap();
            assert_eq!((event.op, event.status), (op, Err(Errno::ETIMEDOUT)));
            tm.stop(Stop::Abort, None).unwrap();
        }
    };
    let tm = Arc::new(domain.machine().observer(observer).start("0@lo:12345:31:*").unwrap());
    itself.set(Arc::downgrade(&tm)).unwrap();
    let other = machine(&domain);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| tm.wait(None));
        let to = other.end_point(&tm.address().to_string()).unwrap();
        other.start(Op::send(domain.allocate(64).unwrap(), &to)).unwrap();
        let stopped = waiter.join().unwrap().unwrap_err();
        assert!(matches!(stopped, Error::NotStarted { state: TmState::Stopped }), "{stopped}");
    });
}
