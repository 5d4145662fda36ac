//! Points in time, as the system calls take them.

use core::time::Duration;
use std::time::Instant;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::error::Error;

/// Longer than any machine runs, and small enough for every form of time: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A point in time of the monotonic clock. Absolute, so that sleep that is interrupted goes on to the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Until(Duration);

impl Until {
    /// So long from now.
    pub(super) fn after(duration: Duration) -> Result<Until, Error> {
        Ok(Until(now()? + duration.min(LONGEST)))
    }

    /// As the standard library says it.
    pub(super) fn at(instant: Instant) -> Result<Until, Error> {
        Until::after(instant.saturating_duration_since(Instant::now()))
    }

    /// For calls that take the time itself.
    pub(super) fn absolute(self) -> TimeSpec {
        self.0.into()
    }

    /// For calls that take a time from now.
    pub(super) fn left(self) -> Result<TimeSpec, Error> {
        Ok(self.0.saturating_sub(now()?).into())
    }
}

fn now() -> Result<Duration, Error> {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).map_err(Error::system("clock_gettime"))
}
