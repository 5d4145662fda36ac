use std::hint::black_box;

use crate::error::Result;
use crate::measure::Round;
use crate::meter::{Sample, Timed};

const LENGTH: usize = 1 << 20;
const PAGE: usize = 4096;

/// Copying between two buffers of 1 MiB, over and over, each at the start of a page as those of nlx: GB/s.
pub(crate) fn copy(round: &Round) -> Result<Sample> {
    let (mut source, mut target) = (vec![0xa5_u8; LENGTH + PAGE], vec![0_u8; LENGTH + PAGE]);
    let (source, target) = (page_aligned(&mut source), page_aligned(&mut target));
    let timed = Timed::warm(round.time, || {
        black_box(&mut *target).copy_from_slice(black_box(source));
        Ok(1)
    })?;
    Ok(Sample::of(timed.steps as f64 * LENGTH as f64 / timed.seconds / 1e9))
}

/// Copying 64 bytes, over and over: nanoseconds. Less than a message of 64 bytes cannot do.
pub(crate) fn copy_64(round: &Round) -> Result<Sample> {
    const BATCH: u64 = 4096;
    let (source, mut target) = ([0xa5_u8; 64], [0_u8; 64]);
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            black_box(&mut target).copy_from_slice(black_box(&source));
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

fn page_aligned(memory: &mut [u8]) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(PAGE);
    &mut memory[start..start + LENGTH]
}
