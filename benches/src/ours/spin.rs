//! Waiting for memory to change, and a computation of known length.

use std::time::Instant;

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::server::STEP_TIMEOUT;

/// Turns between two readings of the clock.
const TURNS: u32 = 1 << 20;

/// A loop that waits for another process to write to memory, with a timeout in case the other
/// process dies.
#[derive(Debug)]
pub(crate) struct Spin {
    cores: Cores,
    event: &'static str,
    turns: u32,
    progress: u64,
    since: Option<Instant>,
}

impl Spin {
    pub(crate) fn new(cores: Cores, event: &'static str) -> Spin {
        Spin { cores, event, turns: 0, progress: 0, since: None }
    }

    /// Runs one turn of the loop. A change of `progress` restarts the timeout.
    #[inline]
    pub(crate) fn turn(&mut self, progress: u64) -> Result<()> {
        self.turns += 1;
        self.cores.relax();
        if self.turns == TURNS { self.read_clock(progress) } else { Ok(()) }
    }

    #[cold]
    fn read_clock(&mut self, progress: u64) -> Result<()> {
        self.turns = 0;
        let since = self.since.filter(|_| self.progress == progress).unwrap_or_else(Instant::now);
        (self.progress, self.since) = (progress, Some(since));
        if since.elapsed() < STEP_TIMEOUT {
            return Ok(());
        }
        Err(BenchError::TimedOut { event: self.event, seconds: STEP_TIMEOUT.as_secs() })
    }
}

/// Runs `count` steps of a computation in registers, each of which needs the result of the one
/// before: a xorshift generator. No compiler can shorten it, and its speed does not depend on the
/// place of the call.
pub(crate) fn steps(state: u64, count: u64) -> u64 {
    (0..count).fold(state, |state, _| {
        let state = state ^ (state << 13);
        let state = state ^ (state >> 7);
        state ^ (state << 17)
    })
}
