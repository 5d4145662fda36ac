//! Callbacks on an event thread, observers, states.

use std::sync::mpsc;

use nlx::{Errno, Error, Receive, TmEvent, TmState};

use super::domain;

const RECEIVE: Receive = Receive { min_receive_size: 64, max_messages: 1 };

/// MT-57, MT-58, S-416: the event thread runs where the last `confine` put it, and calls back there.
#[test]
fn callbacks_run_on_the_confined_event_thread() {
    let (tell, told) = mpsc::channel();
    let domain = domain();
    let tm = domain
        .machine()
        .confine(&[0, 1 << 9])
        .confine(&[0])
        .callbacks(move |_, event| {
            let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
            let processors = (0..nix::sched::CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap());
            let _ = tell.send((std::thread::current().id(), processors.collect::<Vec<_>>(), event));
        })
        .start("0@lo:12345:31:101")
        .unwrap();
    assert_eq!(tm.address().to_string(), "0@lo:12345:31:101");
    tm.send(domain.allocate(64).unwrap(), 5, tm.own_end_point(), None).unwrap();
    let (thread, processors, event) = told.recv().unwrap();
    assert_ne!(thread, std::thread::current().id());
    assert_eq!((processors, event.status, event.length), (vec![0], Ok(()), 5));
    assert!(matches!(tm.wait(None), Err(Error::Delivery)));
    tm.stop(true, None).unwrap();
    assert!(told.recv().is_err(), "the callback has been dropped");
}

/// The observer hears each change of state once, the last one after the last callback.
#[test]
fn the_observer_hears_of_each_state() {
    let (tell, told) = mpsc::channel();
    let called = tell.clone();
    let domain = domain();
    let tm = domain
        .machine()
        .observer(move |tm, event| match event {
            TmEvent::State { state, status, end_point } => {
                assert_eq!(end_point.is_some(), *state == TmState::Started);
                let _ = tell.send((format!("{state}"), *status, tm.state()));
            }
            other => panic!("{other:?}"),
        })
        .callbacks(move |tm, event| drop(called.send((event.queue.to_string(), event.status, tm.state()))))
        .start("0@lo:12345:31:*")
        .unwrap();
    tm.receive(domain.allocate(64).unwrap(), RECEIVE, None).unwrap();
    tm.stop(true, None).unwrap();
    drop(tm);
    let heard: Vec<_> = told.iter().collect();
    assert_eq!(heard.first(), Some(&("started".into(), Ok(()), TmState::Started)));
    assert_eq!(heard.last(), Some(&("stopped".into(), Ok(()), TmState::Stopped)));
    assert_eq!(heard.len(), 3);
    assert_eq!((heard[1].0.as_str(), heard[1].1), ("message receive", Err(Errno::ECANCELED)));
}

/// A callback that panics is contained: its machine fails, gives everything up, and its address is free again.
#[test]
fn a_callback_that_panics_fails_its_machine() {
    let (tell, told) = mpsc::channel();
    let domain = domain();
    let tm = domain
        .machine()
        .observer(move |_, event| drop(tell.send(format!("{event:?}"))))
        .callbacks(|_, event| panic!("a callback does not like {:?}", event.op))
        .start("0@lo:12345:31:7")
        .unwrap();
    for _ in 0..3 {
        tm.receive(domain.allocate(64).unwrap(), RECEIVE, None).unwrap();
    }
    tm.send(domain.allocate(64).unwrap(), 5, tm.own_end_point(), None).unwrap();
    assert!(told.recv().unwrap().contains("Started"));
    let failed = told.recv().unwrap();
    assert!(failed.contains("Failed") && failed.contains("ECANCELED"), "{failed}");
    tm.stop(true, None).unwrap();
    assert_eq!((tm.state(), tm.in_flight()), (TmState::Failed, 0));
    let refused = tm.receive(domain.allocate(64).unwrap(), RECEIVE, None).unwrap_err();
    assert!(matches!(refused.error, Error::NotStarted { state: TmState::Failed }));
    domain.transfer_machine("0@lo:12345:31:7", Default::default()).unwrap();
    drop(tm);
    assert!(told.recv().is_err(), "it has failed once");
}

/// A callback may stop its own machine, and drop the machine of another.
#[test]
fn a_callback_may_stop_its_machine() {
    let (tell, told) = mpsc::channel();
    let domain = domain();
    let mut other = Some(domain.machine().callbacks(|_, _| ()).start("0@lo:12345:31:*").unwrap());
    let tm = domain
        .machine()
        .callbacks(move |tm, event| {
            other.take();
            tm.stop(true, None).unwrap();
            let _ = tell.send((event.queue.value(), event.status));
        })
        .start("0@lo:12345:31:*")
        .unwrap();
    tm.receive(domain.allocate(64).unwrap(), RECEIVE, None).unwrap();
    tm.send(domain.allocate(64).unwrap(), 65, tm.own_end_point(), None).unwrap_err();
    tm.send(domain.allocate(64).unwrap(), 5, tm.own_end_point(), None).unwrap();
    let mut heard: Vec<_> = told.iter().collect();
    heard.sort_by_key(|(queue, _)| *queue);
    assert_eq!(heard, [(0, Ok(())), (1, Ok(()))]);
    assert_eq!(tm.state(), TmState::Stopped);
}

#[test]
fn confining_without_an_event_thread_or_to_no_processor_is_refused() {
    let domain = domain();
    let start = |processors: &[usize]| {
        let builder = domain.machine().callbacks(|_, _| ()).confine(processors);
        builder.start("0@lo:12345:31:9").unwrap_err().errno()
    };
    assert_eq!([start(&[]), start(&[1 << 20]), start(&[1023])], [Errno::EINVAL; 3]);
    let without = domain.machine().confine(&[0]).start("0@lo:12345:31:9").unwrap_err();
    assert!(matches!(without, Error::ConfineWithoutThread));
    // None of them has kept the address.
    domain.transfer_machine("0@lo:12345:31:9", Default::default()).unwrap();
}
