//! Nodes that exchange messages while driving threads change, NIs come and go, and others wait.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex};
use std::thread;

use lnet_api::{AckRequest, EqHandle, EventHandler, MeSpec, Put, Upcalls};
use lnet_nid::{MatchBits, Pid, Portal, ProcessId};
use nlx_testkit::events::on_event;
use nlx_testkit::until;

use super::*;
use crate::holder_of;

/// The bytes of each PUT.
const BYTES: usize = 8;
/// The number of PUTs at a time; each has a separate offset.
const LANES: u32 = 16;

/// The names of the threads that deliver events.
#[derive(Default)]
struct Deliverers(Arc<Mutex<Vec<String>>>);

impl Deliverers {
    /// Returns a handler that records the threads.
    fn handler(&self) -> Arc<dyn EventHandler> {
        let names = self.0.clone();
        on_event(move |_| names.lock().unwrap().push(own_name()))
    }

    fn last(&self) -> String {
        self.0.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

fn own_name() -> String {
    thread::current().name().unwrap_or("?").to_string()
}

fn portal() -> Portal {
    Portal::new(40).unwrap()
}

/// Accepts PUTs from every peer.
fn take_puts(node: &Node, eq: Option<EqHandle>) {
    take_puts_of(node, MatchBits(0), eq);
}

/// Accepts PUTs with these bits from every peer.
fn take_puts_of(node: &Node, match_bits: MatchBits, eq: Option<EqHandle>) {
    let me = MeSpec { unlink: Unlink::Retain, ..MeSpec::new(portal(), match_bits) };
    let me = node.lnet().me_attach(&me).unwrap();
    let memory = IoVec::whole(Region::heap(BYTES * LANES as usize).unwrap());
    let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
    let md = Md { memory, threshold: Threshold::Infinite, max_size: 0, options, user_ptr: 0, eq };
    node.lnet().md_attach(me, md, Unlink::Retain).unwrap();
}

/// A thread that sends, with a separate queue.
struct Sender<'a> {
    node: &'a Node,
    eq: EqHandle,
    lane: u32,
    match_bits: MatchBits,
}

impl Sender<'_> {
    fn new(node: &Node, lane: u32) -> Sender<'_> {
        Sender { node, eq: node.lnet().eq_alloc_polled(8, None).unwrap(), lane, match_bits: MatchBits(0) }
    }

    /// Sends a PUT with ACK, and waits for its end: one last event, and at most one error of each
    /// kind. There may be two: a message that was already decided on when its NI was removed fails
    /// after the wait for its ACK has ended.
    fn put(&self, source: Nid, target: Nid) -> Result<(), Errno> {
        let lnet = self.node.lnet();
        let memory = IoVec::whole(Region::heap(BYTES).unwrap());
        let options = MdOptions::TRACK_RESPONSE;
        let (threshold, eq) = (Threshold::Limited(2), Some(self.eq));
        let md = Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq };
        let md = lnet.md_bind(md, Unlink::Auto).unwrap();
        let put = Put {
            source: Some(source),
            md,
            ack: AckRequest::Ack,
            target: ProcessId { nid: target, pid: Pid::LNET },
            portal: portal(),
            match_bits: self.match_bits,
            offset: BYTES as u32 * self.lane,
            hdr_data: 0,
        };
        let refused = lnet.put(&put).map_err(|error| error.errno());
        if refused.is_err() {
            lnet.md_unlink(md).unwrap();
        }
        let (mut outcome, mut failed) = (refused, Vec::new());
        loop {
            let event = self.node.eq_poll(&[self.eq], Some(TIME_LIMIT)).unwrap().expect("it ends").event;
            if let Err(errno) = event.status {
                assert_eq!(refused, Ok(()), "an error of what was refused: {event:?}");
                assert!(!failed.contains(&event.kind), "a second error: {event:?}");
                failed.push(event.kind);
                outcome = outcome.and(Err(errno));
            }
            if event.unlinked {
                break;
            }
        }
        assert_eq!(lnet.eq_poll(&[self.eq]).unwrap(), None, "an event after the last");
        outcome
    }
}

/// Guard that sets the flag until which a thread runs when it is dropped, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// While no thread of the program waits, each shard's scheduler thread serves the peers of its
/// partition.
// Covers: S-203, S-312
#[test]
fn peers_are_served_by_the_threads_of_their_partitions() {
    let busy = node("tcp(127.44.50.1)", 4);
    let own = busy.nids()[0];
    let deliverers = Deliverers::default();
    take_puts(&busy, Some(busy.lnet().eq_alloc(deliverers.handler()).unwrap()));
    let mut threads = BTreeSet::new();
    for host in 0..LANES {
        let peer = node(&format!("tcp(127.44.50.{})", host + 2), 1);
        let nid = peer.nids()[0];
        Sender::new(&peer, host).put(nid, own).unwrap();
        let thread = format!("lnet-sched-{}", busy.engine().partition_of(own, nid));
        assert_eq!(deliverers.last(), thread, "{nid}");
        threads.insert(thread);
    }
    assert!(threads.len() > 1, "all peers are in one partition: {threads:?}");
}

/// Handlers that wait for each other: none continues until all of them run.
struct Meeting {
    /// The number of handlers that meet.
    all: usize,
    /// The names of the threads whose handlers run.
    there: Mutex<BTreeSet<String>>,
    met: Condvar,
}

impl Meeting {
    fn come(&self) {
        let mut there = self.there.lock().unwrap();
        there.insert(own_name());
        self.met.notify_all();
        let missing = |there: &mut BTreeSet<String>| there.len() < self.all;
        // A timeout lets the test end and fail.
        let (_there, _) = self.met.wait_timeout_while(there, TIME_LIMIT, missing).unwrap();
    }
}

/// The call with which a program thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitKind {
    /// A call of [`wait_until`].
    Until,
    /// A loop of [`Node::eq_poll`], for the events of a machine.
    EqPoll,
}

/// Sends a message to each of `partitions` transfer machines of a node, over a connection in a
/// partition each, while `waiters` of the node's threads wait. Their handlers meet: so they run at
/// once. Returns the names of their threads.
fn meeting(subnet: u8, partitions: usize, waiters: usize, kind: WaitKind) -> BTreeSet<String> {
    let busy = node(&format!("tcp(127.44.{subnet}.1)"), partitions);
    let own = busy.nids()[0];
    let meeting = Arc::new(Meeting { all: partitions, there: Mutex::default(), met: Condvar::new() });
    // The upper bits identify the owner of the buffer, as with transfer machines.
    let bits = |machine: usize| MatchBits((1 + machine as u64) << 52);
    let deliverers = Deliverers::default();
    take_puts(&busy, Some(busy.lnet().eq_alloc(deliverers.handler()).unwrap()));
    let queue = || {
        let met = meeting.clone();
        busy.lnet().eq_alloc_polled(8, Some(on_event(move |_| met.come()))).unwrap()
    };
    let eqs: Vec<EqHandle> = (0..partitions).map(|_| queue()).collect();
    (0..partitions).for_each(|machine| take_puts_of(&busy, bits(machine), Some(eqs[machine])));
    let peers = peer_in_each(&busy, subnet, partitions);
    let stop = AtomicBool::new(false);
    let sleepers: Vec<Arc<Sleeper>> = (0..waiters).map(|_| Arc::new(Sleeper::new().unwrap())).collect();
    thread::scope(|scope| {
        for (waiter, sleeper) in sleepers.iter().enumerate() {
            let (busy, stop) = (&busy, &stop);
            let deadline_ns = Some(busy.deadline_ns(2 * TIME_LIMIT));
            let over = || stop.load(Ordering::SeqCst);
            let eqs = &eqs[waiter..=waiter];
            let wait = move || match kind {
                WaitKind::Until => drop(wait_until(&*busy.drive(), sleeper, deadline_ns, over)),
                WaitKind::EqPoll => {
                    while !over() {
                        busy.eq_poll(eqs, Some(2 * TIME_LIMIT)).unwrap();
                    }
                }
            };
            thread::Builder::new().name(format!("waiter-{waiter}")).spawn_scoped(scope, wait).unwrap();
        }
        // Once a waiter has read a message it keeps the shard, or leaves it to others that wait.
        until("a waiter drives", || {
            Sender::new(&peers[0], 0).put(peers[0].nids()[0], own).unwrap();
            waiters == 0 || deliverers.last().starts_with("waiter-")
        });
        until("the others wait, too", || waiters < 2 || busy.drive().tokens().wanted());
        let put_to = |machine: usize| {
            let mut sender = Sender::new(&peers[machine], 0);
            sender.match_bits = bits(machine);
            sender.put(peers[machine].nids()[0], own)
        };
        let sent: Vec<_> = (0..partitions).map(|machine| scope.spawn(move || put_to(machine))).collect();
        let sent = sent.into_iter().map(|put| put.join().unwrap()).collect::<Vec<_>>();
        stop.store(true, Ordering::SeqCst);
        match kind {
            WaitKind::Until => sleepers.iter().for_each(|sleeper| sleeper.wake()),
            // Sends another message to each machine; no handler waits any more.
            WaitKind::EqPoll => (0..waiters).for_each(|machine| put_to(machine).unwrap()),
        }
        assert_eq!(sent, vec![Ok(()); partitions]);
    });
    let there = meeting.there.lock().unwrap().clone();
    // On a machine that is too busy, a scheduler thread takes a shard over, and runs its handler.
    assert!(there.len() >= partitions, "those of the handlers that met: {there:?}");
    there
}

/// Starts a peer of a node in each of its partitions, and connects it.
fn peer_in_each(busy: &Node, subnet: u8, partitions: usize) -> Vec<Node> {
    let own = busy.nids()[0];
    let partition_of = |nid: &str| busy.engine().partition_of(own, format!("{nid}@tcp").parse().unwrap());
    let mut nids = (2..=u8::MAX).map(|host| format!("127.44.{subnet}.{host}"));
    let mut start = |partition| {
        let nid = nids.find(|nid| partition_of(nid) == partition).unwrap();
        let peer = node(&format!("tcp({nid})"), 1);
        // Connects now, because the thread that drives the listener's shard accepts no connections
        // while its handlers run.
        Sender::new(&peer, 0).put(peer.nids()[0], own).unwrap();
        peer
    };
    (0..partitions).map(&mut start).collect()
}

/// Attempts of a meeting in which no waiter lacks a processor.
const ATTEMPTS: u32 = 20;

/// With enough waiting threads, one handler per partition runs at once.
// Covers: S-203, S-311, S-316
#[test]
fn threads_that_wait_run_handlers_at_once() {
    let kinds = [(60, WaitKind::Until), (70, WaitKind::EqPoll)];
    for (subnet, kind) in kinds {
        for (number, partitions) in [1, 2, 4].into_iter().enumerate() {
            let alone = || {
                let there = meeting(subnet + number as u8, partitions, partitions, kind);
                there.iter().all(|name| name.starts_with("waiter-"))
            };
            // A waiter that gets no processor for 5 ms loses its shard.
            assert!((0..ATTEMPTS).any(|_| alone()), "{kind:?}, {partitions} partitions");
        }
    }
}

/// The same meeting with no waiting thread, or a single one: the scheduler threads drive the other
/// shards.
// Covers: S-203, S-312
#[test]
fn scheduler_threads_run_handlers_beside_a_thread_that_waits() {
    for (subnet, partitions) in [(63, 2), (64, 4)] {
        for (kind, subnet) in [(WaitKind::Until, subnet), (WaitKind::EqPoll, subnet + 10)] {
            let there = meeting(subnet, partitions, 1, kind);
            assert!(there.iter().any(|name| name.starts_with("lnet-sched-")), "{kind:?}: {there:?}");
        }
        let there = meeting(subnet, partitions, 0, WaitKind::Until);
        assert!(there.iter().all(|name| name.starts_with("lnet-sched-")), "{there:?}");
    }
}

/// The NI that carries traffic is removed: each operation on it ends, once; those of another NI
/// continue. Then it is added again, and peers reach it.
// Covers: S-202
#[test]
fn an_interface_that_carries_traffic_goes_and_comes_back() {
    let hosts = [1, 2].map(|host| node(&format!("tcp(127.44.51.{host}),tcp1(127.44.51.{host})"), 2));
    hosts.iter().for_each(|host| take_puts(host, None));
    let [changing, other] = &hosts;
    let ([own, gone], [there, peer]) =
        ([0, 1].map(|ni| changing.nids()[ni]), [0, 1].map(|ni| other.nids()[ni]));
    for _ in 0..3 {
        // A peer that was refused in between waits for its back-off.
        let back = Sender::new(other, 0);
        until("the new connection", || back.put(peer, gone).is_ok());
        let (done, stop) = ([const { AtomicU64::new(0) }; 4], AtomicBool::new(false));
        thread::scope(|scope| {
            let _stopped = Stop(&stop);
            let steady = scope.spawn(|| {
                let sender = Sender::new(changing, 1);
                while !stop.load(Ordering::SeqCst) {
                    sender.put(own, there).unwrap();
                }
            });
            let back = scope.spawn(|| while back.put(peer, gone).is_ok() {});
            let lanes = [0, 1, 2, 3].map(|lane| {
                let done = &done[lane];
                scope.spawn(move || {
                    let sender = Sender::new(changing, 2 + lane as u32);
                    loop {
                        if let Err(errno) = sender.put(gone, peer) {
                            return errno;
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                })
            });
            until("traffic", || done.iter().all(|done| done.load(Ordering::SeqCst) > 5));
            changing.remove_ni(gone).unwrap();
            for lane in lanes {
                let errno = lane.join().unwrap();
                assert!(
                    [Errno::ESHUTDOWN, Errno::ENETDOWN, Errno::EADDRNOTAVAIL, Errno::EHOSTUNREACH]
                        .contains(&errno),
                    "{errno}"
                );
            }
            back.join().unwrap();
            stop.store(true, Ordering::SeqCst);
            steady.join().unwrap();
        });
        assert_eq!(holder_of(gone), None);
        changing.add_net(&"tcp1(127.44.51.1)".parse().unwrap()).unwrap();
        Sender::new(changing, 0).put(gone, peer).unwrap();
    }
}

/// A message that another thread reads ends the wait for its event.
// Covers: S-311
#[test]
fn a_message_that_another_thread_reads_ends_a_wait() {
    let (node, peer) = (node("tcp(127.44.52.1)", 1), node("tcp(127.44.52.2)", 1));
    let (own, from) = (node.nids()[0], peer.nids()[0]);
    let (lnet, sender) = (node.lnet(), Sender::new(&peer, 0));
    let deliverers = Deliverers::default();
    let eq = lnet.eq_alloc_polled(8, Some(deliverers.handler())).unwrap();
    take_puts(&node, Some(eq));
    let stop = AtomicBool::new(false);
    let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().unwrap());
    thread::scope(|scope| {
        let drive = || wait_until(&*node.drive(), &sleeper, None, || stop.load(Ordering::SeqCst));
        let driver = thread::Builder::new().name("driver".to_string()).spawn_scoped(scope, drive).unwrap();
        // Once the driver has read a message it keeps the shard.
        until("the driver drives", || {
            sender.put(from, own).unwrap();
            deliverers.last() == "driver"
        });
        while lnet.eq_poll(&[eq]).unwrap().is_some() {}
        let waiter = scope.spawn(|| node.eq_poll(&[eq], Some(TIME_LIMIT)));
        until("a thread waits without a shard", || node.drive().tokens().wanted());
        sender.put(from, own).unwrap();
        assert!(waiter.join().unwrap().unwrap().is_some());
        assert_eq!(deliverers.last(), "driver");
        stop.store(true, Ordering::SeqCst);
        sleeper.wake();
        assert!(driver.join().unwrap());
    });
}

/// lnet-wire 23: the number of connections of a set is the NI's own, otherwise by the link's speed
/// (1 if unknown, as for loopback), otherwise the node's; at run time one NI's number changes
/// alone.
// Covers: S-208
#[test]
fn an_interface_has_its_own_number_of_connections() {
    let config = NodeConfig::new().networks("tcp(127.44.53.1),tcp1(127.44.53.1)").unwrap();
    let mut config = config.accept_port(PORT);
    // A node accepts no more connections than it would open.
    config.tcp().conns_per_peer = 4;
    let peer = Node::start(&config).unwrap();
    let sets = |each: usize| 1 + 2 * each;
    for (nodes, expected) in [(0, 1), (2, 2)] {
        let text = format!(
            "options: {{ksocklnd: {{conns_per_peer: {nodes}}}, lnet: {{accept_port: {PORT}}}}}\n\
             net: [{{net type: tcp, local NI(s): [{{nid: 127.44.53.2@tcp}}]}}, \
             {{net type: tcp1, local NI(s): [{{nid: 127.44.53.2@tcp1, lnd tunables: {{conns_per_peer: 3}}}}]}}]\n"
        );
        let node = Node::start(&NodeConfig::from_yaml(&text).unwrap()).unwrap();
        let connected = |count: usize| {
            let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().unwrap());
            let deadline_ns = node.deadline_ns(TIME_LIMIT);
            wait_until(&*node.drive(), &sleeper, Some(deadline_ns), || {
                node.tcp().conn_stats().connections >= count && node.tcp().completing() == 0
            });
            assert_eq!(node.tcp().conn_stats().connections, count);
        };
        node.ping(peer.nids()[0], None, TIME_LIMIT).unwrap();
        connected(sets(expected));
        node.ping(peer.nids()[1], None, TIME_LIMIT).unwrap();
        connected(sets(expected) + sets(3));
        node.set_conns_per_peer(Some(node.nids()[0]), 4).unwrap();
        connected(sets(4) + sets(3));
    }
}
