//! Message passing allocates nothing in steady state (over the loopback: the whole stack except the
//! network driver).

// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

#[path = "support/helper.rs"]
mod helper;

use nlx::{
    Batch, Buffer, BufferPoolOptions, Colour, DescriptorForm, EndPoint, MatchCounters, NodeConfig, Offer, Op,
    Provision, TmOptions, TransferMachine,
};
use nlx_testkit::heap::{COUNTING, WatchedHeap, allocations};

#[global_allocator]
static HEAP: WatchedHeap = COUNTING;

struct Pair {
    a: TransferMachine,
    b: TransferMachine,
    to_b: EndPoint,
    buffers: [Option<Buffer>; 2],
    batch: Batch,
}

const PROVISION: Provision =
    Provision { min_receive_size: 4096, max_messages: 1, buffers: 2, colour: Colour::Of(0) };
const TIMEOUT: Option<std::time::Duration> = Some(std::time::Duration::from_secs(3600));

impl Pair {
    fn new(options: TmOptions) -> Pair {
        let domain = helper::domain(module_path!(), &NodeConfig::new());
        let [a, b] = [0; 2].map(|_| domain.transfer_machine("0@lo:12345:31:*", options).unwrap());
        let to_b = a.end_point(&b.address().to_string()).unwrap();
        let buffers = [0; 2].map(|_| Some(domain.allocate(4096).unwrap()));
        Pair { a, b, to_b, buffers, batch: Batch::new() }
    }

    fn take(&mut self) -> [Buffer; 2] {
        self.buffers.each_mut().map(|buffer| buffer.take().unwrap())
    }

    fn give_back(&mut self) {
        for (buffer, tm) in self.buffers.iter_mut().zip([&self.a, &self.b]) {
            let event = tm.wait(None).unwrap().unwrap();
            event.status.unwrap();
            *buffer = event.buffer;
        }
    }

    fn message(&mut self) {
        let [send, receive] = self.take();
        self.b.start(Op::receive(receive).timeout(TIMEOUT)).unwrap();
        self.a.start(Op::send(send, &self.to_b).timeout(TIMEOUT)).unwrap();
        self.give_back();
    }

    fn batch(&mut self) {
        let [ours, theirs] = self.take();
        self.batch.push(Op::receive(theirs).timeout(TIMEOUT));
        assert!(self.b.submit(&mut self.batch).all(|outcome| outcome.is_ok()));
        self.batch.push(Op::send(ours, &self.to_b).timeout(TIMEOUT));
        assert!(self.a.submit(&mut self.batch).all(|outcome| outcome.is_ok()));
        self.give_back();
    }

    fn bulk(&mut self, active: impl Fn(Buffer, &Offer) -> Op, writes: bool) {
        let [ours, theirs] = self.take();
        let passive = if writes { Op::passive_receive(theirs) } else { Op::passive_send(theirs) };
        let started = self.b.start(passive.timeout(TIMEOUT)).unwrap();
        self.a.start(active(ours, &started.offer).timeout(TIMEOUT)).unwrap();
        self.give_back();
    }

    fn round(&mut self) {
        self.message();
        self.batch();
        self.bulk(|buffer, offer| Op::active_send(buffer, offer), true);
        self.bulk(|buffer, offer| Op::active_receive(buffer, offer), false);
    }
}

// Covers: S-411, S-418, MT-101, MT-102, X-5
#[test]
fn operations_allocate_nothing_once_the_tables_have_grown() {
    let ours =
        TmOptions::default().descriptors(DescriptorForm::Extended).match_counters(MatchCounters::Random);
    for options in [TmOptions::default(), ours] {
        let mut pair = Pair::new(options);
        for _ in 0..100 {
            pair.round();
        }
        let ((), count) = allocations(|| {
            for _ in 0..1000 {
                pair.round();
            }
        });
        assert_eq!(count, 0, "in 1000 rounds of all operations with {options:?}");
    }
}

/// A machine that is provisioned by a pool, messages that outlive their events, buffers that are
/// taken and dropped: with spare buffers and without.
#[test]
fn pools_allocate_nothing_once_they_have_grown() {
    for spare in [0, 2] {
        let domain = helper::domain(module_path!(), &NodeConfig::new());
        let pool = domain.pool(BufferPoolOptions::new(4096).colours(2)).unwrap();
        pool.provision(4 + spare).unwrap();
        let tm = domain.machine().pool(&pool, PROVISION).start("0@lo:12345:31:*").unwrap();
        let mut message = None;
        let mut round = || {
            let source = pool.get(Colour::Of(1)).unwrap().unwrap();
            tm.start(Op::send(source, tm.own_end_point()).timeout(TIMEOUT)).unwrap();
            for _ in 0..2 {
                let event = tm.wait(None).unwrap().unwrap();
                event.status.unwrap();
                // It outlives its event, and is dropped when the next message arrives.
                message = event.message.or(message.take());
            }
        };
        (0..100).for_each(|_| round());
        let ((), count) = allocations(|| (0..1000).for_each(|_| round()));
        assert_eq!(count, 0, "in 1000 rounds with {spare} buffers to spare");
    }
}
