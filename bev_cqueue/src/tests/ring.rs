//! Tests of the rows of the inventory that need no concurrency.

use crate::oracle::{Oracle, OracleOp, Sample, sample};
use crate::{Consumer, Corruption, Error, Heap, MIN_SLOTS, PopError, Producer, PushError, QueueMemory, heap};
use core::sync::atomic::Ordering::Relaxed;

/// A queue of `slots` slots on the heap, and its oracle.
struct Rig {
    oracle: Oracle,
    producer: Producer<Sample, Heap>,
    consumer: Consumer<Sample, Heap>,
}

impl Rig {
    fn new(slots: u32, max_slots: u32) -> Self {
        let (producer, consumer) = heap(max_slots).unwrap();
        let mut rig = Rig { oracle: Oracle::new(max_slots), producer, consumer };
        rig.run([OracleOp::Grow(slots - MIN_SLOTS)]);
        rig
    }

    fn run(&mut self, ops: impl IntoIterator<Item = OracleOp>) {
        for op in ops {
            self.oracle.step(op, &mut self.producer, &mut self.consumer);
        }
    }
}

fn times(count: u32, op: OracleOp) -> impl Iterator<Item = OracleOp> {
    (0..count).map(move |_| op)
}

// Covers: MT-200
#[test]
fn a_new_ring_has_two_slots_the_first_to_fill_and_the_second_the_divider() {
    let memory = Heap::new(8).unwrap();
    let mut producer = Producer::<u64, _>::new(memory.clone()).unwrap();
    let consumer = Consumer::<u64, _>::new(memory.clone()).unwrap();
    assert!(consumer.is_empty());
    assert_eq!((consumer.slots(), consumer.capacity(), consumer.ready()), (2, 1, 0));
    assert_eq!(producer.free(), Ok(1));

    let stamps = || [0, 1].map(|index| memory.slots()[index].stamp.load(Relaxed));
    let before = stamps();
    producer.push(7).unwrap();
    assert_ne!(stamps()[0], before[0], "the first slot was filled");
    assert_eq!(stamps()[1], before[1], "the divider was not");
}

// Covers: MT-201, MT-202
#[test]
fn an_event_pushed_is_the_event_popped() {
    let (mut producer, mut consumer) = heap(8).unwrap();
    producer.push(7u64).unwrap();
    assert_eq!(consumer.ready(), 1);
    assert_eq!(consumer.pop(), Ok(7));
    assert_eq!(consumer.ready(), 0);
    assert_eq!(producer.free(), Ok(1), "the slot of the old divider is free again");
}

// Covers: MT-203
#[test]
fn popping_from_an_empty_ring_changes_nothing() {
    let mut rig = Rig::new(2, 2);
    rig.run([
        OracleOp::Pop,
        OracleOp::Drain(3),
        OracleOp::Pop,
        OracleOp::Push,
        OracleOp::Pop,
        OracleOp::Pop,
        OracleOp::Push,
        OracleOp::Pop,
    ]);
}

// Covers: MT-204
#[test]
fn a_ring_holds_one_event_less_than_its_slots() {
    for slots in 2..20 {
        let mut rig = Rig::new(slots, 20);
        // The last push finds the ring full, and the last pop finds it empty: the oracle checks
        // this.
        rig.run(times(slots, OracleOp::Push));
        rig.run(times(slots, OracleOp::Pop));
        assert_eq!(rig.consumer.pop(), Err(PopError::Empty));
    }
}

// Covers: MT-205
#[test]
fn events_pass_in_order_at_every_position_of_the_ring() {
    for slots in 2..10 {
        for batch in 1..slots {
            let mut rig = Rig::new(slots, 10);
            for _ in 0..3 * slots {
                rig.run(times(batch, OracleOp::Push));
                rig.run([OracleOp::Drain(batch as usize)]);
            }
        }
    }
}

/// The ring grows while it is empty, partly full and full, at every position, by one slot and by
/// several.
// Covers: S-410, MT-216
#[test]
fn growing_keeps_the_order_of_waiting_events_and_adds_exactly_that_many() {
    for slots in 2..6 {
        for (passed, waiting) in
            (0..2 * slots).flat_map(|passed| (0..slots).map(move |waiting| (passed, waiting)))
        {
            for more in 1..4 {
                let mut rig = Rig::new(slots, slots + 2 * more);
                rig.run((0..passed).flat_map(|_| [OracleOp::Push, OracleOp::Pop]));
                rig.run(times(waiting, OracleOp::Push));
                rig.run([OracleOp::Grow(more), OracleOp::Push, OracleOp::Pop, OracleOp::Grow(more)]);
                rig.run(times(slots + 2 * more, OracleOp::Push));
                rig.run(times(slots + 2 * more, OracleOp::Pop));
            }
        }
    }
}

// Covers: S-407
#[test]
fn with_room_provisioned_the_ring_is_never_full() {
    let mut rig = Rig::new(2, 40);
    for operations in 1..7 {
        for _ in 0..operations {
            rig.run([OracleOp::Provision(operations)]);
        }
        rig.run(times(operations * operations, OracleOp::Push));
        assert!(rig.producer.free().unwrap() <= rig.consumer.capacity() - operations * operations);
        for _ in 0..operations {
            rig.run([OracleOp::Drain(operations as usize), OracleOp::Release(operations)]);
        }
    }
    assert_eq!(rig.consumer.slots(), 6 * 6 + 1, "as large as was ever needed, and no larger");
}

/// motr-transport 6.4: one receive operation for four messages needs a ring of five slots.
// Covers: MT-19, MT-23
#[test]
fn provisioning_grows_to_the_events_needed_and_the_divider() {
    let (_, mut consumer) = heap::<u64>(8).unwrap();
    consumer.provision(4).unwrap();
    assert_eq!((consumer.slots(), consumer.needed()), (5, 4));
    consumer.release(4).unwrap();
    assert_eq!((consumer.slots(), consumer.needed()), (5, 0));
    consumer.provision(3).unwrap();
    assert_eq!((consumer.slots(), consumer.needed()), (5, 3), "there was room");
}

// Covers: MT-243
#[test]
fn provisioning_beyond_the_memory_changes_nothing() {
    let (_, mut consumer) = heap::<u64>(8).unwrap();
    consumer.provision(5).unwrap();
    let error = consumer.provision(3).unwrap_err();
    assert_eq!(error, Error::NoRoom { slots: 6, more: 3, max: 8 });
    assert_eq!(error.errno(), nix::errno::Errno::ENOMEM);
    assert_eq!((consumer.slots(), consumer.needed()), (6, 5));
    assert!(consumer.provision(u32::MAX).is_err());
    assert!(consumer.grow(u32::MAX).is_err());
    assert_eq!((consumer.slots(), consumer.needed()), (6, 5));
    consumer.provision(2).unwrap();
}

#[test]
fn releasing_more_than_is_provisioned_changes_nothing() {
    let (_, mut consumer) = heap::<u64>(8).unwrap();
    consumer.provision(2).unwrap();
    assert_eq!(consumer.release(3), Err(Error::NotProvisioned { released: 3, needed: 2 }));
    assert_eq!(consumer.needed(), 2);
}

#[test]
fn a_drain_dropped_half_way_leaves_the_rest() {
    let (mut producer, mut consumer) = heap(8).unwrap();
    consumer.provision(5).unwrap();
    for number in 1..=5 {
        producer.push(sample(number)).unwrap();
    }
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for event in consumer.drain(5) {
            assert_ne!(event, sample(2), "on purpose");
        }
    }));
    assert!(panicked.is_err());
    assert_eq!(producer.free(), Ok(2), "the two events taken made room");
    assert_eq!(consumer.drain(9).collect::<Vec<_>>(), [sample(3), sample(4), sample(5)]);
}

#[test]
fn an_iterator_that_panics_leaves_the_events_before() {
    let (mut producer, mut consumer) = heap(8).unwrap();
    consumer.provision(5).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        producer.push_iter((1..).map(|number| if number < 4 { sample(number) } else { panic!("on purpose") }))
    }));
    assert!(panicked.is_err());
    assert_eq!(producer.free(), Ok(2));
    producer.push(sample(4)).unwrap();
    assert_eq!(consumer.drain(9).collect::<Vec<_>>(), [1, 2, 3, 4].map(sample));
}

/// Q3: the ring shrinks at every position, after every growth, to every size; the slots that were
/// cut off are reused first.
// Covers: S-410
#[test]
fn shrinking_leaves_a_ring_that_works_and_slots_that_serve_again() {
    for (slots, passed) in (2..8).flat_map(|slots| (0..2 * slots).map(move |passed| (slots, passed))) {
        for smaller in 2..=slots {
            let mut rig = Rig::new(slots, slots + 2);
            rig.run((0..passed).flat_map(|_| [OracleOp::Push, OracleOp::Pop]));
            rig.run([OracleOp::Shrink(smaller)]);
            rig.run(times(slots, OracleOp::Push));
            rig.run(times(slots, OracleOp::Pop));
            // The memory holds exactly these slots, so none has been lost.
            rig.run([OracleOp::Grow(1), OracleOp::Shrink(2), OracleOp::Grow(slots), OracleOp::Grow(1)]);
            rig.run(times(slots + 2, OracleOp::Push));
            rig.run([OracleOp::Drain(usize::MAX), OracleOp::Shrink(2), OracleOp::Grow(slots)]);
            rig.run(times(3 * slots, OracleOp::Push));
        }
    }
}

// Covers: S-407
#[test]
fn a_ring_in_use_does_not_shrink() {
    let (mut producer, mut consumer) = heap::<u64>(16).unwrap();
    consumer.provision(9).unwrap();
    assert_eq!(consumer.shrink(4), Err(Error::InUse { needed: 9, waiting: 0 }));
    producer.push(1).unwrap();
    consumer.release(9).unwrap();
    let error = consumer.shrink(4).unwrap_err();
    assert_eq!(error, Error::InUse { needed: 0, waiting: 1 });
    assert_eq!(error.errno(), nix::errno::Errno::EBUSY);
    assert_eq!(consumer.pop(), Ok(1));
    for slots in 0..MIN_SLOTS {
        assert_eq!(consumer.shrink(slots), Err(Error::SlotCount { slots, min: MIN_SLOTS, max: 16 }));
    }
    assert_eq!((consumer.slots(), producer.free()), (10, Ok(9)));
}

/// Q3: provisioned room remains when the ring shrinks, at every position.
#[test]
fn a_ring_shrinks_around_what_is_under_way() {
    for (slots, passed) in (4..8).flat_map(|slots| (0..2 * slots).map(move |passed| (slots, passed))) {
        for needed in 1..slots {
            let mut rig = Rig::new(slots, slots + 1);
            rig.run((0..passed).flat_map(|_| [OracleOp::Push, OracleOp::Pop]));
            rig.run([
                OracleOp::Provision(needed),
                OracleOp::Push,
                OracleOp::ShrinkWith(needed + 1),
                OracleOp::Pop,
            ]);
            rig.run([OracleOp::ShrinkWith(needed), OracleOp::ShrinkWith(needed + 1)]);
            assert_eq!(rig.consumer.slots(), (needed + 1).max(MIN_SLOTS));
            rig.run(times(needed, OracleOp::Push));
            rig.run([OracleOp::Drain(usize::MAX), OracleOp::Release(needed), OracleOp::Grow(1)]);
            rig.run(times(slots, OracleOp::Push));
        }
    }
}

// Covers: MT-219
#[test]
fn a_producer_without_notice_of_shrinking_fails() {
    let (mut producer, mut consumer) = heap::<u64>(16).unwrap();
    consumer.grow(8).unwrap();
    assert_eq!(producer.free(), Ok(9));
    consumer.shrink(4).unwrap();
    let corruption = Corruption::Shrunk { slots: 4, before: 10 };
    assert_eq!(producer.free(), Err(corruption));
    assert_eq!(producer.push(1), Err(PushError::Corrupt(corruption)));
    assert_eq!(producer.accept_shrink(), Err(corruption), "too late");
}

/// Links that another process has corrupted lead to an error, not out of the memory, and nothing is
/// changed.
// Covers: MT-219
#[test]
fn bent_links_are_found_before_anything_is_changed() {
    let (_, mut consumer) = heap::<u64>(16).unwrap();
    consumer.grow(8).unwrap();
    let bend = |consumer: &Consumer<u64, Heap>, at: u32, to| {
        consumer.memory().links()[at as usize].0.swap(to, Relaxed)
    };
    let astray = |index| Err(Error::Corrupt(Corruption::Link { index, slots: 16 }));
    // Each link is tested in turn, from the first free slot on.
    let (mut index, divider) = (0, consumer.divider());
    while index != divider {
        let next = bend(&consumer, index, 99);
        assert_eq!(consumer.shrink(2), astray(99), "slot {index}");
        bend(&consumer, index, index);
        assert_eq!(consumer.shrink(2), astray(index), "slot {index}");
        bend(&consumer, index, next);
        index = next;
    }
    consumer.shrink(2).unwrap();
    let spare = (0..10).find(|index| ![0, divider].contains(index)).unwrap();
    let next = bend(&consumer, spare, 99);
    assert_eq!(consumer.grow(3), astray(99));
    assert_eq!(consumer.slots(), 2);
    bend(&consumer, spare, next);
    consumer.grow(14).unwrap();
}

/// A slot's stamp has 32 bits of the event's number; here they wrap around, in old slots and in new
/// ones.
#[test]
fn event_numbers_pass_through_the_range_of_the_stamps() {
    for start in u64::from(u32::MAX) - 12..u64::from(u32::MAX) + 3 {
        let (mut producer, mut consumer) = heap(16).unwrap();
        producer.start_at(start);
        consumer.start_at(start);
        for round in 0..10 {
            assert!(consumer.is_empty());
            producer.push(round).unwrap();
            if round % 3 == 0 {
                consumer.grow(2).unwrap();
                assert_eq!(consumer.ready(), 1);
            }
            assert_eq!(consumer.pop(), Ok(round));
        }
    }
}

#[test]
fn a_queue_has_one_producer_and_one_consumer_in_its_life() {
    let memory = Heap::new(8).unwrap();
    drop(Producer::<u64, _>::new(memory.clone()).unwrap());
    drop(Consumer::<u64, _>::new(memory.clone()).unwrap());
    assert_eq!(Producer::<u64, _>::new(memory.clone()).unwrap_err(), Error::Taken { half: "producer" });
    assert_eq!(Consumer::<u64, _>::new(memory).unwrap_err(), Error::Taken { half: "consumer" });
}

/// A consumer that dies while it links slots in leaves a ring that works as before. The test makes
/// the consumer's writes one by one, in their order; after each of them the producer fills the old
/// ring completely and finds its size unchanged.
// Covers: S-2
#[test]
fn a_growth_cut_short_leaves_the_old_ring() {
    for waiting in 0..4 {
        for writes in 0..=2 {
            let (mut producer, consumer) = ring_with_waiting(waiting);
            let links = consumer.memory().links();
            // The ring is 2 ► 3 ► 0 ► 1 ► 2 ... with the divider at the slot of the event taken
            // last.
            let divider = consumer.divider();
            let successor = links[divider as usize].0.load(Relaxed);
            [(4, successor), (divider, 4)].into_iter().take(writes).for_each(|(at, to)| {
                links[at as usize].0.store(to, Relaxed);
            });
            let free = (waiting..3).filter(|_| producer.push(sample(0)).is_ok()).count() as u64;
            assert_eq!(free, 3 - waiting);
            assert!(matches!(producer.push(sample(0)), Err(PushError::Full { slots: 4, .. })));
        }
    }
}

/// A producer that dies during a push leaves no event.
// Covers: S-2
#[test]
fn a_push_cut_short_leaves_no_event() {
    let (mut producer, mut consumer) = ring_with_waiting(1);
    let next = producer.fill();
    producer.memory().slots()[next as usize].payload.write(&sample(99));
    assert_eq!(consumer.ready(), 1);
    assert_eq!(consumer.pop(), Ok(sample(3)));
    assert_eq!(consumer.pop(), Err(PopError::Empty));
    producer.push(sample(4)).unwrap();
    assert_eq!(consumer.pop(), Ok(sample(4)));
}

/// Returns a ring of four slots from which two events have been taken, and in which `waiting`
/// events wait.
fn ring_with_waiting(waiting: u64) -> (Producer<Sample, Heap>, Consumer<Sample, Heap>) {
    let (mut producer, mut consumer) = heap(8).unwrap();
    consumer.grow(2).unwrap();
    for number in 1..=2 {
        producer.push(sample(number)).unwrap();
        assert_eq!(consumer.pop(), Ok(sample(number)));
    }
    for number in 3..3 + waiting {
        producer.push(sample(number)).unwrap();
    }
    (producer, consumer)
}

/// Events of any size, from zero bytes to a whole slot, and with a last word that is not whole.
#[test]
fn events_of_every_size_come_out_as_they_went_in() {
    fn pass<const BYTES: usize>() {
        let (mut producer, mut consumer) = heap(4).unwrap();
        for round in 0..5u8 {
            let event: [u8; BYTES] = std::array::from_fn(|byte| byte as u8 ^ 37u8.wrapping_mul(round + 1));
            producer.push(event).unwrap();
            assert_eq!(consumer.pop(), Ok(event));
        }
    }
    let sizes: [fn(); 8] =
        [pass::<0>, pass::<1>, pass::<8>, pass::<55>, pass::<56>, pass::<57>, pass::<113>, pass::<120>];
    sizes.iter().for_each(|pass| pass());
}
