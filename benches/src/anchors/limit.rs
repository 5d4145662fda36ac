//! Agreed figures as anchors.

use std::hint::black_box;

use crate::error::Result;
use crate::heap::Watch;
use crate::measure::Round;
use crate::meter::Sample;

/// An agreed figure as an anchor: the ratio is the used share of it.
pub(crate) fn agreed<const FIGURE: u32>(_: &Round) -> Result<Sample> {
    Ok(Sample::of(f64::from(FIGURE)))
}

/// A box that is created and dropped: one allocation, if allocations are counted correctly.
pub(crate) fn boxes(_: &Round) -> Result<Sample> {
    const BOXES: u64 = 1000;
    let watch = Watch::begin();
    (0..BOXES).for_each(|number| drop(black_box(Box::new(number))));
    Ok(Sample::of(watch.allocations() as f64 / BOXES as f64))
}
