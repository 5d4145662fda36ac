//! Bytes and allocations.

use std::sync::Arc;

use lnet_region::{IoVec, Region};
use nlx_core::{Core, Limits, TmOptions};
use nlx_kcore::Kcore;

use super::local::Letter;
use super::silent::{IdleDrive, NullLnet};
use super::{PORTAL, start};
use crate::error::{BenchError, Result};
use crate::heap::Watch;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::engine::cost::allocations_of;

/// Resident memory of each of `TMS` transfer machines of the default size without operations:
/// bytes.
pub(crate) fn machine<const TMS: usize>(_: &Round) -> Result<Sample> {
    let core = Kcore::new(Arc::new(NullLnet::default()), IdleDrive::new());
    let mut tms = Vec::with_capacity(TMS);
    let before = meter::resident_bytes()?;
    for _ in 0..TMS {
        tms.push(start(&*core, PORTAL, TmOptions::default().events_max)?);
    }
    Ok(Sample::of((meter::resident_bytes()? - before) / TMS as f64))
}

/// Bytes of each of `BUFFERS` registered buffers, without its memory.
pub(crate) fn buffer<const BUFFERS: usize>(_: &Round) -> Result<Sample> {
    const { assert!(BUFFERS <= Limits::LNET.buffers_max) };
    let core = Kcore::new(Arc::new(NullLnet::default()), IdleDrive::new());
    let memory = IoVec::whole(Region::heap(64).map_err(BenchError::nlx("take memory"))?);
    let watch = Watch::begin();
    for _ in 0..BUFFERS {
        core.register(&memory).map_err(BenchError::nlx("register a buffer"))?;
    }
    Ok(Sample::of(watch.bytes() as f64 / BUFFERS as f64))
}

/// Allocations per operation, with its posting and its events.
pub(crate) fn allocations(_: &Round) -> Result<Sample> {
    let letter = Letter::new()?;
    allocations_of(2, || letter.send())
}
