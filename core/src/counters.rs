//! Match counters for passive buffers: values that no other operation in flight of the transfer
//! machine has (S-409, K5). The process that submits the operation chooses them.

use std::num::NonZeroU32;

use parking_lot::Mutex;

use crate::{CoreError, Errno, Limits, MatchCounter};

/// Bits of a random counter that distinguish operations in flight; the bits above are random.
const SLOT_BITS: u32 = 20;

// Each operation in flight has a buffer to itself.
const _: () = assert!(Limits::LNET.buffers_max <= 1 << SLOT_BITS);

/// Random numbers that are fetched at once: 256 bytes, the most that the system returns whole and
/// uninterrupted.
const BATCH: usize = 64;

/// A counter from 1 to 2⁵²−1 that wraps to 1. Its cost does not depend on the number of buffers;
/// only once in 2⁵² calls the values in use are collected.
#[derive(Debug)]
pub struct Sequential {
    next: MatchCounter,
    /// Values that were in use when the counter last started at 1 and are still ahead of it, the
    /// nearest last. All values that came into use since then are behind it.
    taken: Vec<MatchCounter>,
    /// The last value before the wrap.
    last: MatchCounter,
}

impl Sequential {
    /// Creates a counter from 1 to this value, which must be far above the number of operations in
    /// flight.
    #[must_use]
    pub const fn up_to(last: MatchCounter) -> Sequential {
        Sequential { next: MatchCounter::FIRST, taken: Vec::new(), last }
    }

    /// Returns the next value that is not in use.
    pub fn next<I: Iterator<Item = MatchCounter>>(&mut self, in_use: impl Fn() -> I) -> MatchCounter {
        loop {
            if self.next == MatchCounter::FIRST {
                self.taken.clear();
                self.taken.extend(in_use());
                self.taken.sort_unstable_by(|a, b| b.cmp(a));
            }
            let candidate = self.next;
            self.next = if candidate == self.last { MatchCounter::FIRST } else { candidate.next() };
            if self.taken.pop_if(|taken| *taken == candidate).is_none() {
                return candidate;
            }
        }
    }

    /// Continues with this value.
    pub fn set_next(&mut self, next: MatchCounter) {
        self.next = next;
    }
}

/// Unpredictable counters: 32 bits of the system's random generator above the slot of the operation
/// in flight, which makes them unique without comparing them with others.
#[derive(Debug)]
pub struct RandomCounters {
    batch: Mutex<Batch>,
}

#[derive(Debug)]
struct Batch {
    numbers: [u32; BATCH],
    left: usize,
}

impl RandomCounters {
    /// Fetches the first numbers at once, so that a system without a random generator fails here.
    ///
    /// # Errors
    /// An error of the system.
    pub fn new() -> Result<RandomCounters, CoreError> {
        Ok(RandomCounters { batch: Mutex::new(Batch { numbers: fetch()?, left: BATCH }) })
    }

    /// Returns an unpredictable number. One call in 64 makes a system call, and holds no lock
    /// meanwhile.
    ///
    /// # Errors
    /// An error of the system.
    pub fn number(&self) -> Result<RandomNumber, CoreError> {
        loop {
            if let Some(number) = self.batch.lock().take() {
                return Ok(number);
            }
            let numbers = fetch()?;
            *self.batch.lock() = Batch { numbers, left: BATCH };
        }
    }
}

impl Batch {
    /// Removes and returns a number that was not returned before, if there is one.
    fn take(&mut self) -> Option<RandomNumber> {
        while let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            if let Some(number) = NonZeroU32::new(std::mem::take(&mut self.numbers[left])) {
                return Some(RandomNumber(number));
            }
        }
        None
    }
}

/// The upper part of a random counter. Not 0, so that the counter of slot 0 is not 0 either.
#[derive(Debug, Clone, Copy)]
pub struct RandomNumber(NonZeroU32);

impl RandomNumber {
    /// Returns the counter of the operation in this slot, which is below 2²⁰.
    #[must_use]
    pub fn counter(self, slot: u32) -> MatchCounter {
        debug_assert!(slot < 1 << SLOT_BITS);
        // 32 bits above 20: never more than 52.
        MatchCounter::new(u64::from(self.0.get()) << SLOT_BITS | u64::from(slot))
            .unwrap_or(MatchCounter::LAST)
    }
}

fn fetch() -> Result<[u32; BATCH], CoreError> {
    let mut bytes = [0; 4 * BATCH];
    getrandom::fill(&mut bytes).map_err(|error| CoreError::Transport {
        action: "get random match bits",
        reason: error.to_string(),
        errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    })?;
    let (words, _) = bytes.as_chunks::<4>();
    Ok(std::array::from_fn(|at| u32::from_ne_bytes(words[at])))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn counter(value: u64) -> MatchCounter {
        MatchCounter::new(value).unwrap()
    }

    // Covers: S-409, MT-74, MT-79
    #[test]
    fn a_counter_begins_at_1_and_wraps_to_1() {
        let mut counters = Sequential::up_to(MatchCounter::LAST);
        let nothing = std::iter::empty;
        assert_eq!([(); 3].map(|()| counters.next(nothing).get()), [1, 2, 3]);
        let last = MatchCounter::LAST.get();
        counters.set_next(counter(last - 1));
        assert_eq!([(); 4].map(|()| counters.next(nothing).get()), [last - 1, last, 1, 2]);
    }

    proptest! {
        /// K5: a counter of 30 values wraps repeatedly while up to 20 of them are in use.
        // Covers: S-409, MT-79
        #[test]
        fn no_value_in_use_is_given_again(ended in prop::collection::vec(0usize..20, 1..300)) {
            let mut counters = Sequential::up_to(counter(30));
            let mut in_use = BTreeSet::new();
            let mut before = 0;
            for end in ended {
                let given = counters.next(|| in_use.iter().map(|value| counter(*value))).get();
                prop_assert!((1..=30).contains(&given));
                prop_assert!(in_use.insert(given), "{} is in use", given);
                // It skips only values that are in use now or were in use when it started at 1.
                prop_assert!(given > before || (1..=given).all(|value| in_use.contains(&value)));
                before = given;
                if in_use.len() == 20 || end % 2 == 0 {
                    let ending = in_use.iter().nth(end % in_use.len()).copied();
                    ending.map(|value| in_use.remove(&value));
                }
            }
        }

        #[test]
        fn random_counters_of_different_slots_differ_whatever_the_numbers(
            numbers: [NonZeroU32; 2], slots in prop::array::uniform2(0u32..1 << SLOT_BITS),
        ) {
            let [a, b] = [0, 1].map(|at| RandomNumber(numbers[at]).counter(slots[at]));
            prop_assert!(a != MatchCounter::UNSOLICITED && b != MatchCounter::UNSOLICITED);
            prop_assert_eq!(a == b, (numbers[0], slots[0]) == (numbers[1], slots[1]));
        }
    }

    #[test]
    fn random_numbers_do_not_come_again() {
        let random = RandomCounters::new().unwrap();
        let numbers: BTreeSet<u32> = (0..4 * BATCH).map(|_| random.number().unwrap().0.get()).collect();
        // One pair by chance in 130,000 runs, three of them never.
        assert!(numbers.len() > 4 * BATCH - 3);
    }

    #[test]
    fn a_zero_is_passed_over_and_a_number_given_once() {
        let mut batch = Batch { numbers: [0; BATCH], left: BATCH };
        batch.numbers[7] = 9;
        assert_eq!(batch.take().map(|number| number.0.get()), Some(9));
        assert!(batch.take().is_none());
        assert_eq!(batch.numbers, [0; BATCH]);
    }
}
