//! MT-219: a consumer whose process writes arbitrary values into the shared memory.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use proptest::prelude::*;

use crate::layout::Stamp;
use crate::oracle::{Guarded, OracleOp, Victim, mix, sample};
use crate::{Consumer, Corruption, Heap, MIN_SLOTS, Producer, PushError, QueueMemory, heap};

/// Values that are most likely to cause faults, and any others.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..40u64, 1 => any::<u64>(), 1 => any::<u32>().prop_map(u64::from), 1 => Just(u64::MAX)]
}

fn pushing() -> impl Strategy<Value = OracleOp> {
    prop_oneof![6 => Just(OracleOp::Push), 2 => (0..6usize).prop_map(OracleOp::PushIter), 1 => Just(OracleOp::AcceptShrink)]
}

proptest! {
    /// However the words change between two pushes, each push ends and stays within the queue, and
    /// a corruption is permanent.
    // Covers: MT-219
    #[test]
    fn a_producer_survives_any_words(
        max_slots in MIN_SLOTS as usize..20,
        steps in prop::collection::vec(prop::result::maybe_err(pushing(), (0..240usize, value())), 0..300),
    ) {
        let memory = Guarded::new(max_slots).unwrap();
        let mut victim = Victim::new(memory.clone()).unwrap();
        for step in steps {
            match step {
                Ok(op) => victim.step(op),
                Err((place, value)) => memory.scribble(place, value),
            }
        }
        memory.check();
    }

    /// A consumer that finds impossible stamps still ends each call, and its counts stay within
    /// bounds.
    #[test]
    fn a_consumer_survives_any_stamps(
        max_slots in MIN_SLOTS as usize..20,
        steps in prop::collection::vec(prop::option::of((0..20usize, 0..40u32, any::<bool>())), 0..300),
    ) {
        let memory = Guarded::new(max_slots).unwrap();
        let mut consumer = Consumer::<[u64; 15], _>::new(memory.clone()).unwrap();
        let mut taken = 0;
        for step in steps {
            match step {
                Some((place, next, due)) => {
                    let stamp = Stamp::new(if due { taken + 1 } else { u64::from(next) }, next);
                    memory.slots()[place % max_slots].stamp.store(stamp.bits(), Relaxed);
                }
                None => taken += u64::from(consumer.pop().is_ok()),
            }
            prop_assert!(consumer.ready() <= consumer.capacity());
        }
        memory.check();
    }
}

// Covers: MT-219
#[test]
fn a_producer_survives_a_peer_that_scribbles_all_the_time() {
    const PUSHES: u64 = 2_000;
    let stop = Arc::new(AtomicBool::new(false));
    for round in 0..200 {
        let memory = Guarded::new(64).unwrap();
        let mut producer = Producer::new(memory.clone()).unwrap();
        let peer = std::thread::spawn({
            let (memory, stop) = (memory.clone(), stop.clone());
            move || {
                let mut dice = mix(round);
                while !stop.load(Relaxed) {
                    dice = mix(dice);
                    // The values are mostly plausible, so that the producer gets far.
                    memory.scribble((dice >> 32) as usize, dice % (1 << (dice >> 58)));
                }
            }
        });
        let results: Vec<_> = (0..PUSHES).map(|number| producer.push(sample(number))).collect();
        stop.store(true, Relaxed);
        peer.join().unwrap();
        stop.store(false, Relaxed);
        memory.check();
        if let Some(first) = results.iter().position(|result| matches!(result, Err(PushError::Corrupt(_)))) {
            assert!(results[first..].iter().all(|result| *result == results[first]));
        }
    }
}

// Covers: MT-219
#[test]
fn each_broken_rule_is_named() {
    let broken = |damage: fn(&Heap)| {
        let (mut producer, mut consumer) = heap(8).unwrap();
        consumer.grow(2).unwrap();
        for number in 1..=3 {
            producer.push(number).unwrap();
        }
        assert_eq!(consumer.pop(), Ok(1));
        assert_eq!(producer.free(), Ok(1));
        damage(producer.memory());
        let first = producer.free().unwrap_err();
        // Corruption is permanent even if the peer repairs the words.
        producer.memory().header().consumer.consumed.store(1, Relaxed);
        producer.memory().header().consumer.nr.store(4, Relaxed);
        assert_eq!(producer.push(4), Err(PushError::Corrupt(first)));
        assert_eq!(PushError::Corrupt(first).errno(), nix::errno::Errno::EPROTO);
        first
    };
    assert_eq!(
        broken(|memory| memory.header().consumer.consumed.store(4, Relaxed)),
        Corruption::ConsumedTooMany { consumed: 4, produced: 3 }
    );
    assert_eq!(
        broken(|memory| memory.header().consumer.consumed.store(0, Relaxed)),
        Corruption::ConsumedFewer { consumed: 0, before: 1 }
    );
    assert_eq!(
        broken(|memory| memory.header().consumer.nr.store(3, Relaxed)),
        Corruption::Shrunk { slots: 3, before: 4 }
    );
    assert_eq!(
        broken(|memory| memory.header().consumer.nr.store(9, Relaxed)),
        Corruption::Outgrown { slots: 9, max: 8 }
    );
}

#[test]
fn a_link_that_leads_nowhere_is_found_when_it_is_followed() {
    let (mut producer, mut consumer) = heap(8).unwrap();
    consumer.grow(2).unwrap();
    let fill = producer.fill();
    producer.memory().links()[fill as usize].0.store(8, Relaxed);
    producer.push(1).unwrap();
    let corruption = Corruption::Link { index: 8, slots: 8 };
    assert_eq!(producer.push(2), Err(PushError::Corrupt(corruption)));
    assert_eq!(consumer.pop(), Ok(1));
    assert!(!consumer.is_empty(), "the consumer is to come and hear of it");
    assert_eq!(consumer.pop(), Err(crate::PopError::Corrupt(corruption)));
    assert_eq!(consumer.drain(3).count(), 0);
}
