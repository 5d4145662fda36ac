//! In the steady state the engine allocates nothing (architecture, rule 7).

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, Arrival, EqHandle, EventHandler, Get, LNet, Lnd, LndError, Md, MdOptions, MeSpec, NiLimits,
    PayloadTarget, Position, Put, RxContext, Sent, Threshold, Tx, Unlink, Upcalls, Verdict,
};
use lnet_cpt::{CptTable, with_partition};
use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
use lnet_region::{IoVec, Region};
use nlx_testkit::events::on_event;
use nlx_testkit::heap::{COUNTING, WatchedHeap, allocations};

#[global_allocator]
static HEAP: WatchedHeap = COUNTING;

/// A network that delivers inside `send`, without a queue.
#[derive(Default)]
struct Wire {
    ends: [OnceLock<(Nid, Arc<dyn Upcalls>)>; 2],
}

impl Lnd for Wire {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        let free = self.ends.iter().find(|end| end.get().is_none()).expect("two ends");
        assert!(free.set((ni.nid, upcalls)).is_ok());
        Ok(NiLimits { credits: 256, peer_credits: 8, timeout_ns: 50_000_000_000 })
    }

    fn shutdown(&self, _: Nid) {}

    fn send(&self, tx: Tx) -> Sent {
        let mut ends = self.ends.iter().filter_map(OnceLock::get);
        let (ni, receiver) = ends.find(|(nid, _)| *nid == tx.peer.nid).expect("the other end");
        let arrival = Arrival {
            ni: *ni,
            from: ProcessId::lnet(tx.ni),
            header: &tx.header,
            host: None,
            rx: RxContext(1),
        };
        if let Verdict::Deliver(PayloadTarget { token, sink }) = receiver.parse(&arrival) {
            if let (Some(from), Some(mut to)) = (&tx.payload, sink) {
                lnet_region::copy(from, &mut to);
            }
            receiver.finalize_rx(token, Ok(()));
        }
        Sent::Now(Ok(()))
    }

    fn resume(&self, _: RxContext, _: Option<PayloadTarget>) {}
}

struct End {
    engine: Arc<Engine>,
    eq: EqHandle,
    id: ProcessId,
    memory: IoVec,
    polled: bool,
}

impl End {
    fn new(
        wire: &Arc<Wire>,
        handler: &Arc<dyn EventHandler>,
        number: u32,
        partitions: usize,
        polled: bool,
    ) -> End {
        let id = ProcessId::lnet(Nid::new_numeric(lnet_nid::Net::TCP, number));
        let partitions = Arc::new(CptTable::virtual_parts(partitions).unwrap());
        let config = EngineConfig::new(Pid::LNET, u64::from(number));
        let engine = Engine::new(EngineConfig { partitions, ..config });
        engine.add_ni(id, wire.clone()).unwrap();
        let eq = if polled { engine.eq_alloc_polled(32, None) } else { engine.eq_alloc(handler.clone()) };
        let (eq, memory) = (eq.unwrap(), IoVec::whole(Region::heap(64).unwrap()));
        End { engine, eq, id, memory, polled }
    }

    /// Takes all events of a polled queue; returns their number.
    fn poll(&self) -> usize {
        let poll = || self.polled.then(|| self.engine.eq_poll(&[self.eq]).unwrap()).flatten();
        std::iter::from_fn(poll).inspect(|polled| assert_eq!(polled.missed, 0)).count()
    }

    fn md(&self, options: MdOptions, threshold: u32) -> Md {
        let (memory, threshold) = (self.memory.clone(), Threshold::Limited(threshold));
        Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    fn expect(&self, options: MdOptions) {
        let me = self.engine.me_attach(&spec(BITS)).unwrap();
        self.engine.md_attach(me, self.md(options, 1), Unlink::Auto).unwrap();
    }

    fn put(&self, target: ProcessId, ack: AckRequest) {
        let threshold = if ack == AckRequest::Ack { 2 } else { 1 };
        let md = self.engine.md_bind(self.md(MdOptions::empty(), threshold), Unlink::Auto).unwrap();
        let (portal, match_bits) = (portal(), MatchBits(BITS));
        let put = Put { source: None, md, ack, target, portal, match_bits, offset: 0, hdr_data: 0 };
        self.engine.put(&put).unwrap();
    }

    fn get(&self, target: ProcessId) {
        let md = self.engine.md_bind(self.md(MdOptions::empty(), 2), Unlink::Auto).unwrap();
        let (portal, match_bits) = (portal(), MatchBits(BITS));
        self.engine.get(&Get { source: None, md, target, portal, match_bits, offset: 0 }).unwrap();
    }
}

/// Match bits whose home partition, if there are two, differs from the portal's.
const BITS: u64 = 1 << 52 | 1;

fn spec(bits: u64) -> MeSpec {
    MeSpec::new(portal(), MatchBits(bits))
}

fn portal() -> Portal {
    Portal::new(40).unwrap()
}

/// Checks a thousand rounds, after a thousand that may fill the tables.
fn assert_steady(partitions: usize, polled: bool) {
    assert_steady_beside(partitions, polled, &[]);
}

/// Checks as [`assert_steady`] does, with these entries on the portal of each node.
fn assert_steady_beside(partitions: usize, polled: bool, entries: &[MeSpec]) {
    let events = Arc::new(AtomicUsize::new(0));
    let counter = events.clone();
    let handler = on_event(move |event| {
        assert_eq!(event.status, Ok(()));
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let wire = Arc::new(Wire::default());
    let [a, b] = [1, 2].map(|number| End::new(&wire, &handler, number, partitions, polled));
    for (end, entry) in [&a, &b].into_iter().flat_map(|end| entries.iter().map(move |entry| (end, entry))) {
        end.engine.me_attach(entry).unwrap();
    }
    let own = End { memory: IoVec::whole(Region::heap(64).unwrap()), engine: b.engine.clone(), ..b };
    let round = |now_ns| {
        b.expect(MdOptions::OP_PUT);
        a.put(b.id, AckRequest::NoAck);
        b.expect(MdOptions::OP_PUT);
        a.put(b.id, AckRequest::Ack);
        b.expect(MdOptions::OP_GET);
        a.get(b.id);
        // A message of the node to itself.
        b.expect(MdOptions::OP_PUT);
        own.put(b.id, AckRequest::Ack);
        b.expect(MdOptions::OP_GET);
        own.get(ProcessId::lnet(Nid::LOOPBACK));
        a.engine.advance(now_ns);
        b.engine.advance(now_ns);
        [&a, &b].map(End::poll)
    };
    let rounds = || (0..1000).map(round).fold(0, |sum, [of_a, of_b]| sum + of_a + of_b);
    // Each partition sends, so messages stay in a partition or go to another one.
    for here in 0..partitions {
        with_partition(here, || {
            let polled = rounds();
            let callbacks = events.swap(0, Ordering::Relaxed);
            assert_eq!(allocations(rounds), (polled, 0));
            assert_eq!(events.swap(0, Ordering::Relaxed), callbacks);
            assert!(callbacks + polled > 10_000);
        });
    }
}

#[test]
fn rounds_of_puts_acks_and_gets_allocate_nothing() {
    for partitions in [1, 2] {
        assert_steady(partitions, false);
    }
}

/// The steady state holds for messages that search all partitions at once, and for those that
/// search one after the other.
// Covers: S-308
#[test]
fn rounds_among_entries_of_all_kinds_allocate_nothing() {
    let spread = spec(BITS + 1);
    let masked = MeSpec { ignore_bits: MatchBits(1), ..spec(8) };
    assert_steady_beside(2, false, &[spread, masked]);
    assert_steady_beside(2, false, &[MeSpec { position: Position::Local, ..spread }]);
}

#[test]
fn rounds_with_polled_queues_allocate_nothing() {
    for partitions in [1, 2] {
        assert_steady(partitions, true);
    }
}
