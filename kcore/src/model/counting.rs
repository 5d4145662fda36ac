//! The counts of operations where another process takes the events (MT-237).

use loom::sync::atomic::{AtomicU64, Ordering};
use nlx_bev_cqueue::{Consumer, Heap, heap};
use nlx_fallible::TryArc;

use super::lnet::Payload;
use super::*;
use crate::event_sink::{EventSink, LossSink, News};
use crate::lnet_tm::{LnetTm, Naming};
use crate::network::{AnomalyCounters, SharedNetwork};

/// A sink that counts operations in flight, as the helper's does.
#[derive(Default)]
struct Counted {
    in_flight: AtomicU64,
}

impl EventSink for Counted {
    type Memory = Heap;

    fn ring(_: &TryArc<Counted>, _: News) {}

    fn entered(&self, _: u32) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self, _: u32) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    fn overrun(&self, _: &AnomalyCounters) {
        panic!("no room for an event");
    }
}

impl LossSink for Counted {
    fn lost(&self) {}
}

/// A transfer machine whose events another process takes.
struct Served {
    lnet: Arc<ScriptedLnet>,
    lnet_tm: LnetTm<Counted>,
    events: Consumer<BufferEvent, Heap>,
    buffer: TryArc<crate::buffers::RegisteredBuffer>,
}

impl Served {
    fn new() -> Served {
        let lnet = Arc::new(ScriptedLnet::default());
        let network = SharedNetwork::new(lnet.clone(), Arc::new(Still(Tokens::new(0))));
        let (producer, mut events) = heap(3).expect("memory");
        events.provision(2).expect("room");
        let wanted: StartAddress = "0@lo:12345:31:7".parse().expect("an address");
        let sink = TryArc::new(Counted::default());
        let lnet_tm =
            LnetTm::start(&network, &wanted, false, None, |_| Ok((producer, sink))).expect("it starts");
        let memory = IoVec::whole(Region::heap(BYTES).expect("memory"));
        let buffer = TryArc::new(crate::buffers::RegisteredBuffer::new(BufferHandle(1 << 32), memory));
        Served { lnet, lnet_tm, events, buffer }
    }

    fn begin(&self) -> Result<(), CoreError> {
        let operation =
            Operation { buffer: self.buffer.handle(), cookie: COOKIE, kind: OperationKind::PassiveReceive };
        let fitted = self.buffer.fit(&operation.kind, &self.lnet_tm.network.limits)?;
        let naming = Naming::Client(MatchCounter::FIRST);
        let begun = self.lnet_tm.begin(&operation, self.buffer.clone(), fitted, naming, 0)?;
        assert_eq!(begun, None);
        Ok(())
    }

    fn in_flight(&self) -> u64 {
        self.lnet_tm.shared.sink.in_flight.load(Ordering::Relaxed)
    }
}

/// A client that has taken an operation's last event finds the operation no longer counted, and its
/// buffer free: a client that keeps to its quota is never refused because of a finished operation.
fn counted_while_it_ends() {
    check(|| {
        let mut served = Served::new();
        served.begin().expect("it starts");
        let lnet = served.lnet.clone();
        let arriving = thread::spawn(move || lnet.arrive(0, &Payload::default()));
        if served.events.pop().is_ok() {
            assert_eq!(served.in_flight(), 0, "it counts no more");
            served.begin().expect("the buffer is free");
            assert_eq!(served.in_flight(), 1);
        }
        assert!(arriving.join().unwrap());
        drop(served.lnet_tm);
        served.lnet.assert_empty();
    });
}

// Covers: MT-237
#[test]
fn a_last_event_and_the_count_of_operations() {
    counted_while_it_ends();
}

#[test]
fn an_event_that_comes_before_its_operation_has_left_still_counts() {
    needs(crate::agreed::LEAVE, counted_while_it_ends, "it counts no more");
}

/// The client goes while a message for it arrives: nothing is left of its transfer machine, and
/// nothing is counted.
// Covers: S-415
#[test]
fn a_last_event_and_the_end_of_a_client() {
    check(|| {
        let served = Served::new();
        served.begin().expect("it starts");
        let (lnet, sink) = (served.lnet.clone(), served.lnet_tm.shared.sink.clone());
        let arriving = thread::spawn(move || lnet.arrive(0, &Payload::default()));
        let left = TryArc::downgrade(&served.lnet_tm.shared);
        drop(served.lnet_tm);
        arriving.join().unwrap();
        assert_eq!(sink.in_flight.load(Ordering::Relaxed), 0);
        assert!(left.upgrade().is_none(), "LNet has let go of it");
        served.lnet.assert_empty();
    });
}
