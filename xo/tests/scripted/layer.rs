//! The calls that reach the transport, and how often (MT-89 to MT-111); several domains and
//! machines over it, with and without callbacks (MT-213).

use std::sync::mpsc::channel;

use nlx::{Descriptor, EndPoint, StartAddress};
use nlx_core::{Operation, OperationKind};

use super::*;
use crate::transport::limits;

/// Starts the six operations of a machine, in the order of their queues.
fn one_of_each(rig: &Rig, to: &EndPoint, timeout: Option<Duration>) -> [OpId; Queue::COUNT] {
    let tm = &rig.tm;
    let offers = tm.start(Op::passive_receive(rig.buffer()).timeout(timeout)).unwrap();
    let shows = tm.start(Op::passive_send(rig.buffer()).length(500).timeout(timeout)).unwrap();
    let start = |op: Op| tm.start(op.timeout(timeout)).unwrap().op;
    [
        start(Op::receive(rig.buffer()).min_receive_size(100).max_messages(4)),
        start(Op::send(rig.buffer(), to).length(100)),
        offers.op,
        shows.op,
        start(Op::active_receive(rig.buffer(), &shows.offer)),
        start(Op::active_send(rig.buffer(), &offers.offer).length(300)),
    ]
}

/// Returns the operation as the transport got it.
fn operation_of(rig: &Rig, op: OpId) -> Operation {
    rig.script.operations().find(|operation| same(operation, op)).expect("it has reached the transport")
}

/// Returns whether the cookie's halves are the slot and the generation of the operation's id.
fn same(operation: &Operation, op: OpId) -> bool {
    op.to_string() == format!("{}.{}", operation.cookie as u32, operation.cookie >> 32)
}

/// A domain asks the transport only for its limits, and returns them.
// Covers: MT-90, MT-91
#[test]
fn a_domain_has_the_limits_of_its_transport() {
    let rig = Rig::new();
    assert_eq!(rig.domain.limits(), limits());
    assert_eq!((rig.script.registered().len(), rig.script.operations().count()), (0, 0));
}

/// A buffer is registered once, however often it is used, and deregistered once, when it is
/// dropped.
// Covers: MT-92, MT-111
#[test]
fn a_buffer_is_registered_and_deregistered_once() {
    let rig = Rig::new();
    let mut buffer = rig.buffer();
    let registered = rig.script.registered();
    assert_eq!(registered.len(), 1);
    for _ in 0..3 {
        rig.tm.start(Op::receive(buffer).min_receive_size(100).max_messages(4)).unwrap();
        rig.end(Ok(()));
        buffer = rig.now().buffer.unwrap();
    }
    let other = rig.buffer();
    assert_eq!(rig.script.registered().len(), 2);
    assert_eq!(rig.script.deregistered(), []);
    drop(buffer);
    assert_eq!(rig.script.deregistered(), registered);
    drop(other);
    assert_eq!(rig.script.deregistered(), rig.script.registered());
}

/// The transport starts a machine when the builder does, and never one that is dropped before; its
/// end point counts one, and outlives it while a clone exists.
// Covers: MT-93, MT-95, MT-108
#[test]
fn a_machine_is_started_once() {
    let rig = Rig::new();
    let before = rig.script.started().len();
    drop(rig.domain.machine().options(TmOptions::default()));
    assert_eq!(rig.script.started().len(), before);
    let tm = rig.domain.transfer_machine("0@lo:12345:31:9", TmOptions::default()).unwrap();
    assert_eq!(rig.script.started()[before..], [tm.address()]);
    assert_eq!((tm.own_end_point().references(), tm.end_points()), (1, 1));
    let own = tm.own_end_point().clone();
    assert_eq!(own.references(), 2);
    drop(tm);
    assert_eq!((own.references(), own.to_string()), (1, "0@lo:12345:31:9".into()));
}

/// Each operation reaches the transport as requested; a message counts its peer.
// Covers: MT-100, MT-101, MT-213
#[test]
fn each_operation_reaches_the_transport() {
    let rig = Rig::new();
    let own = rig.tm.own_end_point().clone();
    let ops = one_of_each(&rig, &own, None);
    assert_eq!((own.references(), rig.tm.end_points(), rig.tm.in_flight()), (3, 1, Queue::COUNT));
    let kinds = ops.map(|op| operation_of(&rig, op).kind);
    let [receive, send, offer, show, read, write] = kinds;
    assert!(matches!(receive, OperationKind::Receive { min_receive_size: 100, max_messages: 4 }));
    assert!(matches!(send, OperationKind::Send { length: 100, to } if to == rig.tm.address()));
    assert!(matches!(offer, OperationKind::PassiveReceive));
    assert!(matches!(show, OperationKind::PassiveSend { length: 500 }));
    assert!(matches!(read, OperationKind::ActiveReceive { descriptor } if descriptor != Descriptor::NONE));
    assert!(
        matches!(write, OperationKind::ActiveSend { length: 300, descriptor } if descriptor != Descriptor::NONE)
    );
    let buffers = ops.map(|op| operation_of(&rig, op).buffer);
    assert!(buffers.iter().all(|buffer| rig.script.registered().contains(buffer)));
}

/// The last event of each queue ends its operation, is counted, and releases the peer.
// Covers: MT-102, MT-106, MT-213, X-6
#[test]
fn each_operation_ends_with_its_last_event() {
    let rig = Rig::new();
    let own = rig.tm.own_end_point().clone();
    let ops = one_of_each(&rig, &own, Some(TIME_LIMIT));
    let sent = [0, 100, 0, 500, 0, 300];
    for (index, (op, sent)) in ops.into_iter().zip(sent).enumerate() {
        rig.script.inject(last(happened(&operation_of(&rig, op), Ok(()), 50)));
        let event = rig.now();
        assert_eq!((event.op, event.queue.index(), event.status, event.offset), (op, index, Ok(()), 0));
        let length = if event.queue.receives() { 50 } else { sent };
        assert_eq!((event.length, event.message.is_some(), event.is_last()), (length, index == 0, true));
        let counters = rig.tm.statistics()[index];
        assert_eq!((counters.adds, counters.successes, counters.failures), (1, 1, 0));
        assert_eq!((counters.bytes, counters.bytes_max), (length as u64, length as u64));
        assert!(!rig.tm.cancel(op));
    }
    assert_eq!((rig.tm.in_flight(), own.references()), (0, 2));
    // Their timeouts ended with them.
    assert!(rig.tm.wait(Some(2 * TIME_LIMIT)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels(), []);
}

/// A cancel reaches the transport, is counted by queue, and does not end the operation before its
/// last event.
// Covers: MT-103
#[test]
fn each_operation_is_cancelled() {
    let rig = Rig::new();
    let own = rig.tm.own_end_point().clone();
    for (index, op) in one_of_each(&rig, &own, None).into_iter().enumerate() {
        assert!(rig.tm.cancel(op));
        let operation = operation_of(&rig, op);
        assert_eq!(rig.script.take_cancels(), [(0, operation.cookie)]);
        assert!(!rig.tm.pending());
        rig.script.inject(last(happened(&operation, Err(Errno::ECANCELED), 0)));
        assert_eq!((rig.now().status, rig.tm.statistics()[index].cancels), (Err(Errno::ECANCELED), 1));
    }
}

/// An event that is not the last leaves its operation in flight, and its buffer and its timeout
/// unchanged.
// Covers: MT-104, X-14
#[test]
fn an_event_that_is_not_the_last_ends_nothing() {
    let rig = Rig::new();
    let own = rig.tm.own_end_point().clone();
    let ops = one_of_each(&rig, &own, Some(5 * MS));
    for (index, op) in ops.into_iter().enumerate() {
        let operation = operation_of(&rig, op);
        rig.script.inject(happened(&operation, Ok(()), 50));
        let event = rig.now();
        assert_eq!((event.op, event.status, event.is_last()), (op, Ok(()), false));
        let counters = rig.tm.statistics()[index];
        assert_eq!((counters.successes, counters.time_in_queue), (1, Duration::ZERO));
    }
    assert_eq!(rig.tm.in_flight(), Queue::COUNT);
    assert!(rig.tm.wait(Some(6 * MS)).unwrap().is_none());
    assert_eq!(rig.script.take_cancels().len(), Queue::COUNT);
    for (index, op) in ops.into_iter().enumerate() {
        rig.script.inject(last(happened(&operation_of(&rig, op), Ok(()), 20)));
        let event = rig.now();
        assert_eq!((event.op, event.is_last()), (op, true));
        let counters = rig.tm.statistics()[index];
        // One event more than operations: it was delivered once.
        assert_eq!((counters.adds, counters.successes, counters.failures), (1, 2, 0));
    }
    assert_eq!((rig.tm.in_flight(), own.references()), (0, 2));
}

/// All counters are read and reset in one step.
// Covers: MT-107
#[test]
fn all_counters_are_taken_at_once() {
    let rig = Rig::new();
    let own = rig.tm.own_end_point().clone();
    for op in one_of_each(&rig, &own, None) {
        rig.script.inject(last(happened(&operation_of(&rig, op), Err(Errno::EIO), 0)));
        rig.now();
    }
    let taken = rig.tm.take_statistics();
    assert!(taken.iter().all(|queue| (queue.adds, queue.successes, queue.failures) == (1, 0, 1)));
    assert_eq!(rig.tm.statistics(), [QueueStatistics::default(); Queue::COUNT]);
}

/// The call returns the transport's answer, and changes nothing.
// Covers: MT-110
#[test]
fn pending_is_what_the_transport_says() {
    let rig = Rig::new();
    rig.receive(None);
    assert!(!rig.tm.pending() && !rig.tm.pending());
    rig.end(Ok(()));
    assert!(rig.tm.pending() && rig.tm.pending());
    assert!(rig.tm.take().unwrap().is_some());
    assert!(!rig.tm.pending());
}

/// Events of a scripted transport reach the callbacks of their machine, one message after the
/// other, on its event thread; the domains are independent; everything ends in order.
// Covers: MT-111, MT-213
#[test]
fn several_machines_of_several_domains_call_back() {
    let rigs = [(); 3].map(|()| Rig::new());
    let (tx, rx) = channel();
    let machines: Vec<(usize, TransferMachine)> = rigs
        .iter()
        .enumerate()
        .map(|(number, rig)| {
            let tx = tx.clone();
            let builder = rig.domain.machine().confine(&[0]);
            let builder = builder.callbacks(move |_, event| drop(tx.send((number, event))));
            (number, builder.start(&format!("0@lo:12345:31:{}", number + 1)).unwrap())
        })
        .collect();
    drop(tx);
    for (number, tm) in &machines {
        let rig = &rigs[*number];
        let foreign = rigs[(number + 1) % 3].buffer();
        assert_eq!(
            tm.start(Op::receive(foreign).min_receive_size(100).max_messages(4)).unwrap_err().error.errno(),
            Errno::EINVAL
        );
        let op = tm.start(Op::receive(rig.buffer()).min_receive_size(100).max_messages(4)).unwrap().op;
        let operation = rig.script.last_operation();
        for offset in [0, 100, 200] {
            let mut event = happened(&operation, Ok(()), 100);
            event.offset = offset;
            rig.script.inject(if offset == 200 { last(event) } else { event });
        }
        for offset in [0, 100, 200] {
            let (of, event) = rx.recv_timeout(TIME_LIMIT).unwrap();
            assert_eq!((of, event.op, event.offset, event.is_last()), (*number, op, offset, offset == 200));
            assert_eq!(event.message.map(|message| message.len()), Some(100));
        }
        assert_eq!(tm.in_flight(), 0);
    }
    for (_, tm) in &machines {
        tm.stop(Stop::Drain, Some(TIME_LIMIT)).unwrap();
    }
    assert!(rx.recv().is_err(), "each callback has been dropped");
    drop(machines);
    for rig in rigs {
        let script = rig.script.clone();
        drop(rig);
        let sorted = |mut handles: Vec<nlx_core::BufferHandle>| {
            handles.sort_by_key(|handle| handle.0);
            handles
        };
        assert_eq!(sorted(script.deregistered()), sorted(script.registered()));
    }
}

/// The networks of two addresses compare exactly, in both directions, whatever the rest of the
/// addresses.
// Covers: MT-52, X-9
#[test]
fn networks_of_addresses_compare_exactly() {
    let net = |text: &str| text.parse::<StartAddress>().map(|address| address.nid.net());
    let on = |nid: &str, id: &str| net(&format!("{nid}:12345:31:{id}")).unwrap();
    for [one, other] in [["1", "1"], ["7", "4095"], ["*", "1"], ["*", "*"]] {
        assert_eq!(on("10.72.49.14@o2ib0", one), on("10.72.49.14@o2ib", other));
        assert_eq!(on("10.72.49.14@tcp1", one), on("10.1.1.1@tcp1", other));
        let nets = ["tcp", "tcp1", "tcp12", "o2ib"].map(|net| on(&format!("10.72.49.14@{net}"), one));
        for (place, net) in nets.iter().enumerate() {
            let orders = nets.each_ref().map(|other| net.cmp(other));
            assert!(orders.into_iter().eq((0..nets.len()).map(|other| place.cmp(&other))), "{nets:?}");
        }
    }
    for text in ["10.72.49.14@o2ib0", "tcp1", ""] {
        assert_eq!(net(text).map_err(|error| error.errno()), Err(Errno::EINVAL));
    }
}
