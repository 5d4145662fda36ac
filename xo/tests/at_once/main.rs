//! The number of messages delivered at a time, and the threads that deliver them: several transfer
//! machines of one node get a message each, from peers that are spread over the node's partitions.
//!
//! Each message is held inside the call that drives the network, before its event is in the
//! machine's queue ([`watched::Gate`]). No other message passes a shard or a lock that the held
//! thread holds. So the number of messages held at a time is exactly the number of partitions:
//! fewer if the threads do not share the shards, or if the machines share a partition.

#![cfg(all(feature = "in-process", feature = "helper"))]
// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use lnet_api::LNet;
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, Portal};
use nlx::{Domain, EndPoint, Event, Nid, Node, NodeConfig, Op, TmOptions, TransferMachine};
use nlx_kcore::Kcore;
use nlx_testkit::addresses;
use parking_lot::Mutex;

use crate::helper::Helper;
use crate::watched::{Delivery, Gate, Opens, Watched};

#[path = "../support/helper.rs"]
mod helper;
mod watched;

/// A wait that takes longer is considered hung.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The number of machines: the number of partitions, or more.
const MACHINES: usize = 4;

/// The threads that do not drive, if each machine has one thread. While this number of them waits,
/// scheduler threads leave the shards to them.
const OTHERS: usize = MACHINES - 1;

const PORTAL: u32 = 31;

/// The texts of messages, all of one length: the first one, which connects; those that show which
/// thread drives; the last one.
const FIRST: &[u8] = b"hello";
const PROBE: &[u8] = b"probe";
const NEWS: &[u8] = b"news!";

/// Maximum number of messages for a machine, probes included.
const MESSAGES: u32 = 1 << 14;

/// The threads that take the machines' events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// This number of threads of the program wait, each for the events of one machine.
    Waiting(usize),
    /// Event threads call back.
    Callbacks,
    /// Threads of the program wait; the machines belong to a helper, which drives the network.
    Helper,
}

/// A machine that receives messages.
struct Target {
    tm: TransferMachine,
    /// The events passed to its callback, if it has one.
    called: Option<Mutex<Receiver<Event>>>,
}

impl Target {
    fn start(domain: &Domain, nid: Nid, id: usize, by: By) -> Target {
        let (tx, called) = channel();
        let builder = domain.machine().options(TmOptions::default());
        let builder = match by {
            By::Callbacks => builder.callbacks(move |_, event| drop(tx.send(event))),
            By::Waiting(_) | By::Helper => builder,
        };
        let tm = builder.start(&address(nid, id)).unwrap();
        let buffer = domain.allocate(MESSAGES as usize * NEWS.len()).unwrap();
        tm.start(Op::receive(buffer).max_messages(MESSAGES)).unwrap();
        Target { tm, called: (by == By::Callbacks).then(|| Mutex::new(called)) }
    }

    /// Takes the next message that is not a probe.
    fn take(&self, text: &[u8]) {
        let mut message = self.next();
        while message == PROBE {
            message = self.next();
        }
        assert_eq!(message, text);
    }

    fn next(&self) -> Vec<u8> {
        let event = match &self.called {
            Some(called) => called.lock().recv_timeout(2 * TIME_LIMIT).expect("it hangs"),
            None => self.tm.wait(Some(2 * TIME_LIMIT)).unwrap().expect("it hangs"),
        };
        event.status.unwrap();
        event.message.unwrap().to_vec()
    }
}

/// A machine on a separate node, which sends to a target.
struct Peer {
    domain: Domain,
    tm: TransferMachine,
    to: EndPoint,
}

impl Peer {
    fn start(nid: Nid, port: u16, target: &Target) -> Peer {
        let domain = Domain::on(node(nid, port, 1));
        let tm = domain.transfer_machine(&address(nid, 1), TmOptions::default()).unwrap();
        let to = tm.end_point(&target.tm.address().to_string()).unwrap();
        Peer { domain, tm, to }
    }

    /// Sends a message, and waits until it has left.
    fn send(&self, text: &[u8]) {
        self.tm.start(Op::send(self.domain.buffer_of(text).unwrap(), &self.to)).unwrap();
        assert_eq!(self.tm.wait(Some(TIME_LIMIT)).unwrap().expect("it hangs").status, Ok(()));
    }
}

fn address(nid: Nid, id: usize) -> String {
    format!("{nid}:12345:{PORTAL}:{id}")
}

fn node(nid: Nid, port: u16, partitions: usize) -> Arc<Node> {
    let config = NodeConfig::new().net(&format!("tcp({})", nid.ipv4().unwrap())).unwrap();
    let table = Arc::new(CptTable::virtual_parts(partitions).unwrap());
    Arc::new(Node::start(&config.accept_port(port).partitions(table)).unwrap())
}

fn unused() -> Nid {
    format!("{}@tcp", addresses::unused()).parse().unwrap()
}

/// Returns the deliveries that a node with this number of partitions holds at a time.
fn held_at_once(partitions: usize, by: By) -> Vec<Delivery> {
    let nid = unused();
    let free = TcpListener::bind(SocketAddr::from((nid.ipv4().unwrap(), 0))).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let node = node(nid, port, partitions);
    let (lnet, gate) = Watched::new(node.lnet());
    let helper = (by == By::Helper).then(|| Helper::serving(lnet.clone(), node.drive()));
    let domain = match &helper {
        Some(helper) => helper.domain(),
        None => Domain::over(Kcore::new(lnet.clone(), node.drive())),
    };
    let targets: Vec<Target> = (1..=MACHINES).map(|id| Target::start(&domain, nid, id, by)).collect();
    // The peer of a machine is chosen so that its shard is that of the machine's partition.
    let peers: Vec<Peer> = (1..=MACHINES)
        .zip(&targets)
        .map(|(id, target)| {
            let home = lnet.home(Portal::new(PORTAL).unwrap(), MatchBits((id as u64) << 52));
            let mut nids = std::iter::repeat_with(unused);
            Peer::start(nids.find(|nid| nid.cpt_of(partitions) == home).unwrap(), port, target)
        })
        .collect();
    for (peer, target) in peers.iter().zip(&targets) {
        peer.send(FIRST);
        target.take(FIRST);
    }
    let waiters = match by {
        By::Waiting(waiters) => waiters,
        By::Callbacks => 0,
        By::Helper => MACHINES,
    };
    let (waited, others) = targets.split_at(waiters);
    let held = thread::scope(|scope| {
        let opens = Opens(&gate);
        for (number, target) in waited.iter().enumerate() {
            let thread = thread::Builder::new().name(format!("waiter-{number}"));
            thread.spawn_scoped(scope, || target.take(NEWS)).unwrap();
        }
        until_driven(&node, &gate, by, &peers);
        gate.close();
        peers.iter().for_each(|peer| peer.send(NEWS));
        let held = gate.wait_for(partitions);
        // All messages have left their senders. None of the others passes those that are held.
        let shards = held.len();
        assert_eq!(shards, partitions, "{held:?}");
        drop(opens);
        held
    });
    others.iter().for_each(|target| target.take(NEWS));
    let (all, most) = gate.deliveries();
    assert_eq!(most, partitions, "deliveries at a time: {all:?}");
    held
}

/// Waits until the threads under test drive, instead of scheduler threads.
fn until_driven(node: &Node, gate: &Gate, by: By, peers: &[Peer]) {
    let begun = Instant::now();
    let goes_on = || assert!(begun.elapsed() < TIME_LIMIT, "no thread drives");
    let mut sent = peers.len();
    // A waiter that has delivered a message holds the shard, and gives it only to other waiters.
    let mut until_delivered = |peer: &Peer| {
        let mut name = String::from("lnet-sched-");
        while name.starts_with("lnet-sched-") {
            goes_on();
            peer.send(PROBE);
            sent += 1;
            name = gate.wait_for_passed(sent);
        }
    };
    let until_others_wait = || {
        while node.drive().tokens().waiting() < OTHERS {
            goes_on();
            thread::yield_now();
        }
    };
    match by {
        By::Waiting(1) => until_delivered(&peers[MACHINES - 1]),
        // The waiters hold all shards, and `OTHERS` of them lack one.
        By::Waiting(_) | By::Callbacks => {
            until_others_wait();
            peers.iter().for_each(&mut until_delivered);
            until_others_wait();
        }
        // The helper's threads always drive.
        By::Helper => {}
    }
}

/// Returns the number of deliveries by threads whose names begin with `name`. Checks that each
/// delivery is for another machine and on another thread.
fn count(held: &[Delivery], name: &str) -> usize {
    for (number, one) in held.iter().enumerate() {
        let same = |other: &Delivery| other.machine == one.machine || other.thread == one.thread;
        assert!(!held[..number].iter().any(same), "{held:?}");
    }
    held.iter().filter(|delivery| delivery.name.starts_with(name)).count()
}

/// Waiting threads drive all partitions at once.
// Covers: S-203, S-311, S-316
#[test]
fn threads_that_wait_for_machines_deliver_at_once() {
    for partitions in [1, 2, 4] {
        let held = held_at_once(partitions, By::Waiting(MACHINES));
        let (waiters, sched_threads) = (count(&held, "waiter-"), count(&held, "lnet-sched-"));
        assert!(waiters >= partitions.min(OTHERS) && waiters + sched_threads == partitions, "{held:?}");
    }
}

/// Beside one waiting thread, the scheduler threads drive the shards that it leaves idle.
// Covers: S-203, S-312
#[test]
fn scheduler_threads_deliver_beside_a_thread_that_waits_for_a_machine() {
    for partitions in [1, 2, 4] {
        let held = held_at_once(partitions, By::Waiting(1));
        let (waiters, sched_threads) = (count(&held, "waiter-"), count(&held, "lnet-sched-"));
        assert!(waiters + sched_threads == partitions && sched_threads >= partitions - 1, "{held:?}");
    }
}

/// Event threads of machines with callbacks drive all partitions at once.
// Covers: S-203, S-316
#[test]
fn event_threads_deliver_at_once() {
    for partitions in [1, 2, 4] {
        let held = held_at_once(partitions, By::Callbacks);
        let (callers, sched_threads) = (count(&held, "nlx "), count(&held, "lnet-sched-"));
        assert!(callers >= partitions.min(OTHERS) && callers + sched_threads == partitions, "{held:?}");
    }
}

/// The threads of a helper drive all partitions at once, while threads of its client wait without
/// driving.
// Covers: S-203, S-316
#[test]
fn the_threads_of_a_helper_deliver_at_once() {
    for partitions in [1, 2, 4] {
        let held = held_at_once(partitions, By::Helper);
        assert_eq!(count(&held, "nlx-serve-") + count(&held, "lnet-sched-"), partitions, "{held:?}");
    }
}
