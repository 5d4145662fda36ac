//! Messages that find no buffer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nlx::{Errno, Machine, Op, TmEvent, TmOptions};

use super::world;
use crate::bed::*;

/// The dropped messages that an observer has counted.
#[derive(Default)]
struct DropCounts {
    messages: AtomicU64,
    total: AtomicU64,
}

impl DropCounts {
    fn observer(self: &Arc<DropCounts>) -> impl Fn(&Machine, &TmEvent) + Send + Sync + 'static {
        let drops = self.clone();
        move |_, event| {
            if let TmEvent::NoBuffer { messages, total } = event {
                assert_eq!(event.status(), Err(Errno::ENOBUFS));
                assert!(*messages > 0);
                let before = drops.messages.fetch_add(*messages, Ordering::SeqCst);
                assert_eq!(before + messages, *total);
                drops.total.store(*total, Ordering::SeqCst);
            }
        }
    }

    /// Waits until this number is reported; no other event comes.
    fn until(&self, side: &Side, total: u64) {
        while self.total.load(Ordering::SeqCst) < total {
            side.has_nothing();
        }
        assert_eq!(self.total.load(Ordering::SeqCst), total);
    }
}

fn pair_with_observer(options: TmOptions) -> (Pair, Arc<DropCounts>) {
    let world = world();
    let drops = Arc::new(DropCounts::default());
    let domain = world.domain(1);
    let builder = domain.machine().options(options).observer(drops.observer());
    let tm = builder.start(&wanted(&world, 1, "9")).unwrap();
    let pair = Pair { a: Side::on(&world, 0, "8"), b: Side::of(tm, domain), world };
    (pair, drops)
}

/// The sender gets no error, the observer of the receiver gets ENOBUFS and the number of messages.
/// Afterwards the receiver takes messages as before.
// Covers: MT-194, X-13
#[test]
fn a_message_without_a_buffer_is_reported_to_its_receiver() {
    let (pair, drops) = pair_with_observer(TmOptions::default());
    for total in 1..=3 {
        pair.send(b"lost");
        pair.settle();
        drops.until(&pair.b, total);
    }
    pair.b.receive_one(64);
    pair.pass(b"found");
    assert_eq!(drops.total.load(Ordering::SeqCst), 3);
}

/// The same for messages that are longer than its buffers allow.
// Covers: MT-195
#[test]
fn a_message_longer_than_the_buffers_is_reported_to_its_receiver() {
    let (pair, drops) = pair_with_observer(TmOptions::default());
    let op = pair.b.receive_one(64);
    pair.send(&pattern(0, 65));
    pair.settle();
    drops.until(&pair.b, 1);
    assert_eq!(pair.pass(&pattern(0, 64)).op, op);
}

/// A message to another machine is not reported.
// Covers: MT-194
#[test]
fn a_message_to_another_machine_is_not_reported() {
    let (pair, drops) = pair_with_observer(TmOptions::default());
    let absent = pair.a.tm.end_point(&wanted(&pair.world, 1, "77")).unwrap();
    let op = pair.a.tm.start(Op::send(pair.a.filled(b"lost"), &absent).timeout(HUNG)).unwrap().op;
    assert_eq!(pair.a.end_of(op).status, Ok(()));
    pair.settle();
    pair.b.has_nothing();
    assert_eq!(drops.total.load(Ordering::SeqCst), 0);
}

/// On a lazy portal a message waits for its buffer, and none is lost.
// Covers: MT-194, X-13
#[test]
fn a_message_to_a_lazy_machine_waits_for_its_buffer() {
    let (pair, drops) = pair_with_observer(TmOptions::default().lazy(true));
    let ops = [b"one", b"two"].map(|bytes| pair.a.send(&pair.b, bytes));
    pair.b.has_nothing();
    for (bytes, op) in [b"one", b"two"].into_iter().zip(ops) {
        pair.b.receive_one(64);
        assert_eq!(pair.b.next().message.as_deref(), Some(&bytes[..]));
        assert_eq!(pair.a.end_of(op).status, Ok(()));
    }
    assert_eq!(drops.total.load(Ordering::SeqCst), 0);
}
