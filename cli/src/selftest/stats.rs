//! Statistics of whole numbers that merge exactly: the merged result of two nodes is the same as if
//! one node had recorded all values.

use super::wire::wire_struct;

/// Count, minimum, maximum, sum, and sum of squares of a sample.
///
/// The sums are whole numbers of 128 and 192 bits: 2^64 values of 64 bits do not overflow them, so
/// nothing is rounded before the end, and the order of adding and merging does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Statistics {
    count: u64,
    min: u64,
    max: u64,
    sum: u128,
    squares: u128,
    /// Number of overflows of `squares`.
    squares_high: u64,
}

wire_struct!(Statistics { count, min, max, sum, squares, squares_high });

impl Statistics {
    pub(super) fn add(&mut self, value: u64) {
        let square = u128::from(value) * u128::from(value);
        let one = Statistics {
            count: 1,
            min: value,
            max: value,
            sum: value.into(),
            squares: square,
            squares_high: 0,
        };
        self.merge(&one);
    }

    /// Adds the values of the other sample.
    pub(super) fn merge(&mut self, other: &Statistics) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        // Another node may send any values: the sums wrap instead of panicking.
        self.count = self.count.wrapping_add(other.count);
        self.sum = self.sum.wrapping_add(other.sum);
        let (squares, carry) = self.squares.overflowing_add(other.squares);
        self.squares = squares;
        self.squares_high = self.squares_high.wrapping_add(other.squares_high).wrapping_add(carry.into());
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the minimum; 0 of an empty sample.
    pub(super) fn min(&self) -> u64 {
        self.min
    }

    /// Returns the maximum; 0 of an empty sample.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    #[cfg(test)]
    pub(super) fn sum(&self) -> u128 {
        self.sum
    }

    /// Returns the mean; 0 of an empty sample.
    pub(super) fn mean(&self) -> f64 {
        let count = u128::from(self.count.max(1));
        (self.sum / count) as f64 + (self.sum % count) as f64 / count as f64
    }

    /// Returns the standard deviation of the sample, with n - 1; 0 below two values.
    pub(super) fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // Around the whole part of the mean, q, where the squares are small; the rest r corrects
        // it:
        // sum (x - mean)^2 = (sum x^2 - q sum x - q r) - r^2 / n, with r = sum x - n q.
        let count = u128::from(self.count);
        let (whole, rest) = (self.sum / count, self.sum % count);
        let around = Wide { high: self.squares_high, low: self.squares }
            .less(Wide::product(whole as u64, self.sum))
            .less(Wide::product(whole as u64, rest));
        let squares = around.as_f64() - (rest as f64) * (rest as f64) / count as f64;
        (squares.max(0.0) / (self.count - 1) as f64).sqrt()
    }
}

/// An integer of 192 bits, with the operations that a deviation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wide {
    high: u64,
    low: u128,
}

impl Wide {
    fn product(left: u64, right: u128) -> Wide {
        let (right_high, right_low) = (right >> 64, right & u128::from(u64::MAX));
        let (low, middle) = (u128::from(left) * right_low, u128::from(left) * right_high);
        let (sum, carry) = low.overflowing_add(middle << 64);
        Wide { high: ((middle >> 64) as u64).wrapping_add(carry.into()), low: sum }
    }

    fn less(self, other: Wide) -> Wide {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Wide { high: self.high.wrapping_sub(other.high).wrapping_sub(borrow.into()), low }
    }

    fn as_f64(self) -> f64 {
        self.high as f64 * 2_f64.powi(128) + self.low as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::wire::{Reader, Wire, Writer};
    use super::*;

    fn of(values: &[u64]) -> Statistics {
        let mut statistics = Statistics::default();
        values.iter().for_each(|value| statistics.add(*value));
        statistics
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-9 * right.abs().max(1.0)
    }

    /// None, one and five values.
    // Covers: MT-142
    #[test]
    fn small_samples() {
        let none = Statistics::default();
        assert_eq!((none.count(), none.sum(), none.mean(), none.deviation()), (0, 0, 0.0, 0.0));
        let one = of(&[7]);
        assert_eq!((one.count(), one.min(), one.max(), one.sum()), (1, 7, 7, 7));
        assert_eq!((one.mean(), one.deviation()), (7.0, 0.0));
        let five = of(&[1, 2, 3, 4, 5]);
        assert_eq!((five.count(), five.min(), five.max(), five.sum(), five.mean()), (5, 1, 5, 15, 3.0));
        assert!(close(five.deviation(), 2.5_f64.sqrt()));
    }

    /// One million of the largest integer.
    // Covers: MT-143
    #[test]
    fn large_values_overflow_nothing() {
        let mut many = Statistics::default();
        (0..1_000_000).for_each(|_| many.add(u64::MAX));
        assert_eq!(many.sum(), u128::from(u64::MAX) * 1_000_000);
        assert_eq!((many.mean(), many.deviation()), (u64::MAX as f64, 0.0));
        many.add(u64::MAX - 1);
        assert!(many.deviation() > 0.0 && many.deviation() < 1.0);
    }

    /// Times, in nanoseconds.
    // Covers: MT-146
    #[test]
    fn times() {
        let times = of(&[500_000_000, 1_500_000_000, 2_500_000_000, 3_500_000_000, 4_500_000_000]);
        assert_eq!((times.min(), times.max(), times.sum()), (500_000_000, 4_500_000_000, 12_500_000_000));
        assert_eq!(times.mean(), 2.5e9);
        assert!(close(times.deviation(), 1.581_138_830_084_19e9));
    }

    fn round_trip(statistics: &Statistics) -> Statistics {
        let mut bytes = [0; 42 + 72];
        let mut writer = Writer::new(&mut bytes[42..]);
        statistics.write(&mut writer).unwrap();
        let length = writer.length();
        Statistics::read(&mut Reader::new(&bytes[42..42 + length])).unwrap()
    }

    proptest! {
        /// Any sample, split at any index and merged, encoded after each addition.
        // Covers: MT-142, MT-144, MT-145, MT-147
        #[test]
        fn parts_merge_exactly(values: Vec<u64>, split: prop::sample::Index) {
            let whole = of(&values);
            let split = if values.is_empty() { 0 } else { split.index(values.len()) };
            let mut merged = of(&values[..split]);
            merged.merge(&of(&values[split..]));
            prop_assert_eq!(merged, whole);
            let mut travelling = Statistics::default();
            for value in &values {
                travelling.add(*value);
                travelling = round_trip(&travelling);
            }
            prop_assert_eq!(travelling, whole);
        }

        /// Compared with the definition, in floating point.
        // Covers: MT-142
        #[test]
        fn mean_and_deviation_are_those_of_the_definition(values in prop::collection::vec(any::<u32>(), 2..100)) {
            let whole = of(&values.iter().map(|value| u64::from(*value)).collect::<Vec<_>>());
            let count = values.len() as f64;
            let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
            let squares = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>();
            prop_assert!(close(whole.mean(), mean));
            prop_assert!(close(whole.deviation(), (squares / (count - 1.0)).sqrt()));
        }
    }
}
