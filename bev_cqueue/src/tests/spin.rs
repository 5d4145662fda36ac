//! When looking before sleep is worth it.

use core::time::Duration;
use std::time::Instant;

use proptest::prelude::*;

use crate::Heap;
use crate::wake::{Sleeper, Spin, Wake, Waker};

const LIMIT: Duration = Duration::from_micros(10);

/// A limit that no machine is too slow for.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[test]
fn two_long_waits_end_the_looking_and_short_ones_bring_it_back() {
    let mut spin = Spin::of(LIMIT);
    assert_eq!(spin.budget(), LIMIT, "nothing is known yet");
    spin.learn(FOR_EVER);
    assert_eq!(spin.budget(), LIMIT, "one may be an exception");
    spin.learn(FOR_EVER);
    assert_eq!(spin.budget(), Duration::ZERO);
    let short = (1..100).find(|_| {
        spin.learn(Duration::ZERO);
        spin.budget() == LIMIT
    });
    assert!(short.is_some_and(|waits| waits < 8), "{short:?}");
}

proptest! {
    /// Never longer than sleep costs, and not at all when most waits are longer than that.
    #[test]
    fn looking_is_bounded_by_what_sleep_costs(
        limit_ns in 0..30_000u64,
        waits_ns in prop::collection::vec(0..200_000u64, 0..50),
    ) {
        let mut spin = Spin::of(Duration::from_nanos(limit_ns));
        for wait in waits_ns {
            spin.learn(Duration::from_nanos(wait));
            prop_assert!(spin.budget() <= Duration::from_nanos(limit_ns));
        }
        (0..8).for_each(|_| spin.learn(Duration::from_nanos(10 * limit_ns + 1)));
        prop_assert_eq!(spin.budget(), Duration::ZERO);
    }
}

#[test]
fn what_comes_while_looking_needs_no_signal() {
    let mut looks = 0;
    let found = Spin::of(FOR_EVER).look(None, || {
        looks += 1;
        looks == 1000
    });
    assert!(found);
    assert!(!Spin::of(FOR_EVER).look(Some(Instant::now()), || true), "the deadline has passed");
    assert!(!Spin::of(Duration::ZERO).look(None, || unreachable!("no look at all")));
}

/// The measured limit is at most 20 µs, so this sleeps before long whatever the machine.
#[test]
fn looking_in_vain_is_followed_by_sleep() {
    let memory = Heap::new(8).unwrap();
    let waker = Waker::futex(memory.clone());
    let mut sleeper = Sleeper::futex(memory);
    for _ in 0..10 {
        let mut woken = false;
        let slept = sleeper.sleep(None, || {
            // True once sleep has been announced.
            woken = woken || waker.wake().unwrap();
            false
        });
        assert_eq!(slept, Ok(Wake::Signalled));
        assert!(woken);
    }
}
