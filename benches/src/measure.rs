//! Rounds of both sides in alternation, and their results.

use std::time::Duration;

use crate::cores::Cores;
use crate::error::Result;
use crate::meter::{CpuTime, Sample};
use crate::rows::{Goal, Row};

/// Largest processor time per GiB of nlx's side, relative to the anchor, in rows that move bulk.
const CPU_GOAL: Goal = Goal::AtMost(1.1);

/// The parameters of a side's round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// Duration of the measurement.
    pub(crate) time: Duration,
    /// Cores of both sides.
    pub(crate) cores: Cores,
}

/// One side of a row: sets up, measures, and tears down.
pub(crate) type Side = fn(&Round) -> Result<Sample>;

/// A ratio over several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Ratio {
    /// Returns the ratio ours / anchor of each round's two values.
    fn of(ours: &[f64], anchor: &[f64]) -> Ratio {
        let ratios: Vec<f64> = ours.iter().zip(anchor).map(|(ours, anchor)| ours / anchor).collect();
        let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let max = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Ratio { median: median(&ratios), min, max }
    }
}

/// A row's comparison with a second anchor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Second {
    pub(crate) value: f64,
    pub(crate) ratio: Ratio,
}

/// Processor time of both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) ours: CpuTime,
    pub(crate) anchor: CpuTime,
    pub(crate) ratio: Ratio,
}

impl Cpu {
    /// Returns the goal for the ratio. Per message there is none: a polling side uses all of the
    /// elapsed time, and a sleeping side uses most of its time in the system, with both
    /// implementations.
    pub(crate) fn goal(&self) -> Goal {
        match self.ours {
            CpuTime::PerGib(_) => CPU_GOAL,
            CpuTime::PerMessage(_) => Goal::Open,
        }
    }
}

/// The result of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
    pub(crate) rounds: usize,
    pub(crate) value: f64,
    pub(crate) anchor_value: f64,
    pub(crate) ratio: Ratio,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) second: Option<Second>,
}

impl Measurement {
    /// Measures a row: ours, anchor, ours, anchor, …
    pub(crate) fn take(row: &Row, cores: Cores, rounds: usize, time: Duration) -> Result<Measurement> {
        let round = Round { time, cores };
        let (mut ours, mut anchor, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push((row.ours)(&round)?);
            anchor.push((row.anchor)(&round)?);
            if let Some(other) = &row.second {
                second.push((other.side)(&round)?.value);
            }
        }
        let values = |samples: &[Sample]| samples.iter().map(|sample| sample.value).collect::<Vec<_>>();
        let (our_values, anchor_values) = (values(&ours), values(&anchor));
        Ok(Measurement {
            rounds,
            value: median(&our_values),
            anchor_value: median(&anchor_values),
            ratio: Ratio::of(&our_values, &anchor_values),
            cpu: cpu(&ours, &anchor),
            second: row
                .second
                .as_ref()
                .map(|_| Second { value: median(&second), ratio: Ratio::of(&our_values, &second) }),
        })
    }

    /// Returns whether the row meets all its goals, given the time of a cache line between the
    /// cores.
    pub(crate) fn met(&self, row: &Row, flag_ns: f64) -> bool {
        let second = row.second.as_ref().zip(self.second.as_ref());
        row.goal_at(flag_ns).is_met(self.ratio.median)
            && self.cpu.is_none_or(|cpu| cpu.goal().is_met(cpu.ratio.median))
            && second.is_none_or(|(wanted, got)| wanted.goal.is_met(got.ratio.median))
    }
}

fn cpu(ours: &[Sample], anchor: &[Sample]) -> Option<Cpu> {
    let unit = ours.first()?.cpu?;
    let costs = |samples: &[Sample]| {
        samples.iter().map(|sample| sample.cpu.map(CpuTime::value)).collect::<Option<Vec<_>>>()
    };
    let (ours, anchor) = (costs(ours)?, costs(anchor)?);
    let [our_median, anchor_median] = [&ours, &anchor].map(|costs| unit.with(median(costs)));
    Some(Cpu { ours: our_median, anchor: anchor_median, ratio: Ratio::of(&ours, &anchor) })
}

/// Returns the median; of an even number of values the mean of the middle two. NaN of none.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_ratio_is_that_of_each_round_not_of_the_medians() {
        // One slow round of the machine slows both sides; the ratios do not change.
        let ratio = Ratio::of(&[10.0, 1.0, 12.0], &[5.0, 0.5, 4.0]);
        assert_eq!(ratio, Ratio { median: 2.0, min: 2.0, max: 3.0 });
    }
}
