//! What a client may do within its observer.

use nlx::{Error, TmEvent, TmState};

use super::*;

/// An observer is called while a thread waits, and may wait itself, and stop the machine.
#[test]
fn an_observer_may_wait_and_stop() {
    let domain = domain();
    let observed = domain.clone();
    let observer = move |tm: &nlx::Machine, event: &TmEvent| {
        if matches!(event, TmEvent::NoBuffer { .. }) {
            let timeout = Some(Duration::from_millis(10));
            let (op, _) = tm.passive_receive(observed.allocate(64).unwrap(), timeout).unwrap();
            let event = tm.wait(None).unwrap().unwrap();
            assert_eq!((event.op, event.status), (op, Err(Errno::ETIMEDOUT)));
            tm.stop(true, None).unwrap();
        }
    };
    let tm = domain.machine().observer(observer).start("0@lo:12345:31:*").unwrap();
    let other = machine(&domain);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| tm.wait(None));
        let to = other.end_point(&tm.address().to_string()).unwrap();
        other.send(domain.allocate(64).unwrap(), 64, &to, None).unwrap();
        let stopped = waiter.join().unwrap().unwrap_err();
        assert!(matches!(stopped, Error::NotStarted { state: TmState::Stopped }), "{stopped}");
    });
}
