use std::hint::black_box;

use crate::error::Result;
use crate::heap::Watch;
use crate::measure::Round;
use crate::meter::Sample;

/// A figure that was agreed on: the ratio says how much of it is used.
pub(crate) fn agreed<const FIGURE: u32>(_: &Round) -> Result<Sample> {
    Ok(Sample::of(f64::from(FIGURE)))
}

/// A box that is made and dropped: one allocation, if they are counted as they should be.
pub(crate) fn boxes(_: &Round) -> Result<Sample> {
    const BOXES: u64 = 1000;
    let watch = Watch::begin();
    (0..BOXES).for_each(|number| drop(black_box(Box::new(number))));
    Ok(Sample::of(watch.allocations() as f64 / BOXES as f64))
}
