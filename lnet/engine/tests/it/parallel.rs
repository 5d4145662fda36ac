//! What goes on while an event is delivered. A handler that waits inside its event holds the lock of that MD's
//! partition: whatever contended for it would wait as long. After [`PATIENCE`] the handler panics, which releases the
//! lock and fails the test.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use lnet_api::EventKind::{Ack, Get, Put, Reply, Send};
use lnet_api::{
    AckRequest, EqHandle, Event, EventHandler, EventKind, LNet, Md, MdOptions, MeSpec, Position, Unlink,
};
use lnet_cpt::with_partition;
use parking_lot::{Condvar, Mutex};

use super::PARTITIONS;
use super::common::*;

/// How long a test waits for what comes at once if all is well. It only decides when a failure is seen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says that it is inside an event, and waits there until it is told to leave.
struct Gate {
    inside: Sender<EventKind>,
    leave: Mutex<Receiver<()>>,
}

impl EventHandler for Gate {
    fn event(&self, event: &Event) {
        self.inside.send(event.kind).unwrap();
        self.leave
            .lock()
            .recv_timeout(PATIENCE)
            .expect("nothing waits for what holds the lock of this event");
    }

    fn wake(&self) {}
}

fn gate(node: &Node) -> (EqHandle, Receiver<EventKind>, Sender<()>) {
    let (inside, is_inside) = channel();
    let (leave, may_leave) = channel();
    let gate = Gate { inside, leave: Mutex::new(may_leave) };
    (node.engine.eq_alloc(Arc::new(gate)).unwrap(), is_inside, leave)
}

/// The partition of what is posted on the tests' portal.
fn home() -> usize {
    portal().index() % PARTITIONS
}

/// S-106: what arrives for a portal holds up neither one's own PUTs and GETs nor their ACKs and REPLYs, nor the binding
/// and unlinking of MDs.
#[test]
fn requests_and_answers_go_on_while_a_posted_buffer_is_told_of_a_message() {
    let (network, a, b) = two_nodes();
    let (eq, inside, leave) = gate(&a);
    let posted = Md { eq: Some(eq), ..a.md(&memory(8), MdOptions::OP_PUT, 1) };
    a.engine.md_attach(a.post(1), posted, Unlink::Auto).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| network.arrive(put_from(&a, peer_of(home()), 1, vec![])));
        assert_eq!(inside.recv_timeout(PATIENCE), Ok(Put));
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

/// S-106, the other way round.
#[test]
fn portals_work_while_a_bound_descriptor_is_told_of_its_answer() {
    let (network, a, b) = two_nodes();
    let (eq, inside, leave) = gate(&a);
    let bound = Md { eq: Some(eq), ..a.md(&memory(8), MdOptions::empty(), 1) };
    let bound = with_partition(home(), || a.engine.md_bind(bound, Unlink::Auto)).unwrap();
    a.put(bound, b.id(), 9, AckRequest::NoAck).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| network.lose(0));
        assert_eq!(inside.recv_timeout(PATIENCE), Ok(Send));
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

/// Leaves its event when events of all partitions have come in.
#[derive(Default)]
struct Meeting {
    inside: Mutex<usize>,
    complete: Condvar,
}

impl EventHandler for Meeting {
    fn event(&self, _: &Event) {
        let mut inside = self.inside.lock();
        *inside += 1;
        self.complete.notify_all();
        let late = self.complete.wait_while_for(&mut inside, |inside| *inside < PARTITIONS, PATIENCE);
        assert!(!late.timed_out(), "{inside} of {PARTITIONS} events at the same time");
    }

    fn wake(&self) {}
}

/// S-307, S-311: messages of all partitions are received at the same time, up to their events.
#[test]
fn events_of_all_partitions_are_delivered_at_the_same_time() {
    let (network, node) = one_node();
    let eq = node.engine.eq_alloc(Arc::new(Meeting::default())).unwrap();
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
