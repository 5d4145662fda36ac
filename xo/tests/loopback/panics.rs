//! Panics in code of the client.

use std::sync::mpsc;
use std::thread;

use nlx::{BufferPool, BufferPoolOptions, Colour, Error, TmEvent, TmState};

use super::*;

/// Panics when it is dropped, unless its thread panics already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a bomb was dropped");
        }
    }
}

/// A capture of a callback panics in its drop: its machine has ended all the same, and no thread
/// waits for it in vain.
#[test]
fn a_callback_that_panics_when_it_is_dropped_has_ended() {
    let domain = domain();
    let bomb = Bomb;
    let callback = move |_: &nlx::Machine, _| {
        let _held = &bomb;
    };
    let tm = domain.machine().callbacks(callback).start("0@lo:12345:31:*").unwrap();
    tm.stop(Stop::Abort, Some(TIME_LIMIT)).unwrap();
    assert_eq!((tm.state(), tm.in_flight()), (TmState::Stopped, 0));
}

/// The payload of a panic is a value of the client too.
#[test]
fn a_panic_whose_payload_panics_is_contained() {
    let (tx, rx) = mpsc::channel();
    let domain = domain();
    let tm = domain
        .machine()
        .observer(move |_, event| {
            if let TmEvent::State { state, .. } = event {
                let _ = tx.send(*state);
            }
        })
        .callbacks(|_, _| std::panic::panic_any(Bomb))
        .start("0@lo:12345:31:*")
        .unwrap();
    tm.start(Op::send(domain.allocate(64).unwrap(), tm.own_end_point()).length(5)).unwrap();
    assert_eq!(rx.recv_timeout(TIME_LIMIT), Ok(TmState::Started));
    assert_eq!(rx.recv_timeout(TIME_LIMIT), Ok(TmState::Failed));
    tm.stop(Stop::Abort, Some(TIME_LIMIT)).unwrap();
    assert_eq!(tm.state(), TmState::Failed);
}

/// The same for a panic in a callback of a pool.
#[test]
fn a_pool_contains_a_panic_whose_payload_panics() {
    let domain = domain();
    let callback = |_: &BufferPool| std::panic::panic_any(Bomb);
    let pool = domain.pool(BufferPoolOptions::new(64).below_threshold(callback)).unwrap();
    pool.provision(2).unwrap();
    let buffer = pool.get(Colour::Any).unwrap().unwrap();
    drop(buffer);
    assert_eq!(pool.counts().free, 2);
}

/// An observer that panics makes a machine without callbacks fail at once, whichever thread waits.
#[test]
fn an_observer_that_panics_while_a_thread_waits_fails_its_machine() {
    let domain = domain();
    let tm = domain
        .machine()
        .observer(|_, event| {
            if matches!(event, TmEvent::NoBuffer { .. }) {
                panic!("an observer does not like {event:?}");
            }
        })
        .start("0@lo:12345:31:*")
        .unwrap();
    tm.start(Op::receive(domain.allocate(64).unwrap())).unwrap();
    let other = machine(&domain);
    let to = other.end_point(&tm.address().to_string()).unwrap();
    other.start(Op::send(domain.allocate(65).unwrap(), &to)).unwrap();
    let mut cancelled = 0;
    loop {
        match tm.wait(Some(TIME_LIMIT)) {
            Ok(event) => {
                assert_eq!(event.unwrap().status, Err(Errno::ECANCELED));
                cancelled += 1;
            }
            Err(Error::NotStarted { state }) => break assert_eq!((state, cancelled), (TmState::Failed, 1)),
            Err(error) => panic!("{error}"),
        }
    }
}
