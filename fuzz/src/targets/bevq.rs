//! The queue of buffer events, against its oracle and against a hostile consumer.

use nlx_bev_cqueue::oracle::{Guarded, Oracle, OracleOp, Victim};
use nlx_bev_cqueue::{Consumer, Heap, MIN_SLOTS, Producer, QueueMemory};

use super::Outcome;

/// Largest number of slots of a memory: few enough for short inputs to reach every limit.
const MAX_SLOTS: u32 = 24;

/// Largest number of operations of one input; further ones reach nothing new.
const OPS_MAX: usize = 512;

/// Runs operations on a queue and on its oracle. The first byte chooses the number of slots of the
/// memory; each following byte is an operation.
pub(super) fn oracle(bytes: &[u8]) -> Outcome {
    let [slots, ops @ ..] = bytes else { return Outcome::of("short") };
    let max_slots = slots_of(*slots);
    let memory = Heap::new(max_slots).expect("the memory can be allocated");
    let mut producer = Producer::new(memory.clone()).expect("the first");
    let mut consumer = Consumer::new(memory).expect("the first");
    let mut oracle = Oracle::new(max_slots);
    let mut largest = MIN_SLOTS;
    for byte in ops.iter().take(OPS_MAX) {
        oracle.step(OracleOp::of_byte(*byte), &mut producer, &mut consumer);
        largest = largest.max(consumer.slots());
    }
    Outcome::of((largest, consumer.slots(), consumer.needed().min(8), consumer.ready().min(8)))
}

/// Runs the operations of [`oracle`] with a hostile consumer process: every other operation becomes
/// a word that is written over one that both sides can reach. The producer continues until it
/// detects the corruption.
pub(super) fn hostile(bytes: &[u8]) -> Outcome {
    let [slots, steps @ ..] = bytes else { return Outcome::of("short") };
    let memory = Guarded::new(slots_of(*slots) as usize).expect("the memory can be allocated");
    let mut victim = Victim::new(memory.clone()).expect("the first");
    let mut consumer = Consumer::<[u64; 15], _>::new(memory.clone()).expect("the first");
    let (mut taken, mut words) = (0u64, 0u32);
    for step in steps.chunks(4).take(OPS_MAX) {
        match (OracleOp::of_byte(step[0]), step) {
            (op @ (OracleOp::Push | OracleOp::PushIter(_) | OracleOp::AcceptShrink), _) => victim.step(op),
            // The consumer's calls may fail in any way, but must return.
            (OracleOp::Pop, _) => taken += u64::from(consumer.pop().is_ok()),
            (OracleOp::Drain(max), _) => taken += consumer.drain(max).count() as u64,
            (OracleOp::Grow(more), _) => drop(consumer.grow(more)),
            (OracleOp::Shrink(slots), _) => drop(consumer.shrink(slots)),
            (_, [_, place, value @ ..]) => {
                memory.scribble(usize::from(*place), value_of(value));
                words += 1;
            }
            (_, _) => {}
        }
        assert!(consumer.ready() <= consumer.capacity() && consumer.slots() <= consumer.max_slots());
        assert_eq!(memory.slots().len(), consumer.max_slots() as usize);
    }
    memory.check();
    let verdict = victim.verdict().map(|verdict| std::mem::discriminant(&verdict));
    Outcome::of((verdict, words.min(4), taken.min(8)))
}

fn slots_of(byte: u8) -> u32 {
    MIN_SLOTS + u32::from(byte) % (MAX_SLOTS - MIN_SLOTS)
}

/// Returns a small number or one near the end of a range: the other numbers behave alike.
fn value_of(bytes: &[u8]) -> u64 {
    match *bytes {
        [] => u64::MAX,
        [low] => u64::from(low % 32),
        [low, high, ..] if high % 2 == 0 => u64::from(low % 32),
        [low, high, ..] => u64::from(u32::MAX) + u64::from(high / 2) - u64::from(low),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    /// Returns the byte that [`OracleOp::of_byte`] decodes as this kind of operation with this
    /// number.
    const fn op(kind: u8, number: u8) -> u8 {
        16 * number + kind
    }
    let (push, several, pop, drain) = (op(0, 0), op(4, 5), op(6, 0), op(9, 15));
    let (grow, shrink, accept, provision, release) = (op(11, 3), op(12, 2), op(13, 0), op(14, 4), op(15, 4));
    let shrink_with = op(12, 5);
    vec![
        vec![20, push, pop, push, push, pop, pop],
        vec![20, grow, grow, provision, push, pop, shrink_with, several, drain, release, shrink],
        vec![22, grow, several, pop, grow, several, drain, shrink, grow, several, drain],
        vec![10, provision, several, drain, release, shrink, provision, provision, several, several, drain],
        // Hostile: words in between, each with its place and value.
        vec![8, push, 0, 0, 0, release, 0, 9, 0, push, 0, 0, 0, accept, 0, 0, 0, push],
        vec![8, grow, 0, 0, 0, several, 0, 0, 0, release, 4, 30, 0, several, 0, 0, 0, pop, 0, 0, 0],
        vec![8, grow, 0, 0, 0, release, 1, 1, 3, accept, 0, 0, 0, push, 0, 0, 0],
    ]
}
