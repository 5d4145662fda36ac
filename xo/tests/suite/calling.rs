//! Callbacks, and what they may do; observers.

use std::sync::mpsc::{Receiver, channel};
use std::thread::ThreadId;

use nlx::{Domain, Errno, Error, Event, Machine, Op, OpId, Queue, Stop, TmEvent, TmState};

use super::stopping::of_each_queue;
use super::world;
use crate::bed::*;

/// A callback posts its event's buffer again, and starts and cancels other operations.
// Covers: MT-244
#[test]
fn a_callback_starts_and_cancels_anything() {
    const ROUNDS: u8 = 32;
    let world = world().with_threads();
    let client = Side::on(&world, 0, "*");
    let domain = world.domain(1);
    let (tx, rx) = channel();
    let mut server = Server { domain: domain.clone(), to_cancel: None, cancelled: 0 };
    let tm = domain
        .machine()
        .callbacks(move |tm, event| {
            server.called(tm, event);
            let _ = tx.send(server.cancelled);
        })
        .start(&wanted(&world, 1, "9"))
        .unwrap();
    tm.start(Op::receive(domain.allocate(64).unwrap())).unwrap();
    let server = Side::of(tm, domain);
    for round in 0..ROUNDS {
        let answer = client.receive_one(64);
        client.send(&server, &[round]);
        let mut events = [client.next(), client.next()];
        events.sort_by_key(|event| event.op == answer);
        assert_eq!(events[1].message.as_deref(), Some(&[round + 1][..]));
    }
    // For each round a message and the end of its answer, and a cancelled buffer for each but the
    // first.
    let calls = 3 * u32::from(ROUNDS) - 1;
    let cancelled: Vec<u32> = (0..calls).map(|_| rx.recv_timeout(HUNG.unwrap()).expect("it hangs")).collect();
    assert_eq!(cancelled.into_iter().max(), Some(u32::from(ROUNDS) - 1));
    server.tm.stop(Stop::Abort, HUNG).unwrap();
    assert_eq!(server.counts(Queue::MessageReceive), (u64::from(ROUNDS) + 1, 1, ROUNDS.into(), 1));
    assert_eq!(server.counts(Queue::MessageSend), (ROUNDS.into(), 0, ROUNDS.into(), 0));
    assert_eq!(server.counts(Queue::PassiveBulkReceive), (ROUNDS.into(), ROUNDS.into(), 0, ROUNDS.into()));
    assert_eq!(rx.iter().count(), 2, "the buffers that waited at the stop");
}

struct Server {
    domain: Domain,
    /// Gets no message, and is cancelled at the next one.
    to_cancel: Option<OpId>,
    cancelled: u32,
}

impl Server {
    fn called(&mut self, tm: &Machine, event: Event) {
        self.cancelled += u32::from(event.queue == Queue::PassiveBulkReceive && event.status.is_err());
        let (Some(message), Some(client)) = (event.message, event.sender) else { return };
        let number = message[0];
        drop(message);
        tm.start(Op::receive(event.buffer.unwrap())).unwrap();
        let mut answer = self.domain.allocate(1).unwrap();
        answer.write().unwrap()[0] = number + 1;
        tm.start(Op::send(answer, &client).length(1)).unwrap();
        if let Some(to_cancel) = self.to_cancel.take() {
            assert!(tm.cancel(to_cancel));
        }
        self.to_cancel = Some(tm.start(Op::passive_receive(self.domain.allocate(64).unwrap())).unwrap().op);
    }
}

/// All callbacks of a machine come on one thread, which is not a thread that starts operations; it
/// runs where the last `confine` put it.
// Covers: S-416, MT-58, MT-84, MT-94, MT-109
#[test]
fn callbacks_come_on_one_confined_thread() {
    let world = world().with_threads();
    let domain = world.domain(0);
    let (tx, rx) = channel();
    let tm = domain
        .machine()
        .confine(&[0, 1])
        .confine(&[0])
        .callbacks(move |_, _| {
            let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
            let processors =
                (0..nix::sched::CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap()).count();
            let _ = tx.send((std::thread::current().id(), processors, allowed.is_set(0)));
        })
        .start(&wanted(&world, 0, "9"))
        .unwrap();
    let a = Side::of(tm, domain);
    let b = Side::on(&world, 1, "10");
    for _ in 0..4 {
        b.receive_one(8);
        a.send(&b, b"x");
        assert_eq!(b.next().length, 1);
    }
    let threads: Vec<(ThreadId, usize, _)> =
        (0..4).map(|_| rx.recv_timeout(HUNG.unwrap()).unwrap()).collect();
    assert!(threads.iter().all(|thread| *thread == (threads[0].0, 1, Ok(true))));
    assert_ne!(threads[0].0, std::thread::current().id());
    assert_eq!(a.tm.wait(HUNG).unwrap_err().errno(), Errno::EINVAL);
}

/// The observer gets each state once, with the machine's end point when it has started; a machine
/// that fails to start reports that once.
// Covers: MT-56, MT-57, MT-95, MT-105, MT-238, X-3
#[test]
fn each_state_is_reported_once() {
    let world = world().with_threads();
    let domain = world.domain(0);
    let text = wanted(&world, 0, "9");
    for calls in [false, true] {
        let (observer, rx) = observer();
        let builder = domain.machine().observer(observer);
        let builder = if calls { builder.callbacks(|_, _| ()) } else { builder };
        let tm = builder.start(&text).unwrap();
        tm.start(Op::receive(domain.allocate(64).unwrap())).unwrap();
        tm.stop(Stop::Abort, HUNG).unwrap();
        tm.stop(Stop::Drain, HUNG).unwrap();
        drop(tm);
        let states: Vec<_> = rx.iter().collect();
        let own = Some(text.clone());
        assert_eq!(states, [(TmState::Started, Ok(()), own), (TmState::Stopped, Ok(()), None)], "{calls}");
    }
    let (observer, rx) = observer();
    let nowhere = [1023];
    let builder = domain.machine().observer(observer).callbacks(|_, _| ()).confine(&nowhere);
    assert_eq!(builder.start(&text).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(rx.iter().collect::<Vec<_>>(), [(TmState::Failed, Err(Errno::EINVAL), None)]);
    // MT-238: a machine that is not started needs no stop.
    drop(domain.machine().callbacks(|_, _| ()));
    begin(&domain, &text).unwrap();
}

/// With operations of all queues in flight, a callback that panics ends its machine and no other:
/// it fails, once; its address is free.
// Covers: MT-238
#[test]
fn a_callback_that_panics_ends_its_machine_alone() {
    let world = world().with_threads();
    let domain = world.domain(0);
    let (observer, rx) = observer();
    let builder = domain.machine().observer(observer);
    let tm = builder.callbacks(|_, _| panic!("as it should")).start(&wanted(&world, 0, "9")).unwrap();
    let pair = Pair { a: Side::of(tm, domain), b: Side::on(&world, 1, "10"), world };
    // The first operation that ends may end the machine before the last is started.
    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| of_each_queue(&pair, SOON)));
    drop(panicking);
    let own = pair.a.tm.address().to_string();
    assert_eq!(rx.recv_timeout(HUNG.unwrap()), Ok((TmState::Started, Ok(()), Some(own.clone()))));
    assert_eq!(rx.recv_timeout(HUNG.unwrap()), Ok((TmState::Failed, Err(Errno::ECANCELED), None)));
    pair.a.tm.stop(Stop::Abort, HUNG).unwrap();
    assert_eq!((pair.a.tm.state(), pair.a.tm.in_flight()), (TmState::Failed, 0));
    let refused = pair.a.tm.start(Op::receive(pair.a.empty(64))).unwrap_err();
    assert_eq!(refused.error, Error::NotStarted { state: TmState::Failed });
    let again = Side::of(begin(&pair.a.domain, &own).unwrap(), pair.a.domain.clone());
    pair.b.receive_one(64);
    again.send(&pair.b, b"as if nothing had been");
    assert_eq!(pair.b.next().message.as_deref(), Some(&b"as if nothing had been"[..]));
    drop(pair.a);
    assert!(rx.recv().is_err(), "it has failed once");
}

/// A callback drops another machine and stops its machine, with receive buffers in flight; each has
/// its last event.
// Covers: MT-238, X-11
#[test]
fn a_callback_stops_its_own_machine() {
    let world = world().with_threads();
    let domain = world.domain(0);
    let (tx, rx) = channel();
    let mut other = Some(domain.machine().callbacks(|_, _| ()).start(&wanted(&world, 0, "*")).unwrap());
    let tm = domain
        .machine()
        .callbacks(move |tm, event| {
            drop(other.take());
            tm.stop(Stop::Abort, HUNG).unwrap();
            let _ = tx.send((event.op, event.is_last()));
        })
        .start(&wanted(&world, 0, "9"))
        .unwrap();
    let ops = [(); 8].map(|()| tm.start(Op::receive(domain.allocate(64).unwrap())).unwrap().op);
    assert!(tm.cancel(ops[3]));
    let mut ended: Vec<_> = rx.iter().collect();
    ended.sort();
    assert!(ended.into_iter().eq(ops.map(|op| (op, true))));
    assert_eq!(tm.state(), TmState::Stopped);
}

/// A reported state, with the end point's text.
type StateReport = (TmState, Result<(), Errno>, Option<String>);

fn observer() -> (impl Fn(&Machine, &TmEvent) + Send + Sync + 'static, Receiver<StateReport>) {
    let (tx, rx) = channel();
    let observer = move |_: &Machine, event: &TmEvent| match event {
        TmEvent::State { state, status, end_point } => {
            let _ = tx.send((*state, *status, end_point.as_ref().map(ToString::to_string)));
        }
        // Messages without a buffer.
        TmEvent::NoBuffer { .. } => {}
        other => panic!("{other:?}"),
    };
    (observer, rx)
}
