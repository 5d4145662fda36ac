//! Property test: any sequence of operations has the results that the oracle predicts.

use proptest::prelude::*;

use crate::oracle::{Oracle, OracleOp};
use crate::{Consumer, Heap, MIN_SLOTS, Producer, QueueMemory, SharedMemory};

/// Number of slots: few, so that a short sequence already reaches every limit.
const MAX_SLOTS: u32 = 12;

fn op() -> impl Strategy<Value = OracleOp> {
    prop_oneof![
        8 => Just(OracleOp::Push),
        3 => (0..6usize).prop_map(OracleOp::PushIter),
        5 => Just(OracleOp::Pop),
        2 => (0..6usize).prop_map(OracleOp::Drain),
        1 => (0..4usize).prop_map(OracleOp::Forget),
        1 => (0..4u32).prop_map(OracleOp::Grow),
        2 => (0..4u32).prop_map(OracleOp::Provision),
        2 => (0..4u32).prop_map(OracleOp::Release),
        1 => (0..8u32).prop_map(OracleOp::Shrink),
        1 => (0..8u32).prop_map(OracleOp::ShrinkWith),
        1 => Just(OracleOp::AcceptShrink),
    ]
}

fn run<M: QueueMemory>(ops: Vec<OracleOp>, max_slots: u32, theirs: M, ours: M) {
    let mut producer = Producer::new(theirs).unwrap();
    let mut consumer = Consumer::new(ours).unwrap();
    let mut oracle = Oracle::new(max_slots);
    for op in ops {
        oracle.step(op, &mut producer, &mut consumer);
    }
}

proptest! {
    #[test]
    fn a_queue_on_the_heap_does_as_the_oracle(
        ops in prop::collection::vec(op(), 0..200),
        max_slots in MIN_SLOTS..=MAX_SLOTS,
    ) {
        let memory = Heap::new(max_slots).unwrap();
        run(ops, max_slots, memory.clone(), memory);
    }

    /// Both halves work although each has mapped the memory at a different address.
    // Covers: S-408
    #[test]
    fn a_queue_mapped_twice_does_as_the_oracle(
        ops in prop::collection::vec(op(), 0..200),
        max_slots in MIN_SLOTS..=MAX_SLOTS,
    ) {
        let (memory, fd) = SharedMemory::create(max_slots).unwrap();
        run(ops, max_slots, memory, SharedMemory::attach(fd).unwrap());
    }
}
