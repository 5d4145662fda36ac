//! Concurrency during the delivery of an event. A handler that blocks inside its event holds the
//! lock of that MD's partition: every other user of the lock would block too. After [`TIME_LIMIT`]
//! the handler panics, which releases the lock and fails the test.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use lnet_api::EventKind::{Ack, Get, Put, Reply, Send};
use lnet_api::{
    AckRequest, EqHandle, EventHandler, EventKind, LNet, Md, MdOptions, MeSpec, Position, Unlink,
};
use lnet_cpt::with_partition;
use lnet_nid::MatchBits;
use nlx_testkit::events::on_event;
use parking_lot::{Condvar, Mutex};

use super::PARTITIONS;
use super::common::*;

/// Time to wait for steps that are immediate if the test succeeds. It only determines when a
/// failure is detected.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Creates a queue whose handler reports that it is inside an event, and blocks there until it is
/// released.
fn gate(node: &Node) -> (EqHandle, Receiver<EventKind>, Sender<()>) {
    let (inside, is_inside) = channel();
    let (leave, may_leave) = channel();
    let may_leave = Mutex::new(may_leave);
    let gate = on_event(move |event| {
        inside.send(event.kind).unwrap();
        let released = may_leave.lock().recv_timeout(TIME_LIMIT);
        released.expect("nothing waits for what holds the lock of this event");
    });
    (node.engine.eq_alloc(gate).unwrap(), is_inside, leave)
}

/// Returns the partition of the entries on the tests' portal.
fn home() -> usize {
    portal().index() % PARTITIONS
}

/// A message that arrives on a portal blocks neither the node's own PUTs and GETs nor their ACKs
/// and REPLYs, nor the binding and unlinking of MDs.
// Covers: S-105, S-106
#[test]
fn requests_and_answers_go_on_during_the_event_of_a_posted_buffer() {
    let (network, a, b) = two_nodes();
    let (eq, inside, leave) = gate(&a);
    let posted = Md { eq: Some(eq), ..a.md(&memory(8), MdOptions::OP_PUT, 1) };
    a.engine.md_attach(a.post(1), posted, Unlink::Auto).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| network.arrive(put_from(&a, peer_of(home()), 1, vec![])));
        assert_eq!(inside.recv_timeout(TIME_LIMIT), Ok(Put));
        with_partition(home(), || {
            let idle = a.bind(&memory(8), 1);
            a.engine.md_unlink(idle).unwrap();
            a.events();
            b.expect(2, &memory(8), MdOptions::OP_PUT);
            a.put(a.bind(&memory(8), 2), b.id(), 2, AckRequest::Ack).unwrap();
            network.run();
            assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Ack, Ok(()), true)]);
            b.expect(2, &memory(8), MdOptions::OP_GET);
            a.get(a.bind(&memory(8), 2), b.id(), 2).unwrap();
            network.run();
            assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Reply, Ok(()), true)]);
        });
        leave.send(()).unwrap();
    });
    assert!(a.is_quiet() && b.is_quiet());
}

/// The event of a bound MD blocks no portal: while its handler runs, buffers can be posted there,
/// and messages are received.
// Covers: S-105, S-106
#[test]
fn portals_work_while_a_bound_descriptor_gets_its_answer() {
    let (network, a, b) = two_nodes();
    let (eq, inside, leave) = gate(&a);
    let bound = Md { eq: Some(eq), ..a.md(&memory(8), MdOptions::empty(), 1) };
    let bound = with_partition(home(), || a.engine.md_bind(bound, Unlink::Auto)).unwrap();
    a.put(bound, b.id(), 9, AckRequest::NoAck).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| network.lose(0));
        assert_eq!(inside.recv_timeout(TIME_LIMIT), Ok(Send));
        with_partition(home(), || {
            let me = a.post(1);
            a.engine.me_unlink(a.engine.me_insert(me, &spec(1)).unwrap()).unwrap();
            a.engine.md_attach(me, a.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
            network.arrive(put_from(&a, peer_of(home()), 1, vec![1; 8]));
            assert_eq!(brief(&a.events()), [(Put, Ok(()), true)]);
            a.expect(1, &memory(8), MdOptions::OP_GET);
            let sink = b.bind(&memory(8), 2);
            b.get(sink, a.id(), 1).unwrap();
            network.run();
            assert_eq!(brief(&a.events()), [(Get, Ok(()), true)]);
            assert_eq!(brief(&b.events()), [(Send, Ok(()), false), (Reply, Ok(()), true)]);
        });
        leave.send(()).unwrap();
    });
    assert!(a.is_quiet() && b.is_quiet());
}

/// Returns match bits of a transfer machine's buffers: those of machine `n` lie in the `n`-th
/// partition from the portal's home on.
fn of_machine(machine: usize) -> u64 {
    (machine as u64) << 52 | 1
}

/// A transfer machine with a slow handler blocks no messages for machines of other partitions, nor
/// buffers that are posted for them. This holds also if their senders belong to its partition, and
/// if the portal had entries of all kinds before.
// Covers: S-308, S-311
#[test]
fn a_handler_stops_no_messages_for_machines_of_other_partitions() {
    for mixed in [false, true] {
        let (network, a, b) = two_nodes();
        let sender = peer_of(home());
        if mixed {
            let masked = a.engine.me_attach(&MeSpec { ignore_bits: MatchBits(2), ..spec(4) }).unwrap();
            let local = a.engine.me_attach(&MeSpec { position: Position::Local, ..spec(4) }).unwrap();
            let spread = a.post(of_machine(1));
            let astray = a.engine.me_insert(spread, &spec(of_machine(2))).unwrap();
            a.engine.md_attach(local, a.md(&memory(8), MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
            [masked, local, spread, astray].into_iter().for_each(|me| a.engine.me_unlink(me).unwrap());
            assert_eq!(a.events().len(), 1);
            // These are the last messages that search all partitions for such entries.
            (0..2).for_each(|_| network.arrive(put_from(&a, sender, 4, vec![])));
        }
        a.engine.set_lazy(portal(), true);
        let (eq, inside, leave) = gate(&a);
        let posted = Md { eq: Some(eq), ..a.md(&memory(8), MdOptions::OP_PUT, 1) };
        a.engine.md_attach(a.post(of_machine(0)), posted, Unlink::Auto).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| network.arrive(put_from(&a, sender, of_machine(0), vec![])));
            assert_eq!(inside.recv_timeout(TIME_LIMIT), Ok(Put));
            for machine in (0..PARTITIONS).skip(1) {
                let bits = of_machine(machine);
                a.expect(bits, &memory(8), MdOptions::OP_PUT);
                network.arrive(put_from(&a, sender, bits, vec![1; 8]));
                assert_eq!(brief(&a.events()), [(Put, Ok(()), true)]);
                // This PUT waits for its buffer.
                network.arrive(put_from(&a, sender, bits, vec![2; 8]));
                assert_eq!(a.events(), []);
                a.expect(bits, &memory(8), MdOptions::OP_PUT);
                assert_eq!(brief(&a.events()), [(Put, Ok(()), true)]);
                a.expect(bits, &memory(8), MdOptions::OP_GET);
                b.get(b.bind(&memory(8), 2), a.id(), bits).unwrap();
                network.run();
                assert_eq!(brief(&a.events()), [(Get, Ok(()), true)]);
                assert_eq!(brief(&b.events()), [(Send, Ok(()), false), (Reply, Ok(()), true)]);
            }
            leave.send(()).unwrap();
        });
        assert!(a.is_quiet() && b.is_quiet());
    }
}

/// Returns a handler that leaves its event only when events of all partitions are being delivered.
fn meeting() -> Arc<dyn EventHandler> {
    let (inside, complete) = (Mutex::new(0), Condvar::new());
    on_event(move |_| {
        let mut inside = inside.lock();
        *inside += 1;
        complete.notify_all();
        let late = complete.wait_while_for(&mut inside, |inside| *inside < PARTITIONS, TIME_LIMIT);
        assert!(!late.timed_out(), "{inside} of {PARTITIONS} events at the same time");
    })
}

/// Messages of all partitions are received at the same time, up to their events.
// Covers: S-307, S-311
#[test]
fn events_of_all_partitions_are_delivered_at_the_same_time() {
    let (network, node) = one_node();
    let eq = node.engine.eq_alloc(meeting()).unwrap();
    for here in 0..PARTITIONS {
        with_partition(here, || {
            let me = MeSpec { position: Position::Local, ..spec(here as u64) };
            let md = Md { eq: Some(eq), ..node.md(&memory(8), MdOptions::OP_PUT, 1) };
            node.engine.md_attach(node.engine.me_attach(&me).unwrap(), md, Unlink::Auto).unwrap();
        });
    }
    thread::scope(|scope| {
        for here in 0..PARTITIONS {
            let (network, node) = (&network, &node);
            scope.spawn(move || network.arrive(put_from(node, peer_of(here), here as u64, vec![])));
        }
    });
    node.engine.eq_free(eq).unwrap();
    assert!(node.is_quiet());
}

/// The handlers of one transfer machine per partition run at the same time, although all messages
/// are for one portal, and of one peer.
// Covers: S-308, S-311
#[test]
fn handlers_of_as_many_machines_as_partitions_run_at_the_same_time() {
    let (network, node) = one_node();
    let meeting = meeting();
    // Each machine has a separate queue, as in the programs of machines.
    let eqs: Vec<EqHandle> = (0..PARTITIONS)
        .map(|machine| {
            let eq = node.engine.eq_alloc(meeting.clone()).unwrap();
            let md = Md { eq: Some(eq), ..node.md(&memory(8), MdOptions::OP_PUT, 1) };
            node.engine.md_attach(node.post(of_machine(machine)), md, Unlink::Auto).unwrap();
            eq
        })
        .collect();
    thread::scope(|scope| {
        for machine in 0..PARTITIONS {
            let (network, node) = (&network, &node);
            scope.spawn(move || network.arrive(put_from(node, peer_of(0), of_machine(machine), vec![7; 8])));
        }
    });
    eqs.into_iter().for_each(|eq| node.engine.eq_free(eq).unwrap());
    assert!(node.is_quiet());
}
