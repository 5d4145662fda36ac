//! Conversion of values to positions on a picture, and the round numbers on its axes.

/// The round numbers of each power of ten.
const ROUND: [f64; 3] = [1.0, 2.0, 5.0];

/// A label of an axis: its position and its text.
pub(crate) type Tick = (f64, String);

/// A linear scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    /// The value at the far end; the near end is 0.
    end: f64,
    from: f64,
    to: f64,
}

impl Linear {
    /// Maps values from 0 to at least `max` to positions from `from` to `to`: the end is a round
    /// number.
    pub(crate) fn rounded(max: f64, ticks: u32, from: f64, to: f64) -> Linear {
        let max = if max > 0.0 && max.is_finite() { max } else { 1.0 };
        let step = round_up(max / f64::from(ticks));
        Linear { end: step * (max / step).ceil(), from, to }
    }

    /// Maps values from 0 to exactly `end`.
    pub(crate) fn exact(end: f64, from: f64, to: f64) -> Linear {
        Linear { end: if end > 0.0 && end.is_finite() { end } else { 1.0 }, from, to }
    }

    pub(crate) fn position(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.end).clamp(0.0, 1.0)
    }

    /// Returns about `about` round numbers from 0 to the end, with their texts.
    pub(crate) fn labels(&self, about: u32, words: impl Fn(f64) -> String) -> Vec<Tick> {
        self.ticks(about).into_iter().map(|value| (self.position(value), words(value))).collect()
    }

    fn ticks(&self, about: u32) -> Vec<f64> {
        let step = round_up(self.end / f64::from(about) * 0.999);
        (0..)
            .map(|number| f64::from(number) * step)
            .take_while(|value| *value <= self.end * 1.000_001)
            .collect()
    }
}

/// Returns the next round number.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let round = ROUND.into_iter().map(|round| round * power).find(|round| *round >= value * 0.999_999);
    round.unwrap_or(10.0 * power)
}

/// A logarithmic scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Log {
    /// Maps values from `low` to `high`, both above 0; at least a factor of ten, so that small
    /// variations look small.
    pub(crate) fn around(low: f64, high: f64, from: f64, to: f64) -> Log {
        let low = low.max(f64::MIN_POSITIVE);
        let high = high.max(low);
        let missing = (10.0 * low / high).max(1.0).sqrt();
        Log { low: low / missing, high: high * missing, from, to }
    }

    pub(crate) fn position(&self, value: f64) -> f64 {
        let share = (value / self.low).log10() / (self.high / self.low).log10();
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// Returns the value at this share of the axis.
    pub(crate) fn value(&self, share: f64) -> f64 {
        self.low * (self.high / self.low).powf(share)
    }

    /// Returns the labels of the axis: the powers of ten, and on an axis of up to 2.5 decades also
    /// their multiples by 2 and 5.
    pub(crate) fn labels(&self, words: impl Fn(f64) -> String) -> Vec<Tick> {
        self.ticks().into_iter().map(|value| (self.position(value), words(value))).collect()
    }

    fn ticks(&self) -> Vec<f64> {
        const MANY_DECADES: f64 = 2.5;
        let decades = (self.high / self.low).log10();
        let round: &[f64] = if decades > MANY_DECADES { &ROUND[..1] } else { &ROUND };
        let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let all = powers.flat_map(|power| round.iter().map(move |round| round * 10_f64.powi(power)));
        all.filter(|value| (self.low..=self.high).contains(value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let scale = Linear::rounded(4_147.0, 4, 100.0, 0.0);
        assert_eq!(scale.ticks(4), [0.0, 2_000.0, 4_000.0, 6_000.0]);
        assert_eq!(
            (scale.position(0.0), scale.position(6_000.0), scale.position(3_000.0)),
            (100.0, 0.0, 50.0)
        );
    }

    #[test]
    fn few_decades_have_more_ticks() {
        assert_eq!(Log::around(40.0, 450.0, 0.0, 1.0).ticks(), [50.0, 100.0, 200.0]);
        assert_eq!(Log::around(40.0, 40_000.0, 0.0, 1.0).ticks(), [100.0, 1_000.0, 10_000.0]);
        let narrow = Log::around(100.0, 100.0, 0.0, 1.0);
        assert!((narrow.position(100.0) - 0.5).abs() < 1e-9);
    }

    proptest! {
        /// Every value has a position within the picture, and every axis is finite.
        #[test]
        fn places_lie_within(low in 1e-3..1e12_f64, factor in 1.0..1e9_f64, value in 1e-6..1e20_f64) {
            let log = Log::around(low, low * factor, 40.0, 500.0);
            prop_assert!((40.0..=500.0).contains(&log.position(value)) && log.ticks().len() <= 30);
            prop_assert!((log.value(0.5) / (log.low * log.high).sqrt() - 1.0).abs() < 1e-6);
            let linear = Linear::rounded(value, 4, 200.0, 20.0);
            prop_assert!((20.0..=200.0).contains(&linear.position(low)));
            let ticks = linear.ticks(4);
            prop_assert!((2..=8).contains(&ticks.len()), "{:?}", ticks);
        }
    }
}
