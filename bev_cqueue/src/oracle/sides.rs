//! The invariants of each side while the other runs concurrently, in any interleaving.

use super::{OracleOp, Sample, sample};
use crate::{Consumer, PopError, Producer, PushError, QueueMemory};

/// The operations of a producer while a consumer runs concurrently: pushes numbered events in
/// order.
#[derive(Debug, Default)]
pub struct Source {
    /// The number of events pushed.
    pub pushed: u64,
}

impl Source {
    /// Applies the producer's `op`; a full ring is not an error.
    pub fn step<M: QueueMemory>(&mut self, op: OracleOp, producer: &mut Producer<Sample, M>) {
        match op {
            OracleOp::Push => match producer.push(sample(self.pushed + 1)) {
                Ok(()) => self.pushed += 1,
                Err(error) => assert_full(error),
            },
            OracleOp::PushIter(count) => {
                let next = self.pushed + 1;
                match producer.push_iter((next..next + count as u64).map(sample)) {
                    Ok(pushed) => self.pushed += pushed as u64,
                    Err(error) => assert_full(error),
                }
            }
            OracleOp::AcceptShrink => producer.accept_shrink().expect("the consumer keeps the rules"),
            _ => unreachable!("the consumer's"),
        }
    }
}

#[track_caller]
fn assert_full(error: PushError) {
    assert!(matches!(error, PushError::Full { .. }), "{error}");
}

/// The checks of a consumer while a producer runs concurrently: whole events, each once, in order.
#[derive(Debug, Default)]
pub struct Sequence {
    /// The number of events seen.
    pub seen: u64,
}

impl Sequence {
    /// Applies the consumer's `op` and checks the events it takes.
    pub fn step<M: QueueMemory>(&mut self, op: OracleOp, consumer: &mut Consumer<Sample, M>) {
        match op {
            OracleOp::Push | OracleOp::PushIter(_) | OracleOp::AcceptShrink => unreachable!("the producer's"),
            OracleOp::ShrinkWith(_) => unreachable!("it takes both"),
            OracleOp::Pop => match consumer.pop() {
                Ok(event) => self.see(event),
                Err(error) => assert_eq!(error, PopError::Empty),
            },
            OracleOp::Drain(max) => consumer.drain(max).for_each(|event| self.see(event)),
            OracleOp::Forget(max) => {
                let mut drain = consumer.drain(max);
                drain.by_ref().for_each(|event| self.see(event));
                std::mem::forget(drain);
            }
            OracleOp::Grow(more) => consumer.grow(more).expect("the test stays within the memory"),
            OracleOp::Shrink(slots) => consumer.shrink(slots).expect("nothing is under way"),
            OracleOp::Provision(events) => {
                consumer.provision(events).expect("the test stays within the memory")
            }
            OracleOp::Release(events) => consumer.release(events).expect("the test has provisioned them"),
        }
    }

    fn see(&mut self, event: Sample) {
        self.seen += 1;
        assert_eq!(event, sample(self.seen), "event {}", self.seen);
    }
}
