//! Callbacks on an event thread, observers, states.

use std::sync::{Arc, mpsc};

use lnet_cpt::{CptTable, Topology};
use nlx::{Domain, Errno, Error, NodeConfig, Op, Stop, TmEvent, TmState};

use super::domain;

/// The observer gets each change of state once, the last one after the last callback.
#[test]
fn the_observer_hears_of_each_state() {
    let (tx, rx) = mpsc::channel();
    let called = tx.clone();
    let domain = domain();
    let tm = domain
        .machine()
        .observer(move |tm, event| match event {
            TmEvent::State { state, status, end_point } => {
                assert_eq!(end_point.is_some(), *state == TmState::Started);
                let _ = tx.send((format!("{state}"), *status, tm.state()));
            }
            other => panic!("{other:?}"),
        })
        .callbacks(move |tm, event| drop(called.send((event.queue.to_string(), event.status, tm.state()))))
        .start("0@lo:12345:31:*")
        .unwrap();
    tm.start(Op::receive(domain.allocate(4096).unwrap())).unwrap();
    tm.stop(Stop::Abort, None).unwrap();
    drop(tm);
    let reports: Vec<_> = rx.iter().collect();
    assert_eq!(reports.first(), Some(&("started".into(), Ok(()), TmState::Started)));
    assert_eq!(reports.last(), Some(&("stopped".into(), Ok(()), TmState::Stopped)));
    assert_eq!(reports.len(), 3);
    assert_eq!((reports[1].0.as_str(), reports[1].1), ("message receive", Err(Errno::ECANCELED)));
}

// Covers: S-416, MT-94
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
    // None of the refused machines has kept the address.
    domain.transfer_machine("0@lo:12345:31:9", Default::default()).unwrap();
}

/// Without `confine` the event thread runs on the processors of the partition in which its
/// machine's entries lie, which depends on portal and id (`docs/engine.md`). With one partition of
/// all processors it runs on any.
// Covers: S-306
#[test]
fn an_event_thread_runs_where_its_machine_lies() {
    const PORTAL: usize = 31;
    let machine = Arc::new(Topology::machine().unwrap());
    let all = machine.cpus();
    for partitions in 1..=all.len().min(4) {
        let table = Arc::new(CptTable::create(machine.clone(), partitions).unwrap());
        let domain = Domain::in_process(&NodeConfig::new().partitions(table.clone())).unwrap();
        for tmid in 1..=2 * partitions {
            let (tx, rx) = mpsc::channel();
            let called =
                move |_: &nlx::Machine, _| drop(tx.send(Topology::machine().unwrap().cpus().clone()));
            let tm =
                domain.machine().callbacks(called).start(&format!("0@lo:12345:{PORTAL}:{tmid}")).unwrap();
            tm.start(Op::receive(tm.allocate(4096).unwrap())).unwrap();
            tm.start(Op::send(tm.allocate(64).unwrap(), tm.own_end_point())).unwrap();
            let expected = if partitions == 1 { all } else { table.cpumask((PORTAL + tmid) % partitions) };
            assert_eq!(rx.recv().unwrap(), *expected, "machine {tmid} of {partitions} partitions");
        }
    }
}
