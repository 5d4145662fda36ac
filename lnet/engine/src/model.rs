//! The engine under loom: two threads, every interleaving of its locks.
//!
//! Locks and the portals' atomics are loom's here. The tests' objects (a log of events, an LND that
//! keeps its messages) use plain locks, which are never held across one of the engine's.

use std::sync::{Arc, Mutex};

use lnet_api::{
    AckRequest, Arrival, EqHandle, Errno, Event, EventKind, LNet, LNetError, Lnd, LndError, Md, MdHandle,
    MdOptions, MeSpec, NiLimits, PayloadTarget, Put, RxContext, Sent, Threshold, Tx, TxToken, Unlink,
    Upcalls, Verdict,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, Region};
use loom::thread;
use nlx_sync::{RuleEnd, broken, weakened};
use nlx_testkit::events::EventLog;

use crate::engine::waiting::ANNOUNCED;
use crate::placement::PLACED;
use crate::{Engine, EngineConfig};

/// The home of this portal is partition 1 of 2; messages arrive in partition 0.
const PORTAL: u32 = 35;

/// Match bits whose home is partition 0 of 2.
const OTHER_HOME: u64 = 1 << 52 | 7;

const US: &str = "10.0.0.1@tcp";
const PEER: &str = "10.0.0.2@tcp";

fn check(model: impl Fn() + Sync + Send + 'static) {
    // An engine has many locks, and each operation on a lock is a branch for loom.
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(model);
}

fn nid(text: &str) -> Nid {
    text.parse().expect("a NID")
}

/// An LND that keeps its messages until the test finalises them.
#[derive(Default)]
struct Keeper {
    handed: Mutex<Vec<Tx>>,
    resumed: Mutex<Vec<Option<PayloadTarget>>>,
    /// Set if the LND gives unlinked messages back.
    withdraws: bool,
}

impl Lnd for Keeper {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, _: ProcessId, _: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        Ok(NiLimits { credits: 1, peer_credits: 1, timeout_ns: 1 })
    }

    fn shutdown(&self, _: Nid) {}

    fn send(&self, tx: Tx) -> Sent {
        self.handed.lock().unwrap().push(tx);
        Sent::Later
    }

    fn withdraw(&self, _: Nid, _: ProcessId, token: TxToken) -> bool {
        let mut handed = self.handed.lock().unwrap();
        let index = handed.iter().position(|tx| tx.token == token).filter(|_| self.withdraws);
        index.map(|index| handed.remove(index)).is_some()
    }

    fn resume(&self, _: RxContext, delivery: Option<PayloadTarget>) {
        self.resumed.lock().unwrap().push(delivery);
    }
}

struct Node {
    engine: Arc<Engine>,
    lnd: Arc<Keeper>,
    eq: EqHandle,
    log: Arc<EventLog>,
}

impl Node {
    fn new(partitions: usize) -> Node {
        Node::over(partitions, Keeper::default())
    }

    /// Creates a node whose network gives unlinked messages back.
    fn withdrawing() -> Node {
        Node::over(1, Keeper { withdraws: true, ..Keeper::default() })
    }

    /// Runs `act` on another thread.
    fn beside<R: 'static>(self: &Arc<Node>, act: impl FnOnce(&Node) -> R + 'static) -> thread::JoinHandle<R> {
        let node = self.clone();
        thread::spawn(move || act(&node))
    }

    fn over(partitions: usize, keeper: Keeper) -> Node {
        let table = Arc::new(CptTable::virtual_parts(partitions).expect("a small number"));
        let engine = Engine::new(EngineConfig { partitions: table, ..EngineConfig::new(Pid::LNET, 1) });
        let (lnd, log) = (Arc::new(keeper), EventLog::new());
        engine.add_ni(ProcessId::lnet(nid(US)), lnd.clone()).expect("an NI");
        let eq = engine.eq_alloc(log.clone()).expect("an EQ");
        Node { engine, lnd, eq, log }
    }

    fn md(&self, options: MdOptions, bytes: usize) -> Md {
        let memory = IoVec::whole(Region::heap(bytes).expect("memory"));
        Md { memory, threshold: Threshold::Limited(1), max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    fn post(&self) -> MdHandle {
        self.post_as(&spec(7))
    }

    /// Posts a buffer for one PUT.
    fn post_as(&self, spec: &MeSpec) -> MdHandle {
        let me = self.engine.me_attach(spec);
        let md = self.md(MdOptions::OP_PUT, 8);
        self.engine.md_attach(me.expect("an ME"), md, Unlink::Auto).expect("an MD")
    }

    fn put(&self, target: &str) -> MdHandle {
        let md = self.bind();
        self.put_from(md, target).expect("a PUT");
        md
    }

    fn bind(&self) -> MdHandle {
        self.engine.md_bind(self.md(MdOptions::empty(), 8), Unlink::Auto).expect("an MD")
    }

    fn put_from(&self, md: MdHandle, target: &str) -> Result<(), LNetError> {
        self.engine.put(&put_of(md, target))
    }

    /// Creates an MD and sends it in one call.
    fn bind_put(&self) -> Result<Option<MdHandle>, LNetError> {
        self.engine.bind_put(put_of(self.md(MdOptions::empty(), 8), PEER))
    }

    /// Delivers a PUT of the peer.
    fn arrive(&self) -> Verdict {
        self.arrive_with(7)
    }

    fn arrive_with(&self, bits: u64) -> Verdict {
        let body = Body::Put {
            ack_wmd: WireHandle::NONE,
            match_bits: MatchBits(bits),
            hdr_data: 0,
            portal: PORTAL,
            offset: 0,
        };
        let (dest, src) = (ProcessId::lnet(nid(US)), ProcessId::lnet(nid(PEER)));
        let header = Header { dest, src, payload_length: 8, body };
        self.engine.parse(&Arrival { ni: dest.nid, from: src, header: &header, host: None, rx: RxContext(1) })
    }

    fn finalize(&self, result: Result<(), Errno>) {
        let tx = self.lnd.handed.lock().unwrap().remove(0);
        self.done(tx, result);
    }

    /// Finalises a message, if the network still has one.
    fn finalize_any(&self) {
        let tx = self.lnd.handed.lock().unwrap().pop();
        tx.into_iter().for_each(|tx| self.done(tx, Ok(())));
    }

    fn done(&self, tx: Tx, result: Result<(), Errno>) {
        let token = tx.token;
        drop(tx);
        self.engine.finalize_tx(token, result);
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.log.kinds()
    }

    /// Expects exactly one event with `unlinked` for the MD: its last.
    fn assert_ended_once(&self, md: MdHandle) {
        let events = self.log.events();
        let of_md: Vec<&Event> = events.iter().filter(|event| event.md == md).collect();
        assert_eq!(of_md.iter().filter(|event| event.unlinked).count(), 1, "{of_md:?}");
        assert!(of_md.last().is_some_and(|event| event.unlinked), "{of_md:?}");
    }

    fn assert_quiet(&self) {
        let counters = self.engine.counters();
        assert_eq!((counters.msgs_alloc, counters.rst_alloc), (0, 0));
        let ni = self.engine.ni_statistics(nid(US)).expect("an NI");
        assert_eq!(ni.credits, ni.available_tx_credits);
    }
}

fn put_of<M>(md: M, target: &str) -> Put<M> {
    Put {
        source: None,
        md,
        ack: AckRequest::NoAck,
        target: ProcessId::lnet(nid(target)),
        portal: portal(),
        match_bits: MatchBits(7),
        offset: 0,
        hdr_data: 0,
    }
}

fn portal() -> Portal {
    Portal::new(PORTAL).expect("a portal")
}

/// Returns an entry for messages of any source with these bits.
fn spec(bits: u64) -> MeSpec {
    MeSpec::new(portal(), MatchBits(bits))
}

fn attach_against_block(partitions: usize) {
    attach_spec_against_block(partitions, spec(7), |_| {});
}

/// A message with the bits of an entry arrives on a lazy portal while that entry is posted with a
/// buffer; `before` prepares the portal.
fn attach_spec_against_block(partitions: usize, spec: MeSpec, before: impl Fn(&Node)) {
    let node = Arc::new(Node::new(partitions));
    node.engine.set_lazy(portal(), true);
    before(&node);
    let poster = node.beside(move |node| node.post_as(&spec));
    let verdict = node.arrive_with(spec.match_bits.0);
    let md = poster.join().unwrap();
    // The message matched the buffer at once, or waited and was resumed; no message waits beside a
    // matching buffer.
    let delivery = match verdict {
        Verdict::Deliver(delivery) => delivery,
        Verdict::Delay(_) => {
            node.lnd.resumed.lock().unwrap().pop().flatten().expect("the message is resumed")
        }
        other => panic!("a PUT that matches is not dropped: {other:?}"),
    };
    let token = delivery.token;
    drop(delivery);
    node.engine.finalize_rx(token, Ok(()));
    assert_eq!(node.kinds(), [EventKind::Put]);
    node.assert_ended_once(md);
    node.assert_quiet();
}

/// Race of a message that is about to wait with the posting of the buffer for which it would wait.
// Covers: S-109, S-310
#[test]
fn a_buffer_and_a_message_that_is_about_to_wait_meet() {
    check(|| attach_against_block(1));
    check(|| attach_against_block(2));
}

/// The same race where the buffer's entry is the portal's first, and names one process: until it is
/// posted, the message cannot know the key of the search.
// Covers: S-109, S-310
#[test]
fn the_first_buffer_of_a_unique_portal_meets_a_message_too() {
    let unique = MeSpec { match_id: ProcessId::lnet(nid(PEER)), ..spec(7) };
    check(move || attach_spec_against_block(1, unique, |_| {}));
    check(move || attach_spec_against_block(2, unique, |_| {}));
}

/// The same race where the message, before the buffer is visible to it, has no reason to search the
/// buffer's partition.
// Covers: S-109, S-310
#[test]
fn a_buffer_in_another_partition_meets_a_message_too() {
    check(attach_masked_against_block);
    check(attach_spread_against_block);
}

/// The message searches the home of its bits, the buffer is posted at the portal's home.
fn attach_masked_against_block() {
    attach_spec_against_block(2, MeSpec { ignore_bits: MatchBits(1), ..spec(OTHER_HOME) }, |_| {});
}

/// The message searches the portal's home, the buffer is posted at the home of its bits: an entry
/// for other bits is at the portal's home, as there was one with ignore bits when it was posted.
fn attach_spread_against_block() {
    attach_spec_against_block(2, spec(OTHER_HOME), |node| {
        let masked = MeSpec { ignore_bits: MatchBits(1), ..spec(10) };
        let masked = node.engine.me_attach(&masked).expect("an ME");
        node.engine.me_attach(&spec(OTHER_HOME + 1)).expect("an ME");
        node.engine.me_unlink(masked).expect("it is there");
    });
}

/// A poster without its fence checks for messages before its entry is visible and misses one; loom
/// finds it.
#[test]
#[should_panic(expected = "the message is resumed")]
fn a_poster_without_its_fence_misses_a_message() {
    weakened(PLACED, RuleEnd::Store, || check(attach_masked_against_block));
}

/// A message without its fence decides where to search before its announcement is visible; loom
/// finds it.
#[test]
#[should_panic(expected = "the message is resumed")]
fn a_message_without_its_fence_misses_a_buffer() {
    weakened(PLACED, RuleEnd::Load, || check(attach_spread_against_block));
}

/// If the message announces itself only after its last search, message and poster can miss each
/// other; loom finds it.
// Covers: S-109
#[test]
#[should_panic(expected = "the message is resumed")]
fn announced_too_late_they_miss_each_other() {
    broken(ANNOUNCED, || check(|| attach_against_block(2)));
}

/// Race of a message that is about to wait with the end of its portal's laziness, or with the
/// removal of its NI.
// Covers: S-109
#[test]
fn nothing_waits_where_nothing_may() {
    check(|| {
        let node = Arc::new(Node::new(1));
        node.engine.set_lazy(portal(), true);
        let clearer = node.beside(|node| node.engine.set_lazy(portal(), false));
        let delayed = matches!(node.arrive(), Verdict::Delay(_));
        clearer.join().unwrap();
        let resumed = node.lnd.resumed.lock().unwrap().len();
        assert_eq!(resumed, usize::from(delayed));
        node.assert_quiet();
    });
    check(|| {
        let node = Arc::new(Node::new(1));
        node.engine.set_lazy(portal(), true);
        let remover = node.beside(|node| node.engine.remove_ni(nid(US)).unwrap());
        let _ = node.arrive();
        remover.join().unwrap();
        assert_eq!(node.engine.counters().msgs_alloc, 0);
    });
}

/// Waiting messages come first; a message that arrives while a buffer is posted does not overtake
/// them.
// Covers: S-109
#[test]
fn nothing_overtakes_what_waits() {
    check(|| {
        let node = Arc::new(Node::new(1));
        node.engine.set_lazy(portal(), true);
        assert!(matches!(node.arrive(), Verdict::Delay(_)));
        let poster = node.beside(Node::post);
        let second = node.arrive();
        let md = poster.join().unwrap();
        assert!(matches!(second, Verdict::Delay(_)), "the buffer takes one message: the first");
        let delivery = node.lnd.resumed.lock().unwrap().pop().flatten().expect("the first is resumed");
        let token = delivery.token;
        drop(delivery);
        node.engine.finalize_rx(token, Ok(()));
        node.assert_ended_once(md);
        assert_eq!(node.engine.counters().msgs_alloc, 1);
    });
}

/// A waiting message whose connection is lost, and the buffer for which it waits: the message is
/// forgotten or resumed, never both.
// Covers: S-109
#[test]
fn a_waiting_message_is_forgotten_or_resumed() {
    check(|| {
        let node = Arc::new(Node::new(1));
        node.engine.set_lazy(portal(), true);
        let Verdict::Delay(token) = node.arrive() else { panic!("nothing is posted") };
        let poster = node.beside(Node::post);
        let forgotten = node.engine.forget_delayed(token);
        let md = poster.join().unwrap();
        let resumed = node.lnd.resumed.lock().unwrap().pop().flatten();
        assert_eq!(resumed.is_some(), !forgotten);
        if let Some(PayloadTarget { token, sink }) = resumed {
            drop(sink);
            node.engine.finalize_rx(token, Err(Errno::ECONNRESET));
            node.assert_ended_once(md);
        }
        assert!(!node.engine.forget_delayed(token), "it does not wait any more");
        node.assert_quiet();
    });
}

/// An NI is removed while one of its messages gets the credit for which it waited.
#[test]
fn a_message_that_outlives_its_ni_ends_once() {
    check(|| {
        let node = Arc::new(Node::new(1));
        let (first, second) = (node.put(PEER), node.put(PEER));
        let finalizer = node.beside(|node| node.finalize(Ok(())));
        node.engine.remove_ni(nid(US)).unwrap();
        finalizer.join().unwrap();
        node.assert_ended_once(first);
        node.assert_ended_once(second);
        assert_eq!(node.engine.counters().msgs_alloc, 0);
    });
}

/// Race of an unlink with the end of the message that uses the MD.
// Covers: S-311
#[test]
fn unlink_and_finalise_end_an_md_once() {
    check(|| {
        let node = Arc::new(Node::new(1));
        let md = node.put(PEER);
        let finalizer = node.beside(|node| node.finalize(Ok(())));
        let unlinked = node.engine.md_unlink(md);
        finalizer.join().unwrap();
        node.assert_ended_once(md);
        let events = node.log.events();
        let status = events.last().expect("an event").status;
        assert_eq!(status, if unlinked.is_ok() { Err(Errno::ETIMEDOUT) } else { Ok(()) });
        node.assert_quiet();
    });
    // At the target: the payload arrives while the buffer is unlinked.
    check(|| {
        let node = Arc::new(Node::new(1));
        let md = node.post();
        let unlinker = node.beside(move |node| node.engine.md_unlink(md).is_ok());
        let verdict = node.arrive();
        if let Verdict::Deliver(delivery) = verdict {
            let token = delivery.token;
            drop(delivery);
            node.engine.finalize_rx(token, Ok(()));
        }
        unlinker.join().unwrap();
        node.assert_ended_once(md);
        node.assert_quiet();
    });
}

/// Race of a returned credit with a message that requests it.
// Covers: S-307
#[test]
fn a_credit_goes_to_the_message_that_waits_for_it() {
    check(|| {
        let node = Arc::new(Node::new(1));
        let first = node.put(PEER);
        let finalizer = node.beside(|node| node.finalize(Ok(())));
        let second = node.put(PEER);
        finalizer.join().unwrap();
        assert_eq!(node.lnd.handed.lock().unwrap().len(), 1, "the second has left, once");
        node.finalize(Ok(()));
        node.assert_ended_once(first);
        node.assert_ended_once(second);
        node.assert_quiet();
    });
}

/// An MD that is unlinked while its message gets the credit for which it waited: the message is
/// sent, or ends with ECANCELED, once.
#[test]
fn a_queued_message_is_sent_or_cancelled() {
    check(|| {
        let node = Arc::new(Node::new(1));
        node.put(PEER);
        let queued = node.put(PEER);
        let finalizer = node.beside(|node| node.finalize(Ok(())));
        node.engine.md_unlink(queued).unwrap();
        finalizer.join().unwrap();
        if !node.lnd.handed.lock().unwrap().is_empty() {
            node.finalize(Ok(()));
        }
        node.assert_ended_once(queued);
        node.assert_quiet();
    });
}

/// An MD that is unlinked while its message is handed over: the later side withdraws the message,
/// so that it ends without its network, also if it waits for a credit.
#[test]
fn a_message_on_its_way_to_its_network_is_taken_back() {
    for waits in [false, true] {
        check(move || {
            let node = Arc::new(Node::withdrawing());
            let first = waits.then(|| node.put(PEER));
            let md = node.bind();
            let unlinker = node.beside(move |node| node.engine.md_unlink(md));
            // The PUT is refused if the MD is already gone.
            let _ = node.put_from(md, PEER);
            unlinker.join().unwrap().expect("nothing else ends the MD");
            node.assert_ended_once(md);
            assert_eq!(node.lnd.handed.lock().unwrap().len(), usize::from(waits));
            if let Some(first) = first {
                node.finalize(Ok(()));
                node.assert_ended_once(first);
            }
            node.assert_quiet();
        });
    }
}

/// A message is taken back while the credit for which it waits is returned, and while its network
/// finalises it.
#[test]
fn a_message_that_is_taken_back_ends_once() {
    check(|| {
        let node = Arc::new(Node::withdrawing());
        let first = node.put(PEER);
        let queued = node.put(PEER);
        let finalizer = node.beside(|node| node.finalize(Ok(())));
        node.engine.md_unlink(queued).unwrap();
        finalizer.join().unwrap();
        assert!(node.lnd.handed.lock().unwrap().is_empty(), "no message is left");
        node.assert_ended_once(first);
        node.assert_ended_once(queued);
        node.assert_quiet();
    });
    check(|| {
        let node = Arc::new(Node::withdrawing());
        let md = node.put(PEER);
        let finalizer = node.beside(Node::finalize_any);
        // Fails if the MD has already ended.
        let _ = node.engine.md_unlink(md);
        finalizer.join().unwrap();
        node.assert_ended_once(md);
        node.assert_quiet();
    });
}

/// A call that creates its MD, while the network finalises the message: the MD ends once, and if
/// the call returns no handle, the MD has ended by then.
#[test]
fn a_call_that_makes_its_md_tells_whether_it_has_ended() {
    check(|| {
        let node = Arc::new(Node::new(1));
        let finalizer = node.beside(Node::finalize_any);
        let made = node.bind_put().expect("there is a way");
        let ended = node.kinds();
        finalizer.join().unwrap();
        node.finalize_any();
        match made {
            Some(md) => node.assert_ended_once(md),
            None => assert_eq!(ended, [EventKind::Send]),
        }
        assert_eq!(node.kinds(), [EventKind::Send]);
        node.assert_quiet();
    });
}

/// A call that makes its MD waits for a credit: the credit is returned while the new handle is
/// unlinked.
#[test]
fn a_call_that_makes_its_md_waits_for_a_credit() {
    check(|| {
        let node = Arc::new(Node::withdrawing());
        let first = node.put(PEER);
        let finalizer = node.beside(|node| node.finalize(Ok(())));
        let made = node.bind_put().expect("there is a way").expect("nothing is done with it");
        node.engine.md_unlink(made).expect("it is there");
        finalizer.join().unwrap();
        assert!(node.lnd.handed.lock().unwrap().is_empty(), "no message is left");
        node.assert_ended_once(first);
        node.assert_ended_once(made);
        node.assert_quiet();
    });
}

/// Race of such a call with the removal of the NI: the call fails and there is no event, or the
/// message ends once.
#[test]
fn a_call_that_makes_its_md_is_refused_or_ends() {
    check(|| {
        let node = Arc::new(Node::new(1));
        let remover = node.beside(|node| node.engine.remove_ni(nid(US)).unwrap());
        let made = node.bind_put();
        remover.join().unwrap();
        node.finalize_any();
        let sent = usize::from(made.is_ok());
        let events = node.log.events();
        assert_eq!((events.len(), events.iter().filter(|event| event.unlinked).count()), (sent, sent));
        assert_eq!(node.engine.counters().msgs_alloc, 0);
        node.engine.eq_free(node.eq).expect("no MD is left that uses it");
    });
}

/// The call holds two locks at once, while a thread that takes all locks of a set, or of all sets,
/// waits for the caller, and the caller waits for that thread.
#[test]
fn a_call_that_makes_its_md_and_one_that_takes_all_locks_get_through() {
    fn beside(other: fn(&Node)) {
        check(move || {
            let node = Arc::new(Node::new(2));
            let taker = node.beside(other);
            let made = node.bind_put().expect("there is a way").expect("nothing is done with it");
            taker.join().unwrap();
            node.finalize(Ok(()));
            node.assert_ended_once(made);
            node.assert_quiet();
        });
    }
    beside(|node| node.engine.audit().expect("all tables agree"));
    beside(|node| {
        let unused = node.engine.eq_alloc(node.log.clone()).expect("an EQ");
        node.engine.eq_free(unused).expect("no MD uses it");
    });
    beside(|node| node.engine.link_changed(nid(US), false));
}
