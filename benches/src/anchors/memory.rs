use std::hint::black_box;

use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Copying between two buffers of 1 MiB, over and over: GB/s.
pub(crate) fn copy(round: &Round) -> Result<Sample> {
    const LENGTH: usize = 1 << 20;
    let source = vec![0xa5_u8; LENGTH];
    let mut target = vec![0_u8; LENGTH];
    let timed = Timed::warm(round.time, || {
        black_box(&mut target).copy_from_slice(black_box(&source));
        Ok(1)
    })?;
    Ok(Sample::of(timed.steps as f64 * LENGTH as f64 / timed.seconds / 1e9))
}
